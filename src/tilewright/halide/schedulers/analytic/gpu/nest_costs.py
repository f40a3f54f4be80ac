"""Predict the time of an arbitrary schedule on a GPU, part by part.

A part is a kernel or a stage that stays on the host. `nest_work` counts the work of the parts,
`traffic` the bytes that each moves through DRAM, and `kernel_time` computes the time from both.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.ir.plan import PartTime
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.kernel_time import (
    KernelCounts,
    kernel_counts,
    kernel_cycles,
    kernel_terms,
    occupancy,
)
from tilewright.halide.schedulers.analytic.gpu.nest_work import HostWork, KernelWork, nest_work
from tilewright.halide.schedulers.analytic.gpu.occupancy import Residency
from tilewright.halide.schedulers.analytic.gpu.roofline import host_seconds
from tilewright.halide.schedulers.analytic.gpu.traffic import memory_traffic
from tilewright.machines import GpuMachine

# For each part, by identity, its time for each number of bytes that it moves through DRAM. The part
# itself is kept so that no other part gets its identity.
KnownTimes = dict[int, tuple[KernelWork | HostWork, dict[float, PartTime]]]


def part_times(
    nest: ScheduledNest, resident: Residency, c: GpuConstants
) -> tuple[PartTime, ...] | None:
    """Return the predicted time of every part; None if the GPU's rates are unknown.

    Extern stages and Funcs that the user scheduled are omitted.
    """
    machine = resident.machine
    if machine.clock_hz is None or machine.memory_bandwidth is None:
        return None
    return times_of(nest_work(nest, machine.warp_size), machine, c)


def times_of(
    parts: Sequence[KernelWork | HostWork],
    machine: GpuMachine,
    c: GpuConstants,
    known: KnownTimes | None = None,
) -> tuple[PartTime, ...]:
    """Return the predicted time of every part, in execution order.

    The GPU's clock and memory bandwidth must be known. `known` caches the times of parts for other
    schedules on the same GPU: a part's time depends on the others through its DRAM traffic only.
    """
    assert machine.clock_hz is not None
    known = {} if known is None else known
    found = []
    for part, memory in zip(parts, memory_traffic(parts, machine.l2_bytes), strict=True):
        own = known.setdefault(id(part), (part, {}))[1]
        if memory not in own:
            own[memory] = (
                _host(part, c)
                if isinstance(part, HostWork)
                else _kernel(part, memory, machine, machine.clock_hz, c)
            )
        found.append(own[memory])
    return tuple(found)


def kernels_of(
    nest: ScheduledNest, machine: GpuMachine, c: GpuConstants
) -> tuple[list[KernelWork], list[KernelCounts]]:
    """Return the kernels of a nest, and the counts from which the time of each is computed."""
    parts = nest_work(nest, machine.warp_size)
    moved = memory_traffic(parts, machine.l2_bytes)
    pairs = [
        (part, kernel_counts(part, memory, machine, c))
        for part, memory in zip(parts, moved, strict=True)
        if isinstance(part, KernelWork)
    ]
    return [work for work, _ in pairs], [counts for _, counts in pairs]


def _kernel(
    work: KernelWork, memory: float, machine: GpuMachine, clock: float, c: GpuConstants
) -> PartTime:
    terms = kernel_terms(kernel_counts(work, memory, machine, c), machine, c)
    assert terms is not None
    cycles = float(kernel_cycles(terms, c))
    named = {name: work.runs * float(term) / clock for name, term in terms.items() if term}
    launch = work.runs * (c.launch_seconds + c.kernel_cycles / clock)
    seconds = work.runs * (c.launch_seconds + cycles / clock)
    terms_of = {**named, "launch": launch}
    return PartTime(work.func, work.stage, seconds, terms_of, *occupancy(work, machine, c))


def _host(work: HostWork, c: GpuConstants) -> PartTime:
    """Return the time of a host stage, including a synchronisation as long as a launch."""
    host = work.runs * host_seconds(work.points, work.arithmetic, work.loads, c)
    launch = work.runs * c.launch_seconds
    return PartTime(work.func, work.stage, launch + host, {"host": host, "launch": launch})
