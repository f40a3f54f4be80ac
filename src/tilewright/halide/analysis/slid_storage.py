"""Compute upper bounds of the storage of a Func that slides.

A Func slides if it is stored outside a serial loop and computed inside it. Each iteration then
computes only new values (Halide 21, ``SlidingWindow.cpp``). To fill the window first, the loop may
start earlier by the length of the window. If an iteration has nothing new, its range is empty and
begins one coordinate after the end.

Halide may then fold the storage to a power of two that holds what one iteration touches
(``StorageFolding.cpp``), if it can bound this for every size of the output. For a small output, it
folds to the complete window even if the window is cut off at the end of the output. The extents
computed here are therefore upper bounds, except for the windows of `windows.py`, which are exact.

| symbol | meaning | shape, unit |
|---|---|---|
| N | rows: combinations of sizes or split factors | count |
| `box` | region touched inside the store level, stored without folding | (N,), coordinates |
| `window` | region that one iteration of a loop touches or computes | (N,), coordinates |
| `ahead` | extent if the loop starts earlier by a whole window | (N,), elements |
| folded | the power of two that holds a window, at most `MOST_FOLDED` | (N,), elements |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tilewright.halide.analysis.bounds import Bound, Box, Interval
from tilewright.halide.analysis.loop_ranges import larger, where
from tilewright.halide.analysis.nest_parts import Allocation
from tilewright.halide.analysis.nest_walk import storage
from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.analysis.windows import MOST_FOLDED, power_of_two


def at_most(nest: ScheduledNest, item: Allocation, larger_nest: ScheduledNest) -> tuple[Bound, ...]:
    """Return upper bounds of the extents that Halide allocates for a Func that slides.

    Args:
        nest: The scheduled nest.
        item: An allocation of `nest`.
        larger_nest: The same nest for outputs large enough that no window is cut off.
    """
    if item.func in nest.windows:
        return item.extents
    entry = nest.structure.entries[item.func]
    slides = entry.store != entry.compute
    # Otherwise, a Func that slides reads this one or has it in its loops.
    extents = _slid(nest, item, larger_nest) if slides else item.extents
    if slides and not item.loose:
        return extents
    most = nest.at_most(item)
    return tuple(where(np.isfinite(b), larger(a, b), a) for a, b in zip(extents, most, strict=True))


def _slid(nest: ScheduledNest, item: Allocation, larger_nest: ScheduledNest) -> tuple[Bound, ...]:
    """Return the extents with an early start or with folding, whichever is larger."""
    found = [part.extent for part in item.box]
    for window in _windows(nest, item):
        for d, part in enumerate(window):
            ahead = item.box[d].extent + larger(part.extent, 1.0)
            moves = part.extent < item.box[d].extent
            found[d] = larger(found[d], where(moves, ahead, found[d]))
    for whole in _same(larger_nest, item):
        for window in _windows(larger_nest, whole):
            for d, part in enumerate(window):
                size = part.extent
                folds = (size < whole.box[d].extent) & (size <= MOST_FOLDED)
                found[d] = larger(found[d], where(folds, power_of_two(size), 0.0))
    box = tuple(
        Interval(part.lo, part.lo + extent - 1.0)
        for part, extent in zip(item.box, found, strict=True)
    )
    return storage(nest, item.func, box)[1]


def _same(nest: ScheduledNest, item: Allocation) -> list[Allocation]:
    """Return the same allocation in a nest with other sizes, as a list with one or no item."""
    return [
        other for other in nest.allocations if (other.func, other.path) == (item.func, item.path)
    ]


def _windows(nest: ScheduledNest, item: Allocation) -> Iterator[Box]:
    """Yield the boxes of a Func touched or computed per iteration, for loops it may slide over."""
    name = nest.structure.names[item.func]
    inside = len(item.path)
    own = [
        loop
        for loop in nest.loops
        if loop.stage[0] == item.func and loop.path[:inside] == item.path
    ]
    around = {loop.path[:at] for loop in own for at in range(inside + 1, len(loop.path) + 1)}
    for loop in own:
        if loop.stage[1] == 0:
            ranges = loop.context.ranges
            yield tuple(ranges[f"v{d}"] for d in range(len(item.box)))
    for loop in nest.loops:
        if (*loop.path, (loop.stage, loop.name)) in around:
            touched = nest.touched_in(loop).get(name)
            if touched is not None:
                yield touched


def elements(extents: Sequence[Bound]) -> Bound:
    """Return the product of extents."""
    count: Bound = 1.0
    for extent in extents:
        count = count * extent
    return count
