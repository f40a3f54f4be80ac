"""The regions that a scheduled pipeline produces, stores and reads at each loop, for many sizes.

`ScheduledNest` repeats Halide 21's bounds inference (``BoundsInference.cpp``,
``AllocationBoundsInference.cpp``) with numbers. In every loop that a Func is computed in, its
required box is computed again from the boxes of its readers there. The allocated box covers all
stores and loads inside the store level of the Func, including rounded-up tails.

Notation: N is the number of rows (combinations of output sizes or split factors). Every number is a
float64 scalar or an array of shape (N,). The sizes inside a loop are those at one iteration of it,
given by `at` as a fraction: 0 is the first iteration, 0.5 the middle, 1 the last.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Container, Mapping
from dataclasses import replace
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
from tilewright.halide.analysis.inlining import TooLarge, View
from tilewright.halide.analysis.loop_ranges import (
    Change,
    Ranges,
    Values,
    floor,
    larger,
    part_of,
    ranges_after,
    sized,
    smaller,
    values,
    where,
)
from tilewright.halide.analysis.lowering_bounds import touched_at_most
from tilewright.halide.analysis.nest_hull import Hull
from tilewright.halide.analysis.nest_parts import (
    Allocation,
    Boxes,
    Context,
    Corner,
    LoopSize,
    Required,
    bounded,
    definition_env,
    widened,
)
from tilewright.halide.analysis.nest_structure import (
    Body,
    NestStructure,
    Production,
    StageKey,
    StageNest,
    pure_everywhere,
)
from tilewright.halide.analysis.nest_walk import Touched, Walk, storage
from tilewright.halide.analysis.paths import inlined
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.analysis.windows import ExactWindow, windows_of
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.joint import joined
from tilewright.halide.ir.schedule import Fuse, Schedule, ScheduleError

Factors = Mapping[tuple[int, int, int], Bound]
Path = tuple[tuple[StageKey, str], ...]
# The exceptions of a `ScheduledNest` whose sizes cannot be computed: the inlined expressions are
# too large, the reads of an extern stage are unknown, or Funcs are computed in too many places.
UNKNOWN = (TooLarge, KeyError, ScheduleError)
MIDDLE = 0.5


class ScheduledNest:
    """A legal schedule at given sizes.

    Args:
        analysis: The algorithm with the schedule's clones, as the schedule inlines it
            (`nest_analysis`). Its output boxes are the sizes.
        schedule: The schedule.
        factors: Split factors that replace those of the schedule, by the positions of entry, stage
            and split in the schedule; scalars or arrays of shape (N,).
        at: The iteration of every loop at which the sizes inside it are evaluated.
        structure: The structure of the nest, if already known.
        only: Positions of Funcs at root; if given, `loops` and `allocations` omit other trees.
        whole: The required boxes at root, if already known; they depend only on what is inlined.

    Raises:
        ScheduleError: A level names a loop that does not enclose every use.
    """

    def __init__(
        self,
        analysis: Analysis,
        schedule: Schedule,
        factors: Factors | None = None,
        at: Bound | Corner = MIDDLE,
        structure: NestStructure | None = None,
        only: Container[int] | None = None,
        whole: Boxes | None = None,
    ) -> None:
        self.only = only
        self._whole = whole
        self._limited: dict[frozenset[int], ScheduledNest] = {}
        self._touched: dict[tuple[Path, StageKey, str, int], dict[str, Box]] = {}
        self.analysis = analysis
        self.schedule = schedule
        self.structure = structure or NestStructure(analysis.view, schedule)
        self.at = at
        self.factors = factors or {}
        self.bounder = analysis.lowering
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
        """Return the same nest, with sizes evaluated at another iteration of every loop."""
        if at is self.at or (isinstance(at, float) and at == self.at):
            return self
        other = copy.copy(self)
        other.at = at
        other._forget()
        return other

    def _forget(self) -> None:
        """Drop the results that depend on `at` and `only`."""
        self.__dict__.pop("_walked", None)
        self._limited = {}
        self._touched = {}

    def limited(self, only: frozenset[int]) -> ScheduledNest:
        """Return the same nest with `loops` and `allocations` of these trees only (see `only`)."""
        if only not in self._limited:
            self.whole  # noqa: B018 (computed once for all)
            other = copy.copy(self)
            other._forget()
            other.only = only
            self._limited[only] = other
        return self._limited[only]

    @cached_property
    def apart(self) -> ScheduledNest:
        """The same nest with index quotients at their widest (see `touched_at_most`)."""
        other = copy.copy(self)
        other.bounder = replace(self.bounder, apart=True)
        other._whole = None
        other._limited, other._touched = {}, {}
        return other

    def of_size(self, output_boxes: Mapping[str, Box]) -> ScheduledNest:
        """Return the same schedule for other sizes of the outputs."""
        analysis = Analysis(self.analysis.view, output_boxes, self.analysis.view.algorithm.symbols)
        return ScheduledNest(
            analysis, self.schedule, self.factors, self.at, self.structure, self.only
        )

    @cached_property
    def _walked(self) -> Walk:
        walk = Walk(self)
        walk.body(walk.start, ())
        return walk

    @property
    def loops(self) -> tuple[LoopSize, ...]:
        """Every loop, once per nest that contains it, outer loops first."""
        return tuple(self._walked.loops)

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """Every allocation, once per nest that contains it."""
        return tuple(self._walked.allocations)

    def at_most(self, allocation: Allocation) -> tuple[Bound, ...]:
        """Return upper bounds of the allocated extents, innermost first (see `nest_hull`)."""
        found = Hull(self, allocation.context).found
        name = self.structure.names[allocation.func]
        return storage(self, allocation.func, union_boxes(found.get(name), allocation.box))[1]

    def touched_in(self, loop: LoopSize) -> dict[str, Box]:
        """Return the boxes of all Funcs and inputs that one iteration of `loop` loads or stores."""
        key = loop.path, loop.stage, loop.name, loop.context.depth
        found = self._touched.get(key)
        if found is None:
            found = self._touched[key] = Touched(self, loop.context).found
        return found

    def touched_by(self, production: Production) -> dict[str, Box]:
        """Return the boxes of all Funcs and inputs that a Func at root loads or stores."""
        body = Body(productions=[production])
        return Touched(self, Context(self.whole, body)).found

    def stored_bytes(self, func: int, box: Box) -> Bound:
        """Return the bytes allocated for a Func if `box` is touched."""
        size: Bound = float(self.analysis.view.algorithm.funcs[func].bytes)
        for extent in storage(self, func, box)[1]:
            size = size * extent
        return size

    # --- required boxes -------------------------------------------------------------------

    @property
    def whole(self) -> Boxes:
        """The required boxes at root."""
        if self._whole is None:
            self._whole = self.define(self.structure.root, {}, None)
        return self._whole

    @cached_property
    def windows(self) -> dict[int, ExactWindow]:
        """The sliding windows whose sizes are exact, by the position of the Func."""
        return windows_of(self)

    def define(
        self,
        body: Body,
        boxes: Boxes,
        producing: StageKey | None,
        sliding: Mapping[int, ExactWindow] | None = None,
    ) -> Boxes:
        """Return the required boxes inside a body, from those around it.

        Args:
            body: The body.
            boxes: The required boxes in the loop around the body.
            producing: The stage that has this loop; None for the whole pipeline.
            sliding: The Funcs that slide along this loop. If given, their boxes are what one
                iteration computes, not what it requires.
        """
        found = dict(boxes)
        produced = {production.func for production in body.productions}
        reads: dict[StageKey, dict[str, Box]] = {}
        # An earlier stage of a Func has the readers of the later ones, and more.
        unions: dict[int, Box | None] = {}
        counted: dict[int, set[StageKey]] = {}
        for key, readers in body.defines:
            box = unions.get(key[0])
            if key[0] not in unions and producing is None and key[0] in self.structure.outputs:
                box = self.analysis.output_boxes[self.structure.names[key[0]]]
            done = counted.setdefault(key[0], set())
            for reader in readers:
                if reader in done:
                    continue
                done.add(reader)
                if reader not in reads:
                    reads[reader] = self.required_by(reader, found[reader])
                part = reads[reader].get(self.structure.names[key[0]])
                if part is not None:
                    box = union_boxes(box, part)
            unions[key[0]] = box
            if box is None:
                continue
            nest = self.structure.stages[key]
            last = (key[0], len(nest.func.stages) - 1)
            if key != last and nest.func.extern is None:
                shared = found[last].box
                pure = self._pure[key[0]]
                box = tuple(shared[d] if pure[d] else box[d] for d in range(len(box)))
            promised = self.structure.entries[key[0]].bounds
            box = widened(promised, bounded(nest, box), key[0] in produced)
            if sliding and key[0] in sliding:
                box = sliding[key[0]].computed(box)
            found[key] = Required(box, self._reductions[key])
        return found

    @cached_property
    def unmodelled(self) -> tuple[str, ...]:
        """One sentence for each directive of the schedule whose effect is not modelled here."""
        found = []
        for i, entry in self.structure.entries.items():
            name = self.structure.names[i]
            if any(nest.compute_with is not None for nest in entry.stages):
                found.append(f"{name}: loops shared by compute_with are modelled as separate.")
            if entry.run_async or entry.ring_buffer:
                found.append(f"{name}: the storage copies of an asynchronous producer are ignored.")
            if any(nest.specialize for nest in entry.stages):
                found.append(f"{name}: the savings of specialised code are not modelled.")
        return tuple(found)

    def required_by(self, key: StageKey, required: Required) -> dict[str, Box]:
        """Return the boxes of Funcs and inputs that a stage reads to compute `required`."""
        nest = self.structure.stages[key]
        if nest.func.extern is not None:
            return self._extern_reads(nest, required.box)
        env = definition_env(nest, required.box, required.rvars)
        return self.reads(key, env)

    def reads(
        self, key: StageKey, env: Mapping[str, Interval], still: frozenset[str] = frozenset()
    ) -> dict[str, Box]:
        """Return the boxes that a stage loads while its definition's variables range over `env`.

        Variables in `still` are fixed (see `LoweringBounder`).
        """
        func, stage = key
        summary = self.analysis.summaries(self.structure.names[func])[stage]
        memo: dict[int, Interval] = {}
        bounder = self.bounder.standing(still)
        box_of = touched_at_most if bounder.apart else touched
        return {access.callee: box_of(access, env, bounder, memo) for access in summary.accesses}

    def _extern_reads(self, nest: StageNest, box: Box) -> dict[str, Box]:
        """Return the reads of an extern stage, which are unknown; assume the box that it writes.

        A Func with another number of dimensions is assumed to be read without bounds.
        """
        assert nest.func.extern is not None
        found: dict[str, Box] = {}
        everything = Interval(-math.inf, math.inf)
        for name in nest.func.extern.reads:
            func = self.analysis.view.algorithm.by_name.get(name)
            rank = len(func.args) if func else len(box)
            found[name] = box if rank == len(box) else (everything,) * rank
        return found

    def _reduction(self, rvar: object) -> Interval:
        low = self.bounder.bound(rvar.min, {}, {})  # type: ignore[attr-defined]
        size = self.bounder.bound(rvar.extent, {}, {})  # type: ignore[attr-defined]
        return Interval(low.lo, low.hi + size.hi - 1.0)

    # --- one stage ------------------------------------------------------------------------

    def ranges(self, nest: StageNest, required: Required) -> Ranges:
        """Return the ranges of a stage's loops when it computes `required`."""
        own = {}
        for canonical, variable in nest.variables.items():
            if canonical[0] == "v":
                own[canonical] = required.box[int(canonical[1:])]
            else:
                own[canonical] = required.rvars[variable]
        return ranges_after(self._changes[nest.key], own)

    def step(self, extent: Bound) -> Bound:
        """Return the iteration of a loop, counted from 0, at which sizes are evaluated."""
        assert not isinstance(self.at, Corner)
        return part_of(self.at, extent)

    def steps(self, nest: StageNest, ranges: Ranges) -> dict[str, Bound]:
        """Return the iteration of every loop of a stage at the `Corner`; empty without one."""
        if not isinstance(self.at, Corner):
            return {}
        found: dict[str, Bound] = {}
        for name in nest.variables:
            fraction = self.at.odd if int(name[1:]) % 2 else self.at.even
            found[name] = part_of(fraction, ranges[name].extent)
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
        """Return the ranges of a stage definition's variables (see `loop_ranges.values`)."""
        return values(self._changes[nest.key], ranges, fixed, corners)

    def produced(
        self,
        nest: StageNest,
        ranges: Ranges,
        fixed: Mapping[str, Bound],
        corners: frozenset[str] = frozenset(),
    ) -> Required:
        """Return the box that a stage computes while the loops in `fixed` have those values."""
        now = self.values(nest, ranges, fixed, corners)
        return self.stored(nest, ranges, now.stores, now.still)

    def stored(
        self,
        nest: StageNest,
        ranges: Ranges,
        now: Ranges,
        still: frozenset[str] = frozenset(),
    ) -> Required:
        """Return the box that a stage stores while its definition's variables range over `now`.

        The loops in `still` are fixed.
        """
        env = {name: now[canonical] for canonical, name in nest.variables.items()}
        memo: dict[int, Interval] = {}
        if nest.stage.index == 0:
            box = tuple(env[arg] for arg in nest.func.args)
        else:
            bounder = self.bounder.standing(named(nest, still))
            box = tuple(bounder.bound(arg, env, memo) for arg in nest.stage.args)
        rvars = {}
        for canonical, name in nest.variables.items():
            if canonical[0] == "r":
                low, high = ranges[canonical]
                rvars[name] = Interval(larger(env[name].lo, low), smaller(env[name].hi, high))
        return Required(box, rvars)

    def loaded(self, nest: StageNest, ranges: Ranges, fixed: Mapping[str, Bound]) -> dict[str, Box]:
        """Return the boxes of Funcs and inputs that a stage loads while some loops are fixed."""
        now = self.values(nest, ranges, fixed)
        env = {name: now.loads[canonical] for canonical, name in nest.variables.items()}
        found = self.reads(nest.key, env, named(nest, now.still))
        if now.idle is not False and np.any(now.idle):
            nothing = Interval(math.inf, -math.inf)
            for name, box in found.items():
                found[name] = tuple(
                    Interval(*(where(now.idle, a, b) for a, b in zip(nothing, part, strict=True)))
                    for part in box
                )
        return found

    def changes(self, nest: StageNest) -> tuple[Change, ...]:
        """Return the splits of a stage, with their factors, and its fusions, in order."""
        return self._changes[nest.key]


