"""Passes over a scheduled nest: its loops and allocations, and the boxes touched at a point.

A point is one iteration of a loop, or the whole pipeline (`nest_parts.Context`).

| symbol | meaning | shape, unit |
|---|---|---|
| N | rows: combinations of sizes or split factors | count |
| `ranges` | range of every loop of a stage, including split and fused ones | (N,), iterations |
| `fixed` | values of the loops around the point | (N,), iterations |
| `boxes` | required box of every stage at the point | (N,), coordinates |
| `path` | the loops around the point, outermost first | |
| `found` | boxes loaded or stored inside the point, by Func or input | (N,), coordinates |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from tilewright.halide.analysis.bounds import Bound, Box, Interval, union_boxes
from tilewright.halide.analysis.loop_ranges import Ranges, floor, larger
from tilewright.halide.analysis.nest_parts import Allocation, Boxes, Context, LoopSize, widened
from tilewright.halide.analysis.nest_structure import Production, StageKey, StageNest
from tilewright.halide.analysis.windows import ExactWindow, folded_extents
from tilewright.halide.ir.schedule import FuncSchedule, Fuse, Split

if TYPE_CHECKING:
    from tilewright.halide.analysis.scheduled_nest import ScheduledNest


class Walk:
    """One pass over the nest, with every loop at the iteration that `nest.at` gives."""

    def __init__(self, nest: ScheduledNest) -> None:
        self.nest = nest
        self.loops: list[LoopSize] = []
        self.allocations: list[Allocation] = []
        self.start = Context(nest.whole, nest.structure.root)

    def body(self, here: Context, path: tuple[tuple[StageKey, str], ...]) -> None:
        """Visit the Funcs stored and produced in a body."""
        assert here.body is not None
        only = self.nest.only if here.stage is None else None
        if here.body.stored and only is None:
            seen = Touched(self.nest, here)
            boxes = seen.found
            for i in here.body.stored:
                name = self.nest.structure.names[i]
                if name in boxes:
                    self.allocations.append(self._allocation(i, path, name, seen, here))
        for production in here.body.productions:
            if only is None or production.func in only:
                self.produce(production, here.boxes, path)

    def _allocation(
        self,
        i: int,
        path: tuple[tuple[StageKey, str], ...],
        name: str,
        seen: Touched,
        here: Context,
    ) -> Allocation:
        structure = self.nest.structure
        entry = structure.entries[i]
        box, extents = storage(self.nest, i, seen.found[name])
        if i in self.nest.windows:
            order = entry.storage_order or tuple(range(len(box)))
            extents = folded_extents(extents, order, self.nest.windows[i])
        size: Bound = float(self.nest.analysis.view.algorithm.funcs[i].bytes)
        for extent in extents:
            size = size * extent
        within = any(_slides(structure.entries[stage[0]]) for stage, _ in path)
        within |= any(window.loop in path for window in self.nest.windows.values())
        slides = within or _slides(entry) or name in seen.sliding
        return Allocation(i, path, box, extents, size, slides, name in seen.loose, here)

    def _sliding(self, stage: StageNest, loop: str) -> dict[int, ExactWindow]:
        """Return the Funcs that slide along a loop."""
        windows = self.nest.windows
        return {i: window for i, window in windows.items() if window.loop == (stage.key, loop)}

    def produce(
        self, production: Production, boxes: Boxes, path: tuple[tuple[StageKey, str], ...]
    ) -> None:
        """Visit the loops of every stage of a production, and their bodies."""
        for stage in production.stages:
            ranges = self.nest.ranges(stage, boxes[stage.key])
            steps = self.nest.steps(stage, ranges)
            fixed: dict[str, Bound] = {}
            inside, outer = boxes, path
            for at, (name, mapping) in enumerate(stage.loops):
                low, high = ranges[name]
                extent = high - low + 1.0
                step = steps[name] if steps else self.nest.step(extent)
                fixed = {**fixed, name: low + step}
                body = stage.bodies.get(at)
                if body is not None and (body.productions or body.stored):
                    inside = {**boxes, stage.key: self.nest.produced(stage, ranges, fixed)}
                    inside = self.nest.define(body, inside, stage.key, self._sliding(stage, name))
                here = Context(inside, body, stage, at, ranges, fixed)
                self.loops.append(LoopSize(stage.key, name, mapping, low, extent, outer, here))
                outer = (*outer, (stage.key, name))
                if body is not None:
                    self.body(here, outer)


class Touched:
    """The boxes loaded and stored inside a point, over all iterations of the loops inside it.

    A loop with Funcs computed in it is evaluated at its first and its last iteration. `found`
    covers both. This covers all iterations if coordinates are monotonic along the loop.
    """

    corners = (0.0, 1.0)

    def __init__(self, nest: ScheduledNest, here: Context) -> None:
        self.nest = nest
        self.found: dict[str, Box] = {}
        self.loose: set[str] = set()
        self.sliding: set[str] = set()
        self._extents: dict[tuple[int, str], Bound] = {}
        self._doubt = False
        self._slid = False
        if here.stage is not None:
            self._stage(here.stage, here.ranges, here.fixed, here.boxes, here.depth)
        for production in here.body.productions if here.body else ():
            self._production(production, here.boxes)

    def _note(self, name: str, box: Box) -> None:
        self.found[name] = union_boxes(self.found.get(name), box)

    def _production(self, production: Production, boxes: Boxes) -> None:
        outside = self._slid
        entry = self.nest.structure.entries[production.func]
        self._slid = outside or (_slides(entry) and production.func not in self.nest.windows)
        self._stages_of(production, boxes)
        self._slid = outside

    def _stages_of(self, production: Production, boxes: Boxes) -> None:
        for stage in production.stages:
            if stage.func.extern is not None:
                self._note(stage.func.name, boxes[stage.key].box)
                for name, box in self.nest.required_by(stage.key, boxes[stage.key]).items():
                    self._note(name, box)
                continue
            self._stage(stage, self.nest.ranges(stage, boxes[stage.key]), {}, boxes, -1)

    def _stage(
        self,
        stage: StageNest,
        ranges: Ranges,
        fixed: Mapping[str, Bound],
        boxes: Boxes,
        depth: int,
    ) -> None:
        """Visit a stage's loads and stores, and the bodies of its loops inside loop `depth`."""
        self._note(stage.func.name, self.nest.produced(stage, ranges, fixed).box)
        loaded = self.nest.loaded(stage, ranges, fixed)
        for name, box in loaded.items():
            self._note(name, box)
        outside = self._doubt
        self._doubt = outside or self._varies(stage, ranges)
        if self._doubt:
            self.loose |= {stage.func.name, *loaded}
        if self._slid:
            self.sliding |= {stage.func.name, *loaded}
        self._deeper(stage, ranges, fixed, boxes, depth)
        self._doubt = outside

    def _deeper(
        self,
        stage: StageNest,
        ranges: Ranges,
        fixed: Mapping[str, Bound],
        boxes: Boxes,
        depth: int,
    ) -> None:
        """Visit the bodies of a stage's loops inside loop `depth`, at both ends of each loop."""
        deeper = [at for at in sorted(stage.bodies) if at > depth and stage.bodies[at].productions]
        if not deeper:
            return
        for corner in self.corners:
            now = dict(fixed)
            corners = frozenset(name for name, _ in stage.loops[depth + 1 :])
            for at in range(depth + 1, len(stage.loops)):
                name = stage.loops[at][0]
                low, high = ranges[name]
                now[name] = low + floor(corner * larger(high - low, 0.0))
                if at in deeper:
                    body = stage.bodies[at]
                    inside = {**boxes, stage.key: self.nest.produced(stage, ranges, now, corners)}
                    inside = self.nest.define(body, inside, stage.key)
                    for production in body.productions:
                        self._production(production, inside)

    def _varies(self, stage: StageNest, ranges: Ranges) -> bool:
        """Return whether Halide's interval arithmetic may be wider than the ranges of this stage.

        This is so if a loop's extent differs between visits, because Halide treats the ends of the
        loop as independent. It is also so if two loops are fused and the inner extent is unknown,
        because Halide divides by that extent and may not prove that it is positive.
        """
        known = stage.known.keys() | {c.inner for c in stage.splits if isinstance(c, Split)}
        found = any(isinstance(c, Fuse) and c.inner not in known for c in stage.splits)
        for name in stage.variables:
            extent = ranges[name].extent
            before = self._extents.setdefault((id(stage), name), extent)
            differs = before != extent
            found |= differs if isinstance(differs, bool) else bool(np.any(differs))
        return found


