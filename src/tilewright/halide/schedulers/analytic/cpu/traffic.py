"""Bytes between levels of memory and the cycles they take, for arrays of N tilings.

| symbol | meaning | shape, unit |
|---|---|---|
| `tiles` | tile sizes by dimension of the output | (N, dimensions), elements |
| `full` | extents of the output | (dimensions,), elements |
| `times` | how often a sweep of tiles is made | (N,), count |
| `touched` | bytes of a buffer outside the group that one sweep touches | (N,), bytes |
| `held` | bytes of the members of one tile stored at a time | (N,), bytes |
| `moved` | bytes of the members that one tile writes and reads | (N,), bytes |
| `tasks` | tiles, each a task of the parallel loop | (N,), count |

A sweep is a run of consecutive tiles: one tile, then the row of tiles along the innermost tile
loop, and so on. What a sweep touches comes into a cache once if it fits there, and once per
shorter sweep otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel

Array = npt.NDArray[np.float64]


class Traffic(NamedTuple):
    """Bytes into the first cache, into the second, and from memory; each of shape (N,)."""

    l2: Array
    l3: Array
    memory: Array

    def plus(self, other: Traffic) -> Traffic:
        """Return the sum, level by level."""
        return Traffic(self.l2 + other.l2, self.l3 + other.l3, self.memory + other.memory)

    def times(self, count: Array) -> Traffic:
        """Return every level's bytes `count` times."""
        return Traffic(self.l2 * count, self.l3 * count, self.memory * count)


@dataclass(frozen=True, eq=False)
class Sweep:
    """A run of tiles: how often it is made, and bytes it touches.

    `cold` has the bytes of buffers that have left the last cache when they are read, `held` those
    of buffers that live at the same time.
    """

    times: Array
    touched: Array
    cold: Array
    held: Array


def fetched(sweeps: Sequence[Sweep], model: CpuModel) -> Traffic:
    """Return the bytes that enter each cache from outside the group, over all tiles.

    `sweeps` are in order, the shortest first. The longest that fits into a cache counts there;
    the shortest always counts.
    """
    c = model.constants
    limits = (
        model.l1_bytes * c.sweep_l1_share,
        model.l2_bytes * c.sweep_l2_share,
        model.l3_bytes * c.sweep_l3_share,
    )
    into: list[Array] = []
    for place, sweep in enumerate(sweeps):
        working = sweep.touched + sweep.held
        for level, limit in enumerate(limits):
            moved = (sweep.cold if level == len(limits) - 1 else sweep.touched) * sweep.times
            if place == 0:
                into.append(moved)
            else:
                into[level] = np.where(working <= limit, moved, into[level])
    return Traffic(*into)


def spilled(held: Array, moved: Array, model: CpuModel) -> Traffic:
    """Return the traffic of a tile's members: those that outgrow a cache use the next one."""
    c = model.constants
    return Traffic(
        np.where(held > c.held_l1_share * model.l1_bytes, moved, 0.0),
        np.where(held > c.held_l2_share * model.l2_bytes, moved, 0.0),
        np.where(held > c.held_l3_share * model.l3_bytes / model.cores, moved, 0.0),
    )


def written(whole: float, stages: int, model: CpuModel) -> Traffic:
    """Return the bytes moved for an output of `whole` bytes that `stages` stages write."""
    through = np.asarray(whole * stages)
    memory = model.constants.write_factor * whole * stages
    return Traffic(through, through, np.asarray(memory if is_cold(whole, model) else 0.0))


def is_cold(whole: float, model: CpuModel) -> bool:
    """Return whether a buffer is too large to be in the last cache when it is read again."""
    return whole > model.l3_bytes * model.constants.cold_l3_share


def imbalance(tasks: Array, model: CpuModel) -> Array:
    """Return the slowest core's share of the work, times the number of cores; at least 1."""
    cores = model.cores
    # Few tasks also wait for a disturbed core.
    late = model.constants.disturbance * cores / tasks
    even: Array = np.ceil(tasks / cores) * cores / tasks + late
    return even


def memory_cycles(memory: Array, tasks: Array, model: CpuModel) -> Array:
    """Return cycles for bytes from memory, which all cores share and one alone may not saturate."""
    reach = np.minimum(tasks, model.cores) * model.core_memory_rate
    return memory / np.minimum(model.memory_rate, reach)


def parallel_cycles(tasks: Array, model: CpuModel) -> Array:
    """Return cycles to start tasks and wait for them."""
    c = model.constants
    started: Array = np.minimum(tasks, c.task_limit) * c.task_cycles / model.cores
    return started


def fault_cycles(size: float, model: CpuModel) -> float:
    """Return cycles until fresh pages of `size` bytes are there, first touched by all cores."""
    return size * model.constants.fault_cycles_per_byte / model.cores


def combined(parts: Sequence[Array], model: CpuModel) -> Array:
    """Return cycles of compute and traffic that overlap: the largest, and a share of the others."""
    total: Array = np.sum(parts, axis=0)
    peak: Array = np.max(parts, axis=0)
    with np.errstate(invalid="ignore"):
        return peak + model.constants.overlap * (total - peak)


def segments(tiles: Array, full: Array) -> Array:
    """Return the contiguous segments of memory per tile shape: prefetching restarts at each."""
    count = np.ones(len(tiles))
    cut = np.zeros(len(tiles), dtype=bool)
    for d in range(len(full)):
        count = np.where(cut, count * tiles[:, d], count)
        cut |= tiles[:, d] < full[d]
    return count
