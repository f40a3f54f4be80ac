"""The learned scheduler: beam search from the analytic schedules with the learned cost model.

For CUDA, it is the search of `tilewright.halide.schedulers.learned.gpu`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilewright.errors import TilewrightError
from tilewright.halide.ir.joint import Joint, joint_of_schedule, shares_loops
from tilewright.halide.ir.nest import exact_size
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.schedulers.analytic.cpu.panels import copies_in
from tilewright.halide.schedulers.diversity import Chosen
from tilewright.halide.schedulers.given import nest_groups
from tilewright.halide.schedulers.learned.beam_search import ONE_SCHEDULE, BeamSearch, Effort, State
from tilewright.halide.schedulers.learned.cost_model import LearnedModel, shipped
from tilewright.halide.schedulers.learned.gpu.published_search.constants import (
    PUBLISHED,
    QUICK,
    SearchSettings,
)
from tilewright.halide.schedulers.learned.gpu.published_search.scheduler import Spilled
from tilewright.halide.schedulers.learned.gpu.scheduler import plan_released
from tilewright.halide.schedulers.registry import Search, naive, plan, sized, why_illegal
from tilewright.halide.schedulers.task import Task

LARGEST = 3  # terms in a note
# Maximum number of states to adapt to all sizes and to check, per requested schedule.
TRIED = 6
NO_GPU = (
    "scheduler={0!r} has no model for the target {1!r}: use scheduler='analytic', or, for CUDA, "
    "scheduler='learned'"
)
NO_CPU = (
    "search={0!r} is a search for CUDA, and the target is {1!r}: leave it out, or give "
    "target='cuda' and a machine such as 'a100'"
)
ONE_SIZE = (
    "scheduler={0!r} supports only one size: give one estimate of each name, or use "
    "scheduler='analytic'"
)


def plan_learned(
    task: Task,
    *,
    k: int = 1,
    least_analytic: int = 1,
    auto: bool = False,
    seed: int = 0,
    effort: Effort | None = None,
    model: LearnedModel | None = None,
    search: Search = "tilewright",
    seconds: float | None = None,
    spilled: Spilled | None = None,
) -> list[PlannedSchedule]:
    """Return up to `k` distinct legal schedules, the learned model's best first.

    The best analytic schedule comes before those whose expected gain is less than
    `LearnedModel.needed_gain` or the model's error.

    Args:
        task: the pipeline, its machine and target.
        k: the number of schedules.
        least_analytic: if `k` is larger than 1, include as many of the best analytic schedules.
        auto: put the best analytic schedule first, unless the learned model expects another to be
            faster by more than its uncertainty.
        seed: the seed of the search.
        effort: the limits of the search, by default lower ones for one schedule.
        model: the learned model, by default the shipped one. For CUDA, the model is the released
            network of Anderson 2021, and `least_analytic`, `effort` and `model` do not apply.
        search: for CUDA, our own search (``tilewright``), which has no seed, or that of Anderson
            2021 with as many samples as in the paper (``published``) or with few
            (``published-quick``).
        seconds: a limit on the time of the search as published; with it, results depend on the
            machine.
        spilled: for the search as published, the bytes per thread that a schedule's kernels spill;
            None if that cannot be known, so that no sample is left out for it.

    Raises:
        TilewrightError: the task is for OpenCL, for any GPU if `auto` is set, or has several sizes;
            a published search is wanted for a target other than CUDA.
    """
    _require_supported(task, auto, search)
    if task.gpu:
        return plan_released(task, k=k, settings=_settings(search, seed, seconds), spilled=spilled)
    plans = plan(task, k=k)
    # If the analytic schedule shares loops, the search works on outputs that are one Func.
    joint = joint_of_schedule(exact_size(plans[0].schedule), task.algorithm)[1]
    if joint is None:
        analytic = [each for each in plans if not shares_loops(each.schedule)]
        inner = task
    else:
        inner = replace(task, algorithm=joint.algorithm)
        analytic = plan(inner, k=k, shared=False)
    starts = {exact_size(each.schedule): each for each in analytic}
    own = starts if joint is None else {next(iter(starts)): plans[0]}
    effort = effort or (Effort() if k > 1 else ONE_SCHEDULE)
    beam = BeamSearch(inner, model or shipped(), effort, seed, analytic[0].schedule)
    states = beam.run([*starts, naive(inner)])
    # The search keeps one state per structure, perhaps with other sizes than the analytic ones.
    present = beam.costed(exact_size(analytic[0].schedule))
    copied = copies_in(analytic[0].schedule, inner.algorithm, at_root=True)
    comparable = [
        s for s in states if copied <= copies_in(s.schedule, inner.algorithm, at_root=True)
    ]
    best = comparable[0] if comparable else None
    states = _ranked(states, present, comparable, beam.model)
    chosen = Chosen(task.algorithm)
    origin: dict[Schedule, State] = {}
    for state in states[: TRIED * k]:
        if len(chosen.accepted) < k:
            known = own.get(state.schedule)
            planned = planned_state(state, known, task, beam.model.residual, joint)
            if planned is not None:
                origin.setdefault(planned.schedule, state)
                chosen.offer(planned)
    found = chosen.best(k)
    first = plans[0] if joint is not None else analytic[0]
    if not found or (auto and not _clearly_better(best, present, beam.model.residual)):
        found = [first, *(each for each in found if each.schedule != first.schedule)][:k]
    if k > 1:
        found = _including(found, plans[:least_analytic], k)
    effort_note = f"{beam.structures} structures in {beam.rows} sizes were costed."
    why = _why(origin.get(found[0].schedule), states, beam)
    notes = (*found[0].notes, *why, f"Learned scheduler: {effort_note}")
    found[0] = replace(found[0], notes=notes)
    return found


def _including(
    found: list[PlannedSchedule], analytic: Sequence[PlannedSchedule], k: int
) -> list[PlannedSchedule]:
    """Return `k` schedules: the given analytic ones, and the first of the others."""
    own = {each.schedule: each for each in analytic}
    others = [each.schedule for each in found if each.schedule not in own]
    kept = {*own, *others[: k - len(own)]}
    found = [each for each in found if each.schedule in kept]
    there = [each.schedule for each in found]
    return found + [each for schedule, each in own.items() if schedule not in there]


def _settings(search: Search, seed: int, seconds: float | None) -> SearchSettings | None:
    """Return the settings of a search as published; None for our own."""
    if search == "tilewright":
        return None
    usual = QUICK if search == "published-quick" else PUBLISHED
    return replace(usual, seed=seed, seconds=seconds)


def _ranked(
    states: list[State], own: State | None, comparable: list[State], model: LearnedModel
) -> list[State]:
    """Return the states, best first; the analytic one before those without the needed gain.

    The search takes the best of hundreds by the model, and with it the model's largest errors, so
    that the gain needs to exceed `residual`, too.

    Only the gain of states in `comparable` counts. Others lack a copy that the analytic schedule
    makes. The model sees what a copy costs but not what it saves: cache lines that lie pages apart
    are fetched again and again, and bytes of traffic do not show that.
    """
    if own is None:
        return states
    limit = own.score - max(model.needed_gain, model.residual)
    better = [s for s in comparable if s.score < limit and s.schedule != own.schedule]
    first = {own.schedule, *(state.schedule for state in better)}
    return [*better, own, *(state for state in states if state.schedule not in first)]


def _why(state: State | None, states: list[State], search: BeamSearch) -> Iterator[str]:
    """Yield notes on why a schedule was chosen: its largest terms, and the next best structure."""
    if state is None:
        return
    found = search.evaluator.features(state.schedule)
    shares = search.model.shares(found) if found is not None else {}
    largest = sorted(shares, key=lambda name: -shares[name])[:LARGEST]
    if largest:
        named = ", ".join(f"{name} {shares[name]:.0%}" for name in largest)
        yield f"Largest terms of the linear model: {named}."
    other = min((s for s in states if s is not state), key=lambda s: s.score, default=None)
    if other is not None:
        ratio = math.exp(other.score - state.score)
        made = ", ".join(_kinds(other)) or "a start of the search"
        doubt = ", which is more likely an error of the model" if ratio < 1.0 else ""
        yield f"The next best structure ({made}) counts as taking {ratio:.2f} times as long{doubt}."


def _kinds(state: State) -> list[str]:
    """Return the kinds of moves that lead to a state, with their numbers."""
    kinds = Counter(type(move).__name__ for move in state.moves)
    return [f"{count} {kind}" for kind, count in kinds.items()]


def _require_supported(task: Task, auto: bool, search: Search) -> None:
    """Raise `TilewrightError` for several sizes, and for targets without a model."""
    name = "auto" if auto else "learned"
    if search != "tilewright" and not task.gpu:
        raise TilewrightError(NO_CPU.format(search, task.target))
    if task.gpu and (auto or "cuda" not in task.target.split("-")):
        raise TilewrightError(NO_GPU.format(name, task.target))
    if task.smaller:
        raise TilewrightError(ONE_SIZE.format(name))


def planned_state(
    state: State,
    known: PlannedSchedule | None,
    task: Task,
    residual: float = 0.0,
    joint: Joint | None = None,
) -> PlannedSchedule | None:
    """Return the plan of a state, adapted to the sizes of the task; None if it is illegal.

    `residual` is the model's error on other pipelines, a standard deviation of logarithms. If
    `joint` is given, the state is a schedule of its algorithm.
    """
    if known is not None:
        return known
    found = state.schedule if joint is None else joint.separated(state.schedule)
    if found is None:
        return None
    schedule, doubts = sized(replace(found, target=task.target), task)
    if why_illegal(schedule, task):
        return None
    groups = nest_groups(schedule, task.algorithm)
    return PlannedSchedule(schedule, groups, state.seconds, (*_words(state, residual), *doubts))


def _words(state: State, residual: float) -> tuple[str, ...]:
    """Return the notes on a state for reports."""
    made = ", ".join(_kinds(state))
    off = 100 * (math.exp(math.hypot(state.spread, residual)) - 1)
    seconds = f"The learned model expects {1e3 * state.seconds:.3g} ms, give or take {off:.0f}%."
    return (seconds, f"Moves from the analytic schedule: {made}.") if made else (seconds,)


def _clearly_better(best: State | None, own: State | None, residual: float) -> bool:
    """Return whether the best state beats the analytic one by more than the model's error."""
    if best is None or own is None:
        return best is not None
    gain = math.log(own.seconds / best.seconds)
    return gain > math.hypot(own.spread, best.spread, residual)
