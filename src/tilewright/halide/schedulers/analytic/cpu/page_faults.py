"""Page faults of the buffers at root, which depend on all of them together."""

from __future__ import annotations

from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.storage import fresh_bytes
from tilewright.halide.schedulers.analytic.cpu.tiling import CpuPlan
from tilewright.halide.schedulers.analytic.grouping import Grouping


def values_at_root(costs: CpuCosts, grouping: Grouping[CpuPlan]) -> list[int]:
    """Return the number of values of each group's output: a Tuple has several."""
    return [len(costs.analysis.view.by_name[group.output].types) for group in grouping.groups]


def fault_cycles(costs: CpuCosts, grouping: Grouping[CpuPlan]) -> float:
    """Return cycles of the page faults of all buffers together, beyond those of single ones."""
    readers = costs.analysis.view.consumers
    place = {name: i for i, group in enumerate(grouping.groups) for name in group.members}
    last = [
        max((place[reader] for reader in readers[group.output] if reader in place), default=i)
        for i, group in enumerate(grouping.groups)
    ]
    sizes = [plan.root_bytes for plan in grouping.plans]
    fresh = fresh_bytes(sizes, last, values_at_root(costs, grouping), costs.model.constants)
    return costs.fault_cycles(fresh) - sum(plan.fault for plan in grouping.plans)
