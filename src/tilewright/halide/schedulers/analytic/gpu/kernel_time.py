"""Predict the time of a kernel, in cycles, from the work of its stages.

The time is that of the SM with the most blocks. Issuing instructions, L1 accesses and shared
memory accesses do not overlap with each other. L2 and DRAM traffic, the latency of a single warp
and atomics overlap with their sum and with each other.

| symbol | meaning | unit |
|---|---|---|
| `blocks` | blocks of the SM that has the most | count |
| `waves` | `blocks` over the blocks resident at once, at least 1 | 1 |
| `terms` | components of the time, by name | cycles |
| p | `GpuConstants.overlap`: the exponent of the norm that combines overlapping terms | 1 |

Counts are numbers, or arrays with one entry per kernel, so that a fit evaluates all kernels at
once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.halide.analysis.bounds import Bound
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH, GpuConstants
from tilewright.halide.schedulers.analytic.gpu.nest_work import KernelWork
from tilewright.halide.schedulers.analytic.gpu.registers import estimated_registers
from tilewright.halide.schedulers.analytic.gpu.stage_work import StageWork
from tilewright.halide.schedulers.analytic.gpu.warps import SECTOR_BYTES
from tilewright.machines import (
    HALIDE_JIT_MAX_REGISTERS,
    BlockLimits,
    GpuMachine,
    block_limits,
    max_registers,
)

# Terms that do not overlap with each other; all other terms overlap with their sum.
IN_TURN = ("issue", "l1", "shared")


@dataclass(frozen=True, slots=True)
class KernelCounts:
    """The counts from which the time of a kernel is computed.

    The first five are totals over all blocks of the SM with the most blocks. The next six are
    those of one thread in one block, times `waves`. The last two are totals of the launch.

    Attributes:
        instructions: Warp instructions issued.
        special: Warp instructions of special functions.
        sectors: Sectors of cache lines that the warps' memory accesses touch, times
            `store_sectors` for stores.
        passes: Passes through the banks of shared memory.
        l2_bytes: Bytes from and to L2.
        path: Instructions that wait for the one before.
        misses: Loads waited for that miss L1.
        hits: Loads waited for that hit L1.
        stored: Loads waited for of what the same kernel has stored.
        shared_waits: Loads from shared memory waited for.
        barriers: Barriers.
        memory_bytes: Bytes from and to DRAM.
        atomics: Atomic additions; those to few sectors count for the others that they delay.
    """

    instructions: Bound
    special: Bound
    sectors: Bound
    passes: Bound
    l2_bytes: Bound
    path: Bound
    misses: Bound
    hits: Bound
    stored: Bound
    shared_waits: Bound
    barriers: Bound
    memory_bytes: Bound
    atomics: Bound


def kernel_counts(
    kernel: KernelWork, memory_bytes: float, machine: GpuMachine, c: GpuConstants
) -> KernelCounts:
    """Return the counts from which the time of a launch is computed.

    `memory_bytes` are the bytes that the launch moves through DRAM.
    """
    threads = math.prod(kernel.block)
    warps = math.ceil(threads / machine.warp_size)
    blocks = float(math.ceil(kernel.blocks / machine.sms))
    resident = min(resident_blocks(kernel, machine, c), blocks)
    waves = max(blocks / resident, 1.0)
    if any(stage.member for stage in kernel.stages):
        waves *= c.member_wait
    start = _start(kernel, c)
    paths = [_instructions(stage, c) for stage in kernel.stages]
    issued = sum(s.warps * path for s, path in zip(kernel.stages, paths, strict=True))
    sectors = passes = through = 0.0
    for stage in kernel.stages:
        for access in stage.accesses:
            times = stage.warps * access.count
            if access.place == "memory":
                touched = times * access.touched.sectors
                sectors += c.store_sectors * touched if access.store else touched
                # A store goes on to L2, and a load of what is stored gets it from there.
                through += touched if access.store or access.own else 0.0
            else:
                passes += times * access.touched.passes
    misses, waits = _misses(kernel, resident, machine, c)
    read = sum(footprint for footprint, _ in kernel.read.values())
    return KernelCounts(
        instructions=blocks * (issued + warps * start),
        special=blocks * sum(s.warps * s.special for s in kernel.stages),
        sectors=blocks * sectors,
        passes=blocks * passes,
        l2_bytes=blocks * (read + SECTOR_BYTES * through),
        path=waves
        * (start + sum(_waited(s, n, c) for s, n in zip(kernel.stages, paths, strict=True))),
        # The first load of a block (or of the kernel's arguments) always misses.
        misses=waves * (misses + 1.0),
        hits=waves * max(waits - misses, 0.0),
        # An atomic addition loads nothing.
        stored=0.0 if kernel.atomics else waves * sum(s.waits.own for s in kernel.stages),
        shared_waits=waves * sum(s.waits.shared for s in kernel.stages),
        barriers=waves * (kernel.barriers + sum(s.runs for s in kernel.stages if s.member)),
        memory_bytes=memory_bytes,
        # Additions to one sector are done one after the other (simulated: 1.1 cycles each).
        atomics=kernel.atomics * max(c.atomics_per_cycle / kernel.sectors, 1.0),
    )


def _start(kernel: KernelWork, c: GpuConstants) -> float:
    """Return the instructions that a thread executes before its first stage."""
    arguments = c.dimension_instructions * kernel.dimensions
    return c.thread_instructions + arguments + c.fused_instructions * kernel.fused


def thread_instructions(kernel: KernelWork, c: GpuConstants) -> float:
    """Return the instructions that all threads of a launch execute."""
    own = sum(stage.threads * _instructions(stage, c) for stage in kernel.stages)
    return kernel.blocks * (own + math.prod(kernel.block) * _start(kernel, c))


def _instructions(stage: StageWork, c: GpuConstants) -> float:
    """Return the instructions that an active thread executes for a stage in one block."""
    start = c.stage_instructions + (c.member_instructions if stage.member else 0.0)
    accesses = sum(access.count for access in stage.accesses)
    loops = c.loop_instructions * stage.iterations + start * stage.runs
    return stage.plain + stage.special + accesses + loops


def _waited(stage: StageWork, instructions: float, c: GpuConstants) -> float:
    """Return how many of a thread's instructions wait for the previous one.

    A stage without loads can interleave the computation of independent values.
    """
    loads = any(not access.store for access in stage.accesses)
    return instructions * (1.0 if loads else max(1.0 / stage.copies, c.independent_share))


def _misses(
    kernel: KernelWork, resident: float, machine: GpuMachine, c: GpuConstants
) -> tuple[float, float]:
    """Return the loads that a thread waits for in one block: those that miss L1, and all.

    If L1 holds all data that the resident blocks read, each sector misses once. If it holds less
    than half of the data, a sector misses whenever the thread returns to it.
    """
    read = kernel.read.values()
    together = resident * sum(footprint for footprint, _ in read)
    # Neighbouring blocks share much of what they read.
    together = min(together, machine.sms * sum(whole for _, whole in read))
    room = machine.shared_per_sm + c.cache_beyond_shared - resident * kernel.shared
    kept = max(room, c.least_cache) / max(together, 1.0)
    share = min(max(2.0 * kept - 1.0, 0.0), 1.0)
    first = sum(stage.waits.first for stage in kernel.stages)
    fresh = sum(stage.waits.fresh for stage in kernel.stages)
    waits = sum(stage.waits.memory for stage in kernel.stages)
    return share * first + (1.0 - share) * fresh, waits


def needed_registers(kernel: KernelWork, c: GpuConstants) -> float:
    """Return the estimated registers that a thread needs to avoid spilling.

    In straight-line code, the compiler can delay loads if registers are short (measured with ptxas:
    kernels with estimates up to 162 fit 64 registers). Values and addresses that live across loop
    iterations must stay in registers: Funcs kept in registers, and the addresses of the rows that
    unrolled copies access. Operands of terms that are added in sequence can be loaded later.

    Funcs in registers, the copied operands that they are computed from, and the sizes and strides
    of inputs are all needed at once.

    A kernel without Funcs in registers needs most of what ptxas gives it without a limit: what its
    unrolled loops load ahead. Of those with such Funcs, ptxas gives many more than they need.
    """
    straight = not kernel.registers and not any(stage.iterations for stage in kernel.stages)
    if straight:
        return c.register_base
    times = [max(s.runs, s.iterations, 1.0) * s.steps for s in kernel.stages]
    ahead = any(stage.iterations and stage.steps > 1.0 for stage in kernel.stages)
    more = c.ahead_word * kernel.registers if ahead else 0.0
    more += c.register_address * max(stage.addresses for stage in kernel.stages)
    if kernel.registers:
        held = sum(stage.held for stage in kernel.stages)
        sizes = c.register_dimension * kernel.dimensions
        least = c.register_base + sizes + kernel.registers + held
    else:
        least = estimated_registers(kernel, c) - c.ahead_registers
    return max(_registers(kernel, times, c) + more, least)


def _registers(kernel: KernelWork, times: Sequence[float], c: GpuConstants) -> float:
    body = loads = 0.0
    for stage, each in zip(kernel.stages, times, strict=True):
        accesses = sum(access.count for access in stage.accesses)
        own = [a.count for a in stage.accesses if a.place == "memory" and not a.store]
        body = max(body, (stage.plain + accesses) / each)
        loads = max(loads, sum(own) / each)
    return (
        c.register_base
        + c.register_body * math.sqrt(body)
        + c.register_load * loads
        + c.register_dimension * kernel.dimensions
        + c.register_stage * len(kernel.stages)
        + c.register_word * kernel.registers
    )


def resident_blocks(kernel: KernelWork, machine: GpuMachine, c: GpuConstants) -> float:
    """Return the blocks resident on an SM at once, at least 1."""
    return max(float(_limits(kernel, machine, c).blocks), 1.0)


def occupancy(kernel: KernelWork, machine: GpuMachine, c: GpuConstants) -> tuple[float, str]:
    """Return the fraction of an SM's warps that are resident, and the limiting resource.

    The limit is "blocks" if the launch has too few, "registers", "shared memory", "blocks per SM",
    or "threads" if the remaining warps are too few for another block. It is empty if the SM is
    full.
    """
    limits = _limits(kernel, machine, c)
    most = max(float(limits.blocks), 1.0)
    launched = float(math.ceil(kernel.blocks / machine.sms))
    warps = math.ceil(math.prod(kernel.block) / machine.warp_size)
    share = min(most, launched) * warps / machine.max_warps_per_sm
    if share >= 1.0:
        return 1.0, ""
    if launched < most:
        return share, "blocks"
    by = {
        "registers": limits.registers,
        "shared memory": limits.shared,
        "blocks per SM": limits.slots,
        "threads": limits.warps,
    }
    return share, min(by, key=lambda name: float(by[name]))


def _limits(kernel: KernelWork, machine: GpuMachine, c: GpuConstants) -> BlockLimits:
    """Return the resident blocks that each resource allows, with the estimated registers.

    Threads use what ``ptxas`` gives them without a limit, up to the limit.
    """
    threads = math.prod(kernel.block)
    cap = HALIDE_JIT_MAX_REGISTERS if machine.api == "cuda" else None
    most = int(max_registers(machine, threads, cap))
    used = min(max(math.ceil(estimated_registers(kernel, c)), c.least_registers), most)
    return _block_limits(machine, threads, used, int(min(kernel.shared, SEARCH.huge)))


# The same blocks are asked for again and again.
_block_limits = functools.lru_cache(maxsize=4096)(block_limits)


def kernel_terms(
    counts: KernelCounts, machine: GpuMachine, c: GpuConstants
) -> dict[str, Bound] | None:
    """Return the terms of a kernel's time in cycles; None if the GPU's rates are unknown."""
    if machine.clock_hz is None or machine.memory_bandwidth is None:
        return None
    per_cycle = c.memory_share * machine.memory_bandwidth / machine.clock_hz
    waiting = (
        c.instruction_wait * counts.path
        + c.miss_wait * counts.misses
        + c.hit_wait * counts.hits
        + c.stored_wait * counts.stored
        + c.shared_wait * counts.shared_waits
        + c.barrier_wait * counts.barriers
    )
    return {
        "issue": (counts.instructions + c.special_cost * counts.special) / c.issue_rate,
        "l1": c.sector_cycles * counts.sectors,
        "shared": c.bank_cycles * counts.passes,
        "l2": counts.l2_bytes / c.l2_bytes_per_cycle,
        "memory": counts.memory_bytes / per_cycle,
        "latency": waiting,
        "atomics": counts.atomics / c.atomics_per_cycle,
    }


def kernel_cycles(terms: Mapping[str, Bound], c: GpuConstants) -> Bound:
    """Return the cycles from the start to the end of a kernel, given its terms.

    >>> one = {"issue": 30.0, "l1": 8.0, "shared": 2.0, "latency": 30.0}
    >>> c = GpuConstants(overlap=2.0, kernel_cycles=100.0)
    >>> float(kernel_cycles(one, c))
    150.0
    """
    busy: Bound = sum((terms[name] for name in IN_TURN), 0.0)
    overlapping = [busy, *(term for name, term in terms.items() if name not in IN_TURN)]
    most: Bound = np.maximum(np.max(np.stack(np.broadcast_arrays(*overlapping)), axis=0), 1.0)
    total = sum(((term / most) ** c.overlap for term in overlapping), 0.0)
    return c.kernel_cycles + most * np.power(total, 1.0 / c.overlap)
