"""`tilewright.schedule`: find, verify and measure a schedule for a pipeline."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, get_args

from tilewright.errors import TilewrightError
from tilewright.halide.execution.profiling import group_seconds, profile
from tilewright.halide.execution.session import Session, Variant, machine_key
from tilewright.halide.frontend.source import resolve, serialized
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.options import (
    IMPROVE,
    TOP_K,
    TUNED_K,
    Budget,
    Existing,
    Groups,
    Measuring,
    Mode,
    Planning,
    ScheduleOptions,
    grouped,
)
from tilewright.halide.result import Result
from tilewright.halide.schedulers.given import given_plan
from tilewright.halide.schedulers.learned.cost_model import LearnedModel, model_of_file
from tilewright.halide.schedulers.learned.measured_search import MeasuredSearch
from tilewright.halide.schedulers.learned.scheduler import plan_learned
from tilewright.halide.schedulers.registry import device_limits, model_facts, naive
from tilewright.halide.schedulers.several_sizes import plan_sizes
from tilewright.halide.schedulers.task import Estimates, Machine, Task, make_task, name_of
from tilewright.halide.search.one_shot import plan_checked
from tilewright.halide.search.spills import (
    PLANNED_PER_WANTED,
    can_check_spills,
    spill_filter,
    without_spills,
)
from tilewright.halide.search.top_k import (
    Outcome,
    Tried,
    Watch,
    early_end,
    limits,
    measure_top,
    timing,
)
from tilewright.machines import GpuMachine
from tilewright.measure import Measurement
from tilewright.records import Records
from tilewright.report import Progress

if TYPE_CHECKING:
    from tilewright.halide.search.autotune import Structures


def schedule(
    pipeline: Any,
    *,
    target: str | None = None,
    machine: Machine | str | None = None,
    mode: Mode = "oneshot",
    estimates: Estimates = None,
    planning: Planning | None = None,
    measuring: Measuring | None = None,
    budget: Budget | None = None,
    on_progress: Callable[[Progress], object] | None = None,
    name: str = "",
    **options: Unpack[ScheduleOptions],
) -> Result:
    """Return a schedule for a Halide pipeline, with its measurements.

    Args:
        pipeline: a ``halide.Func``, a list of them, a ``halide.Pipeline``, a Python
            ``halide.Generator``, serialised bytes, or a path: a ``.hlpipe`` file or
            ``FILE.py:NAME``. The pipeline itself is not changed.
        target: ``host``, ``cuda``, ``opencl``, or a Halide target string; by default the target
            of `machine`.
        machine: the machine to schedule for: a `CpuMachine` or `GpuMachine`, or the name of a GPU;
            by default this computer.
        mode: how the schedule is chosen.
            ``oneshot``: the model's best schedule that Halide can lower; no code is generated.
            ``top``: the fastest of the model's best ``k`` distinct schedules, which are built,
            verified and measured.
            ``tune``: like ``top``, on CPUs with ten schedules by default; then other structures are
            measured (on GPUs, and with the learned scheduler on CPUs), and tile sizes, vector
            widths and unroll factors of the best structures are tuned on measured times
            (`tilewright.tuning`).
            ``given``: the schedule that the pipeline came with, without a search.
        estimates: missing sizes and values of the pipeline, by name:
            ``{"out": [(0, 1536), (0, 2560)], "sigma": 0.5}``. With a list of such mappings, one
            per size, the schedule has separate loops for each of these sizes
            (`Schedule.variants`), is measured at each, and is correct at all other sizes. Mode
            ``tune`` supports one size.
        planning: which schedules to consider, and how to treat an existing schedule; see
            `Planning`.
        measuring: the inputs, and the file of measurements; see `Measuring`.
        budget: limits on time, memory and parallel builds; see `Budget`.
        on_progress: called with a `Progress` on every change.
        name: the name of the pipeline; by default that of its file, Generator or output.
        **options: fields of `planning`, `measuring` and `budget` as keyword arguments, which take
            precedence: ``schedule(pipeline, mode="top", k=3, time_limit=60)``.
            ``keep_schedule=True``, ``discard_schedule=True`` and ``improve=True`` are short for
            ``existing="keep"``, ``"discard"`` and ``"improve"``.

    Returns:
        The schedule with all measurements, including those of failed candidates.

    Raises:
        TilewrightError: an error that the user can correct; the message names cause and cure.

    >>> import halide as hl, tilewright
    >>> x, y = hl.vars("x y")
    >>> f, g = hl.Func("f"), hl.Func("g")
    >>> f[x, y] = x * y
    >>> g[x, y] = f[x, y] + f[x + 1, y]
    >>> g.set_estimates([(0, 640), (0, 480)]) is g
    True
    >>> result = tilewright.schedule(g)
    >>> result.verified is None  # nothing has been compiled
    True
    >>> result.apply(g)
    """
    groups = grouped(
        "schedule", planning, measuring, budget, options, ScheduleOptions.__optional_keys__
    )
    existing = _checked(mode, groups.planning, estimates)
    watch = Watch(on_progress)
    watch.enter("reading the pipeline")
    began = time.monotonic()
    values, contents = split_inputs(groups.measuring.inputs)
    if isinstance(pipeline, str | os.PathLike):
        name = name or name_of(pipeline)
        pipeline = resolve(os.fspath(pipeline))
    task = make_task(
        pipeline,
        target=target,
        machine=machine,
        estimates=with_values(estimates, values),
        keep_schedule=existing == "keep",
        discard_schedule=existing in ("discard", "improve"),
        calibration=groups.planning.calibration,
        exact_sizes=groups.planning.exact_sizes,
        name=name,
    )
    given = [given_plan(serialized(pipeline), task)] if existing == "improve" else []
    watch.enter("searching")
    searching = time.process_time()
    limit = groups.budget.time_limit
    left = None if limit is None else limit - (time.monotonic() - began)
    planned = _planned(task, mode, groups.planning, given, groups.measuring.seed, left)
    facts = {"search": f"{time.process_time() - searching:.2f} CPU seconds"}
    facts |= model_facts(task)
    if mode in ("oneshot", "given") and not groups.measuring.verify:
        tried = tuple(Tried(p, i) for i, p in enumerate(planned))
        return Result(task, planned[0], mode, tried=tried, facts=facts)
    task.must_run("verify" if mode in ("oneshot", "given") else f"mode={mode!r}")
    opened = partial(open_session, groups=groups, watch=watch, began=began, contents=contents)
    if task.smaller:
        return conclude_sizes(task, planned, mode, facts, opened, watch)
    with opened(task) as session:
        if mode in ("oneshot", "given"):
            return replace(_verified(session, task, planned, facts, watch), mode=mode)
        outcome, more = _measured(session, task, planned, mode, groups, watch)
        result = replace(conclude_top(task, outcome, {**facts, **more}), mode=mode)
        return result if outcome.stopped else with_profile(session, result, watch)


def _checked(mode: str, planning: Planning, estimates: Estimates) -> Existing:
    """Return how to treat a schedule that the pipeline came with.

    Raises `TilewrightError` if the mode is unknown or contradicts other arguments.
    """
    if mode not in get_args(Mode):
        raise TilewrightError(f"mode={mode!r} is unknown: use one of {', '.join(get_args(Mode))}")
    if mode == "tune" and not isinstance(estimates, Mapping | None):
        raise TilewrightError(
            "mode='tune' tunes for one size: give one estimate of each name, or mode='top', which "
            "measures at every size"
        )
    if mode == "given" and planning.existing != "keep":
        return "improve"
    if mode == "given" or (mode == "oneshot" and planning.existing == "improve"):
        raise TilewrightError(IMPROVE)
    return planning.existing


def _planned(
    task: Task,
    mode: Mode,
    planning: Planning,
    given: list[PlannedSchedule],
    seed: int,
    seconds: float | None = None,
) -> list[PlannedSchedule]:
    """Return the schedules to consider: the `given` ones, then the model's, best first.

    `seconds` limits the search as published.
    """
    if mode == "given":
        return given
    fusion, objective = planning.fusion, planning.objective
    if mode == "oneshot":
        return plan_checked(
            task,
            k=planning.k or 1,
            fusion=fusion,
            objective=objective,
            scheduler=planning.scheduler,
            model=_model(task, planning),
            seed=seed,
            check=planning.check,
            search=planning.search,
            seconds=seconds,
        )
    k = planning.k or (TUNED_K if mode == "tune" and not task.gpu else TOP_K)
    if planning.scheduler == "analytic":
        filtered = planning.check and can_check_spills(task)
        wanted = PLANNED_PER_WANTED * k if filtered else k
        planned = plan_sizes(task, k=wanted, fusion=fusion, objective=objective)
        return [*given, *(without_spills(task, planned, k) if filtered else planned)]
    # The analytic scheduler's best ones differ by policy, the learned one's by little: all but one
    # slot goes to the former.
    least = max(1, k - 1)
    auto = planning.scheduler == "auto"
    model = _model(task, planning)
    learned = plan_learned(
        task,
        k=k,
        least_analytic=least,
        auto=auto,
        seed=seed,
        model=model,
        search=planning.search,
        seconds=seconds,
        spilled=spill_filter(task, planning.check),
    )
    return [*given, *learned]


def _model(task: Task, planning: Planning) -> LearnedModel | None:
    """Return the cost model of the learned scheduler for CPUs; None for others."""
    if task.gpu and planning.model is not None:
        raise TilewrightError(
            f"model={os.fspath(planning.model)!r} is a model of CPUs, and the target is "
            f"{task.target!r}: leave it out"
        )
    wanted = planning.scheduler != "analytic" and not task.gpu
    return model_of_file(planning.model) if wanted else None


def _verified(
    session: Session,
    task: Task,
    planned: Sequence[PlannedSchedule],
    facts: Mapping[str, str],
    watch: Watch,
) -> Result:
    """Return the result with a measurement of the first schedule; others are not run."""
    outcome = measure_top(session, planned[:1], target=task.target, watch=watch)
    tried = (*outcome.tried, *(Tried(p, i + 1) for i, p in enumerate(planned[1:])))
    return conclude_oneshot(task, replace(outcome, tried=tried), facts)


def _measured(
    session: Session,
    task: Task,
    planned: Sequence[PlannedSchedule],
    mode: Mode,
    groups: Groups,
    watch: Watch,
) -> tuple[Outcome, dict[str, str]]:
    """Return the outcome of measuring, and of tuning in mode ``tune``, and facts for the report."""
    baseline = Variant(naive(task), target=task.target)
    if mode != "tune":
        return measure_top(session, planned, target=task.target, watch=watch, naive=baseline), {}
    from tilewright.halide.search.autotune import measure_tuned

    return measure_tuned(
        session,
        planned,
        task,
        watch=watch,
        naive=baseline,
        evaluations=groups.planning.evaluations,
        seed=groups.measuring.seed,
        limits=device_limits(task),
        structures=_structures(task, groups.planning, groups.measuring.seed),
    )


def _structures(task: Task, planning: Planning, seed: int) -> Structures | None:
    """Return what proposes other structures in mode ``tune``; None: only factors are tuned."""
    if task.gpu:
        from tilewright.halide.search.gpu_structures import SampledStructures, can_sample

        by_time = planning.objective == "time" and can_sample(task)
        return SampledStructures(task, seed, planning.fusion) if by_time else None
    if planning.scheduler == "analytic":
        return None
    return MeasuredSearch(task, model_of_file(planning.model), seed=seed)


def with_profile(session: Session, result: Result, watch: Watch) -> Result:
    """Return the result with the measured time of each group, if time is left to measure."""
    groups = result.planned.groups
    if result.seconds is None or not groups:
        return result
    if len(groups) == 1:
        return replace(result, group_seconds=(result.seconds,))
    watch.enter("measuring the groups")
    shares: dict[str, float] = {}
    with early_end():
        shares = profile(session, Variant(result.schedule, target=result.task.target))
    seconds = group_seconds(result.planned, shares, result.seconds)
    return replace(result, group_seconds=seconds)


def with_values(estimates: Estimates, values: Mapping[str, Any]) -> Estimates:
    """Return the estimates with the values of scalars added for all sizes."""
    if isinstance(estimates, Mapping | None):
        return {**(estimates or {}), **values}
    return [{**each, **values} for each in estimates]


def split_inputs(inputs: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (values of scalars, contents of buffers) in `inputs`."""
    values, contents = {}, {}
    for name, given in (inputs or {}).items():
        if isinstance(given, int | float):
            values[name] = given
        elif getattr(given, "shape", None) == ():  # a NumPy scalar
            values[name] = given.item()
        else:
            contents[name] = given
    return values, contents


