"""Compute the largest allocation that Halide's interval arithmetic can infer.

Halide 21 computes the box that a loop nest touches (``box_touched`` in ``Bounds.cpp``) by replacing
every symbol inside the nest by its interval over all iterations. The lower and the upper end of a
loop are two symbols. If both change with a surrounding loop, the interval of their difference is
wider than any extent that occurs, unless the simplifier cancels terms. The allocation therefore
lies between the box that is touched (`nest_walk.Touched`) and the box computed here without
cancellation. If the ends of all loops are constant, the two are equal.

Notation: `Ends` is a pair of intervals, of a lower end and of an upper end. A loop fixed at an
unknown iteration of ``[lo, hi]`` has ``low = high = [lo, hi]``.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tilewright.halide.analysis.bounds import Bound, Box, Interval, union_boxes
from tilewright.halide.analysis.loop_ranges import Change, floor, larger, smaller, where
from tilewright.halide.analysis.nest_parts import Boxes, Context, Required
from tilewright.halide.analysis.nest_structure import Production, StageNest
from tilewright.halide.ir.nest import GUARDED
from tilewright.halide.ir.schedule import Fuse, Split

if TYPE_CHECKING:
    from tilewright.halide.analysis.scheduled_nest import ScheduledNest


class Ends(NamedTuple):
    """The intervals of the lower and of the upper end of a range."""

    low: Interval
    high: Interval

    @property
    def outer(self) -> Interval:
        """The range at its widest: from the least lower end to the greatest upper end."""
        return Interval(self.low.lo, self.high.hi)

    @property
    def inner(self) -> Interval:
        """The range at its narrowest: greatest lower end to least upper end; may be empty."""
        return Interval(self.low.hi, self.high.lo)

    @property
    def extent(self) -> Interval:
        """The interval of the extent if the two ends are independent."""
        return Interval(self.high.lo - self.low.hi + 1.0, self.high.hi - self.low.lo + 1.0)


class Twin(NamedTuple):
    """Two sets of required boxes: with every range at its widest, and at its narrowest."""

    outer: Boxes
    inner: Boxes


def _ends(outer: Interval, inner: Interval) -> Ends:
    low = Interval(smaller(outer.lo, inner.lo), larger(outer.lo, inner.lo))
    return Ends(low, Interval(smaller(outer.hi, inner.hi), larger(outer.hi, inner.hi)))


def slid(ends: Ends) -> Ends:
    """Return the ends of the values that one iteration adds to a sliding window.

    The window may move up or down. The new part begins one coordinate after the present values and
    may be empty. The iterations that first fill the window begin earlier, by the window's length
    (``SlidingWindow.cpp``).
    """
    # The window may be shorter at the end of an output, but it begins just as early.
    early = float(np.max(larger(ends.high.hi - ends.low.hi, 0.0)))
    low = Interval(ends.low.lo - early, larger(ends.low.hi, ends.high.hi + 1.0))
    return Ends(low, Interval(smaller(ends.high.lo, ends.low.lo - 1.0), ends.high.hi + early))


def _fixed(low: Bound, high: Bound) -> Ends:
    return Ends(Interval(low, low), Interval(high, high))


def _plus(a: Interval, b: Interval) -> Interval:
    return Interval(a.lo + b.lo, a.hi + b.hi)


def _capped(a: Interval, b: Interval) -> Interval:
    return Interval(smaller(a.lo, b.lo), smaller(a.hi, b.hi))


def _times(a: Interval, b: Interval) -> Interval:
    products = [x * y for x in a for y in b]
    low = high = products[0]
    for product in products[1:]:
        low, high = smaller(low, product), larger(high, product)
    return Interval(low, high)


def ends_after(changes: tuple[Change, ...], own: Mapping[str, Ends]) -> dict[str, Ends]:
    """Return the ends of every loop of a stage, from those of the definition's loops."""
    found = dict(own)
    for change in changes:
        if isinstance(change, Fuse):
            size = _times(found[change.inner].extent, found[change.outer].extent)
            found[change.fused] = Ends(Interval(0.0, 0.0), Interval(size.lo - 1.0, size.hi - 1.0))
            continue
        factor, extent = change.factor, found[change.split.old].extent
        count = [floor((size + factor - 1.0) / factor) for size in extent]
        found[change.split.outer] = Ends(
            Interval(0.0, 0.0), Interval(count[0] - 1.0, count[1] - 1.0)
        )
        found[change.split.inner] = _fixed(0.0, factor - 1.0)
    return found


