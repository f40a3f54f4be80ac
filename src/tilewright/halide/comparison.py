"""Compare Tilewright's schedule with others of the same pipeline, timed in the same rounds.

Several of Tilewright's schedules may take part in the final rounds; the fastest is "ours". As the
least of several times, its time is slightly optimistic, by less than the width of the intervals.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from tilewright.errors import TilewrightError
from tilewright.halide.autoschedule import (
    conclude_top,
    open_session,
    split_inputs,
    with_profile,
)
from tilewright.halide.execution.session import Session, Source, Variant
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.frontend.source import serialized
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.options import (
    TOP_K,
    Budget,
    CommonOptions,
    Measuring,
    Planning,
    grouped,
)
from tilewright.halide.result import Result
from tilewright.halide.schedulers.halide_autoschedulers import (
    CPU_SECONDS,
    MEMORY_BYTES,
    PeerSchedule,
    peers,
    run_peers,
)
from tilewright.halide.schedulers.learned.scheduler import plan_learned
from tilewright.halide.schedulers.registry import naive, plan
from tilewright.halide.schedulers.task import Machine, Task, make_task
from tilewright.halide.search.finals import Rounds
from tilewright.halide.search.top_k import (
    NAIVE,
    Outcome,
    Watch,
    early_end,
    key_of,
    measure_top,
)
from tilewright.measure import Measurement
from tilewright.report import Bar, Progress, ScheduleReport

ROUNDS = 12
SECONDS = 20.0  # time limit of the final rounds
HAND = "hand-written"
ONESHOT = "Tilewright, one shot"
OURS = "Tilewright"


@dataclass(frozen=True)
class Entry:
    """One schedule of the comparison.

    Attributes:
        label: the name of the schedule.
        status: the status of its search if that failed, else of its measurement.
        seconds: its median time.
        low: the lower end of the interval of `seconds`.
        high: the upper end of the interval of `seconds`.
        slower: its time over ours, paired by round, as (estimate, low, high).
        message: the reason for a failure.
        search_seconds: the CPU time of an autoscheduler.
        measurement: its measurement in the final rounds.
    """

    label: str
    status: str
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    slower: tuple[float, float, float] | None = None
    message: str = ""
    search_seconds: float | None = None
    measurement: Measurement | None = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        """Whether it ran with the right answer."""
        return self.status == "ok"


@dataclass(frozen=True)
class Comparison:
    """All compared schedules of a pipeline, and ours as a `Result`.

    If all of ours failed, the result is the naive schedule, if that ran.
    """

    result: Result
    entries: tuple[Entry, ...]

    def entry(self, label: str) -> Entry:
        """Return the entry with this label; raise KeyError if there is none."""
        for entry in self.entries:
            if entry.label == label:
                return entry
        raise KeyError(label)

    def explain(self) -> str:
        """Return plain text with a table of all schedules."""
        from tilewright.report.text import explain

        return explain(self.report())

    def report(self) -> ScheduleReport:
        """Return the report as data."""
        return self._with_bars().report()

    def write_page(self, path: str | os.PathLike[str]) -> None:
        """Write the report as an HTML page.

        Raises:
            TilewrightError: the file cannot be written.
        """
        self._with_bars().write_page(path)

    def _repr_html_(self) -> str:
        return self._with_bars()._repr_html_()

    def _with_bars(self) -> Result:
        """Return our result with the times of all schedules."""
        return replace(self.result, comparison=tuple(map(_bar, self.entries)))


def compare(
    pipeline: Any,
    *,
    target: str | None = None,
    machine: Machine | str | None = None,
    hand: Callable[..., Any] | bytes | str | os.PathLike[str] | None = None,
    estimates: Mapping[str, Any] | None = None,
    planning: Planning | None = None,
    measuring: Measuring | None = None,
    budget: Budget | None = None,
    peer_time: float = CPU_SECONDS,
    peer_memory: int = MEMORY_BYTES,
    on_progress: Callable[[Progress], object] | None = None,
    name: str = "",
    **options: Unpack[CommonOptions],
) -> Comparison:
    """Compare Tilewright's schedules with others of the same pipeline.

    The others are the naive schedule, those of Halide's autoschedulers, and a hand-written one, if
    given. Measurements and searches are recorded and reused by later runs; only the final rounds
    are repeated in each run.

    Args:
        pipeline: as for `tilewright.schedule`.
        target: as for `tilewright.schedule`.
        machine: as for `tilewright.schedule`.
        hand: a hand-written schedule: a function ``hand(target, …)`` of a Python file that builds
            and schedules the same pipeline (use `functools.partial` for further arguments), or
            the same pipeline with a schedule as bytes, or the path of a ``.hlpipe`` file.
        estimates: missing sizes and values of the pipeline, for a single size.
        planning: how many of our schedules take part, and how they are found; `existing` must not
            be ``improve``, and fields for modes other than ``top`` have no effect.
        measuring: the inputs, and the file of measurements.
        budget: limits on time, memory and parallel builds.
        peer_time: limit on the CPU seconds of each autoscheduler. An autoscheduler that fails is
            listed with the reason.
        peer_memory: limit on the bytes of each autoscheduler.
        on_progress: as for `tilewright.schedule`.
        name: as for `tilewright.schedule`.
        **options: fields of `planning`, `measuring` and `budget` as keyword arguments.

    Raises:
        TilewrightError: as `tilewright.schedule` does.
    """
    groups = grouped(
        "compare", planning, measuring, budget, options, CommonOptions.__optional_keys__
    )
    existing = groups.planning.existing
    if existing == "improve":
        raise TilewrightError("compare cannot improve a schedule: give that schedule as hand")
    watch = Watch(on_progress)
    watch.enter("reading the pipeline")
    began = time.monotonic()
    values, contents = split_inputs(groups.measuring.inputs)
    if not isinstance(estimates, Mapping | None):
        raise TilewrightError("schedules are compared at one size: give one estimate of each name")
    task = make_task(
        pipeline,
        target=target,
        machine=machine,
        estimates={**(estimates or {}), **values},
        keep_schedule=existing == "keep",
        discard_schedule=existing == "discard",
        calibration=groups.planning.calibration,
        exact_sizes=groups.planning.exact_sizes,
        name=name,
    )
    task.must_run("comparing")
    watch.enter("searching")
    planned = _considered(task, groups.planning)
    by_hand = {} if hand is None else {HAND: hand_variant(hand, task)}
    with open_session(task, groups, watch, began, contents) as session:
        searched = peer_schedules(session, task, watch, peer_time, peer_memory)
        others = by_hand | {
            found.peer.name: peer_variant(found, task.target)
            for found in searched.values()
            if found.serialized is not None
        }
        outcome = measure_top(
            session,
            planned,
            target=task.target,
            watch=watch,
            naive=Variant(naive(task), target=task.target, name=NAIVE),
            others=tuple(others.values()),
            rounds=Rounds(ROUNDS, SECONDS, reuse=False),
        )
        result = with_profile(session, conclude_top(task, outcome, {}), watch)
    labels = [NAIVE, *by_hand, *searched, OURS, ONESHOT]
    return Comparison(result, _entries(outcome, labels, searched))


def _considered(task: Task, planning: Planning) -> list[PlannedSchedule]:
    """Return our schedules to compare, the model's best first."""
    count = planning.k or TOP_K
    if planning.scheduler != "analytic":
        return plan_learned(task, k=count, auto=planning.scheduler == "auto")
    return plan(task, k=count, fusion=planning.fusion, objective=planning.objective)


