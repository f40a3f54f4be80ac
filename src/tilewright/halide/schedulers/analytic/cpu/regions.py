"""What N tilings of a group touch, and what they cost: the tables that `cost` fills in."""

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
    """What N tilings of a group touch, and the cycles that one tile of each computes.

    `held` has the members' boxes that are there at a time, without a window (the whole tile's)
    and with each. `outside` has what one tile touches outside the group, then what each longer
    sweep of consecutive tiles does; `swept` lists the dimensions along which the sweeps go.
    `strips` has what shorter sweeps touch, of the blocks inside a tile, and how many of each a
    tile has, the shortest first; they are only told apart where a block sums up a reduction,
    and so reads much again that the block before it has read.
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

    `sliding` says that members are stored once a tile and computed row by row.
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
