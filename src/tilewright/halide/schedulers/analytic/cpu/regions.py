"""The regions and costs of N tilings of a group, computed by `cost`.

| symbol | meaning | shape, unit |
|---|---|---|
| `full` | extents of the output | (dimensions,), elements |
| `tiles`, `counts` | size and number of tiles by dimension of the output | (N, dimensions) |
| box | one interval per dimension of a Func or input | (N,), coordinates |
| `compute` | arithmetic of one tile, on one core | (N,), cycles |
| `l2`, `l3`, `memory`, `overhead` | traffic of the group; loops, tasks, pages | (N,), cycles |
| `tile_bytes` | storage of the members per tile | (N,), bytes |
| `root_bytes` | the buffer of the output at root | bytes |
| `tasks` | tiles, each a task of the parallel loop | (N,), count |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.halide.analysis.bounds import Bound, Box, Interval
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.traffic import Array


class Window(NamedTuple):
    """A sliding window: members advance along `dimension` of the output by `step` rows."""

    dimension: int
    step: int = 1


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of N tilings of a group, and the compute cycles per tile.

    A sweep is a run of consecutive tiles, or of consecutive blocks within a tile.

    Attributes:
        full: extents of the output, shape (dimensions,).
        tiles: tile sizes, shape (N, dimensions).
        counts: tiles per dimension, shape (N, dimensions).
        swept: dimensions along which sweeps of tiles run, innermost first.
        compute: cycles per tile on one core, shape (N,).
        held: boxes of the group's Funcs stored at a time, by window (None: of the complete tile).
        outside: boxes of other Funcs and inputs touched by one tile, then by each longer sweep.
        block_sweeps: for each sweep of blocks within a tile, shortest first: the sweeps per tile,
            shape (N,), and the boxes touched. Empty unless the output's blocks compute a nested
            reduction, whose neighbouring blocks read mostly the same data.
    """

    full: Array
    tiles: Array
    counts: Array
    swept: tuple[int, ...]
    compute: Bound
    held: Mapping[Window | None, Mapping[str, Box]]
    outside: tuple[Mapping[str, Box], ...]
    block_sweeps: tuple[tuple[Array, Mapping[str, Box]], ...] = ()


@dataclass(frozen=True, eq=False)
class GroupCosts:
    """Cycles of a group for each of N tilings, in total and per term; arrays of shape (N,).

    `tile_bytes` is the storage of the members per tile, `tasks` the number of parallel tasks and
    `root_bytes` the size of the output's buffer. `fault` is the part of `cycles` spent on page
    faults of that buffer.
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
    """Return entries start to start + n - 1 of each bound of the boxes."""

    def part(bound: Bound) -> Bound:
        if isinstance(bound, float) or bound.ndim == 0:
            return bound
        return bound[start : start + n]

    return {
        name: tuple([Interval(part(i.lo), part(i.hi)) for i in box]) for name, box in boxes.items()
    }


def iterations(extent: Bound) -> Bound:
    """Return the iterations of a loop; a default where the extent is unbounded."""
    if isinstance(extent, float):
        return extent if math.isfinite(extent) else SEARCH.unknown_iterations
    if np.isfinite(extent).all():
        return extent
    return np.where(np.isfinite(extent), extent, SEARCH.unknown_iterations)


def finite(bound: Bound, default: float = SEARCH.unknown_extent) -> float:
    """Return the largest value, or the default where it is unbounded."""
    value = bound if isinstance(bound, float) else float(np.max(bound))
    return value if math.isfinite(value) else default


def block_sweeps(block: Block, order: Sequence[int], tiles: Array) -> list[tuple[Array, Array]]:
    """Return (shape, count per tile) of the sweeps of blocks within a tile, shortest first.

    Args:
        block: the block.
        order: the dimensions of the loops over blocks, innermost first.
        tiles: the sizes of the tiles, shape (N, dimensions).
    """
    one = np.ones(tiles.shape[1])
    if block.vector is not None:
        one[block.vector] = block.width
    if block.row is not None:
        one[block.row] = block.rows
    shape = np.minimum(one, tiles)
    found = []
    for d in order[:-1]:
        if np.all(shape[:, d] == tiles[:, d]):
            continue
        shape = shape.copy()
        shape[:, d] = tiles[:, d]
        found.append((shape, np.ceil(tiles / shape).prod(axis=1)))
    return found