def hand_variant(hand: Callable[..., Any] | bytes | str | os.PathLike[str], task: Task) -> Variant:
    """Return the variant of a hand-written schedule, given as for `compare`.

    Raises `TilewrightError` if a serialised pipeline has other inputs and outputs than the task;
    also the errors of `source_of`.
    """
    if callable(hand):
        return Variant(handwritten=source_of(hand), target=task.target, name=HAND)
    data = serialized(hand)
    theirs, ours = interface(import_pipeline(data)), interface(task.algorithm)
    if theirs != ours:
        raise TilewrightError(
            f"the hand-written pipeline has {theirs}, but the pipeline to compare has {ours}: give "
            "a schedule of the same pipeline"
        )
    return Variant(serialized=data, target=task.target, name=HAND)


def interface(algorithm: Algorithm) -> str:
    """Return a description of a pipeline's inputs, scalars and outputs."""
    inputs = sorted(f"{p.name} ({p.type}, {p.dimensions}D)" for p in algorithm.parameters)
    outputs = [algorithm.by_name[name] for name in algorithm.outputs]
    made = [f"{', '.join(map(str, f.types))} of {len(f.args)} dimensions" for f in outputs]
    return f"inputs {', '.join(inputs) or 'none'} and outputs {'; '.join(made)}"


