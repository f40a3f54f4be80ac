"""The schedule that a pipeline came with, as a candidate among ours."""

from __future__ import annotations

import math

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.halide.analysis.inlining import TooLarge
from tilewright.halide.analysis.nest_parts import LoopSize
from tilewright.halide.analysis.scheduled_nest import ScheduledNest, nest_analysis
from tilewright.halide.frontend.given import read_schedule
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.plan import GroupReport, PlannedSchedule
from tilewright.halide.ir.schedule import Schedule
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
    return PlannedSchedule(schedule, nest_groups(schedule, task.algorithm), math.inf, name=GIVEN)


def nest_groups(schedule: Schedule, algorithm: Algorithm) -> tuple[GroupReport, ...]:
    """The groups of any schedule: each Func at root with all that is computed in its loops.

    Extents are those at the estimates. Tiles and costs are left out: no model has made them.
    """
    try:
        found = ScheduledNest(nest_analysis(algorithm, schedule), schedule).loops
    except (TooLarge, KeyError):
        # Too much is inlined, or only an extern stage knows what it reads of a Func.
        return ()
    extended = with_clones(algorithm, schedule.clones)
    members: dict[int, set[int]] = {}
    loops: dict[int, dict[int, list[LoopSize]]] = {}
    for loop in found:
        func, stage = loop.stage
        root = loop.path[0][0][0] if loop.path else func
        members.setdefault(root, set()).update((root, func))
        if func == root:
            loops.setdefault(root, {}).setdefault(stage, []).append(loop)
    return tuple(
        _group(extended, root, sorted(members[root]), loops[root])
        for root in sorted(members)
        if root in loops
    )


def _group(
    algorithm: Algorithm, root: int, members: list[int], stages: dict[int, list[LoopSize]]
) -> GroupReport:
    stage = max(stages)
    # Outermost first, as the nest has them: a launch and a vector are named innermost first.
    loops = sorted(stages[stage], key=lambda loop: len(loop.path))

    def extents(mapping: str) -> tuple[int, ...]:
        sizes = [np.ravel(loop.extent)[0] for loop in reversed(loops) if loop.mapping == mapping]
        return tuple(int(size) for size in sizes if math.isfinite(size))

    return GroupReport(
        funcs=tuple(algorithm.funcs[i].name for i in members),
        output=algorithm.funcs[root].name,
        stage=stage,
        blocks=extents("gpu_block"),
        threads=extents("gpu_thread"),
        parallel_tasks=math.prod(extents("parallel")),
        vector_width=math.prod(extents("vectorized")[:1]),
        cost=math.inf,
    )
