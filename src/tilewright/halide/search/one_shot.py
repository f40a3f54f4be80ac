"""Mode ``oneshot``: the model's best schedule that Halide can lower."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tilewright.halide.execution.lowering import FAILED, TOO_MANY_THREADS, refusal
from tilewright.halide.ir.clones import halide_names
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.constant_extents import bounded_registers, bounded_threads
from tilewright.halide.schedulers.learned.cost_model import LearnedModel
from tilewright.halide.schedulers.learned.scheduler import plan_learned
from tilewright.halide.schedulers.registry import (
    Fusion,
    Objective,
    Scheduler,
    Search,
    device_limits,
    naive,
    why_illegal,
)
from tilewright.halide.schedulers.several_sizes import plan_sizes
from tilewright.halide.schedulers.task import Task
from tilewright.halide.search.spills import spill_filter
from tilewright.measure import collection_paused

# Number of additional schedules to plan if Halide refuses all requested ones.
ALTERNATIVES = 5
SIOUTAS: Objective = "sioutas"
# Halide's messages about a thread's storage without a constant size, and about unrolled loops of
# what is stored there. The number after the Func's name is that of a Tuple's value.
_UNBOUNDED = re.compile(
    r"(?:constant upper bound on extent of realization|Allocation"
    r"|unroll for loops over a constant extent. Loop over) "
    r"([A-Za-z_][\w$]*)(?:\.\d+)?(?:\. Use| has a dynamic size|\.s\d+\.)"
)


# The many small objects of an analysis live until the end: looking for garbage among them takes a
# tenth of the time.
@collection_paused()
def plan_checked(
    task: Task,
    *,
    k: int = 1,
    fusion: Fusion = "nested",
    objective: Objective = "time",
    scheduler: Scheduler = "analytic",
    model: LearnedModel | None = None,
    seed: int = 0,
    check: bool = True,
    search: Search = "tilewright",
    seconds: float | None = None,
) -> list[PlannedSchedule]:
    """Plan schedules like `plan_sizes` or `plan_learned`, and check that Halide lowers the first.

    Schedules before the first one that Halide lowers are dropped; its notes report them and
    Halide's reason. If Halide refuses all schedules of the model, more schedules and those by the
    objective of Sioutas 2020 are tried, then the naive schedule. If `check` is false, nothing is
    lowered.
    """
    if scheduler == "analytic":
        planned = plan_sizes(task, k=k, fusion=fusion, objective=objective)
    else:
        planned = plan_learned(
            task,
            k=k,
            auto=scheduler == "auto",
            seed=seed,
            model=model,
            search=search,
            seconds=seconds,
            spilled=spill_filter(task, check),
        )
    if not check:
        return planned
    refusals: list[str] = []
    found = _first_lowered(task, planned, refusals)
    known = {each.schedule for each in planned}
    # By the objective of Sioutas 2020, a thread computes fewer points: Halide can bound their
    # storage in registers more often.
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
            # The pipeline is at fault: keep the model's schedule.
            found = planned[:1]
            count = "the pipeline under every schedule, even with every Func at root"
    if refusals:
        note = f"Halide refused {count}: {refusals[0]}"
        found[0] = replace(found[0], notes=(*found[0].notes, note))
    return found


def _first_lowered(
    task: Task, planned: Sequence[PlannedSchedule], refusals: list[str]
) -> list[PlannedSchedule]:
    """Return the schedules from the first that lowers on; append reasons to `refusals`.

    Schedules are mended first (`_mended`), until Halide takes too long for a mended one.
    """
    threads = device_limits(task).threads_per_block if task.gpu else None
    mending = task.gpu and not any(reason.startswith(FAILED) for reason in refusals)
    for i, each in enumerate(planned):
        reason = refusal(each.schedule, task.algorithm, threads)
        if reason and mending:
            mended, left = _mended(task, each, reason, threads)
            if mended is not None:
                return [mended, *planned[i + 1 :]]
            if left.startswith(FAILED):
                mending, reason = False, left
        if not reason:
            return list(planned[i:])
        refusals.append(reason)
    return []


def _mended(
    task: Task, planned: PlannedSchedule, reason: str, threads: int | None
) -> tuple[PlannedSchedule | None, str]:
    """Return a schedule for a GPU with constant extents where Halide finds none, if it lowers.

    The second value is Halide's last reason to refuse it.
    """
    schedule = planned.schedule
    changes: list[str] = []
    while reason:
        registers = _UNBOUNDED.search(reason)
        mended = None
        if reason.startswith(TOO_MANY_THREADS):
            mended = bounded_threads(schedule, task.algorithm)
            changes.append(f"the thread loops in blocks are split by constants ({reason})")
        elif registers:
            name = halide_names(task.algorithm, schedule.clones).get(registers[1], registers[1])
            mended = bounded_registers(schedule, task.algorithm, name)
            changes.append(f"the extents of {name} are promised to Halide, which finds none")
        if mended is None or why_illegal(mended, task):
            return None, reason
        schedule = mended
        reason = refusal(schedule, task.algorithm, threads)
    note = f"Changed after planning: {'; '.join(changes)}."
    return replace(planned, schedule=schedule, notes=(*planned.notes, note)), ""
