"""Compute loop bounds and loop variables under splits and fusions, for N split factors at once.

Notation: a loop runs over ``[lo, hi]``, both inclusive, so its extent is ``hi - lo + 1``. A split
of loop ``old`` by ``f`` gives ``outer`` over ``[0, ceil(extent / f) - 1]`` and ``inner`` over
``[0, f - 1]``, with ``old = outer * f + lo + inner``. The tail strategy changes this formula at the
end of the loop (Halide 21, ``ApplySplit.cpp``). Every number is a float64 scalar or an array of
shape (N,).

A loop is *fixed* if it is evaluated at one iteration instead of over its range; the code calls it
`still`, or says that it stands at that iteration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.halide.analysis.bounds import Bound, Interval
from tilewright.halide.ir.nest import GUARDED
from tilewright.halide.ir.schedule import Fuse, Split

Ranges = dict[str, Interval]
# The tails for which Halide puts a branch around everything inside the loop.
BRANCHES = frozenset(["guard_with_if", "predicate"])
UNKNOWN = math.nan  # as a known extent or multiple: none is known


def where(condition: Any, yes: Bound, no: Bound) -> Bound:
    """Return `yes` where the condition holds, else `no`; a scalar if all three are scalars."""
    if isinstance(condition, bool | np.bool_):
        return yes if condition else no
    return np.where(condition, yes, no)


def floor(value: Bound) -> Bound:
    """Return the largest integer that is at most `value`; infinities are unchanged."""
    if isinstance(value, float):
        return float(math.floor(value)) if math.isfinite(value) else value
    return np.floor(value)


def part_of(fraction: Bound, extent: Bound) -> Bound:
    """Return the iteration, counted from 0, at a fraction (0 to 1) of a loop's extent.

    For an unbounded loop and the fraction 0, this is the first iteration.
    """
    last = larger(extent - 1.0, 0.0)
    if isinstance(fraction, float) and isinstance(last, float):
        return floor(fraction * last) if fraction else 0.0
    with np.errstate(invalid="ignore"):
        product = np.asarray(fraction * last)
    return floor(np.where(np.isnan(product), 0.0, product))


def smaller(a: Bound, b: Bound) -> Bound:
    """Return the elementwise minimum; a scalar if both arguments are scalars."""
    if isinstance(a, float) and isinstance(b, float):
        return min(a, b)
    return np.minimum(a, b)


def larger(a: Bound, b: Bound) -> Bound:
    """Return the elementwise maximum; a scalar if both arguments are scalars."""
    if isinstance(a, float) and isinstance(b, float):
        return max(a, b)
    return np.maximum(a, b)


@dataclass(frozen=True, slots=True)
class SizedSplit:
    """A split with its factor; `even` is whether Halide knows that it divides the loop's extent.

    `factor` and `even` are scalars or have shape (N,).
    """

    split: Split
    factor: Bound
    even: Any


Change = SizedSplit | Fuse


def sized(
    splits: tuple[Split | Fuse, ...], factors: Mapping[int, Bound], known: Mapping[str, float]
) -> tuple[Change, ...]:
    """Return the splits with their factors; a tail is not needed where `SizedSplit.even` holds.

    Args:
        splits: The splits and fusions of a stage, in order.
        factors: Split factors by position in `splits`, which replace those of the schedule.
        known: The extents, or divisors of extents, of the definition's loops that Halide knows at
            compile time, by canonical name: promised bounds and constant reduction domains.
    """
    aligned: dict[str, Bound] = dict(known)
    result: list[Change] = []
    for place, change in enumerate(splits):
        if isinstance(change, Fuse):
            both = aligned.get(change.inner, UNKNOWN), aligned.get(change.outer, UNKNOWN)
            aligned[change.fused] = both[0] * both[1]
            result.append(change)
            continue
        factor = factors.get(place, float(change.factor))
        of = aligned.get(change.old, UNKNOWN)
        even = _divides(factor, of)
        aligned[change.inner] = factor
        aligned[change.outer] = where(even, of / factor, UNKNOWN)
        result.append(SizedSplit(change, factor, even | (factor == 1.0)))
    return tuple(result)


def _divides(factor: Bound, extent: Bound) -> Any:
    if isinstance(factor, float) and isinstance(extent, float):
        return not math.isnan(extent) and extent % factor == 0
    return np.mod(extent, factor) == 0.0


def ranges_after(changes: tuple[Change, ...], ranges: Mapping[str, Interval]) -> Ranges:
    """Return the range of every loop, including loops that are later split or fused.

    `ranges` has the ranges of the definition's loops.
    """
    found = dict(ranges)
    for change in changes:
        if isinstance(change, Fuse):
            extent = found[change.inner].extent * found[change.outer].extent
            found[change.fused] = Interval(0.0, extent - 1.0)
            continue
        old, factor = found[change.split.old], change.factor
        count = floor((old.hi - old.lo + factor) / factor)
        found[change.split.outer] = Interval(0.0, count - 1.0)
        found[change.split.inner] = Interval(0.0, factor - 1.0)
    return found


@dataclass(frozen=True, slots=True)
class Values:
    """Ranges of the definition's loop variables in a stage's stores and in its loads.

    The two differ under ``predicate_loads`` and ``predicate_stores``, which guard one side only.
    `still` names the fixed loops, including loops that are split or fused. Per row, `beyond` is
    whether the loops are fixed at an iteration that a guard skips, and `idle` whether they are
    fixed at one in which a predicate skips all loads.
    """

    stores: Ranges
    loads: Ranges
    still: frozenset[str] = frozenset()
    idle: Any = False
    beyond: Any = False


def values(
    changes: tuple[Change, ...],
    ranges: Ranges,
    fixed: Mapping[str, Bound],
    corners: frozenset[str] = frozenset(),
) -> Values:
    """Return the ranges of the definition's loop variables with some loops fixed.

    Args:
        changes: The splits and fusions of the stage.
        ranges: The range of every loop (`ranges_after`).
        fixed: The value of each fixed loop of the final nest; other loops run over their ranges.
        corners: Those of `fixed` that are fixed at an end of their range to represent all
            iterations. If a guard skips that end, the last iteration that runs is used instead,
            even if other loops of the split are not fixed.
    """
    now = {
        name: Interval(fixed[name], fixed[name]) if name in fixed else part
        for name, part in ranges.items()
    }
    loads: Ranges = {}
    idle: Any = False
    beyond: Any = False
    # Halide does not clamp the variable of a fixed loop: the guard is a condition around the body.
    still = set(fixed.keys() - corners)
    points = set(fixed)
    ends = set(corners)
    for change in reversed(changes):
        if isinstance(change, Fuse):
            _unfuse(change, now, ranges, change.fused in points)
            for known in (still, points, ends):
                if change.fused in known:
                    known |= {change.inner, change.outer}
            continue
        split = change.split
        for known in (still, points):
            if split.outer in known and split.inner in known:
                known.add(split.old)
        if split.outer in ends or split.inner in ends:
            ends.add(split.old)
        high = ranges[split.old].hi
        whole = _whole(change, now, ranges[split.old])
        now[split.old] = whole
        if split.tail in GUARDED:
            guarded = whole
            if split.old not in still:
                end = where(change.even, whole.hi, smaller(whole.hi, high))
                first = smaller(whole.lo, end) if split.old in ends else whole.lo
                guarded = Interval(end if split.old in points else first, end)
            else:
                past = (whole.lo > high) & ~np.asarray(change.even)
                if split.tail in BRANCHES:
                    beyond = beyond | past
                elif split.tail == "predicate_loads":
                    idle = idle | past
            if split.tail != "predicate_loads":
                now[split.old] = guarded
            loads[split.old] = whole if split.tail == "predicate_stores" else guarded
    return Values(now, {**now, **loads}, frozenset(still), idle, beyond)


def _whole(change: SizedSplit, now: Ranges, old: Interval) -> Interval:
    """Return the range of a split loop, computed from its parts, before any guard."""
    outer, inner = now[change.split.outer], now[change.split.inner]
    first, last = outer.lo * change.factor + old.lo, outer.hi * change.factor + old.lo
    if "shift" in change.split.tail:
        latest = old.hi + 1.0 - change.factor
        first = where(change.even, first, smaller(first, latest))
        last = where(change.even, last, smaller(last, latest))
    return Interval(first + inner.lo, last + inner.hi)


def _unfuse(fuse: Fuse, now: Ranges, ranges: Ranges, still: bool) -> None:
    fused, inner, outer = now[fuse.fused], ranges[fuse.inner], ranges[fuse.outer]
    size = larger(inner.extent, 1.0)
    first, last = floor(fused.lo / size), floor(fused.hi / size)
    if still:
        low = high = fused.lo - first * size
    else:
        low, high = 0.0, size - 1.0
    now[fuse.inner] = Interval(low + inner.lo, high + inner.lo)
    now[fuse.outer] = Interval(first + outer.lo, last + outer.lo)
