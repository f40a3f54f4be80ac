"""The learned scheduler for GPUs: a search by the released network of Anderson 2021.

The network's weights are not part of Tilewright; they are read from the plugin in Halide's package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.diversity import Chosen
from tilewright.halide.schedulers.given import nest_groups
from tilewright.halide.schedulers.halide_autoschedulers import plugin_path
from tilewright.halide.schedulers.learned.gpu.legal_states import legal_states
from tilewright.halide.schedulers.learned.gpu.published_search.constants import SearchSettings
from tilewright.halide.schedulers.learned.gpu.published_search.scheduler import (
    NO_PTXAS,
    Spilled,
    noted,
    searched_as_published,
    without_spilling,
)
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
AS_PUBLISHED = "Searched as published (--search)."


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
    return legal_states(search.run(), space, task)


def plan_released(
    task: Task,
    *,
    k: int = 1,
    effort: KernelEffort | None = None,
    weights: Weights | None = None,
    settings: SearchSettings | None = None,
    spilled: Spilled | None = None,
) -> list[PlannedSchedule]:
    """Return up to `k` distinct legal schedules for a GPU, those that the network likes best first.

    Where the search finds fewer, schedules of the analytic scheduler follow.

    Args:
        task: The pipeline, its GPU and target.
        k: The number of schedules.
        effort: The limits of the search.
        weights: The network's weights, by default those in Halide's package.
        settings: Those of the search as published, which then is used; `effort` does not apply.
        spilled: With `settings`, the bytes that a schedule's kernels spill, to leave it out.
    """
    model = PublishedGpuModel(task, weights or embedded_weights(plugin_path(PLUGIN)))
    if settings is None:
        chosen = Chosen(task.algorithm)
        for planned in _planned(searched(model, effort)[: TRIED * k], task, NOTE):
            if len(chosen.accepted) < k:
                chosen.offer(planned)
        found = chosen.best(k)
    else:
        rated = searched_as_published(model, settings)
        among = _planned(rated, task, f"{AS_PUBLISHED} {NOTE}")
        if spilled is None:
            found = noted(list(islice(among, k)), NO_PTXAS)
        else:
            found = without_spilling(among, k, spilled)
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


def _planned(rated: Sequence[Rated], task: Task, note: str) -> Iterator[PlannedSchedule]:
    """Yield the plans of schedules, adapted to the sizes of the task, that are legal."""
    for each in rated:
        schedule, doubts = sized(each.schedule, task)
        if not why_illegal(schedule, task):
            notes = (note.format(each.milliseconds), *doubts)
            groups = nest_groups(schedule, task.algorithm)
            yield PlannedSchedule(schedule, groups, each.milliseconds / 1e3, notes)
