"""Schedules by the search as published: its samples, and which of them are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.learned.gpu.legal_states import legal_states
from tilewright.halide.schedulers.learned.gpu.published_search.beam import PublishedSearch
from tilewright.halide.schedulers.learned.gpu.published_search.constants import CONSTANTS as C
from tilewright.halide.schedulers.learned.gpu.published_search.constants import (
    PUBLISHED,
    SearchSettings,
)
from tilewright.halide.schedulers.learned.gpu.published_search.space import PublishedSpace
from tilewright.halide.schedulers.learned.published.gpu_model import PublishedGpuModel, Rated
from tilewright.halide.schedulers.naive import naive_schedule

# Returns the bytes per thread that the kernels of a schedule spill; None if that is not known.
Spilled = Callable[[PlannedSchedule], int | None]
NO_PTXAS = "Samples that spill registers are not left out: ptxas was not asked."


def searched_as_published(
    model: PublishedGpuModel, settings: SearchSettings = PUBLISHED
) -> list[Rated]:
    """Return the schedules of the samples for the estimated sizes, best first.

    All are legal. The list is empty if the network can describe no schedule of the pipeline.

    Args:
        model: The network for a task.
        settings: What can be varied.
    """
    task = model.task
    base = naive_schedule(task.algorithm, task.target, task.machine)
    space = PublishedSpace(model.pipeline, model.limits, base)
    search = PublishedSearch(space, model.stage_times, settings)
    return legal_states(search.run(), space, task)


def without_spilling(
    planned: Iterable[PlannedSchedule], k: int, spilled: Spilled
) -> list[PlannedSchedule]:
    """Return the first `k` schedules whose kernels spill no registers (Section 8.1).

    Where all spill, the result is the first one that spills at most half more than the least.

    Args:
        planned: The schedules, best first.
        k: Number of schedules to return at most.
        spilled: The bytes that a schedule spills.
    """
    kept: list[PlannedSchedule] = []
    spilling: list[tuple[int, PlannedSchedule]] = []
    for each in planned:
        size = spilled(each)
        if size:
            spilling.append((size, each))
        else:
            kept.append(each)
        if len(kept) == k:
            break
    if not kept and spilling:
        least = min(size for size, _ in spilling)
        size, first = next(pair for pair in spilling if pair[0] <= C.spilling * least)
        note = f"All samples spill registers, this one {size} bytes per thread."
        return [replace(first, notes=(*first.notes, note))]
    if spilling:
        note = f"{len(spilling)} better samples were left out because they spill registers."
        kept[0] = replace(kept[0], notes=(*kept[0].notes, note))
    return kept


def noted(planned: Sequence[PlannedSchedule], note: str) -> list[PlannedSchedule]:
    """Return the schedules with a note on the first."""
    if not planned:
        return []
    first, *others = planned
    return [replace(first, notes=(*first.notes, note)), *others]
