"""Choose and tune schedules for a GPU by the published network of Anderson 2021.

This is for comparisons with the literature: the plans and their factors are chosen by the
network's predictions in place of the analytic model's or of measurements. The network needs
weights, which are not part of Tilewright
(`tilewright.halide.schedulers.learned.published.weights`).

The plans of all fusion modes are rated first. The factors of the best structures are then tuned by
coordinate descent: each knob in turn moves to its neighbouring value while that lowers the
prediction. The effort is a count of predictions, so that the result does not depend on time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from tilewright.halide.ir.nest import exact_size
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.schedulers.learned.published.gpu_model import PublishedGpuModel, Rated
from tilewright.halide.schedulers.registry import Fusion, plan, why_illegal
from tilewright.halide.search.factors import Knobs, find_knobs, settings, structure, turned
from tilewright.tuning import Ordinal, Space

PLANS = 8  # plans per fusion mode
STARTS = 2  # structures whose factors are tuned
PREDICTIONS = 60  # per structure
MOST_KNOBS = 12


def ranked(model: PublishedGpuModel, plans: int = PLANS) -> list[Rated]:
    """Return up to `plans` plans of each fusion mode, those that the network likes best first."""
    task = replace(model.task, exact_sizes=True)
    planned: dict[Schedule, PlannedSchedule] = {}
    for fusion in get_args(Fusion):
        for each in plan(task, k=plans, fusion=fusion):
            planned.setdefault(exact_size(each.schedule), each)
    found = [model.rated(schedule, each) for schedule, each in planned.items()]
    return sorted(found, key=lambda rated: rated.milliseconds)


def preferred(
    model: PublishedGpuModel,
    *,
    plans: int = PLANS,
    starts: int = STARTS,
    predictions: int = PREDICTIONS,
    among: Sequence[Rated] | None = None,
) -> Rated:
    """Return the plan, or the plan with tuned factors, that the network likes best.

    Args:
        model: the network for a task.
        plans: the number of plans per fusion mode.
        starts: the number of structures whose factors are tuned; 0 for none.
        predictions: the number of predictions per structure.
        among: the plans, best first, by default `ranked`.
    """
    among = ranked(model, plans) if among is None else among
    found = [among[0]]
    seen: list[Schedule] = []
    for rated in among:
        if structure(rated.schedule) not in seen and len(seen) < starts and rated.planned:
            seen.append(structure(rated.schedule))
            knobs = find_knobs([rated.planned], model.task.algorithm, MOST_KNOBS)
            found.append(_tuned(model, rated, knobs, predictions))
    return min(found, key=lambda rated: rated.milliseconds)


def _tuned(model: PublishedGpuModel, start: Rated, knobs: Knobs, predictions: int) -> Rated:
    """Return the best schedule that coordinate descent over the knobs finds."""
    if not knobs.knobs:
        return start
    values = {knob.name: knob.values for knob in knobs.knobs}
    space = Space([Ordinal(name, each) for name, each in values.items()], knobs.constraints)
    now = settings(start.schedule, knobs)
    best, last = start, model.predictions + predictions
    improved = True
    while improved:
        improved = False
        for name, each in values.items():
            for value in _neighbours(each, now[name]):
                if model.predictions >= last:
                    return best
                trial = {**now, name: value}
                if not space.is_feasible(trial):
                    continue
                schedule = turned(start.schedule, knobs, trial)
                if why_illegal(schedule, model.task):
                    continue
                rated = model.rated(schedule, start.planned)
                if rated.milliseconds < best.milliseconds:
                    best, now, improved = rated, trial, True
    return best


def _neighbours(values: Sequence[int], now: int) -> list[int]:
    """Return the next smaller and the next larger value.

    >>> _neighbours((1, 2, 4, 8), 2)
    [1, 4]
    """
    smaller = [value for value in values if value < now]
    larger = [value for value in values if value > now]
    return [*smaller[-1:], *larger[:1]]
