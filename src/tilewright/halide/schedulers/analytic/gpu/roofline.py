"""How long a kernel may take: a roofline over what the cost model counts.

The cost of Sioutas 2020 ranks tilings of one kernel; it is not a time. For a reader, and to compare
kernels with one another, a kernel takes the longest of four things: its arithmetic, its bytes from
memory, its accesses to caches and shared memory, and the latency of one thread's work where
too few others hide it. Good to a factor of about two or three; measuring says more.

| symbol | meaning | unit |
|---|---|---|
| `operations` | arithmetic of one block | operations |
| `cache` | bytes that one block takes from the first cache or shared memory | bytes |
| `latency` | what one thread waits for its own operations and loads, no others hiding it | cycles |
| `waves` | rounds of resident blocks until all have run | count |
| `busy` | SMs that have a block | count |
| `atomics` | atomic additions of the kernel | count |
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.cost import CostModel, Step, Tally
from tilewright.halide.schedulers.analytic.gpu.kernel import iterations
from tilewright.halide.schedulers.analytic.gpu.loads import SCATTERED, LoadGroup
from tilewright.halide.schedulers.analytic.gpu.plan import KernelPlan


def predicted_seconds(model: CostModel, plan: KernelPlan) -> float | None:
    """Seconds of one planned kernel; None where the GPU's rates are not known."""
    machine, c = model.machine, model.constants
    if machine.clock_hz is None or machine.memory_bandwidth is None:
        return None
    if plan.kind == "nothing":
        return 0.0
    if plan.kind != "parallel":
        return c.launch_seconds + _alone(plan, machine.clock_hz, c)
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
        moved, waiting = _loads(step, plan, machine.warp_size, c)
        cache += points * moved
        latency += each * (step.work.arithmetic * c.arithmetic_latency + waiting)
    lanes = busy * machine.fp32_lanes_per_sm * machine.clock_hz
    wide = busy * c.cache_bytes_per_cycle * machine.clock_hz
    return c.launch_seconds + max(
        blocks * operations / lanes,
        blocks * cache / wide,
        memory_bytes(tally, blocks) / machine.memory_bandwidth,
        waves * latency / machine.clock_hz,
        _atomics(plan) / c.atomics_per_cycle / machine.clock_hz,
    )


def _loads(step: Step, plan: KernelPlan, warp: int, c: GpuConstants) -> tuple[float, float]:
    """Bytes from the first cache and cycles of waiting of one iteration's loads."""
    kernel = plan.kernel
    moved = waiting = 0.0
    for load in step.work.loads:
        if load.callee in plan.nested:
            continue
        count = float(load.count)
        for loop in load.hoisted:
            count = count / float(step.extents[loop][0])
        moved += count * access_bytes(load, warp, c)
        if load.callee in kernel.members:
            waiting += count * c.shared_latency / c.loads_in_flight
        elif load.callee == kernel.output and kernel.summary.scatter:
            waiting += count * c.memory_latency  # what was just stored is read back
        else:
            waiting += count * c.memory_latency / c.loads_in_flight
    return moved, waiting


def access_bytes(load: LoadGroup, warp: int, c: GpuConstants) -> float:
    """Bytes per thread that one access takes from the cache, with what lies between."""
    width = c.access_bytes * warp if load.step == SCATTERED else load.bytes * load.step
    # An address that all threads share is read once for a warp.
    return max(width, c.access_bytes if load.step else c.access_bytes / warp)


def _atomics(plan: KernelPlan) -> float:
    """Atomic additions of a kernel, all of whose loops are parallel."""
    return float(math.prod(plan.kernel.extents)) if plan.kernel.atomic else 0.0


def _alone(plan: KernelPlan, clock: float, c: GpuConstants) -> float:
    """Seconds of a stage of one thread, or on the host."""
    kernel = plan.kernel
    steps = math.prod(kernel.extents) * math.prod(map(iterations, kernel.serial_env.values()))
    loads = len(kernel.summary.loads)
    if plan.kind == "host":
        return steps * (kernel.summary.arithmetic + loads) / c.host_rate
    each = kernel.summary.arithmetic * c.arithmetic_latency
    return steps * (each + loads * c.memory_latency / c.loads_in_flight) / clock


def memory_bytes(tally: Tally, blocks: float) -> float:
    """Bytes through memory: what all blocks read and write, once where the caches keep it."""
    kernel, c = tally.kernel, tally.model.constants
    elements: dict[str, float] = {}
    for step in tally.steps:
        for load in step.work.loads:
            if load.callee not in kernel.members and load.callee != kernel.output:
                elements[load.callee] = max(elements.get(load.callee, 0.0), float(load.bytes))
    total = 0.0
    for callee, element in elements.items():
        whole = math.prod(kernel.whole(callee)) * element
        touched = float(tally.footprint(callee, int(element))[0]) * blocks
        total += min(touched, whole) + max(touched - whole, 0.0) / c.l2_factor
    # A stage that adds to values reads what it writes.
    written = kernel.func.bytes * math.prod(
        extent
        for extent, loop in zip(kernel.extents, kernel.loops, strict=True)
        if loop.loop.name in kernel.stored_over
    )
    return total + (written if kernel.stage.index == 0 else written + written)
