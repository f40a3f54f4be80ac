"""Occupancy: how many blocks of a kernel an SM holds, by NVIDIA's occupancy calculator.

Sioutas 2020, Section 3, uses occupancy in its cost; the equations are those of the calculator
and of NVIDIA's ``cuda_occupancy.h``: blocks per SM are the least that warps, registers, shared
memory and the SM's block slots allow, each with its allocation granularity.

All functions take NumPy arrays, so that all tilings of a group are evaluated at once.

| symbol | meaning | unit |
|---|---|---|
| t, `threads` | threads per block | count |
| r, `registers` | registers per thread | 32-bit words |
| s, `shared` | shared memory per block | bytes |
| `per_warp`, `per_block` | registers allocated to a warp, and to a block at launch | words |
| `parts` | sub-partitions of an SM, each with its part of the register file | count |
| `warps`, `blocks` | resident on an SM | count |
| `occupancy` | active warps over the most that an SM holds | 1 |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.machines.gpu_machine import GpuMachine

IntArray = npt.NDArray[np.int64]

# Stands for "this resource sets no limit".
UNLIMITED = np.int64(1 << 30)


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """Blocks an SM could hold by each resource alone; all arrays of one shape."""

    warps: IntArray
    registers: IntArray
    shared: IntArray
    slots: IntArray

    @property
    def blocks(self) -> IntArray:
        """Blocks an SM holds: the least of the four."""
        least: IntArray = np.minimum(
            np.minimum(self.warps, self.registers), np.minimum(self.shared, self.slots)
        )
        return least


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks and warps resident on an SM, and warps as a share of the maximum.

    Arrays of the inputs' broadcast shape (0-dimensional for scalars). If it is zero blocks, the
    launch fails.
    """

    blocks_per_sm: IntArray
    active_warps: IntArray
    occupancy: npt.NDArray[np.float64]


def _round_up(value: IntArray, unit: int) -> IntArray:
    rounded: IntArray = -(-value // unit) * unit
    return rounded


def block_limits(
    machine: GpuMachine,
    threads: npt.ArrayLike,
    registers: npt.ArrayLike,
    shared: npt.ArrayLike,
    *,
    shared_limit: int | None = None,
) -> BlockLimits:
    """Return blocks per SM that each resource allows.

    `threads` per block, `registers` per thread and `shared` bytes per block (static and dynamic,
    without the system's reserve) are integers or arrays that broadcast together. `shared_limit` is
    the maximum shared memory per block: by default what it can opt in to. A resource over its limit
    per block or per thread allows no block at all.
    """
    t, r, s = np.broadcast_arrays(
        np.asarray(threads, dtype=np.int64),
        np.asarray(registers, dtype=np.int64),
        np.asarray(shared, dtype=np.int64),
    )
    warps_per_block = np.maximum(-(-t // machine.warp_size), 1)
    zero = np.int64(0)

    legal = (t >= 1) & (t <= machine.max_threads_per_block)
    by_warps = np.where(legal, machine.max_warps_per_sm // warps_per_block, zero)

    # Registers are allocated to whole warps, and warps are spread over the SM's sub-partitions,
    # each with its part of the register file.
    per_warp = _round_up(np.maximum(r, 0) * machine.warp_size, machine.register_allocation_unit)
    parts = machine.warp_allocation_granularity
    warps_in_file = machine.registers_per_sm // parts // np.maximum(per_warp, 1) * parts
    # The check at launch assumes that every sub-partition gets equally many warps.
    per_block = per_warp * _round_up(warps_per_block, parts)
    by_registers = np.where(r > 0, warps_in_file // warps_per_block, UNLIMITED)
    fits = (r <= machine.max_registers_per_thread) & (per_block <= machine.registers_per_block)
    by_registers = np.where(fits, by_registers, zero)

    limit = machine.shared_per_block_optin if shared_limit is None else shared_limit
    allocated = _round_up(
        np.maximum(s, 0) + machine.reserved_shared_per_block, machine.shared_allocation_unit
    )
    by_shared = np.where(
        allocated > 0, machine.shared_per_sm // np.maximum(allocated, 1), UNLIMITED
    )
    by_shared = np.where((s >= 0) & (s <= limit), by_shared, zero)

    slots = np.full(t.shape, machine.max_blocks_per_sm, dtype=np.int64)
    return BlockLimits(by_warps, by_registers, by_shared, slots)


def occupancy(
    machine: GpuMachine,
    threads: npt.ArrayLike,
    registers: npt.ArrayLike,
    shared: npt.ArrayLike,
    *,
    shared_limit: int | None = None,
) -> Occupancy:
    """Return the occupancy of launches on a GPU; arguments as for `block_limits`.

    The example of Sioutas 2020, Section 3 (compute capability 7.5, blocks of 512 threads, 64
    registers per thread, 2048 bytes of shared memory):

    >>> from tilewright.machines import gpu
    >>> float(occupancy(gpu("rtx2080ti"), 512, 64, 2048).occupancy)
    1.0
    """
    blocks = block_limits(machine, threads, registers, shared, shared_limit=shared_limit).blocks
    warps = -(-np.asarray(threads, dtype=np.int64) // machine.warp_size)
    active: IntArray = np.asarray(blocks * warps)
    return Occupancy(blocks, active, np.asarray(active / machine.max_warps_per_sm))


def max_registers(machine: GpuMachine, threads: npt.ArrayLike, cap: int | None = None) -> Any:
    """Return the most registers per thread that a block of the given number of threads can have.

    The bound of Sioutas 2020: the register file shared among the block's threads, the limit per
    thread, and `cap` where a compiler has one. Zero where the block is larger than allowed.
    """
    t = np.maximum(np.asarray(threads, dtype=np.int64), 1)
    parts = machine.warp_allocation_granularity
    warps = _round_up(-(-t // machine.warp_size), parts)
    unit = machine.register_allocation_unit
    per_warp = machine.registers_per_block // warps // unit * unit
    most = np.minimum(per_warp // machine.warp_size, machine.max_registers_per_thread)
    if cap is not None:
        most = np.minimum(most, cap)
    return np.where(t <= machine.max_threads_per_block, most, 0)