@contextmanager
def open_session(
    task: Task, groups: Groups, watch: Watch, began: float, contents: Mapping[str, Any]
) -> Iterator[Session]:
    """Open a session to measure the task; the time limit started at `began` (monotonic time)."""
    _, measuring, budget = groups
    with ExitStack() as stack:
        records = measuring.records
        if not isinstance(records, Records):
            records = stack.enter_context(Records(records))
        device = {"gpu": task.machine.name} if isinstance(task.machine, GpuMachine) else {}
        yield stack.enter_context(
            Session(
                task.algorithm,
                targets=[task.target],
                seed=measuring.seed,
                contents=contents,
                records=records,
                machine={**machine_key(task.target), **device},
                limits=limits(budget.candidate_time, budget.candidate_memory),
                timing=timing(),
                jobs=budget.jobs,
                remeasure=measuring.remeasure,
                on_event=watch.on_event,
                deadline=None if budget.time_limit is None else began + budget.time_limit,
            )
        )


def conclude_sizes(
    task: Task,
    planned: Sequence[PlannedSchedule],
    mode: Mode,
    facts: Mapping[str, str],
    opened: Callable[[Task], AbstractContextManager[Session]],
    watch: Watch,
) -> Result:
    """Return the result of measuring at several sizes; `opened` opens a session for one size."""
    from tilewright.halide.search.at_every_size import measure_at_sizes

    several = mode == "top"
    measured = planned if several else planned[:1]
    outcome = measure_at_sizes(task, measured, opened, watch=watch, baseline=several)
    if several:
        result = conclude_top(task, outcome, facts)
    else:
        rest = (Tried(p, i + 1) for i, p in enumerate(planned[1:]))
        result = conclude_oneshot(task, replace(outcome, tried=(*outcome.tried, *rest)), facts)
    chosen = next((t for t in result.tried if t.planned == result.planned), None)
    return replace(result, mode=mode, at_sizes=chosen.sizes if chosen is not None else ())


