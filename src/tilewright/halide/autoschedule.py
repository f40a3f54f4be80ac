"""`tilewright.schedule`: from any pipeline to a schedule that is verified, measured, explained."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from tilewright.errors import TilewrightError
from tilewright.halide.execution.profiling import group_seconds, profile
from tilewright.halide.execution.session import Session, Variant, machine_key
from tilewright.halide.frontend.source import resolve, serialized
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.result import Result
from tilewright.halide.schedulers.given import given_plan
from tilewright.halide.schedulers.registry import Fusion, device_limits, model_facts, naive
from tilewright.halide.schedulers.several_sizes import plan_sizes
from tilewright.halide.schedulers.task import Estimates, Machine, Task, make_task, name_of
from tilewright.halide.search.one_shot import plan_checked
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

Mode = Literal["oneshot", "top", "tune", "given"]
TOP_K = 5
EVALUATIONS = 60  # of mode "tune"


@dataclass(frozen=True)
class Budget:
    """What measuring may use, and where it is kept; see `schedule`."""

    time_limit: float | None = None
    jobs: int | None = None
    candidate_time: float = 120.0
    candidate_memory: int = 8 << 30
    records: str | os.PathLike[str] | Records | None = None
    remeasure: bool = False


def schedule(
    pipeline: Any,
    *,
    target: str | None = None,
    machine: Machine | str | None = None,
    mode: Mode = "oneshot",
    k: int | None = None,
    evaluations: int = EVALUATIONS,
    fusion: Fusion = "nested",
    verify: bool = False,
    check: bool = True,
    keep_schedule: bool = False,
    discard_schedule: bool = False,
    improve: bool = False,
    calibration: bool = True,
    exact_sizes: bool = False,
    estimates: Estimates = None,
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    time_limit: float | None = None,
    jobs: int | None = None,
    candidate_time: float = 120.0,
    candidate_memory: int = 8 << 30,
    records: str | os.PathLike[str] | Records | None = None,
    remeasure: bool = False,
    on_progress: Callable[[Progress], object] | None = None,
    name: str = "",
) -> Result:
    """Schedule a Halide pipeline.

    Parameters
    ----------
    pipeline
        A ``halide.Func``, a list of them, a ``halide.Pipeline``, a Python
        ``halide.Generator``, serialised bytes, or a path: a ``.hlpipe`` file or
        ``FILE.py:NAME``. It is not changed.
    target
        ``host``, ``cuda``, ``opencl``, or a Halide target string; by default the machine's.
    machine
        What to schedule for: a `CpuMachine` or `GpuMachine`, or the name of a GPU; by default
        what is in this computer.
    mode
        ``oneshot``: the model's best that Halide can lower; no code is generated.
        ``top``: the best `k` distinct schedules are built, verified and measured, and the
        fastest is the result.
        ``tune``: as ``top``, then the tile sizes, vector widths and unrolls of the best
        structures are tuned on measured times (`tilewright.tuning`). ``given``: no search; the
        result is the schedule that the pipeline came with.
    k
        How many schedules to find, one for ``oneshot`` and 5 else unless it is given; all are
        in ``Result.top``.
    evaluations
        How many more schedules ``tune`` measures than the planned ones; fewer where little is
        left to gain.
    fusion
        On GPUs, how Funcs may be computed inside others' tiles: ``nested`` (Sioutas 2020,
        Section 4.3), ``overlapped`` or ``none``.
    verify
        Build the schedule of ``oneshot`` and compare its answers with an unscheduled run's.
    check
        In ``oneshot``, have Halide lower the schedule, and take the next where it refuses.
    keep_schedule
        Leave Funcs as they are that have been scheduled already; else they are refused.
    discard_schedule
        Drop the schedules that Funcs have already; estimates and bounds stay. `Result.apply`
        wants the pipeline without them.
    improve
        As `discard_schedule`, and the schedule that the pipeline came with is a candidate of
        ``top`` and ``tune``, named "given": the result is never slower than it.
    calibration
        Cost CPUs with what ``tilewright machine --calibrate`` measured of them, if it did.
    exact_sizes
        Suit the estimated sizes alone: the schedule may then fail at others, as
        `Result.requirements` says. By default it is right at every size that the pipeline
        allows, and as fast at the estimated ones.
    estimates
        Sizes and values that the pipeline does not say, by name:
        ``{"out": [(0, 1536), (0, 2560)], "sigma": 0.5}``. A list of these, one per size, makes a
        schedule that has loops of its own for each of them (`Schedule.variants`) and is right at
        all others; it is measured at each. Mode ``tune`` takes one size.
    inputs
        What to measure on, by input: an array (axis d is dimension d), a ``.npy`` file, a pair
        ``(low, high)`` of random contents, or a function of the shape; scalars by value. By
        default random, from `seed`.
    time_limit
        Seconds for everything. The best so far is returned then, as it is on Ctrl-C.
    jobs
        Builds at a time; by default one a core.
    candidate_time, candidate_memory
        Seconds and bytes that one candidate may use.
    records
        The file in which measurements are kept (by default one in the user's cache), or the
        open `Records`. What is there is not measured again, unless `remeasure`.
    on_progress
        Called with a `Progress` whenever there is news.
    name
        What to call the pipeline; by default as its file, Generator or output is called.

    Raises `TilewrightError` where something is wrong that the user can put right: the message
    names cause and cure. Failures of candidates are in the result.

    Examples
    --------
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
    _check_options(mode, k, evaluations, estimates)
    improve = improve or mode == "given"
    _check_improve(improve, mode, keep_schedule)
    watch = Watch(on_progress)
    watch.enter("reading the pipeline")
    began = time.monotonic()
    values, contents = split_inputs(inputs)
    if isinstance(pipeline, str | os.PathLike):
        name = name or name_of(pipeline)
        pipeline = resolve(os.fspath(pipeline))
    task = make_task(
        pipeline,
        target=target,
        machine=machine,
        estimates=with_values(estimates, values),
        keep_schedule=keep_schedule,
        discard_schedule=discard_schedule or improve,
        calibration=calibration,
        exact_sizes=exact_sizes,
        name=name,
    )
    given = [given_plan(serialized(pipeline), task)] if improve else []
    watch.enter("searching")
    searching = time.process_time()
    planned = _planned(task, mode, k, fusion, check, given)
    facts = {"search": f"{time.process_time() - searching:.2f} CPU seconds"}
    facts |= model_facts(task)
    if mode in ("oneshot", "given") and not verify:
        tried = tuple(Tried(p, i) for i, p in enumerate(planned))
        return Result(task, planned[0], mode, tried=tried, facts=facts)
    task.must_run("verify" if mode in ("oneshot", "given") else f"mode={mode!r}")
    budget = Budget(time_limit, jobs, candidate_time, candidate_memory, records, remeasure)
    if task.smaller:
        opened = partial(
            open_session, budget=budget, watch=watch, began=began, seed=seed, contents=contents
        )
        return conclude_sizes(task, planned, mode, facts, opened, watch)
    with ExitStack() as stack:
        session = stack.enter_context(
            open_session(task, budget, watch, began, seed=seed, contents=contents)
        )
        if mode in ("oneshot", "given"):
            outcome = measure_top(session, planned[:1], target=task.target, watch=watch)
            tried = (*outcome.tried, *(Tried(p, i + 1) for i, p in enumerate(planned[1:])))
            outcome = replace(outcome, tried=tried)
            return replace(conclude_oneshot(task, outcome, facts), mode=mode)
        baseline = Variant(naive(task), target=task.target)
        if mode == "tune":
            from tilewright.halide.search.autotune import measure_tuned

            outcome, more = measure_tuned(
                session,
                planned,
                task,
                watch=watch,
                naive=baseline,
                evaluations=evaluations,
                seed=seed,
                limits=device_limits(task),
            )
            facts = {**facts, **more}
        else:
            outcome = measure_top(session, planned, target=task.target, watch=watch, naive=baseline)
        result = replace(conclude_top(task, outcome, facts), mode=mode)
        return result if outcome.stopped else with_profile(session, result, watch)


def _check_options(mode: str, k: int | None, evaluations: int, estimates: Estimates) -> None:
    """Raise `TilewrightError` where an argument of `schedule` makes no sense."""
    if k is not None and k < 1:
        raise TilewrightError(f"k={k}: at least one schedule is needed")
    if mode not in get_args(Mode):
        raise TilewrightError(f"mode={mode!r}: it is one of {', '.join(get_args(Mode))}")
    if evaluations < 1:
        raise TilewrightError(f"evaluations={evaluations}: at least one is needed")
    if mode == "tune" and not isinstance(estimates, Mapping | None):
        raise TilewrightError(
            "mode='tune' tunes for one size: give one estimate of each name, or mode='top', which "
            "measures at every size"
        )


def _check_improve(improve: bool, mode: str, keep_schedule: bool) -> None:
    """Raise `TilewrightError` where the schedule given can be neither improved nor kept."""
    if improve and (keep_schedule or mode == "oneshot"):
        raise TilewrightError(
            "to improve a schedule is to measure it and others: give mode='top' or 'tune', and "
            "no keep_schedule"
        )


def _planned(
    task: Task,
    mode: Mode,
    k: int | None,
    fusion: Fusion,
    check: bool,
    given: list[PlannedSchedule],
) -> list[PlannedSchedule]:
    """The schedules that a mode considers, the model's best first; `given` come before."""
    if mode == "given":
        return given
    if mode == "oneshot":
        return plan_checked(task, k=k or 1, fusion=fusion, check=check)
    return [*given, *plan_sizes(task, k=k or TOP_K, fusion=fusion)]


def with_profile(session: Session, result: Result, watch: Watch) -> Result:
    """The result with the time measured of each of its groups, where there is time for it."""
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
    """Estimates with the values of scalars, which hold at every size."""
    if isinstance(estimates, Mapping | None):
        return {**(estimates or {}), **values}
    return [{**each, **values} for each in estimates]


def split_inputs(inputs: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of scalars and the contents of buffers among `inputs`."""
    values, contents = {}, {}
    for name, given in (inputs or {}).items():
        if isinstance(given, int | float):
            values[name] = given
        elif getattr(given, "shape", None) == ():  # of NumPy
            values[name] = given.item()
        else:
            contents[name] = given
    return values, contents


@contextmanager
def open_session(
    task: Task,
    budget: Budget,
    watch: Watch,
    began: float,
    *,
    seed: int,
    contents: Mapping[str, Any],
) -> Iterator[Session]:
    """Workers and records for measuring the task; `began` is when the time limit started."""
    with ExitStack() as stack:
        records = budget.records
        if not isinstance(records, Records):
            records = stack.enter_context(Records(records))
        device = {"gpu": task.machine.name} if isinstance(task.machine, GpuMachine) else {}
        yield stack.enter_context(
            Session(
                task.algorithm,
                targets=[task.target],
                seed=seed,
                contents=contents,
                records=records,
                machine={**machine_key(task.target), **device},
                limits=limits(budget.candidate_time, budget.candidate_memory),
                timing=timing(),
                jobs=budget.jobs,
                remeasure=budget.remeasure,
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
    """The result of measuring at each of several sizes; `opened` makes a session for one."""
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
    """The model's best with what running it said."""
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
        return replace(result, notes=(f"Not verified: {outcome.stopped} came first.",))
    if first.ok:
        notes = (f"It {first.note}.",) if first.reads_beyond else ()
        return replace(result, verified=True, notes=notes)
    return replace(result, verified=False, notes=(failure(first.measurement),))


def conclude_top(task: Task, outcome: Outcome, facts: Mapping[str, str]) -> Result:
    """The fastest, or else the best there is, with the reason.

    Raises `TilewrightError` where nothing runs, the naive schedule included.
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
        beyond = (f"It {best.note}: no other schedule was right.",) if best.reads_beyond else ()
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
            notes=(*result.notes, "The naive schedule is what is left."),
        )
    return result


def _search_notes(outcome: Outcome, failed: Sequence[Measurement]) -> tuple[str, ...]:
    """How the search ended, what failed, and whether there were final rounds."""
    notes = []
    if outcome.stopped:
        notes.append(f"The search was ended by {outcome.stopped}: this is the best so far.")
    if failed:
        counts = Counter(measurement.status for measurement in failed)
        causes = ", ".join(f"{n} {status.replace('_', ' ')}" for status, n in counts.items())
        notes.append(f"{len(failed)} of {len(outcome.tried)} schedules failed: {causes}.")
    if outcome.final is None and outcome.best is not None and sum(t.ok for t in outcome.tried) > 1:
        notes.append("There was no time for final rounds: it was chosen by times taken alone.")
    return tuple(notes)


def failure(measurement: Measurement) -> str:
    """Why a candidate failed, as a sentence."""
    said = f": {measurement.message}" if measurement.message else ""
    return f"{measurement.status.replace('_', ' ').capitalize()}{said}."
