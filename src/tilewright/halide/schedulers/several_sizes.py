"""One schedule for several sizes: a common structure, with separate nests for each size.

The *structure* of a schedule says where Funcs are computed. Each size is scheduled separately.
Then the groups of each structure are tiled for all other sizes. The structure with the least
geometric mean of predicted times, relative to the best time per size, is chosen. Its nests become
the variants of one schedule (`tilewright.halide.ir.schedule.SizeVariant`), largest size first. The
nests for the smallest size serve all other calls and are correct at all sizes.

A call runs the variant for the largest size whose borders it reaches. The border between two sizes
is their geometric mean: between 1000 and 250 it is 500.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tilewright.errors import TilewrightError
from tilewright.halide.frontend.extents import extents_of, extents_text
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.plan import PlannedSchedule, PlannedSize
from tilewright.halide.ir.schedule import (
    CallCondition,
    KnownValue,
    OutputExtent,
    Schedule,
    SizeVariant,
)
from tilewright.halide.ir.variants import Conditions, aligned, chosen_at, holds, merged
from tilewright.halide.schedulers.prediction import predicted
from tilewright.halide.schedulers.registry import (
    Fusion,
    Objective,
    plan,
    sized,
    suited,
    why_illegal,
)
from tilewright.halide.schedulers.task import Task

# A dimension of an output or input: its name and the dimension.
Axis = tuple[str, int]


def plan_sizes(
    task: Task, *, k: int = 1, fusion: Fusion = "nested", objective: Objective = "time"
) -> list[PlannedSchedule]:
    """Return schedules as `plan` does, each for all sizes of the task.

    Raises `TilewrightError` if two sizes are equal, so that calls cannot distinguish them.
    """
    if not task.smaller:
        return plan(task, k=k, fusion=fusion, objective=objective)
    borders(task.sizes)  # raise errors before planning
    tasks = [
        replace(task, algorithm=algorithm, smaller=(), exact_sizes=True) for algorithm in task.sizes
    ]
    plans = [plan(each, k=k, fusion=fusion, objective=objective, shared=False) for each in tasks]
    rows = [
        _suited(one, tasks, plans, lambda planned, here: suited(planned, here, fusion, objective))
        for own in plans
        for one in own
    ]
    best = [min(_costs(row[i] for row in rows), default=math.inf) for i in range(len(tasks))]
    ranked = sorted(rows, key=lambda row: _rank(row, best))
    found: dict[Schedule, PlannedSchedule] = {}
    for row in ranked:
        made = combined(task, row)
        if not why_illegal(made.schedule, task):
            found.setdefault(made.schedule, made)
    # If the sizes have no common structure, use the schedule for the largest size.
    return list(found.values())[:k] or plan(
        replace(task, smaller=()), k=k, fusion=fusion, objective=objective
    )


Row = Sequence[PlannedSchedule | None]


def _suited(
    planned: PlannedSchedule,
    tasks: Sequence[Task],
    plans: Sequence[Sequence[PlannedSchedule]],
    tiled: Callable[[PlannedSchedule, Task], list[PlannedSchedule]],
) -> Row:
    """Return the cheapest plan of a structure for each size; None if none is legal."""
    row: list[PlannedSchedule | None] = []
    for task, own in zip(tasks, plans, strict=True):
        candidates = []
        for each in (*own, *tiled(planned, task)):
            target = replace(each.schedule, target=task.target)
            schedule = aligned(target, planned.schedule)
            if schedule is not None and not why_illegal(schedule, task):
                candidates.append(replace(each, schedule=schedule))
        row.append(min(candidates, key=lambda each: each.cost, default=None))
    return row


def _costs(plans: Iterator[PlannedSchedule | None]) -> list[float]:
    return [each.cost for each in plans if each is not None and each.cost > 0.0]


def _rank(row: Row, best: Sequence[float]) -> tuple[int, float]:
    """Return (sizes without a plan, geometric mean of costs relative to the best per size)."""
    ratios = [
        each.cost / least
        for each, least in zip(row, best, strict=True)
        if each is not None and each.cost > 0.0 and math.isfinite(least)
    ]
    return sum(each is None for each in row), _mean(ratios)


def _mean(values: Sequence[float]) -> float:
    """Return the geometric mean; infinity if there are no values or one is not positive."""
    if not values or not all(math.isfinite(value) and value > 0.0 for value in values):
        return math.inf
    return math.exp(sum(map(math.log, values)) / len(values))


def combined(task: Task, row: Row) -> PlannedSchedule:
    """Return one schedule that combines plans of the same structure for the task's sizes."""
    there = [(a, each) for a, each in zip(task.sizes, row, strict=True) if each is not None]
    algorithms, plans = [a for a, _ in there], [each for _, each in there]
    here = replace(task, algorithm=algorithms[-1], smaller=())
    last, doubts = sized(plans[-1].schedule, here)
    variants: list[SizeVariant] = []
    borderline = zip(algorithms[:-1], plans[:-1], borders(algorithms), strict=True)
    for algorithm, planned, border in reversed(list(borderline)):
        variant = _variant(task, algorithm, planned.schedule, border)
        if not _serves(variants[0] if variants else None, last, variant, algorithm):
            variants.insert(0, variant)
    schedule = replace(last, variants=tuple(variants))
    notes = tuple(dict.fromkeys((*plans[0].notes, *doubts)))
    without = [extents_text(a) for a, each in zip(task.sizes, row, strict=True) if each is None]
    if without:
        notes = (*notes, f"No separate loops for {', '.join(without)}: {_NO_NESTS}.")
    return replace(
        plans[0],
        schedule=schedule,
        cost=_mean([each.cost for each in plans]),
        sizes=tuple(
            PlannedSize(
                extents_of(algorithm),
                chosen_at(schedule, algorithm)[0],
                _seconds(schedule if each is None else each.schedule, algorithm, task),
            )
            for algorithm, each in zip(task.sizes, row, strict=True)
        ),
        notes=notes,
    )


