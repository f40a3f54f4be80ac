"""The blocks that a tile allocates for its members: bytes, traffic, and cycles of allocation.

When a block is freed, the C library returns what is free at the end of the heap to the system if
it exceeds a limit. These pages fault again in the next tile, which takes several times as long as
the work on them. For glibc, the limit is twice the largest block that the process has freed so
far, of those mapped on their own. Buffers at root count, and so does what the process has freed
before the pipeline runs.

| symbol | meaning | shape, unit |
|---|---|---|
| N | tilings at once | count |
| `sizes` | block of each member | (N,) each, bytes |
| `kept` | what the C library keeps of a free heap, at least | bytes |
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tilewright.halide.schedulers.analytic.cpu.constants import CpuConstants
from tilewright.halide.schedulers.analytic.cpu.traffic import Array


class TileStorage(NamedTuple):
    """Bytes that a tile's members hold and move, and cycles of their allocations, each (N,)."""

    held: Array
    moved: Array
    cycles: Array


def tile_storage(
    sizes: Mapping[str, Array],
    n: int,
    stages: Mapping[str, int],
    readers: Mapping[str, Sequence[str]],
    kept: float,
    c: CpuConstants,
) -> TileStorage:
    """Return the storage of N tiles.

    `sizes` are those of members in the order of their computation, `stages` their numbers of
    stages, and `readers` the Funcs that read them.
    """
    held, moved, cycles = np.zeros(n), np.zeros(n), np.zeros(n)
    for name, size in sizes.items():
        held = held + size
        moved = moved + c.round_trips * size * stages[name]
        cycles = cycles + np.where(size > c.stack_bytes, c.heap_cycles, 0.0)
        faults = size * c.fault_cycles_per_byte
        cycles = cycles + np.where(size > c.fault_threshold, faults, 0.0)
    if kept < math.inf:
        cycles = cycles + trimmed_bytes(sizes, readers, kept, c) * c.fault_cycles_per_byte
    return TileStorage(held, moved, cycles)


def trimmed_bytes(
    sizes: Mapping[str, Array],
    readers: Mapping[str, Sequence[str]],
    kept: float,
    c: CpuConstants,
) -> Array:
    """Return the bytes of the heap whose pages are fresh in every tile, shape (N,).

    A block is freed after its last reader among the members.
    """
    place = {name: i for i, name in enumerate(sizes)}
    freed: dict[int, list[Array]] = {}
    live = peak = largest = np.zeros(1)
    for i, (name, size) in enumerate(sizes.items()):
        block = np.where((size > c.stack_bytes) & (size <= c.fault_threshold), size, 0.0)
        largest = np.maximum(largest, block)
        live = live + block
        peak = np.maximum(peak, live)
        # What Funcs outside read, such as the output, lives to the end of the tile.
        last = max((place.get(reader, len(place)) for reader in readers[name]), default=i)
        freed.setdefault(last, []).append(block)
        for gone in freed.pop(i, ()):
            live = live - gone
    return np.maximum(peak - np.maximum(kept, c.kept_heap_blocks * largest), 0.0)


def kept_bytes(roots: Iterable[float], c: CpuConstants) -> float:
    """Return what the C library keeps of a free heap, given the bytes of all blocks at root."""
    largest = max((size for size in roots if size <= c.fault_threshold), default=0.0)
    return max(c.kept_heap_bytes, c.kept_heap_blocks * largest)


def fresh_bytes(
    roots: Sequence[float], last: Sequence[int], values: Sequence[int], c: CpuConstants
) -> float:
    """Return the bytes of buffers at root whose pages are fresh in every run.

    Blocks above a limit are mapped and unmapped on their own. The others share a heap, and what is
    free at its end is returned to the system where it exceeds twice the largest of them.

    Args:
        roots: the bytes of each Func at root, in the order of their computation.
        last: for each Func, the position of the last one computed from it.
        values: the values of each Func: a Tuple has a block per value.
        c: the constants.
    """
    blocks = [size / n for size, n in zip(roots, values, strict=True) for _ in range(n)]
    mapped = sum(size for size in blocks if size > c.fault_threshold)
    heap = [size if size <= c.fault_threshold else 0.0 for size in blocks]
    ends = list(itertools.accumulate(values))
    until = [ends[at] - 1 for at, n in zip(last, values, strict=True) for _ in range(n)]
    extent = heap_extent(heap, until)
    trimmed = extent + c.heap_pad_bytes > c.kept_heap_blocks * max(heap, default=0.0)
    return mapped + extent if trimmed and extent > c.kept_heap_bytes else mapped


def heap_extent(sizes: Sequence[float], last: Sequence[int]) -> float:
    """Return the bytes that a heap grows to: each block takes the smallest gap that it fits in.

    >>> heap_extent([8.0, 8.0, 4.0, 12.0], [1, 3, 3, 3])  # the last one fits in no gap
    28.0
    """
    blocks: dict[int, tuple[float, float]] = {}
    extent = 0.0
    for i, size in enumerate(sizes):
        if size <= 0.0:
            continue
        gaps, at = [], 0.0
        for start, end in sorted(blocks.values()):
            if start - at >= size:
                gaps.append((start - at, at))
            at = end
        start = min(gaps)[1] if gaps else at
        blocks[i] = (start, start + size)
        extent = max(extent, start + size)
        blocks = {j: block for j, block in blocks.items() if last[j] > i}
    return extent
