"""What the search for a GPU decides per Func: where it is computed, and with which tile.

A kernel has four levels of loops, outermost first::

    for blocks:                 one iteration a block
      for threads:              a Func computed per block has its own threads
        for serial iterations:  of one thread, unrolled if there are few
          one point

The extents of a tile come from the lists of Anderson 2021 (Section 6), extended upwards: the
released scheduler draws from lists, and this search tries the next entry of a list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["inline", "root", "block", "thread", "serial"]
Extents = tuple[int, ...]

# Iterations of a serial loop and threads along a dimension (paper: 1, 2, 4, 8 and 1 to 16 or 64;
# the larger ones are chosen).
SERIAL = (1, 2, 4, 8, 16)
THREADS = (1, 2, 4, 8, 16, 32)
FIRST_THREADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# Extents that are a single serial loop (paper).
ODD_EXTENTS = (3, 5, 7)
# A dimension of at most this extent may be covered by threads (paper: below 64).
WHOLE_THREADS = 63
MOST_THREADS = 1024  # per block, on every CUDA device
MOST_SERIAL = 64  # iterations of one thread (paper)
THREAD_DIMENSIONS = 3
MOST_INLINED_CALLS = 255  # of a Func, per evaluation of its kernel's definition (paper)
# Tiles from which descent starts: threads along the innermost dimension, and threads with serial
# iterations along the next one (chosen).
STARTING_THREADS = (16, 32, 64)
STARTING_ROWS = ((1, 1), (1, 8), (4, 4), (16, 1), (16, 4))
# The innermost dimension is the first of at least this extent (paper).
FIRST_EXTENT = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """Serial iterations and threads along each dimension of a Func, in the order of its arguments.

    Threads are not used below the level of blocks, where they follow from the region.
    """

    serial: Extents
    threads: Extents = ()

    @property
    def points(self) -> Extents:
        """The points of a block along each dimension."""
        return tuple(s * t for s, t in zip(self.serial, self.threads, strict=True))

    @property
    def legal(self) -> bool:
        """Whether a block can have the threads, and a thread the iterations."""
        dimensions = sum(t > 1 for t in self.threads)
        few = math.prod(self.threads) <= MOST_THREADS and dimensions <= THREAD_DIMENSIONS
        return few and math.prod(self.serial) <= MOST_SERIAL


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one Func is computed.

    Attributes:
        kind: Inlined, at root, in the blocks of another Func, in its threads, or in the serial
            loops of its threads (which only the search as published offers).
        of: The position of the Func at root in whose kernel it is; -1 if it is inlined or at root.
        tile: Its tile; None if it is inlined, or at root with a nest that is not changed.
        at: The position of the Func in whose loops it is; -1: that is `of`.
        stage: The stage in whose loops it is.
    """

    kind: Kind
    of: int = -1
    tile: Tile | None = None
    at: int = -1
    stage: int = 0
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        """Compute the hash once: states are tuples of choices, and are looked up often."""
        object.__setattr__(self, "_hash", hash(self._key))

    @property
    def _key(self) -> tuple[object, ...]:
        return self.kind, self.of, self.tile, self.at, self.stage

    def __hash__(self) -> int:
        """Return the hash of the fields."""
        return self._hash


INLINED = Placement("inline")
# One choice per Func of the algorithm; None for Funcs that the search does not schedule.
State = tuple[Placement | None, ...]


def serial_sizes(extent: int) -> Extents:
    """Return the serial iterations to try along a dimension.

    >>> serial_sizes(3), serial_sizes(100)
    ((1, 3), (1, 2, 4, 8, 16))
    """
    if extent in ODD_EXTENTS:
        return 1, extent
    return tuple(size for size in SERIAL if size <= extent)


def thread_sizes(extent: int, first: bool) -> Extents:
    """Return the threads to try along a dimension; `first` if it is innermost in memory.

    >>> thread_sizes(12, first=False)
    (1, 2, 4, 8, 12)
    """
    sizes = {size for size in (FIRST_THREADS if first else THREADS) if size <= extent}
    return tuple(sorted(sizes | ({extent} if extent <= WHOLE_THREADS else set())))


def first_dimension(extents: Sequence[float], output: bool) -> int:
    """Return the dimension that is innermost in memory; -1 without any.

    >>> first_dimension([3, 640, 480], output=False)
    1
    """
    if not extents:
        return -1
    large = [d for d, extent in enumerate(extents) if extent >= FIRST_EXTENT]
    return large[0] if large and not output else 0


def starting_tiles(tile: Tile, extents: Sequence[float], first: int) -> list[Tile]:
    """Return tiles of several shapes in the plane of `first` and the next dimension.

    Other dimensions are as in `tile`.
    """
    others = [d for d, extent in enumerate(extents) if d != first and extent > 1]
    across = next((d for d in others if extents[d] not in ODD_EXTENTS), -1)
    found = []
    for along in STARTING_THREADS:
        for rows, each in STARTING_ROWS if across >= 0 else ((1, 1),):
            threads, serial = list(tile.threads), list(tile.serial)
            threads[first], serial[first] = min(along, int(extents[first])), 1
            if across >= 0:
                threads[across] = min(rows, int(extents[across]))
                serial[across] = min(each, int(extents[across]))
            found.append(Tile(tuple(serial), tuple(threads)))
    return [each for each in dict.fromkeys(found) if each.legal]


def usual_tile(extents: Sequence[float], first: int) -> Tile:
    """Return the tile to start from: one warp along `first` and, if there is room, eight rows."""
    threads = [1] * len(extents)
    if first >= 0:
        threads[first] = max(size for size in (1, 2, 4, 8, 16, 32) if size <= extents[first])
    serial = tuple(int(e) if e in ODD_EXTENTS and d != first else 1 for d, e in enumerate(extents))
    for d, extent in enumerate(extents):
        if d != first and serial[d] == 1 and extent > 1:
            threads[d] = max(size for size in (1, 2, 4, 8) if size <= extent)
            break
    return Tile(serial, tuple(threads))
