"""Compares our schedule with others of the same pipeline, timed in one interleaved run.

Our leading schedules take part in the final rounds; the fastest there is "ours". If several lead
together, its time is the least of several and so slightly optimistic, by less than the width of
the intervals.
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
SECONDS = 20.0  # budget of the interleaved rounds
HAND = "hand-written"
ONESHOT = "Tilewright, one shot"
OURS = "Tilewright"


@dataclass(frozen=True)
class Entry:
    """One schedule of the comparison.

    `status` is the status of its search if that failed, else of its measurement. `seconds` is its
    median time, with the interval from `low` to `high`. `slower` is its time over ours with an
    interval, paired by round. `search_seconds` is the CPU time of an autoscheduler.
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
    """All schedules of a pipeline that were compared, and ours as a `Result`.

    Where all of ours failed, the result is the naive schedule if that ran.
    """

    result: Result
    entries: tuple[Entry, ...]

    def entry(self, label: str) -> Entry:
        """Return the entry of that label; KeyError if there is none."""
        for entry in self.entries:
            if entry.label == label:
                return entry
        raise KeyError(label)

    def explain(self) -> str:
        """Return plain text, with the table of all schedules."""
        from tilewright.report.text import explain

        return explain(self.report())

    def report(self) -> ScheduleReport:
        """Return everything that a reader is shown, as data."""
        return self._with_bars().report()

    def write_page(self, path: str | os.PathLike[str]) -> None:
        """Write everything that a reader is shown as an HTML page.

        Raises:
            TilewrightError: the file cannot be written.
        """
        self._with_bars().write_page(path)

    def _repr_html_(self) -> str:
        return self._with_bars()._repr_html_()

    def _with_bars(self) -> Result:
        """Our schedule, with the times of all."""
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
    """Compare our schedules with the naive one, Halide's autoschedulers' and a hand-written one.

    Every measurement and every search of an autoscheduler is recorded and reused by the next run,
    except the final rounds, which every run repeats.

    Args:
        pipeline: as for `tilewright.schedule`.
        target: as for `tilewright.schedule`.
        machine: as for `tilewright.schedule`.
        hand: a function ``hand(target, …)`` of a Python file that builds the same pipeline with a
            schedule (a `functools.partial` gives it further arguments), or a scheduled
            serialisation of the same algorithm: bytes, or the path of a ``.hlpipe`` file.
        estimates: sizes and values that the pipeline lacks, for a single size.
        planning: how many of our schedules take part, and how they are found; `existing` must not
            be ``improve``, and fields for modes other than ``top`` have no effect.
        measuring: inputs, and where measurements are kept.
        budget: seconds, bytes and builds at a time.
        peer_time: CPU seconds that each autoscheduler may use; one that fails is listed with the
            reason.
        peer_memory: bytes that each autoscheduler may use.
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
        raise TilewrightError("compare measures a hand-written schedule, too: pass it as hand")
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
    """Return the schedules that are compared, the model's best first."""
    count = planning.k or TOP_K
    if planning.scheduler != "analytic":
        return plan_learned(task, k=count, auto=planning.scheduler == "auto")
    return plan(task, k=count, fusion=planning.fusion, objective=planning.objective)


def hand_variant(hand: Callable[..., Any] | bytes | str | os.PathLike[str], task: Task) -> Variant:
    """Return the variant to measure for a hand-written schedule; `hand` is as for `compare`.

    Raises `TilewrightError` if a serialised pipeline does not have the task's inputs and
    outputs, and what `source_of` raises.
    """
    if callable(hand):
        return Variant(handwritten=source_of(hand), target=task.target, name=HAND)
    data = serialized(hand)
    theirs, ours = interface(import_pipeline(data)), interface(task.algorithm)
    if theirs != ours:
        raise TilewrightError(
            f"the hand-written pipeline is another: it has {theirs}, where the pipeline has {ours}"
        )
    return Variant(serialized=data, target=task.target, name=HAND)


def interface(algorithm: Algorithm) -> str:
    """Describe the inputs, scalars and outputs of a pipeline in words."""
    inputs = sorted(f"{p.name} ({p.type}, {p.dimensions}D)" for p in algorithm.parameters)
    outputs = [algorithm.by_name[name] for name in algorithm.outputs]
    made = [f"{', '.join(map(str, f.types))} of {len(f.args)} dimensions" for f in outputs]
    return f"inputs {', '.join(inputs) or 'none'} and outputs {'; '.join(made)}"


def source_of(hand: Callable[..., Any]) -> Source:
    """Return where a function is, for a worker to build its pipeline again.

    Raises `TilewrightError` if it is not a function of a file.
    """
    arguments: dict[str, Any] = {}
    if isinstance(hand, partial):
        arguments = dict(hand.keywords)
        hand = hand.func
    path = inspect.getsourcefile(hand) if inspect.isfunction(hand) else None
    if path is None or hand.__qualname__ != hand.__name__ or not Path(path).is_file():
        raise TilewrightError(
            "the hand-written schedule must be a function at the top level of a Python file, "
            "which worker processes can load"
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
    """Return a peer's schedule as something to measure."""
    return Variant(
        serialized=found.serialized, target=target, name=found.peer.name, env=found.peer.env
    )


def _entries(
    outcome: Outcome, labels: Sequence[str], searched: Mapping[str, PeerSchedule]
) -> tuple[Entry, ...]:
    """Return an entry per label: of its search if that failed, else of the final rounds."""
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
    """Return the entry of a schedule that did not get to the final rounds."""
    alone = next((t.measurement for t in outcome.tried if key_of(t) == key), None)
    if key == NAIVE:
        alone = outcome.naive
    if alone is not None and not alone.ok:
        return Entry(label, alone.status, message=alone.message, measurement=alone)
    if outcome.stopped:
        status, message = "timeout", f"not compared: {outcome.stopped}"
    else:
        status, message = "not_compared", "none of our schedules gave right answers"
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
