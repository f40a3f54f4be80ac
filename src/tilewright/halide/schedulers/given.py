"""The schedule that a pipeline came with, as a candidate beside ours."""

from __future__ import annotations

import math

from tilewright.errors import TilewrightError
from tilewright.halide.frontend.given import read_schedule
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.task import Task

GIVEN = "given"


def given_plan(serialized: bytes, task: Task) -> PlannedSchedule:
    """The schedule in `serialized`, the bytes of the task's pipeline as it came.

    Raises `TilewrightError` where nothing has been scheduled, and `UnreadableScheduleError`
    where the schedule cannot be read.
    """
    came = import_pipeline(serialized)
    if not came.wrappers and not any(func.scheduled for func in came.funcs):
        raise TilewrightError(
            "the pipeline has no schedule to start from: nothing of it has been scheduled. Leave "
            "out improve (--improve), or mode 'given'"
        )
    schedule = read_schedule(serialized, task.target).schedule
    return PlannedSchedule(schedule, (), math.inf, name=GIVEN)