def conclude_oneshot(task: Task, outcome: Outcome, facts: Mapping[str, str]) -> Result:
    """Return the result with the model's best schedule and its measurement."""
    first = outcome.tried[0]
    result = Result(
        task,
        first.planned,
        "oneshot",
        measurement=first.measurement,
        tried=outcome.tried,
        facts=facts,
    )
    if first.measurement is None:
        return replace(result, notes=(f"Not verified, because of {outcome.stopped}.",))
    if first.ok:
        notes = (_reads_beyond(first),) if first.reads_beyond else ()
        return replace(result, verified=True, notes=notes)
    return replace(result, verified=False, notes=(failure(first.measurement),))


def conclude_top(task: Task, outcome: Outcome, facts: Mapping[str, str]) -> Result:
    """Return the result with the fastest schedule.

    If no schedule ran, it is the first one that was not tried, or else the naive schedule. If all
    failed and the search ended before the naive schedule ran, it is the model's best with its
    failure.

    Raises:
        TilewrightError: all schedules fail, including the naive one.
    """
    best, facts = outcome.best, dict(facts)
    naive_ran = outcome.naive is not None and outcome.naive.ok
    failed = [m for t in outcome.tried if (m := t.measurement) is not None and not m.ok]
    if best is None and failed and not naive_ran and not outcome.stopped:
        raise TilewrightError(
            f"no schedule of {task.name} could be run, the naive one included: {failure(failed[0])}"
        )
    if outcome.final is not None:
        facts["final rounds"] = outcome.final.words
    result = Result(
        task,
        outcome.tried[0].planned,
        "top",
        naive=outcome.baseline,
        tried=outcome.tried,
        facts=facts,
        notes=_search_notes(outcome, failed),
    )
    if best is not None:
        beyond = (_reads_beyond(best, alone=True),) if best.reads_beyond else ()
        return replace(
            result,
            planned=best.planned,
            measurement=best.measurement,
            verified=True,
            notes=(*result.notes, *beyond),
        )
    untried = [t for t in outcome.tried if t.measurement is None]
    if untried:
        return replace(result, planned=untried[0].planned)
    if naive_ran:
        return replace(
            result,
            planned=PlannedSchedule(naive(task), (), 0.0),
            measurement=outcome.naive,
            verified=True,
            notes=(*result.notes, "All candidates failed; the result is the naive schedule."),
        )
    # The search ended before the naive schedule ran.
    first = outcome.tried[0].measurement
    said = () if first is None else (failure(first),)
    return replace(result, measurement=first, verified=False, notes=(*result.notes, *said))