def named(nest: StageNest, loops: frozenset[str]) -> frozenset[str]:
    """Return the variables of the definition whose loops are among `loops`."""
    return frozenset(name for canonical, name in nest.variables.items() if canonical in loops)


def _own(factors: Factors, nest: StageNest) -> dict[int, Bound]:
    key = (nest.entry, nest.key[1])
    return {place: factor for (e, s, place), factor in factors.items() if (e, s) == key}


def nest_analysis(
    algorithm: Algorithm, schedule: Schedule, output_boxes: Mapping[str, Box] | None = None
) -> Analysis:
    """Return an analysis of the pipeline as `schedule` inlines it.

    Outputs without a box in `output_boxes` have the size of their estimates.
    """
    extended = with_clones(algorithm, schedule.clones)
    gone = frozenset(extended.funcs[i].name for i in inlined(schedule, algorithm))
    view = View(extended, gone, limit=200_000)
    boxes = dict(output_boxes or {})
    for name in extended.outputs:
        if name not in boxes:
            func = extended.by_name[name]
            boxes[name] = span_box(func.estimates[arg] for arg in func.args)
    return Analysis(view, boxes, extended.symbols)


def sized_nest(algorithm: Algorithm, schedule: Schedule) -> ScheduledNest | None:
    """Return the nest at the pipeline's estimates.

    Return None if an output has no estimate, or if sizes cannot be computed (`UNKNOWN`).
    """
    known = all(
        arg in algorithm.by_name[name].estimates
        for name in algorithm.outputs
        for arg in algorithm.by_name[name].args
    )
    if not known:
        return None
    try:
        schedule, algorithm = joined(schedule, algorithm)
        return ScheduledNest(nest_analysis(algorithm, schedule), schedule)
    except UNKNOWN:
        return None
