"""Changes to the options of a planned group that a search by predicted time tries.

A change returns the options to try, or None if it does not apply to the group.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.gpu.group_times import TimedGroup
from tilewright.halide.schedulers.analytic.gpu.plan import GroupPlan, KernelPlan, Options, Place

Points = tuple[int, ...]
Factors = tuple[float, float, float]
POINT_DIMENSIONS = 3
Change = Callable[[TimedGroup], Options | None]
# Factors of the tile's extents and of the points per thread, both along x, y and z, that are tried
# in turn (chosen): one extent, an extent for another, points with the extent.
RESHAPES: tuple[tuple[Factors, Factors], ...] = (
    ((2, 1, 1), (1, 1, 1)),
    ((1, 2, 1), (1, 1, 1)),
    ((0.5, 1, 1), (1, 1, 1)),
    ((1, 0.5, 1), (1, 1, 1)),
    ((2, 0.5, 1), (1, 1, 1)),
    ((0.5, 2, 1), (1, 1, 1)),
    ((1, 1, 2), (1, 1, 1)),
    ((1, 1, 0.5), (1, 1, 1)),
    ((1, 1, 2), (1, 1, 2)),
    ((1, 1, 0.5), (1, 1, 0.5)),
    ((1, 2, 1), (1, 2, 1)),
    ((2, 1, 1), (2, 1, 1)),
    ((1, 0.5, 1), (1, 0.5, 1)),
    ((0.5, 1, 1), (0.5, 1, 1)),
    ((1.5, 1, 1), (1, 1, 1)),
    ((0.75, 1, 1), (1, 1, 1)),
    ((1, 1.5, 1), (1, 1, 1)),
    ((1, 0.75, 1), (1, 1, 1)),
)


def with_options(**changes: Any) -> Change:
    """Return a change that replaces fields of a group's options."""
    return lambda each: replace(each.options, **changes)


def points_of(plan: GroupPlan) -> Points:
    """Return the points per thread along x, y and z in the last parallel kernel."""
    parallel = [kernel for kernel in plan.kernels if kernel.kind == "parallel"]
    if not parallel:
        return ()
    threads = parallel[-1].kernel.roles.threads[:POINT_DIMENSIONS]
    return tuple(parallel[-1].registers[i] for i in threads)


def neighbour(each: TimedGroup, at: int) -> Options | None:
    """Return options with the points per thread doubled or halved; None beyond the limits.

    `at` counts the six neighbours: x doubled, x halved, y doubled, y halved, z doubled, z halved.
    """
    points = [*points_of(each.plan)]
    dimension, half = divmod(at, 2)
    if dimension >= len(points) or (half and points[dimension] == 1):
        return None
    points[dimension] = points[dimension] // 2 if half else points[dimension] * 2
    return replace(each.options, points=tuple(points)) if within(points) else None


def within(points: Points | list[int]) -> bool:
    """Return whether a thread may compute as many points."""
    limits = zip(points, SEARCH.most_points, strict=False)
    return (
        all(n <= most for n, most in limits)
        and math.prod(points) <= SEARCH.most_register_tile
        and math.prod(points[1:]) <= SEARCH.most_rows
    )


def reduced(steps: int, points: Points | None = None) -> Change:
    """Return a change that unrolls `steps` iterations of a group's reductions together.

    It also sets the points per thread if `points` is given. It does not apply to groups without a
    reduction.
    """

    def change(each: TimedGroup) -> Options | None:
        stages = (
            each.plan.kernels[-1].kernel.analysis.view.stages(name) for name in each.group.members
        )
        reduces = any(stage.rvars for own in stages for stage in own)
        shape = each.options.points if points is None else points
        return replace(each.options, steps=steps, points=shape) if reduces else None

    return change


def tiles_of(plan: GroupPlan) -> tuple[Place, ...]:
    """Return the tile of every kernel that has one."""
    return tuple(_place(kernel) for kernel in plan.kernels if kernel.tile)


def _place(kernel: KernelPlan) -> Place:
    return kernel.kernel.output, kernel.kernel.stage.index, kernel.tile


def other_tile(each: TimedGroup) -> Options:
    """Return a group's options with its present tiles excluded."""
    return replace(each.options, tiles=(), unlike=(*each.options.unlike, *tiles_of(each.plan)))


def reshaped(each: TimedGroup, slowest: int, tile: Factors, points: Factors) -> Options | None:
    """Return options with the tile of one kernel scaled; None if the shape is not possible.

    Args:
        each: The group.
        slowest: The stage of the kernel. The tiles of the group's other kernels are kept.
        tile: The factors of the tile along x, y and z.
        points: The factors of the points per thread along x, y and z, for the whole group.
    """
    kernel = next(
        (k for k in each.plan.kernels if k.tile and k.kernel.stage.index == slowest), None
    )
    if kernel is None:
        return None
    roles = kernel.kernel.roles.threads
    unused = zip(range(len(tile)), tile, strict=True)
    if any(factor != 1 for d, factor in unused if d >= len(roles)):
        return None
    extents = [float(extent) for extent in kernel.tile]
    shape = [float(kernel.registers[i]) for i in roles]
    for d, (i, factor) in enumerate(zip(roles, tile, strict=False)):
        extents[i] *= factor
        shape[d] *= points[d]
        most = kernel.kernel.extents[i]
        if extents[i] > most or extents[i] % shape[d] or shape[d] != int(shape[d]):
            return None
    if not within([int(n) for n in shape]):
        return None
    scaled = replace(kernel, tile=tuple(int(extent) for extent in extents))
    tiles = tuple(_place(scaled if k is kernel else k) for k in each.plan.kernels if k.tile)
    return replace(each.options, points=tuple(int(n) for n in shape), tiles=tiles)