def _search_notes(outcome: Outcome, failed: Sequence[Measurement]) -> tuple[str, ...]:
    """Return notes on an early end of the search, failures, and missing final rounds."""
    notes = []
    if outcome.stopped:
        so_far = "this is the best so far" if outcome.best else "no candidate has passed so far"
        notes.append(f"The search was ended by {outcome.stopped}: {so_far}.")
    if failed:
        counts = Counter(measurement.status for measurement in failed)
        causes = ", ".join(f"{n} {status.replace('_', ' ')}" for status, n in counts.items())
        notes.append(f"{len(failed)} of {len(outcome.tried)} schedules failed: {causes}.")
    if outcome.final is None and outcome.best is not None and sum(t.ok for t in outcome.tried) > 1:
        notes.append(
            "There was no time for final rounds: the choice is based on separate measurements."
        )
    return tuple(notes)


def _reads_beyond(tried: Tried, alone: bool = False) -> str:
    """Return the note on a schedule that reads too much; `alone`: all others failed or do too."""
    inputs = ", ".join(f"`{name}`" for name in tried.reads_beyond)
    region = f"This schedule reads {inputs} outside the region that the pipeline requires"
    others = ", as do all others that ran: give inputs that large, or use the naive schedule"
    return f"{region}{others if alone else ''}."


def failure(measurement: Measurement) -> str:
    """Return the reason for a candidate's failure, as a sentence."""
    said = f": {measurement.message}" if measurement.message else ""
    return f"{measurement.status.replace('_', ' ').capitalize()}{said}."
