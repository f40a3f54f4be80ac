"""How often a Func is computed again that is stored outside the loop at which it is computed.

Between the loop where it is stored and the one where it is computed, Halide lets the Func slide:
an iteration computes only what earlier ones have not. It does so for a serial loop if the required
region moves along a single dimension, or along none: then the Func is computed in the first
iteration only. In that dimension (the last one if the region does not move), all stages of the Func
must be pure. Otherwise each iteration computes the complete region (``SlidingWindow.cpp`` of Halide
21).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.halide.analysis.bounds import Bound, Box
from tilewright.halide.analysis.nest_parts import LoopSize
from tilewright.halide.ir.algorithm import Func, Variable
from tilewright.halide.ir.schedule import Level

SLIDES_OVER = ("serial", "unrolled")


def repeats(
    func: Func,
    store: Level,
    loops: Sequence[LoopSize],
    within: Box,
    first: int,
    touched: Callable[[LoopSize], Box | None],
) -> float:
    """Return the computed points of a Func over those required, at least 1.

    Args:
        func: The Func.
        store: The loop in which it is stored.
        loops: The loops around its computation, outermost first.
        within: The region required by an iteration of the loop before `first`, in coordinates.
        first: Position of the outermost loop that counts.
        touched: Returns the region required by an iteration of a loop, None if unknown.
    """
    stored = -1
    for at, loop in enumerate(loops):
        if loop.stage == (store.func, store.stage) and loop.name == store.loop:
            stored = at
    total, outer = 1.0, within
    for at in range(first, len(loops)):
        inner = touched(loops[at])
        if inner is None:
            continue
        sizes = [_extent(part.extent) for part in inner]
        around = [_extent(part.extent) for part in outer]
        moving = [d for d, pair in enumerate(zip(sizes, around, strict=True)) if pair[0] < pair[1]]
        if at <= stored or loops[at].mapping not in SLIDES_OVER or not slides(func, moving):
            count = _extent(loops[at].extent)
            total *= max(1.0, count * math.prod(sizes) / math.prod(around))
        outer = inner
    return total


def slides(func: Func, moving: Sequence[int]) -> bool:
    """Return whether a Func slides over a loop along which its region moves in these dimensions."""
    if not func.args or len(moving) > 1:
        return False
    d = moving[0] if moving else len(func.args) - 1
    coordinates = (stage.args[d] for stage in func.stages[1:])
    return all(isinstance(at, Variable) and at.name == func.args[d] for at in coordinates)


def _extent(extent: Bound) -> float:
    return max(1.0, float(np.max(extent)))
