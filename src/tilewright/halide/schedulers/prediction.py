"""The predicted time of any legal schedule, from its loop nest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.halide.analysis.running_nest import running_nest
from tilewright.halide.analysis.scheduled_nest import UNKNOWN, ScheduledNest
from tilewright.halide.ir.plan import GroupReport, PartTime, PlannedSchedule, Prediction
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.given import groups_of
from tilewright.halide.schedulers.task import Task
from tilewright.machines import GpuMachine


def predicted(task: Task, schedule: Schedule) -> Prediction | None:
    """Return the predicted time of a schedule on the task's machine, at the estimates.

    The schedule may come from the search, a tuner, a user or another autoscheduler. The model is
    the same for all schedules, while costs in the search may be weighted by its policy.

    Returns None if the time cannot be predicted: expressions are too large, an extern stage hides
    its reads, or the rates of the GPU are unknown.
    """
    nest = _nest(task, schedule)
    return None if nest is None else _predicted(task, nest)


def with_prediction(
    planned: PlannedSchedule, task: Task, constants: GpuConstants | None = None
) -> PlannedSchedule:
    """Return the plan with the predicted times of the schedule and of each group.

    Groups that the search has not costed (tuned or given ones) also get their tiles and launches
    from the loop nest. A plan that already has a time, or cannot be predicted, is returned
    unchanged. `constants` are measured constants of the task's GPU, by default the model's.
    """
    if planned.seconds is not None:
        return planned
    nest = _nest(task, planned.schedule)
    if nest is None:
        return planned
    prediction = _predicted(task, nest, constants)
    kernels = isinstance(task.machine, GpuMachine)
    try:
        read = {_key(group, kernels): group for group in groups_of(nest)}
    except UNKNOWN:
        return planned
    known = planned.groups or tuple(read.values())
    outputs = {group.output for group in known}
    groups = []
    for group in known:
        found = read.get(_key(group, kernels))
        if found is not None and not math.isfinite(group.cost):
            group = replace(found, funcs=group.funcs, notes=group.notes)
        # If the output has no loops, members are also computed at root.
        own = {_key(group, kernels), *((name, 0) for name in group.funcs if name not in outputs)}
        parts = (
            []
            if prediction is None
            else [part for part in prediction.parts if _key(part, kernels) in own]
        )
        groups.append(_with_time(group, parts, kernels) if parts else group)
    seconds = None if prediction is None else prediction.seconds
    notes = () if prediction is None else prediction.notes
    said = tuple(dict.fromkeys((*planned.notes, *(f"Predicted time: {note}" for note in notes))))
    return replace(planned, groups=tuple(groups), seconds=seconds, notes=said)


def _key(group: GroupReport | PartTime, kernels: bool) -> tuple[str, int]:
    """Return the key of a group: (Func, stage) for kernels, else (Func, 0)."""
    return group.output, group.stage if kernels else 0


def _with_time(group: GroupReport, parts: Sequence[PartTime], kernels: bool) -> GroupReport:
    seconds = sum(part.seconds for part in parts)
    longest = max(parts, key=lambda part: part.seconds)
    return replace(
        group,
        seconds=seconds,
        occupancy=longest.occupancy if kernels else group.occupancy,
        occupancy_limit=longest.occupancy_limit,
        limit=longest.limit,
    )


def _nest(task: Task, schedule: Schedule) -> ScheduledNest | None:
    """Return the loop nest; None if its sizes cannot be determined."""
    try:
        return schedule_nest(task, schedule)
    except UNKNOWN:
        return None


def schedule_nest(task: Task, schedule: Schedule) -> ScheduledNest:
    """Return the loop nest of a schedule; specialised code has the values of its specialisation.

    Raises one of `UNKNOWN` if its sizes cannot be determined.
    """
    return running_nest(task.algorithm, schedule)


def _predicted(
    task: Task, nest: ScheduledNest, constants: GpuConstants | None = None
) -> Prediction | None:
    # Unbounded regions have infinite extents; differences of these are ignored.
    with np.errstate(invalid="ignore", over="ignore"):
        try:
            return _evaluated(task, nest, constants)
        except UNKNOWN:
            return None


def _evaluated(
    task: Task, nest: ScheduledNest, constants: GpuConstants | None
) -> Prediction | None:
    if isinstance(task.machine, GpuMachine):
        from tilewright.halide.schedulers.analytic.gpu import nest_costs as on_gpu
        from tilewright.halide.schedulers.analytic.gpu.calibrated import fitted_constants
        from tilewright.halide.schedulers.analytic.gpu.occupancy import residency

        c = constants or fitted_constants(task.gpu_calibration)
        kernels = on_gpu.part_times(nest, residency(task.machine), c)
        return None if kernels is None else Prediction(kernels, nest.unmodelled)
    from tilewright.halide.schedulers.analytic.cpu import nest_costs as on_cpu
    from tilewright.halide.schedulers.analytic.cpu.families import calibrated
    from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of

    machine, measured = calibrated(task.machine, task.calibration)
    return Prediction(on_cpu.part_times(nest, model_of(machine, measured)), nest.unmodelled)
