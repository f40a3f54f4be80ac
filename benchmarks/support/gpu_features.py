"""Features of a planned kernel from the analytic model, as inputs for learned models.

They could be computed again from the algorithm and the schedule; they are stored with a
measurement so that training does not have to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.halide.schedulers.analytic.gpu.cost import CostModel
from tilewright.halide.schedulers.analytic.gpu.kernel import FusedKernel
from tilewright.halide.schedulers.analytic.gpu.plan import GroupPlan, KernelPlan


def features(model: CostModel, plans: Sequence[GroupPlan]) -> list[dict[str, Any]]:
    """Return the features of every kernel in order, as JSON data.

    ``arithmetic`` and ``memory`` are the model's sums over all blocks (Sioutas 2020, Listing
    1), ``active_threads`` those of an SM and ``active_sms`` the SMs with a block; ``operations``
    counts one iteration of each stage by operation and type. Sizes are in elements, shared
    memory in bytes.
    """
    return [_kernel(model, kernel) for plan in plans for kernel in plan.kernels]


def _kernel(model: CostModel, plan: KernelPlan) -> dict[str, Any]:
    kernel = plan.kernel
    found: dict[str, Any] = {
        "func": kernel.output,
        "stage": kernel.stage.index,
        "kind": plan.kind,
        "atomic": kernel.atomic,
        "members": list(kernel.members),
        "nested": dict(plan.nested),
        "extents": list(kernel.extents),
        "thread_loops": list(kernel.roles.threads),
        "cost": plan.cost,
        "relaxed": plan.relaxed,
        "operations": _operations(kernel),
    }
    if plan.kind != "parallel":
        return found
    tiles = np.array([plan.tile], dtype=np.float64)
    registers = np.array([plan.registers], dtype=np.float64)
    costs = model.costs(kernel, tiles, registers, plan.nested)
    found |= {
        "tile": list(plan.tile),
        "registers": list(plan.registers),
        "threads": [float(extent[0]) for extent in costs.threads],
        "shared": float(costs.shared[0]),
        "blocks": float(costs.blocks[0]),
        "arithmetic": float(costs.arithmetic[0]),
        "memory": float(costs.memory[0]),
        "occupancy": float(costs.occupancy[0]),
        "launch_occupancy": float(costs.launch_occupancy[0]),
        "active_threads": float(costs.active_threads[0]),
        "active_sms": float(costs.active_sms[0]),
    }
    return found


def _operations(kernel: FusedKernel) -> dict[str, dict[str, int]]:
    """Return the operations of one iteration of every stage in the kernel."""
    stages = {f"{kernel.output}.{kernel.stage.index}": kernel.summary}
    for name in kernel.members:
        for summary in kernel.analysis.summaries(name):
            stages[f"{name}.{summary.index}"] = summary
    result = {}
    for label, summary in stages.items():
        counts: Counter[str] = Counter()
        for op in summary.ops:
            counts[f"{op.name} {op.type}"] += op.count
        for load in summary.loads:
            counts[f"load {load.type}"] += 1
        result[label] = dict(counts)
    return result
