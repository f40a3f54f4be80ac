"""Choose the loops to tile and list the tile sizes to try (Sioutas 2020, Section 4.2).

| symbol | meaning | unit |
|---|---|---|
| extent N_d | iterations of parallel loop d | iterations |
| T_min, T_max | smallest and largest tile of a loop | iterations |
| tiled | number of tiled loops | count |
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH

Tiles = npt.NDArray[np.float64]
Step = Literal["powers", "two"]


def tiled_dims(extents: Sequence[int]) -> tuple[int, ...]:
    """Return the dimensions to tile: all with extent 64 or more, otherwise only the largest.

    >>> tiled_dims([1536, 2560, 3])
    (0, 1)
    >>> tiled_dims([24, 40, 3])
    (1,)
    """
    large = tuple(i for i, extent in enumerate(extents) if extent >= SEARCH.tiled_from)
    if large or not extents:
        return large
    return (max(range(len(extents)), key=lambda i: (extents[i], -i)),)


def tile_bounds(extent: int, tiled: int, *, halve: bool = False) -> tuple[int, int]:
    """Return T_min and T_max of a tiled dimension, in iterations.

    Unlike in the paper, T_max of a single tiled dimension always allows whole warps.

    Args:
        extent: Iterations of the dimension.
        tiled: Number of tiled dimensions, including this one.
        halve: Whether to halve T_max, for OpenCL devices with 512 threads per work-group.

    >>> tile_bounds(2560, 2)
    (8, 80)
    >>> tile_bounds(2560, 1)
    (8, 64)
    >>> tile_bounds(40, 1)
    (2, 20)
    """
    c = SEARCH
    if extent < c.large_from:
        most = extent // c.small_divisor
    elif tiled == 1:
        most = max(extent // c.large_alone, c.least_alone)
    else:
        most = extent // c.large_several
    if halve:
        most //= 2
    least = c.least_tile if extent >= c.tiled_from else c.least_short_tile
    return least, max(most, least)


def tile_sizes(extent: int, tiled: int, step: Step, *, halve: bool = False) -> list[int]:
    """Return the tile sizes to try, none larger than the extent.

    >>> tile_sizes(1536, 2, "powers")
    [8, 16, 32]
    >>> tile_sizes(64, 2, "two")
    [8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32]
    """
    least, most = tile_bounds(extent, tiled, halve=halve)
    sizes = range(least, most + 1, 2)
    chosen = [size for size in sizes if size & size - 1 == 0] if step == "powers" else list(sizes)
    return [size for size in chosen if size <= extent] or [extent]


@dataclass(frozen=True, slots=True)
class LoopRoles:
    """The roles of a stage's parallel loops, given by their positions among those loops.

    Attributes:
        threads: Loops that are tiled, with each tile distributed over threads; innermost first.
        others: Loops that run completely inside a thread, or one iteration per block.
    """

    threads: tuple[int, ...]
    others: tuple[int, ...]


def loop_roles(extents: Sequence[int]) -> LoopRoles:
    """Return the roles of parallel loops with the given extents, innermost storage dimension first.

    If more than three dimensions are tiled, only the innermost and the two largest others get
    threads. Small dimensions of at least four iterations also get threads in two cases:

    * The innermost dimension does if fewer than three dimensions are tiled, because neighbouring
      threads should access neighbouring elements.
    * If no dimension has 64 iterations (the top of a pyramid), up to three dimensions do, because
      a single one would leave most of a warp idle.
    """
    tiled = list(tiled_dims(extents))
    if len(tiled) > SEARCH.thread_dimensions:
        rest = sorted(tiled[1:], key=lambda i: -extents[i])[: SEARCH.thread_dimensions - 1]
        tiled = sorted([tiled[0], *rest])
    elif tiled and extents[tiled[0]] >= SEARCH.tiled_from:
        if (
            tiled[0] != 0
            and len(tiled) < SEARCH.thread_dimensions
            and extents[0] >= SEARCH.worth_threads
        ):
            tiled = [0, *tiled]
    elif tiled:
        small = [
            i for i in range(len(extents)) if extents[i] >= SEARCH.worth_threads and i not in tiled
        ]
        small.sort(key=lambda i: -extents[i])
        tiled = sorted([*tiled, *small[: SEARCH.thread_dimensions - 1]])
    others = tuple(i for i in range(len(extents)) if i not in tiled)
    return LoopRoles(tuple(tiled), others)


def candidates(
    extents: Sequence[int], roles: LoopRoles, step: Step, *, halve: bool = False
) -> Tiles:
    """Return every tiling to try, shape (tilings, loops), in iterations.

    A loop without threads has a tile of its full extent or of 1.
    """
    choices: list[list[int]] = [[] for _ in extents]
    large = [i for i in roles.threads if extents[i] >= SEARCH.tiled_from]
    alone = max(roles.threads, key=lambda i: (extents[i], -i), default=-1)
    for i in roles.threads:
        if i in large or (not large and i == alone):
            choices[i] = tile_sizes(extents[i], max(len(large), 1), step, halve=halve)
        else:
            powers = [2**p for p in range(extents[i].bit_length()) if 2**p < extents[i]]
            choices[i] = sorted({*powers, extents[i]})
    for i in roles.others:
        choices[i] = sorted({1, extents[i]}) if extents[i] <= SEARCH.tiled_from else [1]
    choices = _thinned(choices)
    return np.array(list(itertools.product(*choices)), dtype=np.float64).reshape(-1, len(extents))


def _thinned(choices: list[list[int]]) -> list[list[int]]:
    """Halve the sizes of the dimension with the most sizes until few enough tilings are left."""
    while True:
        total = 1
        for sizes in choices:
            total *= len(sizes)
        longest = max(range(len(choices)), key=lambda i: len(choices[i]), default=-1)
        if (
            total <= SEARCH.most_tilings
            or longest < 0
            or len(choices[longest]) <= SEARCH.least_sizes
        ):
            return choices
        # This keeps the first size and multiples of a larger power of two: 8, 12, 16 of 8, 10, …
        sizes = choices[longest]
        choices[longest] = [s for i, s in enumerate(sizes) if i % 2 == 0]


def grid_dimensions(counts: Sequence[int]) -> list[list[int]]:
    """Return the block loops of each grid dimension, as positions in `counts`.

    A grid has three dimensions, and only the first has no practical size limit. Loops that do not
    fit are fused with the next inner loop.

    Args:
        counts: Number of blocks along each loop, innermost first.

    >>> grid_dimensions([4, 5])
    [[0], [1]]
    >>> grid_dimensions([4, 5, 6, 7])
    [[0], [1], [2, 3]]
    >>> grid_dimensions([2, 500_000])
    [[0, 1]]
    """
    dimensions = [[place] for place in range(len(counts))]
    while len(dimensions) > SEARCH.block_dimensions:
        outer = dimensions.pop()
        dimensions[-1] += outer
    for d in range(len(dimensions) - 1, 0, -1):
        if math.prod(counts[place] for place in dimensions[d]) > SEARCH.most_blocks:
            dimensions[d - 1] += dimensions.pop(d)
    return dimensions
