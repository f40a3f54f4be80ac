"""The loop nest of a scheduled pipeline, with where each Func lives and how large it is there."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Iterator, Mapping

from tilewright.halide.analysis.bounds import Box, Interval, union_boxes
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.paths import inlined
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.ir.algorithm import Algorithm, Func, Span, Stage
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.names import loop_names, readable, titled
from tilewright.halide.ir.nest import NestLoop, default_stage, scheduled_loops
from tilewright.halide.ir.schedule import ROOT, FuncSchedule, Level, Schedule, StageSchedule
from tilewright.halide.ir.targets import is_gpu
from tilewright.report import NestLine

Place = tuple[str, int, str]  # a level's kind, Func and loop


def loop_nest(
    algorithm: Algorithm, schedule: Schedule, groups: Mapping[str, int] | None = None
) -> tuple[NestLine, ...]:
    """The nest as lines; `groups` gives a Func's group, whose colour its lines get.

    Extents and sizes are those at the pipeline's estimates, and left out where they are not
    known: bounds that depend on data, and Funcs of an extern stage.
    """
    extended = with_clones(algorithm, schedule.clones)
    return tuple(_Nest(extended, schedule, groups or {}).root())


class _Nest:
    """What every part of the nest needs to know."""

    def __init__(self, algorithm: Algorithm, schedule: Schedule, groups: Mapping[str, int]) -> None:
        self.algorithm = algorithm
        self.groups = groups
        self.gpu = is_gpu(schedule.target)
        self.names = loop_names(schedule, algorithm)
        self.inlined = inlined(schedule, algorithm)
        given = {entry.func: entry for entry in schedule.funcs}
        self.entries = {
            i: given.get(i, FuncSchedule(i, ROOT, ROOT))
            for i in range(len(algorithm.funcs))
            if i not in self.inlined
        }
        known = all(
            arg in algorithm.by_name[name].estimates
            for name in algorithm.outputs
            for arg in algorithm.by_name[name].args
        )
        view = View(algorithm)
        boxes = estimated_boxes(view) if known else {}
        self.analysis = Analysis(view, boxes, algorithm.symbols)
        self.regions: dict[str, Box] = self.analysis.regions if known else {}
        # Funcs by the level that they are stored and computed at, each in realisation order.
        self.stored: dict[Place, list[int]] = {}
        self.computed: dict[Place, list[int]] = {}
        for i, entry in self.entries.items():
            self.stored.setdefault(_place(entry.store), []).append(i)
            self.computed.setdefault(_place(entry.compute), []).append(i)

    def root(self) -> Iterator[NestLine]:
        """The whole pipeline."""
        yield from self.at(ROOT, 0, self.regions, None, gpu_level="")

    def at(
        self,
        level: Level,
        depth: int,
        regions: Mapping[str, Box],
        stage: tuple[int, int] | None,
        gpu_level: str,
    ) -> Iterator[NestLine]:
        """Allocations and computations at a level; of a consumer's loop, only what `stage` uses."""
        stored = self.stored.get(_place(level), [])
        computed = self.computed.get(_place(level), [])
        if stage is not None and (stored or computed):
            feeding = self._feeding(*stage)
            stored = [i for i in stored if i in feeding]
            computed = [i for i in computed if i in feeding]
        for i in stored:
            func = self.algorithm.funcs[i]
            entry = self.entries[i]
            # A Func that slides keeps a few lines only, folded into a ring: how many is
            # Halide's choice.
            slides = _place(entry.store) != _place(entry.compute)
            if func.name not in self.algorithm.outputs:
                yield self._line(
                    depth,
                    "allocate",
                    func,
                    memory=self._memory(entry, gpu_level),
                    bytes=None if slides else _bytes(func, regions.get(func.name)),
                )
        for i in computed:
            yield from self.produce(i, depth, regions, gpu_level)

    def produce(
        self, i: int, depth: int, regions: Mapping[str, Box], gpu_level: str
    ) -> Iterator[NestLine]:
        """One Func's loops and what is computed inside them."""
        func, entry = self.algorithm.funcs[i], self.entries[i]
        sliding = "" if _place(entry.store) == _place(entry.compute) else "sliding window"
        yield self._line(depth, "produce", func, mapping=sliding)
        if func.extern is not None:
            yield self._line(depth + 1, "compute", func, mapping=f"extern {func.extern.function}")
            return
        box = regions.get(func.name)
        for stage in func.stages:
            nest = entry.stages[stage.index] if entry.stages else default_stage(func, stage)
            yield from self._stage(i, func, stage, nest, box, depth + 1, gpu_level)

    def _stage(
        self,
        i: int,
        func: Func,
        stage: Stage,
        nest: StageSchedule,
        box: Box | None,
        depth: int,
        gpu_level: str,
    ) -> Iterator[NestLine]:
        sized = func if box is None else dataclasses.replace(func, bounds=_spans(func, box))
        loops = scheduled_loops(sized, stage, nest)
        mappings = {loop.name: loop.mapping for loop in nest.loops}
        for at in range(len(loops) - 1, -1, -1):
            loop = loops[at]
            mapping = mappings[loop.name]
            if mapping in ("gpu_block", "gpu_thread"):
                gpu_level = mapping
            yield self._line(
                depth,
                "for",
                func,
                name=readable(self.names(i, stage.index, loop.name)),
                mapping=mapping,
                extent=loop.extent,
            )
            depth += 1
            level = Level("at", i, stage.index, loop.name)
            if _place(level) in self.stored or _place(level) in self.computed:
                inner = self._tile(func, stage, loops[:at], box)
                yield from self.at(level, depth, inner, (i, stage.index), gpu_level)
        note = "" if stage.index == 0 else f"update {stage.index}"
        yield self._line(depth, "compute", func, mapping=note)

    def _tile(
        self, func: Func, stage: Stage, inside: tuple[NestLoop, ...], box: Box | None
    ) -> dict[str, Box]:
        """The region of every producer for one iteration of a loop with `inside` within it."""
        if box is None:
            return {}
        extents = []
        for d, interval in enumerate(box):
            own = [loop for loop in inside if loop.sources == (f"v{d}",)]
            fused = any(f"v{d}" in loop.sources and len(loop.sources) > 1 for loop in inside)
            known = [loop.extent for loop in own if loop.extent is not None]
            whole = fused or len(known) < len(own)
            extents.append(interval.extent if whole else min(interval.extent, math.prod(known)))
        tile = tuple(
            Interval(interval.lo, interval.lo + extent - 1)
            for interval, extent in zip(box, extents, strict=True)
        )
        wanted: dict[str, Box] = {func.name: tile}
        # From readers to what they read. What is at root is the same for every iteration, so
        # what that reads in turn does not belong here.
        order = self.algorithm.order
        waiting = [-order[func.name]]
        while waiting:
            i = -heapq.heappop(waiting)
            name = self.algorithm.funcs[i].name
            if name != func.name and self._at_root(i):
                continue
            for callee, part in self.analysis.required_by(name, wanted[name]).items():
                if callee not in wanted and callee in order:
                    heapq.heappush(waiting, -order[callee])
                wanted[callee] = union_boxes(wanted.get(callee), part)
        return wanted

    def _at_root(self, i: int) -> bool:
        return i in self.entries and self.entries[i].compute.kind == "root"

    def _feeding(self, i: int, stage: int) -> set[int]:
        """The Funcs that a stage depends on, without those that only Funcs at root read."""
        algorithm, order = self.algorithm, self.algorithm.order
        calls = algorithm.funcs[i].stages[stage].calls
        waiting = [order[call.name] for call in calls if call.kind == "func"]
        found: set[int] = set()
        while waiting:
            j = waiting.pop()
            if j != i and j not in found:
                found.add(j)
                if not self._at_root(j):
                    producers = algorithm.producers[algorithm.funcs[j].name]
                    waiting += [order[name] for name in producers]
        return found

    def _memory(self, entry: FuncSchedule, gpu_level: str) -> str:
        """Where Halide puts a Func when the schedule leaves it open."""
        if entry.memory != "auto":
            return entry.memory
        if not self.gpu:
            return "heap" if entry.store.kind == "root" else ""
        return {"": "global", "gpu_block": "gpu_shared", "gpu_thread": "register"}[gpu_level]

    def _line(self, depth: int, kind: str, func: Func, **more: object) -> NestLine:
        more.setdefault("name", titled(func.name))
        return NestLine(depth, kind, group=self.groups.get(func.name), **more)  # type: ignore[arg-type]


def _place(level: Level) -> Place:
    """What makes two levels one place; the stage does not count (see `Level`)."""
    return (level.kind, level.func, level.loop)


def _spans(func: Func, box: Box) -> dict[str, Span]:
    spans = dict(func.bounds)
    for arg, interval in zip(func.args, box, strict=True):
        if _number(interval.lo) and _number(interval.extent):
            spans[arg] = Span(int(interval.lo), int(interval.extent))
    return spans


def _number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _bytes(func: Func, box: Box | None) -> int | None:
    if box is None or not all(_number(interval.extent) for interval in box):
        return None
    return math.prod(max(0, int(interval.extent)) for interval in box) * func.bytes
