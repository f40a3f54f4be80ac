"""The tiles that the published search offers: serial iterations, then threads, then blocks.

Extents are those of the pure loops of a Func, in the order of its arguments; `first` is the
dimension that is innermost in memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.halide.schedulers.learned.gpu.choices import Extents, Tile
from tilewright.halide.schedulers.learned.gpu.published_search.constants import CONSTANTS as C


@dataclass(frozen=True, slots=True)
class StageShape:
    """The loops of one stage: the dimension of each pure loop, or -1, and iterations at root."""

    dimensions: tuple[int, ...]
    extents: tuple[int, ...]

    def along(self, sizes: Sequence[int]) -> Extents:
        """Return sizes per dimension as sizes per loop; those of reductions are 1."""
        return tuple(1 if d < 0 else sizes[d] for d in self.dimensions)


def serial_sizes(extent: int, first: bool) -> Extents:
    """Return the serial iterations to try along a dimension (Section 6.1).

    >>> serial_sizes(1000, first=True), serial_sizes(96, first=True), serial_sizes(5, first=False)
    ((1, 2, 4, 8), (3, 1, 2, 4, 8), (1, 5))
    """
    odd: list[int] = []
    if first and extent % C.warp == 0:
        odd = [size for size in C.odd_sizes if extent // C.warp % size == 0]
    if extent in C.odd_sizes:
        return 1, extent
    return (*odd, *(size for size in C.serial_sizes if size <= extent))


def serial_tiles(extents: Sequence[int], first: int) -> list[Extents]:
    """Return the serial iterations to try for a Func at root.

    Tiles that a thread could not unroll are left out, and one thread for the whole Func.
    """
    sizes = [serial_sizes(extent, d == first) for d, extent in enumerate(extents)]
    found = [tile for tile in itertools.product(*sizes) if math.prod(tile) <= C.most_unrolled]
    several = [tile for tile in found if any(s < e for s, e in zip(tile, extents, strict=True))]
    return several or found


def thread_sizes(extent: int, first: bool, line: bool = False) -> Extents:
    """Return the threads to try along a dimension (Section 6.2).

    `first`: whether it is innermost in memory; `line`: whether the Func is at root and has no other
    dimension.

    >>> thread_sizes(100, first=True), thread_sizes(40, first=True), thread_sizes(10, first=False)
    ((16, 32, 64), (16, 32, 40), (1, 2, 10))
    """
    sizes = C.other_threads
    if first:
        sizes = C.line_threads if line else C.first_threads
    found = [size for size in sizes if size <= extent and (first or _wastes_little(size, extent))]
    if extent not in found and extent < C.whole_threads:
        found.append(extent)
    return tuple(found)


def _wastes_little(size: int, extent: int) -> bool:
    """Return whether `size` and all smaller sizes round an extent up by little: 1/7 at most."""
    smaller = (each for each in C.other_threads if 1 < each <= size)
    return all(each * math.ceil(extent / each) <= C.most_waste * extent for each in smaller)


def thread_tiles(
    extents: Sequence[int],
    first: int,
    shapes: Sequence[StageShape],
    siblings: Sequence[Extents] = (),
    *,
    line: bool = False,
    whole: bool = False,
) -> list[Extents]:
    """Return the threads to try.

    Args:
        extents: Of the Func's dimensions, in tiles of serial iterations if these are chosen.
        first: The dimension that is innermost in memory.
        shapes: Of the Func's stages, which have the same tile.
        siblings: The threads (`lined_up`) of other Funcs in the block.
        line: As in `thread_sizes`.
        whole: Whether the threads must cover the extents with few serial iterations each.
    """
    sizes = [thread_sizes(extent, d == first, line) for d, extent in enumerate(extents)]
    found = []
    for tile in itertools.product(*sizes):
        own = [lined_up(shape.along(tile), shape.dimensions, first) for shape in shapes]
        serial = [math.ceil(e / t) for e, t in zip(extents, tile, strict=True)]
        if whole and max(serial, default=1) > C.most_block_serial:
            continue
        if fits([*own, *siblings]):
            found.append(tile)
    return found


def lined_up(threads: Sequence[int], dimensions: Sequence[int], first: int) -> Extents:
    """Return the threads in x, y and z: those along `first` first, extents of 1 left out."""
    order = sorted(range(len(threads)), key=lambda i: (dimensions[i] != first, i))
    return tuple(threads[i] for i in order if threads[i] > 1)


def fits(threads: Iterable[Extents]) -> bool:
    """Return whether a block has room for the threads of all stages in it."""
    most = union(threads)
    return len(most) <= C.most_thread_dimensions and math.prod(most) <= C.most_threads


def union(threads: Iterable[Extents]) -> Extents:
    """Return the threads of a block, the most of all stages in it along each of x, y and z.

    >>> union([(32, 4), (16, 8), ()])
    (32, 8)
    """
    return tuple(max(sizes) for sizes in itertools.zip_longest(*threads, fillvalue=1))


@dataclass(frozen=True, slots=True)
class RootTile:
    """A tile of a Func at root.

    `idle` is how much longer the slowest stage takes because SMs have no block in the last round.
    """

    tile: Tile
    idle: float


def root_tiles(
    extents: Sequence[int], first: int, shapes: Sequence[StageShape], sms: int
) -> list[RootTile]:
    """Return the tiles of a Func at root: for all serial iterations, those with enough blocks.

    Args:
        extents: Of its dimensions.
        first: The dimension that is innermost in memory.
        shapes: Of its stages.
        sms: Streaming multiprocessors of the GPU.
    """
    found = []
    for serial in serial_tiles(extents, first):
        rest = [math.ceil(e / s) for e, s in zip(extents, serial, strict=True)]
        threads = thread_tiles(rest, first, shapes, line=len(extents) == 1)
        found += [
            RootTile(Tile(serial, tile), idle)
            for tile, idle in _parallel(rest, threads, shapes, sms)
        ]
    return found


def _parallel(
    rest: Sequence[int], tiles: Sequence[Extents], shapes: Sequence[StageShape], sms: int
) -> list[tuple[Extents, float]]:
    """Return the threads that leave enough blocks, with the idle time; or else the best few."""
    rated = []
    for tile in tiles:
        blocks = [math.ceil(e / t) for e, t in zip(rest, tile, strict=True)]
        totals = [_blocks(shape, blocks, rest, sms) for shape in shapes]
        known = [total for total in totals if total is not None]
        idle = max([1.0, *(math.ceil(total / sms) * sms / total for total in known)])
        rated.append((min(known, default=0), tile, idle))
    least: float = C.blocks_per_sm * sms
    enough = [(tile, idle) for total, tile, idle in rated if total >= least]
    least = sms
    while not enough and rated:
        enough = [(tile, idle) for total, tile, idle in rated if total >= least]
        least //= 2
    return enough


def _blocks(shape: StageShape, blocks: Sequence[int], rest: Sequence[int], sms: int) -> int | None:
    """Return the blocks of a stage; None if it has one point a block and still too few."""
    total = math.prod(shape.along(blocks))
    most = math.prod(shape.along(rest))
    return None if most < C.blocks_per_sm * sms and total == most else total


def block_tiles(
    extents: Sequence[int],
    first: int,
    shapes: Sequence[StageShape],
    siblings: Sequence[Extents],
) -> list[Tile]:
    """Return the tiles of a Func in the blocks of another.

    They cover the region of a block. Where no number of threads is legal, one thread computes all,
    if it can unroll that.

    Args:
        extents: Of its region in one block.
        first: The dimension that is innermost in memory.
        shapes: Of its stages.
        siblings: The threads (`lined_up`) of the other stages in the block.
    """
    found: dict[Tile, None] = {}
    for threads in thread_tiles(extents, first, shapes, siblings, whole=True):
        serial = tuple(math.ceil(e / t) for e, t in zip(extents, threads, strict=True))
        # Threads that would have no iteration are left out: Halide makes none for them.
        used = tuple(math.ceil(e / s) for e, s in zip(extents, serial, strict=True))
        if math.prod(serial) <= C.most_unrolled:
            found.setdefault(Tile(serial, used))
    if not found and math.prod(extents) <= C.most_unrolled:
        found[Tile(tuple(extents), (1,) * len(extents))] = None
    return list(found)
