"""Find the members at which cutting a group in two saves the most recomputation.

Overlapping blocks compute the members at their borders several times. If a member becomes the
output of a separate group, it and the Funcs that only it needs are computed once there. In return,
its values must be stored to memory and loaded again.

| symbol | meaning | unit |
|---|---|---|
| `again` | recomputation: work of all blocks on a member beyond its required region | operations |
| `moved` | cost of storing and loading a member | operations |
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.halide.analysis.inlining import View
from tilewright.halide.schedulers.analytic.gpu.cost import CostModel
from tilewright.halide.schedulers.analytic.gpu.plan import GroupPlan, KernelPlan
from tilewright.halide.schedulers.analytic.grouping import Group


def cuts(model: CostModel, plan: GroupPlan, group: Group) -> list[tuple[Group, ...]]:
    """Return the ways to cut a group at one member, those that save most operations first."""
    reading = [kernel for kernel in plan.kernels if kernel.kernel.members]
    if not reading:
        return []
    kernel = reading[0]
    view = kernel.kernel.analysis.view
    again = _again(model, kernel)
    found = []
    for name in group.members[:-1]:
        parts = cut_at(view, group, name)
        upstream = [member for part in parts[:-1] for member in part.members]
        whole = math.prod(kernel.kernel.whole(name))
        moved = model.constants.round_trip_cost * whole
        saved = sum(again.get(member, 0.0) for member in upstream) - moved
        found.append((-saved, view.algorithm.order[name], parts))
    return [parts for _, _, parts in sorted(found, key=lambda each: each[:2])]


def cut_at(view: View, group: Group, name: str) -> tuple[Group, ...]:
    """Return a group cut in two: the Funcs that only the member `name` needs, and the others.

    A Func that both parts need gets a separate group.
    """
    members = set(group.members)
    owner = {group.output: group.output}
    for member in reversed(group.members[:-1]):
        owners = {owner[reader] for reader in view.consumers[member] if reader in members}
        alone = member == name or len(owners) != 1
        owner[member] = member if alone else owners.pop()
    parts: dict[str, list[str]] = {}
    for member in group.members:
        parts.setdefault(owner[member], []).append(member)
    order = view.algorithm.order
    return tuple(Group(tuple(parts[output])) for output in sorted(parts, key=order.__getitem__))


def _again(model: CostModel, plan: KernelPlan) -> dict[str, float]:
    """Return the operations per member that are repeated (`again`)."""
    tiles = np.array([plan.tile], dtype=np.float64)
    registers = np.array([plan.registers], dtype=np.float64)
    tally = model.tally(plan.kernel, tiles, registers, plan.nested)
    found: dict[str, float] = {}
    for step in tally.steps:
        if step.name == plan.kernel.output:
            continue
        blocks, points = float(tally.blocks[0]), float(step.points[0])
        whole = math.prod(plan.kernel.whole(step.name))
        again = max(blocks * points - whole, 0.0) * step.work.arithmetic
        found[step.name] = found.get(step.name, 0.0) + again
    return found
