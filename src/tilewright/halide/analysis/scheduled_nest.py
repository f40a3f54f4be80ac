"""What a scheduled pipeline produces, stores and reads at each loop, for many sizes at once.

`ScheduledNest` follows Halide 21's own bounds inference (``BoundsInference.cpp``,
``AllocationBoundsInference.cpp``) in numbers. The required box of a Func is worked out afresh in
every loop that it is computed in, from the boxes of its readers there. The box that is allocated
covers all that is stored and loaded where the Func is stored, rounded-up tails included.

Notation: N is the number of rows of sizes. Every number is a float64 scalar or an array of shape
(N,). A loop that is not the first of its nest stands at one iteration, given by `at`: 0 is the
first one, 1 the last, 0.5 the middle. Boxes and extents are those at that iteration.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tilewright.halide.analysis.bounds import (
    Bound,
    Box,
    Interval,
    span_box,
    touched,
    union_boxes,
)
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.loop_ranges import (
    Ranges,
    Values,
    floor,
    larger,
    ranges_after,
    sized,
    smaller,
    values,
)
from tilewright.halide.analysis.nest_structure import (
    Body,
    NestStructure,
    Production,
    StageKey,
    StageNest,
    pure_everywhere,
)
from tilewright.halide.analysis.paths import inlined
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.schedule import Fuse, Schedule
from tilewright.halide.ir.schedule import Mapping as LoopMapping

Factors = Mapping[tuple[int, int, int], Bound]
MIDDLE = 0.5


@dataclass(frozen=True, slots=True)
class Corner:
    """A point of a stage's iteration space, by its dimensions and not by its loops.

    Dimensions (and reduction variables) of even number stand at the fraction `even` of their
    range, the others at `odd`; the loops stand where splits and fusions take that point.
    """

    even: Bound
    odd: Bound


@dataclass(frozen=True, slots=True)
class LoopSize:
    """One loop at one place: `extent` iterations from `lo` on, around the loops of `path`.

    `path` lists the loops outside, outermost first, as pairs of a stage's key and a loop's name.
    """

    stage: StageKey
    name: str
    mapping: LoopMapping
    lo: Bound
    extent: Bound
    path: tuple[tuple[StageKey, str], ...]
    context: Context = field(repr=False)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory for a Func at the place where it is stored.

    `box` is what is allocated, `extents` the sizes in memory, innermost first, after
    `align_storage`; `bytes` covers all values of a Tuple. `slides` says that the Func is stored
    outside a serial loop and computed inside it: Halide then computes only what is new in each
    iteration, and may fold the storage; the same is said of what such a Func reads. `loose` says
    that Halide may allocate more than is touched, because a loop that touches the Func has another
    extent in other iterations, and Halide takes the ends of an interval to be independent.
    """

    func: int
    path: tuple[tuple[StageKey, str], ...]
    box: Box
    extents: tuple[Bound, ...]
    bytes: Bound
    slides: bool
    loose: bool = False


@dataclass(frozen=True, slots=True)
class Required:
    """What is required of one stage: its box, and the ranges of its reduction variables."""

    box: Box
    rvars: Mapping[str, Interval]


Boxes = dict[StageKey, Required]


@dataclass(frozen=True, eq=False)
class Context:
    """A point in the nest: what is required there, and where the loops around stand."""

    boxes: Boxes
    body: Body | None
    stage: StageNest | None = None
    depth: int = -1
    ranges: Ranges = field(default_factory=dict)
    fixed: Mapping[str, Bound] = field(default_factory=dict)


