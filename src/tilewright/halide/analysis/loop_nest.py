"""The loop nest of a scheduled pipeline as lines of text, with allocations and their sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tilewright.halide.analysis.bounds import Bound, Box, Interval
from tilewright.halide.analysis.inlining import TooLarge
from tilewright.halide.analysis.nest_parts import Allocation, LoopSize
from tilewright.halide.analysis.nest_structure import Body, Production, StageKey, StageNest
from tilewright.halide.analysis.scheduled_nest import ScheduledNest, nest_analysis
from tilewright.halide.ir.algorithm import Algorithm, Func
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.joint import joint_of_schedule
from tilewright.halide.ir.names import loop_names, readable, titled
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.ir.targets import is_gpu
from tilewright.report import NestLine

Path = tuple[tuple[StageKey, str], ...]
_ANYWHERE = Interval(-math.inf, math.inf)


def loop_nest(
    algorithm: Algorithm, schedule: Schedule, groups: Mapping[str, int] | None = None
) -> tuple[NestLine, ...]:
    """Return the loop nest of a schedule as lines.

    Extents and sizes are those at the pipeline's estimates, with all surrounding loops in their
    middle iteration. Extents that depend on data, and those in an extern stage, are omitted.

    Args:
        algorithm: The pipeline.
        schedule: The schedule.
        groups: The group number of each Func, which determines the colour of its lines.
    """
    schedule, joint = joint_of_schedule(schedule, algorithm)
    algorithm = algorithm if joint is None else joint.algorithm
    together = () if joint is None else joint.names
    extended = with_clones(algorithm, schedule.clones)
    boxes = {name: _output_box(extended.by_name[name]) for name in extended.outputs}
    try:
        nest = ScheduledNest(nest_analysis(algorithm, schedule, boxes), schedule)
    except TooLarge:
        return (NestLine(0, "compute", name="inlined expressions are too large to be shown"),)
    lines = _Lines(nest, schedule, groups or {}).body(nest.structure.root, 0, (), "")
    return tuple(_naming_all(line, tuple(map(titled, together))) for line in lines)


def _naming_all(line: NestLine, together: Sequence[str]) -> NestLine:
    """Return a line on a Func that stands for several with the names of all."""
    if line.kind == "for" or not together or line.name != together[0]:
        return line
    return replace(line, name=", ".join(together))


def _output_box(func: Func) -> Box:
    """Return the estimated box of an output, unbounded in dimensions without an estimate."""
    spans = [func.estimates.get(arg) for arg in func.args]
    return tuple(
        _ANYWHERE if span is None else Interval(float(span.min), float(span.max)) for span in spans
    )


class _Lines:
    """The generators of lines, and the state that they share."""

    def __init__(self, nest: ScheduledNest, schedule: Schedule, groups: Mapping[str, int]) -> None:
        self.nest = nest
        self.structure = nest.structure
        self.algorithm = nest.analysis.view.algorithm
        self.groups = groups
        self.gpu = is_gpu(schedule.target)
        self.names = loop_names(schedule, self.algorithm)
        self.loops: dict[tuple[Path, StageKey, str], LoopSize] = {
            (loop.path, loop.stage, loop.name): loop for loop in nest.loops
        }
        self.allocations: dict[tuple[Path, int], Allocation] = {
            (item.path, item.func): item for item in nest.allocations
        }

    def body(self, body: Body, depth: int, path: Path, gpu_level: str) -> Iterator[NestLine]:
        """Yield the lines inside a loop or of the whole pipeline: allocations, then Funcs."""
        for i in sorted(body.stored):
            item = self.allocations.get((path, i))
            # Halide may fold the storage of a Func that slides; we do not know the folded size.
            known = item is not None and not item.slides
            yield self._line(
                depth,
                "allocate",
                self.algorithm.funcs[i],
                memory=self._memory(i, gpu_level),
                bytes=_number(item.bytes) if item is not None and known else None,
            )
        for production in body.productions:
            yield from self.produce(production, depth, path, gpu_level)

    def produce(
        self, production: Production, depth: int, path: Path, gpu_level: str
    ) -> Iterator[NestLine]:
        """Yield the lines of one Func."""
        func = self.algorithm.funcs[production.func]
        entry = self.structure.entries[production.func]
        sliding = "" if entry.store == entry.compute else "sliding window"
        yield self._line(depth, "produce", func, mapping=sliding)
        if func.extern is not None:
            yield self._line(depth + 1, "compute", func, mapping=f"extern {func.extern.function}")
            return
        for stage in production.stages:
            yield from self.stage(stage, depth + 1, path, gpu_level)

    def stage(self, stage: StageNest, depth: int, path: Path, gpu_level: str) -> Iterator[NestLine]:
        """Yield the loops of one stage, with the lines inside them."""
        func, index = stage.key
        for at, (name, mapping) in enumerate(stage.loops):
            if mapping in ("gpu_block", "gpu_thread"):
                gpu_level = mapping
            loop = self.loops[path, stage.key, name]
            yield self._line(
                depth,
                "for",
                stage.func,
                name=readable(self.names(func, index, name)),
                mapping=mapping,
                extent=_number(loop.extent),
            )
            depth += 1
            path = (*path, (stage.key, name))
            if at in stage.bodies:
                yield from self.body(stage.bodies[at], depth, path, gpu_level)
        note = "" if index == 0 else f"update {index}"
        yield self._line(depth, "compute", stage.func, mapping=note)

    def _memory(self, i: int, gpu_level: str) -> str:
        """Return the memory type of a Func, or the one that Halide chooses for ``auto``."""
        entry = self.structure.entries[i]
        if entry.memory != "auto":
            return entry.memory
        if not self.gpu:
            return "heap" if entry.store.kind == "root" else ""
        return {"": "global", "gpu_block": "gpu_shared", "gpu_thread": "register"}[gpu_level]

    def _line(self, depth: int, kind: str, func: Func, **more: object) -> NestLine:
        more.setdefault("name", titled(func.name))
        return NestLine(depth, kind, group=self.groups.get(func.name), **more)  # type: ignore[arg-type]


def _number(value: Bound) -> int | None:
    """Return a finite number as an integer, at least 0; None if it is infinite or unknown."""
    number = float(value)
    return max(int(number), 0) if math.isfinite(number) else None
