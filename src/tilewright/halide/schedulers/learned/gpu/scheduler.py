"""The learned scheduler for GPUs: a search by the released network of Anderson 2021.

The network's weights are not part of Tilewright; they are read from the plugin in Halide's package.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.diversity import Chosen
from tilewright.halide.schedulers.given import nest_groups
from tilewright.halide.schedulers.halide_autoschedulers import plugin_path
from tilewright.halide.schedulers.learned.gpu.space import PlacementSpace
from tilewright.halide.schedulers.learned.gpu.structure_search import KernelEffort, StructureSearch
from tilewright.halide.schedulers.learned.published.gpu_model import PublishedGpuModel, Rated
from tilewright.halide.schedulers.learned.published.weights import Weights, embedded_weights
from tilewright.halide.schedulers.naive import naive_schedule
from tilewright.halide.schedulers.registry import plan, sized, why_illegal
from tilewright.halide.schedulers.task import Task

PLUGIN = "Anderson2021"
# States to adapt to the task's sizes and to check, per requested schedule.
TRIED = 6
NOTE = (
    "Chosen by the released network of Anderson 2021, which was trained on a V100 and expects "
    "{0:.3g} ms. It does not know this GPU: on an H100, its choices took 3.2 times as long as "
    "those of the analytic scheduler (geometric mean over 15 programs)."
)


def searched(model: PublishedGpuModel, effort: KernelEffort | None = None) -> list[Rated]:
    """Return the schedules that a search finds for the estimated sizes, best first.

    All are legal. The list is empty if the network can describe no schedule of the pipeline.

    Args:
        model: The network for a task.
        effort: The limits of the search.
    """
    task = model.task
    base = naive_schedule(task.algorithm, task.target, task.machine)
    space = PlacementSpace(model.pipeline, model.limits, base)
    search = StructureSearch(space, model.predicted, effort or KernelEffort())
    found = []
    for cost, state in search.run():
        schedule = space.schedule(state, task.target)
        if not why_illegal(schedule, task):
            found.append(Rated(schedule, cost))
    return found


def plan_released(
    task: Task, *, k: int = 1, effort: KernelEffort | None = None, weights: Weights | None = None
) -> list[PlannedSchedule]:
    """Return up to `k` distinct legal schedules for a GPU, those that the network likes best first.

    Where the search finds fewer, schedules of the analytic scheduler follow.

    Args:
        task: The pipeline, its GPU and target.
        k: The number of schedules.
        effort: The limits of the search.
        weights: The network's weights, by default those in Halide's package.
    """
    model = PublishedGpuModel(task, weights or embedded_weights(plugin_path(PLUGIN)))
    chosen = Chosen(task.algorithm)
    for rated in searched(model, effort)[: TRIED * k]:
        schedule, doubts = sized(rated.schedule, task)
        if len(chosen.accepted) < k and not why_illegal(schedule, task):
            groups = nest_groups(schedule, task.algorithm)
            notes = (NOTE.format(rated.milliseconds), *doubts)
            chosen.offer(PlannedSchedule(schedule, groups, rated.milliseconds / 1e3, notes))
    found = chosen.best(k)
    if len(found) < k:
        others = plan(task, k=k)
        if not found:
            note = (
                "The released network of Anderson 2021 can describe no schedule of this pipeline."
            )
            others[0] = replace(others[0], notes=(*others[0].notes, note))
        known = {each.schedule for each in found}
        found += [each for each in others if each.schedule not in known][: k - len(found)]
    return found