class ScheduledNest:
    """A legal schedule at given sizes.

    `analysis` is that of a view with the schedule's clones and inlined Funcs (`nest_analysis`
    makes one); its output boxes are the sizes. `factors` gives split factors other than the
    schedule's own, by the places of entry, stage and split in the schedule: numbers, or arrays of
    shape (N,). `at` says at which iteration the loops around a place stand.

    Raises `ScheduleError` where a level names a loop that is not around every use.
    """

    def __init__(
        self,
        analysis: Analysis,
        schedule: Schedule,
        factors: Factors | None = None,
        at: Bound | Corner = MIDDLE,
        structure: NestStructure | None = None,
    ) -> None:
        self.analysis = analysis
        self.schedule = schedule
        self.structure = structure or NestStructure(analysis.view, schedule)
        self.at = at
        self.factors = factors or {}
        self._changes = {
            key: sized(nest.splits, _own(factors or {}, nest), nest.known)
            for key, nest in self.structure.stages.items()
        }
        self._pure = {i: pure_everywhere(nest.func) for (i, s), nest in self._stages if s == 0}
        self._reductions = {
            key: {rvar.name: self._reduction(rvar) for rvar in nest.stage.rvars}
            for key, nest in self._stages
        }

    @property
    def _stages(self) -> list[tuple[StageKey, StageNest]]:
        return list(self.structure.stages.items())

    def standing_at(self, at: Bound | Corner) -> ScheduledNest:
        """The same nest with the loops around each place at another iteration."""
        if at is self.at or (isinstance(at, float) and at == self.at):
            return self
        other = copy.copy(self)
        other.at = at
        other.__dict__.pop("loops", None)
        other.__dict__.pop("allocations", None)
        return other

    def of_size(self, output_boxes: Mapping[str, Box]) -> ScheduledNest:
        """The same schedule for other sizes of the outputs."""
        analysis = Analysis(self.analysis.view, output_boxes, self.analysis.view.algorithm.symbols)
        return ScheduledNest(analysis, self.schedule, self.factors, self.at, self.structure)

    @cached_property
    def loops(self) -> tuple[LoopSize, ...]:
        """Every loop at every place, outer ones first."""
        walk = _Walk(self)
        walk.body(walk.start, ())
        return tuple(walk.loops)

    @cached_property
    def allocations(self) -> tuple[Allocation, ...]:
        """Every Func that is stored, at every place."""
        walk = _Walk(self, allocate=True)
        walk.body(walk.start, ())
        return tuple(walk.allocations)

    def touched_in(self, loop: LoopSize) -> dict[str, Box]:
        """The boxes of all Funcs and inputs that one iteration of `loop` loads or stores."""
        return _Touched(self, loop.context).found

    # --- required boxes -------------------------------------------------------------------

    def define(self, body: Body, boxes: Boxes, producing: StageKey | None) -> Boxes:
        """The required boxes inside a body, from those around it."""
        found = dict(boxes)
        reads: dict[StageKey, dict[str, Box]] = {}
        for key, readers in body.defines:
            box: Box | None = None
            if producing is None and key[0] in self.structure.outputs:
                box = self.analysis.output_boxes[self.structure.names[key[0]]]
            for reader in readers:
                if reader not in reads:
                    reads[reader] = self.required_by(reader, found[reader])
                part = reads[reader].get(self.structure.names[key[0]])
                if part is not None:
                    box = union_boxes(box, part)
            if box is None:
                continue
            nest = self.structure.stages[key]
            last = (key[0], len(nest.func.stages) - 1)
            if key != last and nest.func.extern is None:
                shared = found[last].box
                pure = self._pure[key[0]]
                box = tuple(shared[d] if pure[d] else box[d] for d in range(len(box)))
            found[key] = Required(_bounded(nest, box), self._reductions[key])
        return found

    def required_by(self, key: StageKey, required: Required) -> dict[str, Box]:
        """What computing `required` of a stage reads of other Funcs, inputs and itself."""
        nest = self.structure.stages[key]
        if nest.func.extern is not None:
            return self._extern_reads(nest, required.box)
        env = _env(nest, required.box, required.rvars)
        return self._reads(key, env)

    def _reads(self, key: StageKey, env: Mapping[str, Interval]) -> dict[str, Box]:
        func, stage = key
        summary = self.analysis.summaries(self.structure.names[func])[stage]
        memo: dict[int, Interval] = {}
        return {
            access.callee: touched(access, env, self.analysis.bounder, memo)
            for access in summary.accesses
        }

    def _extern_reads(self, nest: StageNest, box: Box) -> dict[str, Box]:
        """A C function's reads are its own affair; most read where they write."""
        assert nest.func.extern is not None
        found: dict[str, Box] = {}
        everything = Interval(-math.inf, math.inf)
        for name in nest.func.extern.reads:
            func = self.analysis.view.algorithm.by_name.get(name)
            rank = len(func.args) if func else len(box)
            found[name] = box if rank == len(box) else (everything,) * rank
        return found

    def _reduction(self, rvar: object) -> Interval:
        bounder = self.analysis.bounder
        low = bounder.bound(rvar.min, {}, {})  # type: ignore[attr-defined]
        size = bounder.bound(rvar.extent, {}, {})  # type: ignore[attr-defined]
        return Interval(low.lo, low.hi + size.hi - 1.0)

    # --- one stage ------------------------------------------------------------------------

    def ranges(self, nest: StageNest, required: Required) -> Ranges:
        """The ranges of a stage's loops when it computes `required`."""
        own = {}
        for canonical, variable in nest.variables.items():
            if canonical[0] == "v":
                own[canonical] = required.box[int(canonical[1:])]
            else:
                own[canonical] = required.rvars[variable]
        return ranges_after(self._changes[nest.key], own)

    def step(self, extent: Bound) -> Bound:
        """The iteration, counted from 0, at which a loop stands."""
        assert not isinstance(self.at, Corner)
        return floor(self.at * larger(extent - 1.0, 0.0))

    def steps(self, nest: StageNest, ranges: Ranges) -> dict[str, Bound]:
        """The iterations at which the loops of a stage stand at a `Corner`; else nothing."""
        if not isinstance(self.at, Corner):
            return {}
        found: dict[str, Bound] = {}
        for name in nest.variables:
            fraction = self.at.odd if int(name[1:]) % 2 else self.at.even
            found[name] = floor(fraction * larger(ranges[name].extent - 1.0, 0.0))
        for change in self._changes[nest.key]:
            if isinstance(change, Fuse):
                inner, outer = found[change.inner], found[change.outer]
                found[change.fused] = inner + ranges[change.inner].extent * outer
            else:
                at = found[change.split.old]
                found[change.split.outer] = floor(at / change.factor)
                found[change.split.inner] = at - found[change.split.outer] * change.factor
        return found

    def values(
        self,
        nest: StageNest,
        ranges: Ranges,
        fixed: Mapping[str, Bound],
        corners: frozenset[str] = frozenset(),
    ) -> Values:
        """What the variables of a stage's definition range over (see `loop_ranges.values`)."""
        return values(self._changes[nest.key], ranges, fixed, corners)

    def produced(
        self,
        nest: StageNest,
        ranges: Ranges,
        fixed: Mapping[str, Bound],
        corners: frozenset[str] = frozenset(),
    ) -> Required:
        """What a stage computes while the loops in `fixed` stand still."""
        now = self.values(nest, ranges, fixed, corners)
        env = {name: now.stores[canonical] for canonical, name in nest.variables.items()}
        memo: dict[int, Interval] = {}
        if nest.stage.index == 0:
            box = tuple(env[arg] for arg in nest.func.args)
        else:
            bounder = self.analysis.bounder
            box = tuple(bounder.bound(arg, env, memo) for arg in nest.stage.args)
        rvars = {}
        for canonical, name in nest.variables.items():
            if canonical[0] == "r":
                low, high = ranges[canonical]
                rvars[name] = Interval(larger(env[name].lo, low), smaller(env[name].hi, high))
        return Required(box, rvars)

    def loaded(self, nest: StageNest, ranges: Ranges, fixed: Mapping[str, Bound]) -> dict[str, Box]:
        """What a stage loads of Funcs and inputs while the loops in `fixed` stand still."""
        now = self.values(nest, ranges, fixed)
        env = {name: now.loads[canonical] for canonical, name in nest.variables.items()}
        return self._reads(nest.key, env)