def _unfused(fused: Ends, inner: Ends, outer: Ends, positive: bool) -> tuple[Ends, Ends]:
    """Return the ends of the two loops that were fused (``visit(Div)``, ``visit(Mod)``).

    The divisor is the inner extent. Unless Halide proves that it is positive, the quotient and the
    remainder have the widest bounds. Halide may also prove that the divisor is the same in all
    iterations, which depends on the length of the expression; this case is ignored here.
    """
    size, value = inner.extent, fused.outer
    most = larger(larger(size.hi - 1.0, 0.0), 0.0 if positive else -1.0 - size.lo)
    rest = _plus(Interval(0.0, most), Interval(inner.low.lo, inner.low.hi))
    above = larger(value.hi, 0.0 if positive else -value.lo)
    divisor = larger(size.lo, 1.0)
    quotient = Interval(floor(value.lo / divisor), floor(value.hi / divisor))
    if not positive:
        quotient = Interval(-above, above)
    whole = _plus(quotient, outer.low)
    return Ends(rest, rest), Ends(whole, whole)


def values_of(
    changes: tuple[Change, ...],
    ends: Mapping[str, Ends],
    standing: Mapping[str, Ends],
    constant: Container[str],
) -> tuple[dict[str, Ends], dict[str, Ends]]:
    """Return the ends of the definition's variables in a stage's stores and in its loads.

    Args:
        changes: The splits and fusions of the stage.
        ends: The ends of every loop (`ends_after`).
        standing: The value of each fixed loop, as the ends of its variable.
        constant: The loops whose extents Halide knows at compile time.
    """
    now = {**ends, **standing}
    loads: dict[str, Ends] = {}
    points = set(standing)
    for change in reversed(changes):
        if isinstance(change, Fuse):
            now[change.inner], now[change.outer] = _unfused(
                now[change.fused],
                ends[change.inner],
                ends[change.outer],
                change.inner in constant,
            )
            if change.fused in points:
                points |= {change.inner, change.outer}
            continue
        split, factor = change.split, change.factor
        if split.outer in points and split.inner in points:
            points.add(split.old)
        outer, inner, old = now[split.outer], now[split.inner], ends[split.old]
        base = [Interval(part.lo * factor, part.hi * factor) for part in outer]
        base = [_plus(part, old.low) for part in base]
        if "shift" in split.tail:
            latest = Interval(old.high.lo + 1.0 - factor, old.high.hi + 1.0 - factor)
            base = [_where(change.even, part, _capped(part, latest)) for part in base]
        whole = Ends(_plus(base[0], inner.low), _plus(base[1], inner.high))
        now[split.old] = whole
        if split.tail in GUARDED:
            high = _where(change.even, whole.high, _capped(whole.high, old.high))
            low = whole.low
            if split.old in points:
                low = _where(change.even, whole.low, _capped(whole.low, old.high))
            guarded = Ends(low, high)
            if split.tail != "predicate_loads":
                now[split.old] = guarded
            loads[split.old] = whole if split.tail == "predicate_stores" else guarded
    return now, {**now, **loads}


def _where(condition: object, yes: Interval, no: Interval) -> Interval:
    return Interval(where(condition, yes.lo, no.lo), where(condition, yes.hi, no.hi))


