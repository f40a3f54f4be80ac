"""Look up resident blocks for arrays of tilings.

`tilewright.machines.occupancy` computes the occupancy of one launch. This module tabulates its
results for every block size, so that only the limit by shared memory is computed per tiling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.machines import HALIDE_JIT_MAX_REGISTERS, GpuMachine, block_limits, max_registers

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Residency:
    """The limits of a GPU, and the resident blocks per SM for each number of threads per block."""

    machine: GpuMachine
    by_threads: Array

    def blocks_by_shared(self, shared: Array) -> Array:
        """Return the blocks that fit an SM's shared memory, given bytes of it per block."""
        machine = self.machine
        unit = machine.shared_allocation_unit
        allocated = np.ceil((shared + machine.reserved_shared_per_block) / unit) * unit
        blocks: Array = np.floor(machine.shared_per_sm / np.maximum(allocated, 1.0))
        return np.where(shared <= machine.shared_per_block, blocks, 0.0)

    def blocks(self, threads: Array, by_shared: Array) -> Array:
        """Return the blocks resident on an SM; 0 if `threads` exceed the hardware's limit.

        Args:
            threads: Threads per block, shape (N,).
            by_shared: The limit by shared memory (`blocks_by_shared`), shape (N,).
        """
        inside = np.minimum(threads, len(self.by_threads) - 1).astype(np.int64)
        return np.minimum(self.by_threads[inside], by_shared)

    def warps(self, threads: Array) -> Array:
        """Return the warps of a block with the given number of threads."""
        return np.ceil(threads / self.machine.warp_size)


def residency(machine: GpuMachine) -> Residency:
    """Return the table of a GPU, assuming that threads use as many registers as they may have.

    Sioutas 2020 estimates registers in the same way. Under CUDA, Halide's runtime allows 64.
    """
    cap = HALIDE_JIT_MAX_REGISTERS if machine.api == "cuda" else None
    threads = np.arange(machine.max_threads_per_block + 2)
    registers = max_registers(machine, threads, cap)
    table = block_limits(machine, threads, registers, 0).blocks.astype(np.float64)
    table[0] = 0.0
    table[-1] = 0.0
    return Residency(machine, table)