class _Walk:
    """One pass over the nest, loops at the iteration that `nest.at` says."""

    def __init__(self, nest: ScheduledNest, allocate: bool = False) -> None:
        self.nest = nest
        self.allocate = allocate
        self.loops: list[LoopSize] = []
        self.allocations: list[Allocation] = []
        self.start = Context(nest.define(nest.structure.root, {}, None), nest.structure.root)

    def body(self, here: Context, path: tuple[tuple[StageKey, str], ...]) -> None:
        """What is stored and produced at a point."""
        assert here.body is not None
        if self.allocate and here.body.stored:
            seen = _Touched(self.nest, here)
            boxes = seen.found
            for i in here.body.stored:
                name = self.nest.structure.names[i]
                if name in boxes:
                    self.allocations.append(self._allocation(i, path, name, seen))
        for production in here.body.productions:
            self.produce(production, here.boxes, path)

    def _allocation(
        self, i: int, path: tuple[tuple[StageKey, str], ...], name: str, seen: _Touched
    ) -> Allocation:
        structure = self.nest.structure
        entry = structure.entries[i]
        func = self.nest.analysis.view.algorithm.funcs[i]
        box = _bounded_storage(func.bounds, func.args, seen.found[name])
        order = entry.storage_order or tuple(range(len(box)))
        extents = [box[d].extent for d in order]
        if entry.align_storage > 1:
            unit = float(entry.align_storage)
            extents[0] = floor((extents[0] + unit - 1.0) / unit) * unit
        size: Bound = float(func.bytes)
        for extent in extents:
            size = size * extent
        slides = entry.store != entry.compute or name in seen.sliding
        return Allocation(i, path, box, tuple(extents), size, slides, name in seen.loose)

    def produce(
        self, production: Production, boxes: Boxes, path: tuple[tuple[StageKey, str], ...]
    ) -> None:
        """The loops of every stage, and what is inside them."""
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
                    inside = self.nest.define(body, inside, stage.key)
                here = Context(inside, body, stage, at, ranges, fixed)
                self.loops.append(LoopSize(stage.key, name, mapping, low, extent, outer, here))
                outer = (*outer, (stage.key, name))
                if body is not None:
                    self.body(here, outer)


