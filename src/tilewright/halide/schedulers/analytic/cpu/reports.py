"""The report on a planned schedule: each group with its tiling and predicted cost."""

from __future__ import annotations

from tilewright.halide.ir.algorithm import Func
from tilewright.halide.ir.plan import GroupReport, PlannedSchedule
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.tiling import CpuPlan
from tilewright.halide.schedulers.analytic.grouping import Grouping


def unplanned(func: Func, plan: CpuPlan) -> bool:
    """Return whether no tiling of a Func could be costed: it is then computed at root."""
    return len(plan.tiling.sizes) < len(func.args)


def reported(schedule: Schedule, grouping: Grouping[CpuPlan], costs: CpuCosts) -> PlannedSchedule:
    """Return the schedule with a report on each group: its tiling and predicted cost."""
    reports = []
    for group, plan in zip(grouping.groups, grouping.plans, strict=True):
        func = costs.analysis.view.by_name[group.output]
        if func.fixed or func.scheduled:
            stage = "an extern stage, at root"
            left = stage if func.extern is not None else "memoised, left as it is"
            note = left if func.fixed else "kept as it was scheduled"
            reports.append(GroupReport(group.members, group.output, notes=(note,)))
            continue
        if unplanned(func, plan):
            note = "not analysed by the cost model: computed at root with unchanged loops"
            reports.append(GroupReport(group.members, group.output, notes=(note,)))
            continue
        block = costs.block(group.output, len(func.stages) - 1)
        reports.append(
            GroupReport(
                funcs=group.members,
                output=group.output,
                stage=max(0, len(func.stages) - 1),
                tile=plan.tiling.sizes,
                loops=func.args,
                parallel_tasks=plan.tasks,
                vector_width=block.lanes if block is not None else 0,
                cost=plan.cost,
                notes=(f"members slide along {func.args[plan.tiling.sliding.dimension]}",)
                if plan.tiling.sliding is not None
                else (),
            )
        )
    return PlannedSchedule(schedule, tuple(reports), grouping.cost)