class Hull:
    """The boxes loaded and stored inside a point of the nest, if all loop ends are independent."""

    def __init__(self, nest: ScheduledNest, here: Context) -> None:
        self.nest = nest.apart
        self.found: dict[str, Box] = {}
        if here.stage is not None:
            own = {name: _fixed(*part) for name, part in here.ranges.items()}
            entry = nest.structure.entries[here.stage.key[0]]
            if entry.store != entry.compute:
                mine = {name: slid(own[name]) for name in here.stage.variables if name[0] == "v"}
                own = {**own, **mine}
            standing = {name: _fixed(value, value) for name, value in here.fixed.items()}
            self._stage(here.stage, own, standing, Twin(here.boxes, here.boxes), here.depth)
        for production in here.body.productions if here.body else ():
            self._production(production, Twin(here.boxes, here.boxes))

    def _note(self, name: str, box: Box) -> None:
        self.found[name] = union_boxes(self.found.get(name), box)

    def _production(self, production: Production, boxes: Twin) -> None:
        entry = self.nest.structure.entries[production.func]
        for stage in production.stages:
            key = stage.key
            if stage.key[1] and entry.store != entry.compute:
                boxes = self._grown(stage, boxes)
            if stage.func.extern is not None:
                self._note(stage.func.name, boxes.outer[key].box)
                for name, box in self.nest.required_by(key, boxes.outer[key]).items():
                    self._note(name, box)
                continue
            own = {}
            for canonical, variable in stage.variables.items():
                pair = [_range(part[key], canonical, variable) for part in boxes]
                own[canonical] = _ends(*pair)
                if entry.store != entry.compute and canonical[0] == "v":
                    own[canonical] = slid(own[canonical])
            self._stage(stage, ends_after(self.nest.changes(stage), own), {}, boxes, -1)

    def _grown(self, stage: StageNest, boxes: Twin) -> Twin:
        """Return the boxes of a sliding Func after widening an update to everything stored so far.

        The next iteration reuses all stored values, including those that the pure definition
        computes by rounding up. So the update must also compute them (``SlidingWindow.cpp``).
        """
        stored = self.found[stage.func.name]
        own = boxes.outer[stage.key]
        grown = Required(union_boxes(own.box, stored), own.rvars)
        return Twin({**boxes.outer, stage.key: grown}, boxes.inner)

    def _stage(
        self,
        stage: StageNest,
        ends: Mapping[str, Ends],
        standing: Mapping[str, Ends],
        boxes: Twin,
        depth: int,
    ) -> None:
        changes = self.nest.changes(stage)
        stores, loads = values_of(changes, ends, standing, _constant(stage))
        outer = {name: part.outer for name, part in stores.items()}
        self._note(stage.func.name, self.nest.stored(stage, ends_outer(ends), outer).box)
        reads = {name: loads[canonical].outer for canonical, name in stage.variables.items()}
        for name, box in self.nest.reads(stage.key, reads).items():
            self._note(name, box)
        deeper = [at for at in sorted(stage.bodies) if at > depth and stage.bodies[at].productions]
        now = dict(standing)
        for at in range(depth + 1, len(stage.loops)):
            name = stage.loops[at][0]
            anywhere = ends[name].outer
            now[name] = Ends(anywhere, anywhere)
            if at in deeper:
                body = stage.bodies[at]
                here, _ = values_of(changes, _provided(ends, stage), now, _constant(stage))
                inside = []
                for part, around in zip(("outer", "inner"), boxes, strict=True):
                    values = {n: getattr(v, part) for n, v in here.items()}
                    limits = {n: getattr(v, part) for n, v in ends.items()}
                    made = self.nest.stored(stage, limits, values)
                    inside.append(self.nest.define(body, {**around, stage.key: made}, stage.key))
                for production in body.productions:
                    self._production(production, Twin(*inside))


def _constant(stage: StageNest) -> set[str]:
    return stage.known.keys() | {c.inner for c in stage.splits if isinstance(c, Split)}


def _provided(ends: Mapping[str, Ends], stage: StageNest) -> dict[str, Ends]:
    """Return the loop ends with which a stage's stores are bounded for the Funcs in its loops.

    There, Halide's last iteration of a loop is ``min + extent - 1``, with `extent` independent of
    `min` (``BoundsInference.cpp``, ``box_provided``).
    """
    found = dict(ends)
    for name, _ in stage.loops:
        low, extent = ends[name].low, ends[name].extent
        found[name] = Ends(low, Interval(low.lo + extent.lo - 1.0, low.hi + extent.hi - 1.0))
    return found


def ends_outer(ends: Mapping[str, Ends]) -> dict[str, Interval]:
    """Return every range at its widest."""
    return {name: part.outer for name, part in ends.items()}


def _range(required: Required, canonical: str, variable: str) -> Interval:
    if canonical[0] == "v":
        return required.box[int(canonical[1:])]
    return required.rvars[variable]
