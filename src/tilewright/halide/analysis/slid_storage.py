"""Upper bounds of the storage of a Func that slides.

A Func that slides is stored outside a serial loop and computed inside it. Halide 21 computes only
what is new in each iteration (``SlidingWindow.cpp``); to fill the window it may start as many
iterations early as the window is long, and where nothing is new it begins one beyond the end. Then
it may fold the storage to the power of two that holds what one iteration touches
(``StorageFolding.cpp``), if it can prove a bound of that which holds for every size of the output.
A window that is cut short at the end of a small output is folded as if it were whole. So the
extents found here are upper bounds.

| symbol | meaning | shape, unit |
|---|---|---|
| N | rows of sizes or split factors | count |
| `box` | what is stored if all that is touched is | (N,), coordinates |
| `window` | what one iteration of a loop touches or computes | (N,), coordinates |
| `ahead` | extent if a whole window is begun early | (N,), elements |
| folded | the power of two that holds a window, at most `MOST_FOLDED` | (N,), elements |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tilewright.halide.analysis.bounds import Bound, Box, Interval
from tilewright.halide.analysis.loop_ranges import larger, smaller, where
from tilewright.halide.analysis.nest_parts import Allocation
from tilewright.halide.analysis.nest_walk import Walk
from tilewright.halide.analysis.scheduled_nest import ScheduledNest

# The longest window that Halide folds to (``AttemptStorageFoldingOfFunction``).
MOST_FOLDED = 1024.0


def at_most(nest: ScheduledNest, item: Allocation, larger_nest: ScheduledNest) -> tuple[Bound, ...]:
    """Return upper bounds of the extents that Halide allocates for a Func that slides.

    `larger_nest` is the same nest for outputs so large that no window is cut short.
    """
    entry = nest.structure.entries[item.func]
    slides = entry.store != entry.compute
    # Otherwise it is computed for a Func that slides, or in its loops.
    extents = _slid(nest, item, larger_nest) if slides else item.extents
    if slides and not item.loose:
        return extents
    most = nest.at_most(item)
    return tuple(where(np.isfinite(b), larger(a, b), a) for a, b in zip(extents, most, strict=True))


def _slid(nest: ScheduledNest, item: Allocation, larger_nest: ScheduledNest) -> tuple[Bound, ...]:
    """Return the extents of what starts early or is folded, whichever is more."""
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
                found[d] = larger(found[d], where(folds, _power_of_two(size), 0.0))
    box = tuple(
        Interval(part.lo, part.lo + extent - 1.0)
        for part, extent in zip(item.box, found, strict=True)
    )
    return Walk(nest).storage(item.func, box)[1]


def _same(nest: ScheduledNest, item: Allocation) -> list[Allocation]:
    """Return the allocation at the same place, for other sizes."""
    return [
        other for other in nest.allocations if (other.func, other.path) == (item.func, item.path)
    ]


def _windows(nest: ScheduledNest, item: Allocation) -> Iterator[Box]:
    """Yield a Func's boxes touched and computed per iteration of loops it may slide over."""
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


def _power_of_two(size: Bound) -> Bound:
    """Return the least power of two that is not below."""
    array = np.exp2(np.ceil(np.log2(np.maximum(np.asarray(smaller(size, MOST_FOLDED)), 1.0))))
    return float(array) if array.ndim == 0 else array


def elements(extents: Sequence[Bound]) -> Bound:
    """Return the product of extents."""
    count: Bound = 1.0
    for extent in extents:
        count = count * extent
    return count