def source_of(hand: Callable[..., Any]) -> Source:
    """Return the file and name of a function, so that a worker can call it.

    Raises `TilewrightError` if it is not a function at the top level of a file.
    """
    arguments: dict[str, Any] = {}
    if isinstance(hand, partial):
        arguments = dict(hand.keywords)
        hand = hand.func
    path = inspect.getsourcefile(hand) if inspect.isfunction(hand) else None
    if path is None or hand.__qualname__ != hand.__name__ or not Path(path).is_file():
        raise TilewrightError(
            "the hand-written schedule must be a function at the top level of a Python file, so "
            "that worker processes can load it"
        )
    content = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:32]
    return Source(str(Path(path).resolve()), hand.__name__, content, arguments)


def peer_schedules(
    session: Session, task: Task, watch: Watch, cpu_seconds: float, memory_bytes: int
) -> dict[str, PeerSchedule]:
    """Run Halide's autoschedulers for the target; return their schedules by name."""
    chosen = peers(task.target, task.machine)
    watch.enter("running Halide's autoschedulers", len(chosen))
    found: dict[str, PeerSchedule] = {}
    with early_end():
        for schedule in run_peers(
            task.algorithm,
            session.inputs,
            chosen,
            target=task.target,
            cpu_seconds=cpu_seconds,
            memory_bytes=memory_bytes,
            records=session.records,
            machine=session.machine,
            remeasure=session.remeasure,
            on_event=watch.on_event,
            deadline=session.deadline,
        ):
            found[schedule.peer.name] = schedule
            watch.done += 1
            watch.show()
    for peer in chosen:
        found.setdefault(
            peer.name, PeerSchedule(peer, "timeout", message="the time limit was reached")
        )
    return {peer.name: found[peer.name] for peer in chosen}


def peer_variant(found: PeerSchedule, target: str) -> Variant:
    """Return the variant to measure of a peer's schedule."""
    return Variant(
        serialized=found.serialized, target=target, name=found.peer.name, env=found.peer.env
    )


def _entries(
    outcome: Outcome, labels: Sequence[str], searched: Mapping[str, PeerSchedule]
) -> tuple[Entry, ...]:
    """Return one entry per label: its failed search, or its measurement in the final rounds."""
    best, oneshot = outcome.best, key_of(outcome.tried[0])
    ours = key_of(best) if best is not None and best.final else ""
    keys = {OURS: oneshot if best is None else ours, ONESHOT: oneshot}
    return tuple(
        _entry(outcome, label, keys.get(label, label), ours, searched.get(label))
        for label in labels
    )


def _entry(outcome: Outcome, label: str, key: str, ours: str, search: PeerSchedule | None) -> Entry:
    used = search.cpu_seconds if search is not None else None
    if search is not None and search.serialized is None:
        return Entry(label, search.status, message=search.message, search_seconds=used)
    final = outcome.final
    measurement = final.measurement(key) if final is not None else None
    if final is None or measurement is None:
        return _missing(outcome, label, key, used)
    if not measurement.ok or not measurement.times:
        status = measurement.status if not measurement.ok else "timeout"
        return Entry(
            label,
            status,
            message=measurement.message,
            search_seconds=used,
            measurement=measurement,
        )
    interval = final.finals.interval(key)
    slower = None
    if ours and key != ours:
        ratio = final.finals.ratio_interval(key, ours)
        slower = (ratio.estimate, ratio.low, ratio.high)
    return Entry(
        label,
        "ok",
        measurement.median,
        interval.low,
        interval.high,
        slower,
        "",
        used,
        measurement,
    )


def _missing(outcome: Outcome, label: str, key: str, used: float | None) -> Entry:
    """Return the entry of a schedule that did not take part in the final rounds."""
    alone = next((t.measurement for t in outcome.tried if key_of(t) == key), None)
    if key == NAIVE:
        alone = outcome.naive
    if alone is not None and not alone.ok:
        return Entry(label, alone.status, message=alone.message, measurement=alone)
    if outcome.stopped:
        status, message = "timeout", f"not compared: {outcome.stopped}"
    else:
        status, message = "not_compared", "no schedule of Tilewright gave right answers"
    return Entry(label, status, message=message, search_seconds=used)


def _bar(entry: Entry) -> Bar:
    return Bar(
        entry.label,
        entry.seconds,
        entry.low,
        entry.high,
        entry.status,
        entry.message,
        ours=entry.label in (OURS, ONESHOT),
        slower=entry.slower,
    )
