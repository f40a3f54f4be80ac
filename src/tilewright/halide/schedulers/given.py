"""The schedule that a pipeline came with, as a plan; and the groups of any schedule."""

from __future__ import annotations

import math

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.halide.analysis.gpu_launches import Launch, launches, number, numbers
from tilewright.halide.analysis.nest_parts import LoopSize
from tilewright.halide.analysis.nest_structure import StageNest
from tilewright.halide.analysis.scheduled_nest import UNKNOWN, ScheduledNest, nest_analysis
from tilewright.halide.frontend.given import read_schedule
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.joint import joined
from tilewright.halide.ir.plan import GroupReport, PlannedSchedule
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.ir.variants import running_at
from tilewright.halide.legality.grids import launch_problems
from tilewright.halide.schedulers.analytic.cpu.stage_loops import tile_depth
from tilewright.halide.schedulers.registry import device_limits
from tilewright.halide.schedulers.task import Task

GIVEN = "given"


def given_plan(serialized: bytes, task: Task) -> PlannedSchedule:
    """Return the schedule in `serialized`, the bytes of the task's pipeline with its schedule.

    Notes report launches that exceed the device's limits. The other rules of `check` are not
    applied: they are made for Tilewright's schedules, and other schedules may break them and be
    correct.

    Raises:
        TilewrightError: the pipeline has no schedule.
        UnreadableScheduleError: the schedule cannot be read.
    """
    came = import_pipeline(serialized)
    if not came.wrappers and not any(func.scheduled for func in came.funcs):
        raise TilewrightError(
            "the pipeline has no schedule to start from: none of its Funcs has been scheduled. "
            "Leave out improve (--improve), or mode 'given'"
        )
    schedule = read_schedule(serialized, task.target).schedule
    algorithm = with_clones(task.algorithm, schedule.clones)
    problems = launch_problems(running_at(schedule, algorithm), algorithm, device_limits(task))
    notes = tuple(f"It may not run: {problem}" for problem in problems)
    groups = nest_groups(schedule, task.algorithm)
    return PlannedSchedule(schedule, groups, math.inf, notes, name=GIVEN)


def nest_groups(schedule: Schedule, algorithm: Algorithm) -> tuple[GroupReport, ...]:
    """Return the groups of any schedule at the estimates, as in `groups_of`.

    The result is empty if sizes cannot be determined.
    """
    try:
        schedule, algorithm = joined(schedule, algorithm)
        return groups_of(ScheduledNest(nest_analysis(algorithm, schedule), schedule))
    except UNKNOWN:
        return ()


def groups_of(nest: ScheduledNest) -> tuple[GroupReport, ...]:
    """Return the groups of any schedule, from its loop nest.

    On a CPU, a group is a Func at root with the Funcs computed in its loops. On a GPU, each stage
    of a Func at root is a group, because it is a kernel. Groups have no costs, as the schedule may
    not come from a search.
    """
    # Unbounded regions have infinite extents; differences of these are ignored.
    with np.errstate(invalid="ignore", over="ignore"):
        return _groups(nest)


def _groups(nest: ScheduledNest) -> tuple[GroupReport, ...]:
    launched = {(launch.func, launch.stage): launch for launch in launches(nest)}
    members: dict[tuple[int, int], set[int]] = {}
    loops: dict[tuple[int, int], list[LoopSize]] = {}
    for loop in nest.loops:
        root, stage = loop.path[0][0] if loop.path else loop.stage
        last = (root, stage if launched else -1)
        members.setdefault(last, set()).update((root, loop.stage[0]))
        if loop.stage[0] == root:
            loops.setdefault(last, []).append(loop)
    found = []
    for key in sorted(members):
        stage = max(loop.stage[1] for loop in loops[key])
        own = [loop for loop in loops[key] if loop.stage[1] == stage]
        found.append(_group(nest, sorted(members[key]), own, launched.get((key[0], stage))))
    return tuple(found)


def _group(
    nest: ScheduledNest, members: list[int], loops: list[LoopSize], launch: Launch | None
) -> GroupReport:
    """Return the group of a stage at root with the given loops, outermost first."""
    root, index = loops[0].stage
    stage = nest.structure.stages[root, index]
    names = nest.structure.names

    def extents(mapping: str) -> tuple[int, ...]:
        # The loops are ordered from outermost to innermost; extents are listed innermost first.
        sizes = [np.ravel(loop.extent)[0] for loop in reversed(loops) if loop.mapping == mapping]
        return tuple(int(size) for size in sizes if math.isfinite(size))

    return GroupReport(
        funcs=tuple(names[i] for i in members),
        output=names[root],
        stage=index,
        tile=_tile(nest, stage, loops),
        loops=tuple(loop.name for loop in stage.stage.loops),
        blocks=numbers(launch.grid) if launch else (),
        threads=numbers(launch.block) if launch else (),
        shared_bytes=number(launch.shared_bytes) if launch else 0,
        parallel_tasks=math.prod(extents("parallel")) if extents("parallel") else 0,
        vector_width=math.prod(extents("vectorized")[:1]) if extents("vectorized") else 0,
        cost=math.inf,
    )


def _tile(nest: ScheduledNest, stage: StageNest, loops: list[LoopSize]) -> tuple[int, ...]:
    """Return the extents of one iteration of the tile loops, by loop of the definition."""
    blocks = [at for at, loop in enumerate(loops) if loop.mapping == "gpu_block"]
    depth = max(blocks) + 1 if blocks else tile_depth(stage)
    if not depth:
        return ()
    around = loops[depth - 1].context
    stores = nest.values(stage, around.ranges, around.fixed).stores
    names = {name: loop for loop, name in stage.variables.items()}
    sizes = [float(np.max(stores[names[loop.name]].extent)) for loop in stage.stage.loops]
    return tuple(int(size) for size in sizes) if all(map(math.isfinite, sizes)) else ()
