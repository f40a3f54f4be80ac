"""How long a kernel may take: a roofline over what the cost model counts.

The cost of Sioutas 2020 ranks tilings of one kernel; it is no time. For a reader, and to compare
kernels with one another, a kernel takes the longest of four things: its arithmetic, its bytes from
memory, its accesses to caches and shared memory, and the latency of one thread's work where
too few others hide it. Good to a factor of about two or three; measuring says more.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.halide.schedulers.analytic.gpu.cost import CostModel, Tally
from tilewright.halide.schedulers.analytic.gpu.kernel import iterations
from tilewright.halide.schedulers.analytic.gpu.loads import SCATTERED
from tilewright.halide.schedulers.analytic.gpu.plan import KernelPlan

# From the end of one kernel to the start of the next.
LAUNCH_SECONDS = 3e-6
# What a core of the host computes a second where a stage is left to it.
HOST_RATE = 1e9
# Cycles from issuing an operation to its result, where every second one waits for another's.
ARITHMETIC_LATENCY = 2.0
# The same for an access that misses the first cache, and for one to shared memory.
MEMORY_LATENCY = 400.0
SHARED_LATENCY = 30.0
# Atomic additions that the second cache does each cycle.
ATOMICS_PER_CYCLE = 24.0
# Accesses of one thread that are under way at once.
OVERLAP = 4.0
# Bytes that an SM takes from its first cache or shared memory each cycle.
CACHE_BYTES_PER_CYCLE = 128.0
# The second cache serves so many times the bytes of memory.
L2_FACTOR = 3.0


def predicted_seconds(model: CostModel, plan: KernelPlan) -> float | None:
    """Seconds of one planned kernel; None where the GPU's rates are not known."""
    machine = model.machine
    if machine.clock_hz is None or machine.memory_bandwidth is None:
        return None
    if plan.kind == "nothing":
        return 0.0
    if plan.kind != "parallel":
        return LAUNCH_SECONDS + _alone(plan, machine.clock_hz)
    tiles = np.array([plan.tile], dtype=np.float64)
    registers = np.array([plan.registers], dtype=np.float64)
    tally = model.tally(plan.kernel, tiles, registers, plan.nested)
    threads = max(float(np.prod([float(t[0]) for t in tally.block_threads])), 1.0)
    resident = float(model.resident.blocks(np.array([threads]), tally.by_shared)[0])
    blocks = float(tally.blocks[0])
    waves = math.ceil(blocks / max(resident * machine.sms, 1.0))
    busy = min(blocks, machine.sms)
    operations = cache = latency = 0.0
    for step in tally.steps:
        points = float(step.points[0])
        each = points / max(float(step.threads[0]), 1.0)
        operations += points * step.work.arithmetic
        waiting = 0.0
        for load in step.work.loads:
            if load.callee in plan.nested:
                continue
            count = float(load.count)
            for loop in load.hoisted:
                count = count / float(step.extents[loop][0])
            width = 4.0 * machine.warp_size if load.step == SCATTERED else load.bytes * load.step
            cache += points * count * max(width, 4.0 if load.step else 4.0 / machine.warp_size)
            if load.callee in plan.kernel.members:
                waiting += count * SHARED_LATENCY / OVERLAP
            elif load.callee == plan.kernel.output and plan.kernel.summary.scatter:
                waiting += count * MEMORY_LATENCY  # what was just stored is read back
            else:
                waiting += count * MEMORY_LATENCY / OVERLAP
        latency += each * (step.work.arithmetic * ARITHMETIC_LATENCY + waiting)
    atomics = 0.0
    if plan.kernel.atomic:
        atomics = math.prod(plan.kernel.extents)
        atomics *= math.prod(map(iterations, plan.kernel.serial_env.values()))
    lanes = busy * machine.fp32_lanes_per_sm * machine.clock_hz
    wide = busy * CACHE_BYTES_PER_CYCLE * machine.clock_hz
    return LAUNCH_SECONDS + max(
        blocks * operations / lanes,
        blocks * cache / wide,
        _memory(tally, blocks) / machine.memory_bandwidth,
        waves * latency / machine.clock_hz,
        atomics / ATOMICS_PER_CYCLE / machine.clock_hz,
    )


def _alone(plan: KernelPlan, clock: float) -> float:
    """A stage of one thread, or on the host."""
    kernel = plan.kernel
    steps = math.prod(kernel.extents) * math.prod(map(iterations, kernel.serial_env.values()))
    if plan.kind == "host":
        return steps * (kernel.summary.arithmetic + len(kernel.summary.loads)) / HOST_RATE
    each = kernel.summary.arithmetic * ARITHMETIC_LATENCY
    return steps * (each + len(kernel.summary.loads) * MEMORY_LATENCY / OVERLAP) / clock


def _memory(tally: Tally, blocks: float) -> float:
    """Bytes through memory: what all blocks read and write, once where the caches keep it."""
    kernel = tally.kernel
    elements: dict[str, float] = {}
    for step in tally.steps:
        for load in step.work.loads:
            if load.callee not in kernel.members and load.callee != kernel.output:
                elements[load.callee] = max(elements.get(load.callee, 0.0), float(load.bytes))
    total = 0.0
    for callee, element in elements.items():
        whole = math.prod(kernel.whole(callee)) * element
        touched = float(tally.footprint(callee, int(element))[0]) * blocks
        total += min(touched, whole) + max(touched - whole, 0.0) / L2_FACTOR
    # A stage that adds to values reads what it writes.
    written = kernel.func.bytes * math.prod(
        extent
        for extent, loop in zip(kernel.extents, kernel.loops, strict=True)
        if loop.loop.name in kernel.stored_over
    )
    return total + written * (1.0 if kernel.stage.index == 0 else 2.0)
