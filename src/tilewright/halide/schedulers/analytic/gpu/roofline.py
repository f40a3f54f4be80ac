"""A quick estimate of a kernel's time: a roofline over the counts of the cost model.

The cost of Sioutas 2020 ranks tilings of one kernel, but it is not a time. To compare kernels with
each other, this module estimates the time of a kernel as the largest of five terms: arithmetic,
bytes from memory, accesses to caches and shared memory, the latency of one thread's work, and
atomic additions. The estimate is accurate to a factor of about two or three.

| symbol | meaning | unit |
|---|---|---|
| `operations` | arithmetic of one block | operations |
| `cache` | bytes that one block loads from L1 or shared memory | bytes |
| `latency` | time that one thread waits for its operations and loads | cycles |
| `waves` | rounds of resident blocks until all blocks have run | count |
| `busy` | SMs that have a block | count |
| `atomics` | atomic additions of the kernel | count |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.cost import CostModel, Tally
from tilewright.halide.schedulers.analytic.gpu.loads import SCATTERED, LoadGroup
from tilewright.halide.schedulers.analytic.gpu.occupancy import Residency
from tilewright.halide.schedulers.analytic.gpu.plan import KernelPlan

# Where a loaded value is: in registers, in shared memory, in global memory, or in global memory
# where the same thread has just stored it.
Place = Literal["registers", "shared", "memory", "stored"]


@dataclass(frozen=True, slots=True)
class QuickWork:
    """The work of one stage in one block.

    Attributes:
        points: Iterations.
        threads: Threads that run them.
        arithmetic: Operations per iteration.
        moved: Bytes per iteration from L1 or shared memory.
        waiting: Cycles per iteration that a thread waits for loads.
    """

    points: float
    threads: float
    arithmetic: float
    moved: float
    waiting: float


@dataclass(frozen=True, slots=True)
class LaunchWork:
    """The size and work of a launch.

    Attributes:
        blocks: Number of blocks.
        threads: Threads per block.
        shared: Shared memory per block, in bytes.
        steps: The work of each stage in one block.
        memory: Bytes through memory, of the whole launch.
        atomics: Atomic additions of the whole launch.
    """

    blocks: float
    threads: float
    shared: float
    steps: tuple[QuickWork, ...]
    memory: float
    atomics: float = 0.0


def kernel_terms(
    kernel: LaunchWork, resident: Residency, c: GpuConstants
) -> dict[str, float] | None:
    """Return the terms of a kernel's time, in seconds; None if the GPU's rates are unknown.

    `kernel_seconds` combines them.
    """
    machine = resident.machine
    if machine.clock_hz is None or machine.memory_bandwidth is None:
        return None
    by_shared = resident.blocks_by_shared(np.array([kernel.shared]))
    most = float(resident.blocks(np.array([kernel.threads]), by_shared)[0])
    blocks = kernel.blocks
    waves = math.ceil(blocks / max(most * machine.sms, 1.0))
    busy = min(blocks, machine.sms)
    operations = cache = latency = 0.0
    for step in kernel.steps:
        each = step.points / max(step.threads, 1.0)
        operations += step.points * step.arithmetic
        cache += step.points * step.moved
        latency += each * (step.arithmetic * c.arithmetic_latency + step.waiting)
    lanes = busy * machine.fp32_lanes_per_sm * machine.clock_hz
    wide = busy * c.cache_bytes_per_cycle * machine.clock_hz
    return {
        "arithmetic": blocks * operations / lanes,
        "cache": blocks * cache / wide,
        "memory": kernel.memory / machine.memory_bandwidth,
        "latency": waves * latency / machine.clock_hz,
        "atomics": kernel.atomics / c.atomics_per_cycle / machine.clock_hz,
    }


def kernel_seconds(terms: Mapping[str, float], c: GpuConstants) -> float:
    """Return the seconds of a kernel: its longest term plus the time of a launch."""
    return c.launch_seconds + max(terms.values())


def predicted_seconds(model: CostModel, plan: KernelPlan) -> float | None:
    """Return the seconds of one planned kernel; None if the GPU's rates are unknown."""
    machine, c = model.machine, model.constants
    if machine.clock_hz is None or machine.memory_bandwidth is None:
        return None
    if plan.kind == "nothing":
        return 0.0
    if plan.kind != "parallel":
        steps = plan.kernel.iterations
        summary = plan.kernel.summary
        alone = alone_seconds(steps, summary.arithmetic, len(summary.loads), machine.clock_hz, c)
        return c.launch_seconds + (
            host_seconds(steps, summary.arithmetic, len(summary.loads), c)
            if plan.kind == "host"
            else alone
        )
    terms = kernel_terms(_planned(model, plan), model.resident, c)
    if terms is None:
        return None
    return kernel_seconds(terms, c) + (plan.kernel.launches - 1.0) * c.launch_seconds


