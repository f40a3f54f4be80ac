"""The model's best schedule that Halide takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.halide.execution.lowering import refusal
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.learned.scheduler import plan_learned
from tilewright.halide.schedulers.registry import Fusion, Objective, Scheduler, naive
from tilewright.halide.schedulers.several_sizes import plan_sizes
from tilewright.halide.schedulers.task import Task

# Number of additional schedules to plan if Halide refuses all requested ones.
ALTERNATIVES = 5
SIOUTAS: Objective = "sioutas"


def plan_checked(
    task: Task,
    *,
    k: int = 1,
    fusion: Fusion = "nested",
    objective: Objective = "time",
    scheduler: Scheduler = "analytic",
    seed: int = 0,
    check: bool = True,
) -> list[PlannedSchedule]:
    """Plan like `plan` or `plan_learned`; Halide has lowered the first.

    Those refused before it are dropped. If it refuses all of the model's, those that the paper's
    cost prefers follow, then the naive schedule. The notes of the first one say what
    was refused, and why. With `check` false, nothing is lowered.
    """
    if scheduler == "analytic":
        planned = plan_sizes(task, k=k, fusion=fusion, objective=objective)
    else:
        planned = plan_learned(task, k=k, auto=scheduler == "auto", seed=seed)
    if not check:
        return planned
    refusals: list[str] = []
    found = _first_lowered(task, planned, refusals)
    known = {each.schedule for each in planned}
    # The paper's cost gives threads fewer points, whose registers Halide can bound more often.
    for other in dict.fromkeys((objective, SIOUTAS if task.gpu else objective)):
        if not found:
            more = plan_sizes(task, k=k + ALTERNATIVES, fusion=fusion, objective=other)
            found = _first_lowered(task, [p for p in more if p.schedule not in known], refusals)[:k]
            known |= {each.schedule for each in more}
    count = "the model's best schedule" if len(refusals) == 1 else f"{len(refusals)} schedules"
    if not found:
        fallback = PlannedSchedule(naive(task), (), 0.0)
        found = [fallback]
        if refusal(fallback.schedule, task.algorithm):
            # The pipeline is at fault: the model's schedule is as good as any.
            found = planned[:1]
            count = "the pipeline under every schedule, even with every Func at root"
    if refusals:
        note = f"Halide refused {count}: {refusals[0]}"
        found[0] = replace(found[0], notes=(*found[0].notes, note))
    return found


def _first_lowered(
    task: Task, planned: Sequence[PlannedSchedule], refusals: list[str]
) -> list[PlannedSchedule]:
    """Drop schedules before the first that lowers, with notes on Halide's reasons."""
    for i, each in enumerate(planned):
        reason = refusal(each.schedule, task.algorithm)
        if not reason:
            return list(planned[i:])
        refusals.append(reason)
    return []
