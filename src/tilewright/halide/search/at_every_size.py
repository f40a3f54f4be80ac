"""Measure schedules at several sizes, with one session per size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.frontend.extents import extents_text
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.registry import naive
from tilewright.halide.schedulers.task import Task
from tilewright.halide.search.top_k import Outcome, Tried, Watch, measure_top


def measure_at_sizes(
    task: Task,
    planned: Sequence[PlannedSchedule],
    open_session: Callable[[Task], AbstractContextManager[Session]],
    *,
    watch: Watch,
    baseline: bool = False,
) -> Outcome:
    """Measure the planned schedules at every size of the task, the largest first.

    With `baseline`, the naive schedule is also measured at the largest size. A schedule that fails
    at one size counts as failed. A schedule without a measurement at some size, because of the time
    limit, counts as not measured. Raises the errors of `Session`.
    """
    outcomes: list[Outcome] = []
    for algorithm in task.sizes:
        here = replace(task, algorithm=algorithm, smaller=())
        first = not outcomes
        watch.best = None
        with open_session(here) as session:
            compared = Variant(naive(here), target=task.target) if baseline and first else None
            outcomes.append(
                measure_top(session, planned, target=task.target, watch=watch, naive=compared)
            )
        if outcomes[-1].stopped:
            break
    return merged_outcome(outcomes, task.sizes)


def merged_outcome(outcomes: Sequence[Outcome], sizes: Sequence[Algorithm]) -> Outcome:
    """Return the combined outcome; after an interruption, `outcomes` may lack the last sizes."""
    rows = zip(*(outcome.tried for outcome in outcomes), strict=True)
    tried = [_merged(at_each, sizes) for at_each in rows]
    stopped = next((outcome.stopped for outcome in outcomes if outcome.stopped), "")
    return replace(outcomes[0], tried=tuple(tried), stopped=stopped)


def _merged(at_each: Sequence[Tried], sizes: Sequence[Algorithm]) -> Tried:
    first = at_each[0]
    for tried, algorithm in zip(at_each, sizes, strict=False):
        measured = tried.measurement
        if measured is not None and not measured.ok:
            at = f"at {extents_text(algorithm)}"
            said = f"{at}: {measured.message}" if measured.message else at
            return replace(first, measurement=replace(measured, message=said))
    measured_all = [tried.measurement for tried in at_each if tried.measurement is not None]
    if len(measured_all) < len(sizes):
        return replace(first, measurement=None)
    beyond = dict.fromkeys(name for tried in at_each for name in tried.reads_beyond)
    return replace(
        first,
        others=tuple(measured_all[1:]),
        recorded=all(tried.recorded for tried in at_each),
        final=all(tried.final for tried in at_each),
        reads_beyond=tuple(beyond),
    )