class _Touched:
    """What is loaded and stored inside a point, over all iterations of the loops there.

    The loops inside that other Funcs' loops depend on are looked at in their first and their
    last iteration; `found` covers both, as coordinates move one way along a loop.
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
        self._slid = outside or entry.store != entry.compute
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
        """A stage's own loads and stores, and what is inside its loops within `depth`."""
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
        """What is inside the loops of a stage within `depth`, at both their ends."""
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
        """Whether a loop's extent differs from one corner to another.

        Halide's interval arithmetic then treats both ends of the loop as if they were independent.
        """
        found = False
        for name in stage.variables:
            extent = ranges[name].extent
            before = self._extents.setdefault((id(stage), name), extent)
            found |= bool(np.any(before != extent))
        return found


def _own(factors: Factors, nest: StageNest) -> dict[int, Bound]:
    key = (nest.entry, nest.key[1])
    return {place: factor for (e, s, place), factor in factors.items() if (e, s) == key}


def _env(nest: StageNest, box: Box, rvars: Mapping[str, Interval]) -> dict[str, Interval]:
    env = dict(zip(nest.func.args, box, strict=True))
    env.update(rvars)
    return env


def _bounded(nest: StageNest, box: Box) -> Box:
    """The box with the bounds that the user has promised."""
    spans = nest.func.bounds
    if not spans:
        return box
    return tuple(
        Interval(float(spans[arg].min), float(spans[arg].max)) if arg in spans else part
        for arg, part in zip(nest.func.args, box, strict=True)
    )


def _bounded_storage(spans: Mapping[str, object], args: tuple[str, ...], box: Box) -> Box:
    return tuple(
        Interval(float(spans[arg].min), float(spans[arg].max)) if arg in spans else part  # type: ignore[attr-defined]
        for arg, part in zip(args, box, strict=True)
    )


def nest_analysis(
    algorithm: Algorithm, schedule: Schedule, output_boxes: Mapping[str, Box] | None = None
) -> Analysis:
    """An analysis of the pipeline as `schedule` inlines it, at its estimates by default."""
    extended = with_clones(algorithm, schedule.clones)
    gone = frozenset(extended.funcs[i].name for i in inlined(schedule, algorithm))
    view = View(extended, gone, limit=200_000)
    boxes = dict(output_boxes or {})
    for name in extended.outputs:
        if name not in boxes:
            func = extended.by_name[name]
            boxes[name] = span_box(func.estimates[arg] for arg in func.args)
    return Analysis(view, boxes, extended.symbols)
