"""Warps of a block and the memory transactions of a warp, for the features of Anderson et al. 2021.

| symbol | meaning | unit |
|---|---|---|
| `block` | threads of the whole block along x, y, z: the largest of all stages in it | threads |
| `threads` | threads of one stage along x, y, z; the others of the block are idle | threads |
| active warp | a warp with at least one thread of the stage | |
| sector | 32 consecutive bytes of global memory; one transaction | bytes |
| bank | one of 32 columns of 4-byte words of shared memory | |
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

WARP = 32
MOST_THREADS = 1024
SECTOR_BYTES = 32
WORD_BYTES, BANKS = 4, 32
# Bytes that a transaction moves.
MOVED = {"global": 32, "shared": 128}

Extents = tuple[int, int, int]
Integers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Threads:
    """The threads of one stage in a block.

    Attributes:
        block: Threads of the block along x, y, z.
        threads: Threads of the stage along x, y, z.
        loops: The loops that x, y, z run over.
    """

    block: Extents
    threads: Extents
    loops: tuple[str, ...]

    @property
    def count(self) -> int:
        """Threads of the stage."""
        return self.threads[0] * self.threads[1] * self.threads[2]

    @property
    def warps(self) -> int:
        """Warps of the block."""
        return -(-self.block[0] * self.block[1] * self.block[2] // WARP)

    @cached_property
    def _ids(self) -> tuple[Integers, Integers]:
        """The coordinates of every thread of the block, shape (3, T), and which are active."""
        x, y, _ = self.block
        ids = np.arange(self.block[0] * self.block[1] * self.block[2], dtype=np.int64)
        places = np.stack([ids % x, ids // x % y, ids // (x * y)])
        inside = places < np.array(self.threads).reshape(3, 1)
        return places, np.asarray(inside.all(axis=0), dtype=np.int64)

    @cached_property
    def _active(self) -> Integers:
        """Active threads of each warp."""
        _, active = self._ids
        padded = np.zeros(self.warps * WARP, dtype=np.int64)
        padded[: len(active)] = active
        result: Integers = padded.reshape(-1, WARP).sum(axis=1)
        return result

    @property
    def active_threads(self) -> int:
        """Active threads."""
        return int(self._active.sum())

    @property
    def active_warps(self) -> int:
        """Active warps."""
        return int((self._active > 0).sum())

    @property
    def tail(self) -> bool:
        """Whether the last warp is active with another number of threads than the first active."""
        first = self._active[self._active > 0][0]
        return bool(0 < self._active[-1] != first)

    @property
    def regular_warps(self) -> int:
        """Active warps without the tail."""
        return self.active_warps - self.tail

    def warp(self, last: bool) -> tuple[Integers, Integers]:
        """Return the coordinates of the threads of the first or last warp, and which are active."""
        places, active = self._ids
        begin = (self.warps - 1) * WARP if last else 0
        return places[:, begin : begin + WARP], active[begin : begin + WARP]


@lru_cache(maxsize=4096)
def threads_of(
    sizes: tuple[int, ...], loops: tuple[str, ...], vector: int, most: tuple[int, ...]
) -> Threads:
    """Return the threads of a stage with thread loops of these sizes.

    Args:
        sizes: The extents of the thread level, by loop of the definition.
        loops: The names of these loops.
        vector: The loop along the innermost dimension in memory, which becomes x; -1 without one.
        most: The largest number of threads of all stages in the block, by dimension.
    """
    block = _limited([size for size in most if size != 1])
    order = [vector] if vector >= 0 and sizes[vector] != 1 else []
    order += [i for i, size in enumerate(sizes) if size != 1 and i != vector]
    mine = _limited([sizes[i] for i in order])
    used = sum(1 for size in mine if size != 1)
    names = tuple(loops[i] for i in order[:used]) or loops[:1]
    return Threads(block, mine, names)


def _limited(sizes: list[int]) -> Extents:
    """Return the first sizes, at most three and with at most 1024 threads."""
    found: list[int] = []
    total = 1
    for size in sizes:
        if len(found) == 3 or total * size > MOST_THREADS:
            break
        found.append(size)
        total *= size
    x, y, z = (*found, 1, 1, 1)[:3]
    return x, y, z


@dataclass
class Transactions:
    """Memory transactions of a block: how many, and bytes used and moved."""

    count: float = 0.0
    used: float = 0.0
    moved: float = 0.0

    def add(self, other: Transactions) -> None:
        """Add those of another access."""
        self.count += other.count
        self.used += other.used
        self.moved += other.moved

    @property
    def efficiency(self) -> float:
        """Bytes used over bytes moved; 1 without any."""
        return self.used / self.moved if self.moved else 1.0


# Per thread dimension, the steps of an access in each dimension in memory with the distance of two
# neighbours there, both innermost first; None for an unknown step.
Steps = tuple[tuple[tuple[float, int], ...] | None, ...]


def transactions_of(
    memory: str, threads: Threads | None, steps: Steps, size: int, requests: float
) -> Transactions:
    """Return the transactions of one access by a block.

    Args:
        memory: ``global`` or ``shared``.
        threads: The threads; None if a single thread runs.
        steps: The address by thread.
        size: Bytes of an element.
        requests: Accesses of each warp.
    """
    found = Transactions()
    if threads is None:
        _add(found, memory, requests, 1, size)
        return found
    count, used = _of_warp(memory, threads, steps, size, False)
    _add(found, memory, int(threads.regular_warps * requests), count, used)
    if threads.tail:
        count, used = _of_warp(memory, threads, steps, size, True)
        _add(found, memory, int(requests), count, used)
    return found


def _add(found: Transactions, memory: str, requests: float, count: int, used: int) -> None:
    found.count += requests * count
    found.moved += requests * count * MOVED[memory]
    found.used += requests * used


@lru_cache(maxsize=65536)
def _of_warp(memory: str, threads: Threads, steps: Steps, size: int, last: bool) -> tuple[int, int]:
    """Return the transactions and the bytes used of one access by one warp."""
    places, active = threads.warp(last)
    places = places[:, active > 0]
    count = places.shape[1]
    if any(step is None for step in steps):
        return count, count * size  # each thread by itself
    byte = np.zeros(count, dtype=np.int64)
    for place, step in zip(places, steps, strict=False):
        offset = np.zeros(count, dtype=np.int64)
        for along, distance in step or ():
            offset += np.trunc(place * along).astype(np.int64) * distance
        byte += size * np.abs(offset)
    every = byte[:, None] + np.arange(size)
    if memory == "global":
        sector = np.repeat(byte // SECTOR_BYTES, size)
        pairs = np.unique(np.stack([sector, every.ravel()]), axis=1)
        return len(np.unique(sector)), pairs.shape[1]
    words = np.unique(every // WORD_BYTES)
    counts = np.bincount(words % BANKS, minlength=BANKS)
    return int(counts.max(initial=0)), len(np.unique(every))
