"""Measures only candidates without a record, and records each before continuing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.measure import Candidate, Measurement, RunLimits, Timing, measure_all

from .store import Json, MeasurementRecord, Records

# Failures caused by limits, and the limits that may cause them.
_BY_LIMITS = {
    "timeout": ("build_seconds", "run_seconds"),
    "out_of_memory": ("memory_bytes",),
}


@dataclass(frozen=True)
class CandidateTrial:
    """A configuration and its candidate, or a function that makes the candidate.

    The function is called only if the configuration has no record. `tag` is arbitrary data of the
    caller and comes back with the outcome.
    """

    configuration: Json
    candidate: Candidate | Callable[[], Candidate]
    tag: Any = None


@dataclass(frozen=True)
class TrialOutcome:
    """A trial, its measurement, and whether that came from the records."""

    trial: CandidateTrial
    measurement: Measurement
    recorded: bool


def measure_recorded(
    trials: Iterable[CandidateTrial],
    records: Records | None,
    *,
    problem: str,
    machine: Json,
    versions: Json,
    limits: RunLimits | None = None,
    timing: Timing | None = None,
    context: Json | None = None,
    remeasure: bool = False,
    note: Callable[[Measurement], Measurement] | None = None,
    **how: Any,
) -> Iterator[TrialOutcome]:
    """Measure the trials without a record; yield every trial once.

    Recorded trials are yielded first. The others are measured (`how` goes to `measure_all`) and
    are on the disk before they are yielded, so a run that is killed and restarted continues where
    it stopped. A recorded failure counts, except a time-out or exhausted memory under tighter
    limits than these, and the loss of a worker that the candidate did not cause. A record that was
    not verified does not count if verification is required now. Without `records` everything is
    measured, and with `remeasure` everything is measured again. Measurements that were cut short
    under a smaller time budget than this one's count. `note` may add details to a new measurement
    before it is recorded.
    """
    limits, timing = limits or RunLimits(), timing or Timing()
    kept = {**(context or {}), "limits": asdict(limits), "timing": asdict(timing)}
    known: list[TrialOutcome] = []
    trials_of: dict[int, list[CandidateTrial]] = {}

    def unknown() -> Iterator[Candidate]:
        for trial in trials:
            found = None
            if records is not None and not remeasure:
                found = records.lookup(problem, trial.configuration, machine, versions)
            if found is not None and not _open(found, limits, timing):
                known.append(TrialOutcome(trial, found.measurement, recorded=True))
            else:
                made = trial.candidate
                candidate = made if isinstance(made, Candidate) else made()
                trials_of.setdefault(id(candidate), []).append(trial)
                yield candidate

    for candidate, measurement in measure_all(unknown(), limits=limits, timing=timing, **how):
        trial = trials_of[id(candidate)].pop(0)
        try:
            if note is not None:
                measurement = note(measurement)
        finally:  # also if Ctrl-C ends `note`
            if records is not None:
                records.add(
                    MeasurementRecord(
                        problem, trial.configuration, machine, versions, measurement, kept
                    )
                )
        yield from known
        known.clear()
        yield TrialOutcome(trial, measurement, recorded=False)
    yield from known


def _open(record: MeasurementRecord, limits: RunLimits, timing: Timing) -> bool:
    """Return whether the configuration has to be measured in spite of its record."""
    measurement, context = record.measurement, record.context
    if measurement.details.get("lost"):
        return True
    if measurement.ok and timing.verify and not context.get("timing", {}).get("verify", True):
        return True
    return failed_by_tighter_limits(record, limits)


def failed_by_tighter_limits(record: MeasurementRecord, limits: RunLimits) -> bool:
    """Return whether a recorded failure was caused by tighter limits than `limits`.

    A limit that is missing in a record counts as no limit.
    """
    names = _BY_LIMITS.get(record.measurement.status, ())
    before = record.context.get("limits", {})
    return any(before.get(name, 0) < getattr(limits, name) for name in names)
