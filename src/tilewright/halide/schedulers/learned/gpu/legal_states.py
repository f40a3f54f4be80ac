"""The schedules of the states that a search finds."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.halide.schedulers.learned.gpu.choices import State
from tilewright.halide.schedulers.learned.gpu.space import PlacementSpace
from tilewright.halide.schedulers.learned.published.gpu_model import Rated
from tilewright.halide.schedulers.registry import why_illegal
from tilewright.halide.schedulers.task import Task


def legal_states(
    found: Iterable[tuple[float, State]], space: PlacementSpace, task: Task
) -> list[Rated]:
    """Return the legal schedules of states, in their order, with their costs in milliseconds."""
    rated = (Rated(space.schedule(state, task.target), cost) for cost, state in found)
    return [each for each in rated if not why_illegal(each.schedule, task)]
