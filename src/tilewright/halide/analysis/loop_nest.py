"""The loop nest of a scheduled pipeline, with where each Func lives and how large it is there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tilewright.halide.analysis.bounds import Bound, Box, Interval
from tilewright.halide.analysis.inlining import TooLarge
from tilewright.halide.analysis.nest_parts import Allocation, LoopSize
from tilewright.halide.analysis.nest_structure import Body, Production, StageKey, StageNest
from tilewright.halide.analysis.scheduled_nest import ScheduledNest, nest_analysis
from tilewright.halide.ir.algorithm import Algorithm, Func
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.names import loop_names, readable, titled
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.ir.targets import is_gpu
from tilewright.report import NestLine

Path = tuple[tuple[StageKey, str], ...]
_ANYWHERE = Interval(-math.inf, math.inf)


def loop_nest(
    algorithm: Algorithm, schedule: Schedule, groups: Mapping[str, int] | None = None
) -> tuple[NestLine, ...]:
    """Return the nest as lines; `groups` gives a Func's group, whose colour its lines get.

    Extents and sizes are those at the pipeline's estimates, in the middle of surrounding loops.
    Unknown ones are left out: bounds that depend on data, and Funcs of an extern stage.
    """
    extended = with_clones(algorithm, schedule.clones)
    boxes = {name: _output_box(extended.by_name[name]) for name in extended.outputs}
    try:
        nest = ScheduledNest(nest_analysis(algorithm, schedule, boxes), schedule)
    except TooLarge:
        return (NestLine(0, "compute", name="inlined expressions too large to be shown"),)
    return tuple(_Lines(nest, schedule, groups or {}).body(nest.structure.root, 0, (), ""))


def _output_box(func: Func) -> Box:
    """Return the estimates of an output; without bounds if there are none."""
    spans = [func.estimates.get(arg) for arg in func.args]
    return tuple(
        _ANYWHERE if span is None else Interval(float(span.min), float(span.max)) for span in spans
    )


class _Lines:
    """State shared by all parts of the nest."""

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
        """Yield allocations and computations inside a loop, or in the whole pipeline."""
        for i in sorted(body.stored):
            item = self.allocations.get((path, i))
            # A Func that slides keeps a few lines only, folded into a ring: how many is
            # Halide's choice.
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
        """Yield one Func's loops and their bodies."""
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
        """Yield the loops of one stage."""
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
        """Return where Halide puts a Func when the schedule leaves it open."""
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
    """Return a finite number; None for what has no bound."""
    number = float(value)
    return max(int(number), 0) if math.isfinite(number) else None