_NO_NESTS = "the model has no schedule for them with the structure of the other sizes"


def _serves(
    following: SizeVariant | None, last: Schedule, variant: SizeVariant, algorithm: Algorithm
) -> bool:
    """Return whether `variant` is redundant: without it, calls of its size run the same nests."""
    extended = with_clones(algorithm, last.clones)
    if following is not None:
        same = following.nests == variant.nests
        return same and all(holds(condition, extended) for condition in following.sizes)
    pairs = zip(last.funcs, variant.nests, strict=True)
    return all(
        tuple(replace(nest, sizes=()) for nest in entry.stages) == nests
        and all(holds(c, extended) for nest in entry.stages for c in nest.sizes)
        for entry, nests in pairs
    )


def _variant(
    task: Task, algorithm: Algorithm, schedule: Schedule, border: Conditions
) -> SizeVariant:
    """Return the nests for one size, with the conditions under which they run."""
    whole = replace(task, algorithm=algorithm, smaller=(), exact_sizes=False)
    safe = sized(schedule, whole).schedule
    right = {nest.sizes for entry in safe.funcs for nest in entry.stages if nest.sizes}
    extended = with_clones(algorithm, schedule.clones)
    conditions = merged(
        *(_placed(condition, algorithm, extended) for condition in border),
        *(condition for group in right for condition in group),
    )
    nests = tuple(tuple(replace(nest, sizes=()) for nest in entry.stages) for entry in safe.funcs)
    return SizeVariant(conditions, nests)


def _placed(condition: CallCondition, algorithm: Algorithm, extended: Algorithm) -> CallCondition:
    """Return a condition with the index of the output in the algorithm with clones."""
    if isinstance(condition, KnownValue):
        return condition
    return replace(condition, func=extended.order[algorithm.funcs[condition.func].name])


def borders(sizes: Sequence[Algorithm]) -> list[Conditions]:
    """Return the conditions for the nests of each size except the last.

    `sizes` are sorted by `tilewright.halide.frontend.extents.descending`. Each dimension in which a
    later size is smaller must be at least the geometric mean of both, so that later sizes do not
    meet the conditions. If outputs of two sizes are equal, the extents of inputs are compared.

    Raises `TilewrightError` if two sizes are equal.
    """
    found: list[Conditions] = []
    for i, size in enumerate(sizes[:-1]):
        mine, later = _outputs(size), [_outputs(other) for other in sizes[i + 1 :]]
        least = _between(mine, later)
        distinct = [any(other[axis] < least[axis] for axis in least) for other in later]
        inputs: dict[Axis, int] = {}
        if not all(distinct):
            alike = [
                _inputs(other)
                for other, differs in zip(sizes[i + 1 :], distinct, strict=True)
                if not differs
            ]
            inputs = _between(_inputs(size), alike)
            if not all(any(other[axis] < inputs[axis] for axis in inputs) for other in alike):
                raise TilewrightError(
                    f"two of the given sizes are equal ({extents_text(size)}): give sizes that "
                    "differ in the extents of an output or an input"
                )
        order, indices = size.order, {p.name: n for n, p in enumerate(size.parameters)}
        found.append(
            (
                *(OutputExtent(order[name], d, n) for (name, d), n in sorted(least.items())),
                *(
                    KnownValue(indices[name], "extent", d, n, least=True)
                    for (name, d), n in sorted(inputs.items())
                ),
            )
        )
    return found


def _between(mine: Mapping[Axis, int], later: Sequence[Mapping[Axis, int]]) -> dict[Axis, int]:
    """Return the border by axis: the rounded-up geometric mean with the next smaller extent."""
    found = {}
    for axis, extent in mine.items():
        smaller = [other[axis] for other in later if other[axis] < extent]
        if smaller:
            found[axis] = math.isqrt(extent * max(smaller) - 1) + 1
    return found


def _outputs(algorithm: Algorithm) -> dict[Axis, int]:
    pairs = zip(algorithm.outputs, extents_of(algorithm), strict=True)
    return {(name, d): extent for name, box in pairs for d, extent in enumerate(box)}


def _inputs(algorithm: Algorithm) -> dict[Axis, int]:
    return {
        (parameter.name, d): span.extent
        for parameter in algorithm.parameters
        for d, span in enumerate(parameter.estimates)
        if span is not None
    }


def _seconds(schedule: Schedule, algorithm: Algorithm, task: Task) -> float | None:
    """Return the predicted time at the sizes of `algorithm` in seconds; None if unknown."""
    found = predicted(replace(task, algorithm=algorithm, smaller=()), schedule)
    return None if found is None else found.seconds
