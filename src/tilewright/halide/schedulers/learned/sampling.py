"""Random schedules: walks of a few random moves from the analytic schedules and the naive one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tilewright.halide.analysis.inlining import TooLarge
from tilewright.halide.ir.nest import exact_size
from tilewright.halide.ir.schedule import Schedule, ScheduleError
from tilewright.halide.schedulers.learned.moves import (
    Move,
    applied,
    level_moves,
    loop_moves,
    violations,
)
from tilewright.halide.schedulers.learned.scene import Scene
from tilewright.halide.schedulers.prediction import predicted
from tilewright.halide.schedulers.registry import naive, plan
from tilewright.halide.schedulers.task import Task
from tilewright.machines import CpuMachine

# Number of schedules from the analytic search to start walks from.
SEEDS = 4
LONGEST_WALK = 8
# Maximum number of draws per requested schedule.
PATIENCE = 12
# The end of a walk is kept with the probability (best / predicted time) ** GREED.
GREED = 1.0


def seeds(task: Task, count: int = SEEDS) -> list[Schedule]:
    """Return the `count` best analytic schedules for the estimated sizes, and the naive one."""
    planned = plan(replace(task, exact_sizes=True), k=count, shared=False)
    found = [exact_size(each.schedule) for each in planned]
    return list(dict.fromkeys([*found, naive(task)]))


def scene_of(task: Task, schedule: Schedule) -> Scene:
    """Return the scene for moves of a schedule.

    Raises `ScheduleError` if the task's machine is not a CPU.
    """
    if not isinstance(task.machine, CpuMachine):
        raise ScheduleError("random moves are only defined for schedules for CPUs")
    return Scene(task.algorithm, task.machine, schedule.clones)


def random_move(
    schedule: Schedule, scene: Scene, rng: np.random.Generator
) -> tuple[Move, Schedule] | None:
    """Return a random legal move of a random Func and its result; None if none is found."""
    scene = scene.of(schedule)
    for _ in range(PATIENCE):
        entry = schedule.funcs[int(rng.integers(len(schedule.funcs)))]
        kind = level_moves if rng.random() < 0.5 else loop_moves
        moves = list(kind(entry, schedule, scene))
        if not moves:
            continue
        # All classes of moves are equally likely, regardless of their numbers.
        kinds = sorted({type(move).__name__ for move in moves})
        chosen = kinds[int(rng.integers(len(kinds)))]
        among = [move for move in moves if type(move).__name__ == chosen]
        move = among[int(rng.integers(len(among)))]
        after = applied(schedule, move, scene)
        if after != schedule and not violations(after, scene):
            return move, after
    return None


def sampled(task: Task, count: int, seed: int) -> Iterator[Schedule]:
    """Yield up to `count` distinct legal schedules: the seeds, then ends of random walks.

    Schedules that the analytic model expects to be slow are less likely.
    """
    rng = np.random.default_rng(seed)
    starts = seeds(task)
    costs = {schedule: _seconds(task, schedule) for schedule in starts}
    best = min(costs.values())
    found = dict.fromkeys(starts[:count])
    yield from found
    for _ in range(PATIENCE * count):
        if len(found) >= count:
            return
        now = starts[int(rng.integers(len(starts)))]
        scene = scene_of(task, now)
        for _ in range(int(rng.integers(1, LONGEST_WALK + 1))):
            try:
                step = random_move(now, scene, rng)
            except (TooLarge, ScheduleError):
                break
            if step is None:
                break
            now = step[1]
        if now in found:
            continue
        seconds = _seconds(task, now)
        best = min(best, seconds)
        if rng.random() < (best / seconds) ** GREED:
            found[now] = None
            yield now


def _seconds(task: Task, schedule: Schedule) -> float:
    found = predicted(task, schedule)
    return found.seconds if found is not None and found.seconds > 0 else math.inf