def _planned(model: CostModel, plan: KernelPlan) -> LaunchWork:
    """Return the work of a planned kernel."""
    kernel, c = plan.kernel, model.constants
    tiles = np.array([plan.tile], dtype=np.float64)
    registers = np.array([plan.registers], dtype=np.float64)
    tally = model.tally(kernel, tiles, registers, plan.nested)
    places: dict[str, Place] = dict.fromkeys(kernel.members, "shared")
    places |= dict.fromkeys(plan.nested, "registers")
    places[kernel.output] = "stored" if kernel.summary.scatter else "memory"
    steps = []
    for step in tally.steps:
        extents = {loop: float(extent[0]) for loop, extent in step.extents.items()}
        moved, waiting = loads_of(step.work.loads, extents, places, model.machine.warp_size, c)
        points, threads = float(step.points[0]), float(step.threads[0])
        steps.append(QuickWork(points, threads, step.work.arithmetic, moved, waiting))
    blocks = float(tally.blocks[0])
    threads = max(float(np.prod([float(t[0]) for t in tally.block_threads])), 1.0)
    shared = float(tally.shared[0])
    memory = _memory(tally, blocks)
    return LaunchWork(blocks, threads, shared, tuple(steps), memory, _atomics(plan))


def loads_of(
    loads: Iterable[LoadGroup],
    extents: Mapping[str, float],
    places: Mapping[str, Place],
    warp: int,
    c: GpuConstants,
) -> tuple[float, float]:
    """Return the bytes that one iteration loads from L1, and the cycles it waits for them.

    Args:
        loads: The loads of one iteration.
        extents: Iterations of the stage's loops.
        places: Where Funcs are stored; Funcs and inputs not listed are in memory.
        warp: Threads per warp.
        c: The model's constants.
    """
    moved = waiting = 0.0
    for load in loads:
        place = places.get(load.callee, "memory")
        if place == "registers":
            continue
        count = float(load.count)
        for loop in load.hoisted:
            count = count / extents[loop]
        moved += count * access_bytes(load, warp, c)
        if place == "shared":
            waiting += count * c.shared_latency / c.loads_in_flight
        elif place == "stored":
            waiting += count * c.memory_latency  # depends on the thread's own store before
        else:
            waiting += count * c.memory_latency / c.loads_in_flight
    return moved, waiting


def access_bytes(load: LoadGroup, warp: int, c: GpuConstants) -> float:
    """Return the bytes per thread that one access takes from L1, including unused bytes between."""
    width = c.access_bytes * warp if load.step == SCATTERED else load.bytes * load.step
    # A warp reads an address that all its threads share once.
    return max(width, c.access_bytes if load.step else c.access_bytes / warp)


def _atomics(plan: KernelPlan) -> float:
    """Return the atomic additions of a kernel; all loops of an atomic kernel are parallel."""
    return float(math.prod(plan.kernel.extents)) if plan.kernel.atomic else 0.0


def host_seconds(points: float, arithmetic: float, loads: int, c: GpuConstants) -> float:
    """Return the seconds that the host takes for `points` iterations of a stage."""
    return points * (arithmetic + loads) / c.host_rate


def alone_seconds(
    points: float, arithmetic: float, loads: int, clock: float, c: GpuConstants
) -> float:
    """Return the seconds that one GPU thread takes for `points` iterations of a stage.

    Args:
        points: Number of iterations.
        arithmetic: Operations per iteration.
        loads: Loads per iteration.
        clock: The GPU's clock, in Hz.
        c: The model's constants.
    """
    each = arithmetic * c.arithmetic_latency
    return points * (each + loads * c.memory_latency / c.loads_in_flight) / clock


def _memory(tally: Tally, blocks: float) -> float:
    """Return the bytes that a planned kernel moves through memory."""
    kernel = tally.kernel
    elements: dict[str, float] = {}
    for step in tally.steps:
        for load in step.work.loads:
            if load.callee not in kernel.members and load.callee != kernel.output:
                elements[load.callee] = max(elements.get(load.callee, 0.0), float(load.bytes))
    read = {
        callee: (
            float(tally.footprint(callee, int(element))[0]),
            math.prod(kernel.whole(callee)) * element,
        )
        for callee, element in elements.items()
    }
    written = kernel.func.bytes * math.prod(
        extent
        for extent, loop in zip(kernel.extents, kernel.loops, strict=True)
        if loop.loop.name in kernel.stored_over
    )
    return memory_bytes(read, blocks, written, kernel.stage.index > 0, tally.model.constants)


def memory_bytes(
    read: Mapping[str, tuple[float, float]],
    blocks: float,
    written: float,
    update: bool,
    c: GpuConstants,
) -> float:
    """Return the memory traffic of a launch, in bytes.

    Reading data again costs 1 / `l2_factor` of reading them from memory, because L2 serves them.

    Args:
        read: For each Func and input, the bytes that one block touches and the total bytes.
        blocks: Number of blocks.
        written: Bytes that the launch writes.
        update: Whether the stage is an update, which reads what it writes.
        c: The model's constants.
    """
    total = 0.0
    for footprint, whole in read.values():
        touched = footprint * blocks
        total += min(touched, whole) + max(touched - whole, 0.0) / c.l2_factor
    # An update reads the values that it writes.
    return total + (written + written if update else written)