def storage(nest: ScheduledNest, i: int, touched: Box) -> tuple[Box, tuple[Bound, ...]]:
    """Return the box allocated for the touched part of a Func, and its extents in memory."""
    entry = nest.structure.entries[i]
    func = nest.analysis.view.algorithm.funcs[i]
    box = widened(entry.bounds, _bounded_storage(func.bounds, func.args, touched))
    order = entry.storage_order or tuple(range(len(box)))
    extents = [box[d].extent for d in order]
    for dim in entry.storage:
        at = order.index(dim.dimension)
        limit = float(dim.fold or dim.bound)
        extents[at] = limit if limit else _padded(extents[at], dim.align)
    if entry.align_storage > 1:
        extents[0] = _padded(extents[0], entry.align_storage)
    return box, tuple(extents)


def _slides(entry: FuncSchedule) -> bool:
    """Return whether a Func is stored outside the loop that it is computed at."""
    return entry.store != entry.compute


def _padded(extent: Bound, unit: int) -> Bound:
    """Return the extent rounded up to a multiple of `unit`."""
    return floor((extent + unit - 1.0) / unit) * unit


def _bounded_storage(spans: Mapping[str, object], args: tuple[str, ...], box: Box) -> Box:
    return tuple(
        Interval(float(spans[arg].min), float(spans[arg].max)) if arg in spans else part  # type: ignore[attr-defined]
        for arg, part in zip(args, box, strict=True)
    )
