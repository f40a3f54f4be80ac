"""Bytes between levels of memory and the cycles they take, for arrays of N tilings.

| symbol | meaning | shape, unit |
|---|---|---|
| `tiles` | tile sizes by dimension of the output | (N, dimensions), elements |
| `full` | extents of the output | (dimensions,), elements |
| `times` | how often a sweep is run | (N,), count |
| `touched` | bytes of other Funcs and inputs that one sweep touches | (N,), bytes |
| `held` | bytes of members stored at a time per tile | (N,), bytes |
| `moved` | bytes of members written and read per tile | (N,), bytes |
| `tasks` | tiles, each a task of the parallel loop | (N,), count |

A sweep is a run of consecutive tiles: one tile, the row of tiles along the innermost tile loop,
and so on. If the data of a sweep fit in a cache, they are fetched once per sweep; otherwise they
are fetched once per shorter sweep.
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
    """Bytes from the second cache, the third cache and memory to the level above, each (N,)."""

    l2: Array
    l3: Array
    memory: Array

    def plus(self, other: Traffic) -> Traffic:
        """Return the sum per level."""
        return Traffic(self.l2 + other.l2, self.l3 + other.l3, self.memory + other.memory)

    def times(self, count: Array) -> Traffic:
        """Return the bytes of each level times `count`, shape (N,)."""
        return Traffic(self.l2 * count, self.l3 * count, self.memory * count)


@dataclass(frozen=True, eq=False)
class Sweep:
    """How often a run of tiles is executed and the bytes that it touches, each (N,).

    `cold` is the part of `touched` in buffers that do not stay in the last cache until they are
    read. `held` is the bytes of members stored at the same time.
    """

    times: Array
    touched: Array
    cold: Array
    held: Array


def fetched(sweeps: Sequence[Sweep], model: CpuModel) -> Traffic:
    """Return the bytes of other Funcs and inputs that enter each cache, over all tiles.

    `sweeps` are ordered from shortest to longest. Per cache, the longest sweep that fits in it
    determines the traffic, and the shortest one if none fits.
    """
    c = model.constants
    limits = (
        model.l1_bytes * c.sweep_l1_share,
        model.l2_bytes * c.sweep_l2_share,
        model.l3_bytes * c.sweep_l3_share,
    )
    into: list[Array] = []
    for i, sweep in enumerate(sweeps):
        working = sweep.touched + sweep.held
        for level, limit in enumerate(limits):
            moved = (sweep.cold if level == len(limits) - 1 else sweep.touched) * sweep.times
            if i == 0:
                into.append(moved)
            else:
                into[level] = np.where(working <= limit, moved, into[level])
    return Traffic(*into)


def spilled(held: Array, moved: Array, model: CpuModel) -> Traffic:
    """Return the traffic of members per tile; members too large for a cache use the next one."""
    c = model.constants
    return Traffic(
        np.where(held > c.held_l1_share * model.l1_bytes, moved, 0.0),
        np.where(held > c.held_l2_share * model.l2_bytes, moved, 0.0),
        np.where(held > c.held_l3_share * model.l3_bytes / model.cores, moved, 0.0),
    )


def written(whole: float, stages: int, model: CpuModel) -> Traffic:
    """Return the traffic of `stages` stages that each write an output of `whole` bytes."""
    through = np.asarray(whole * stages)
    memory = model.constants.write_factor * whole * stages
    return Traffic(through, through, np.asarray(memory if is_cold(whole, model) else 0.0))


def is_cold(whole: float, model: CpuModel) -> bool:
    """Return whether a buffer of `whole` bytes is too large to stay in the last cache."""
    return whole > model.l3_bytes * model.constants.cold_l3_share


def imbalance(tasks: Array, model: CpuModel) -> Array:
    """Return the work of the slowest core over the average work per core, at least 1."""
    cores = model.cores
    # The fewer the tasks, the more a core that is interrupted delays the end.
    late = model.constants.disturbance * cores / tasks
    even: Array = np.ceil(tasks / cores) * cores / tasks + late
    return even


def memory_cycles(memory: Array, tasks: Array, model: CpuModel) -> Array:
    """Return cycles to move `memory` bytes with the bandwidth that `tasks` tasks can reach."""
    reach = np.minimum(tasks, model.cores) * model.core_memory_rate
    return memory / np.minimum(model.memory_rate, reach)


def parallel_cycles(tasks: Array, model: CpuModel) -> Array:
    """Return cycles to start the tasks of a parallel loop and to wait for them."""
    c = model.constants
    started: Array = np.minimum(tasks, c.task_limit) * c.task_cycles / model.cores
    return started


def fault_cycles(size: float, model: CpuModel) -> float:
    """Return cycles of the page faults of a new buffer of `size` bytes, spread over all cores."""
    return size * model.constants.fault_cycles_per_byte / model.cores


def combined(parts: Sequence[Array], model: CpuModel) -> Array:
    """Return cycles of overlapping terms: the largest in full and a share of the others."""
    total: Array = np.sum(parts, axis=0)
    peak: Array = np.max(parts, axis=0)
    with np.errstate(invalid="ignore"):
        return peak + model.constants.overlap * (total - peak)


def segments(tiles: Array, full: Array) -> Array:
    """Return contiguous segments of memory per tile, where prefetching restarts; shape (N,)."""
    count = np.ones(len(tiles))
    cut = np.zeros(len(tiles), dtype=bool)
    for d in range(len(full)):
        count = np.where(cut, count * tiles[:, d], count)
        cut |= tiles[:, d] < full[d]
    return count
