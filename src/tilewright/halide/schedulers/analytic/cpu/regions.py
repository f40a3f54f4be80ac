"""Tables of the regions and costs of N tilings of a group, filled in by `cost`.

| symbol | meaning | shape, unit |
|---|---|---|
| `full` | extents of the output | (dimensions,), elements |
| `tiles`, `counts` | size and number of tiles by dimension of the output | (N, dimensions) |
| box | interval of each dimension of a Func or input | (N,), coordinates |
| `compute` | arithmetic of one tile, on one core | (N,), cycles |
| `l2`, `l3`, `memory`, `overhead` | traffic of the group; loops, tasks, pages | (N,), cycles |
| `tile_bytes`, `root_bytes` | what one tile stores; the group's buffers at root | (N,), bytes |
| `tasks` | tiles, each a task of the parallel loop | (N,), count |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.halide.analysis.bounds import Bound, Box, Interval
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.traffic import Array


class Window(NamedTuple):
    """Members can slide along `dimension` of the output, `step` of its rows at a time."""

    dimension: int
    step: int = 1


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions that N tilings of a group touch, and the compute cycles of one tile of each.

    `held` has the members' boxes that are stored at a time: without a window (those of the complete
    tile), and with each window. `outside` has the boxes outside the group that one tile touches,
    then those of each longer sweep of consecutive tiles; `swept` lists the dimensions of the
    sweeps. `strips` has the boxes of shorter sweeps, of blocks inside a tile, and their numbers per
    tile, the shortest first. Strips are only distinguished if a block sums up a reduction, and so
    reads again much of what the previous block has read.
    """

    full: Array
    tiles: Array
    counts: Array
    swept: tuple[int, ...]
    compute: Bound
    held: Mapping[Window | None, Mapping[str, Box]]
    outside: tuple[Mapping[str, Box], ...]
    strips: tuple[tuple[Array, Mapping[str, Box]], ...] = ()


@dataclass(frozen=True, eq=False)
class GroupCosts:
    """Cycles of a group for each of N tilings (arrays of shape (N,)), and where they go.

    `tile_bytes` is what the members of one tile hold, `tasks` the number of parallel tasks,
    `root_bytes` the size of the output's buffer, `fault` the part of `cycles` for its fresh pages.
    """

    cycles: Array
    compute: Array
    l2: Array
    l3: Array
    memory: Array
    overhead: Array
    tile_bytes: Array
    tasks: Array
    root_bytes: float
    fault: float


def rows_of(boxes: Mapping[str, Box], start: int, n: int) -> dict[str, Box]:
    """Return the part of stacked boxes that belongs to one shape of tile."""

    def part(bound: Bound) -> Bound:
        return bound if np.ndim(bound) == 0 else bound[start : start + n]  # type: ignore[index]

    return {
        name: tuple(Interval(part(i.lo), part(i.hi)) for i in box) for name, box in boxes.items()
    }


def iterations(extent: Bound) -> Bound:
    """Return iterations of a loop; a guess where nothing bounds it."""
    if isinstance(extent, float):
        return extent if math.isfinite(extent) else SEARCH.unknown_iterations
    if np.isfinite(extent).all():
        return extent
    return np.where(np.isfinite(extent), extent, SEARCH.unknown_iterations)


def finite(bound: Bound, default: float = SEARCH.unknown_extent) -> float:
    """Return the largest value, or the default where nothing bounds it."""
    value = float(np.max(bound))
    return value if math.isfinite(value) else default
