"""The final rounds: schedules timed in turns, so that their times are comparable.

Times measured at different moments are not, because the load of the machine changes. In the final
rounds, all schedules run once per round. The records store and return these rounds only as a whole.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.halide.execution.reference import OutOfTimeError
from tilewright.halide.execution.session import Session, Variant, versions
from tilewright.measure import Finals, Measurement
from tilewright.records import MeasurementRecord, canonical

# The minimum number of rounds for a valid result; `finalists` starts at least as many.
LEAST_ROUNDS = 2


@dataclass(frozen=True)
class Rounds:
    """The maximum number of rounds, and the seconds after which no further round starts.

    `reuse` says whether recorded rounds of the same schedules are accepted.
    """

    number: int = 9
    seconds: float = 8.0
    reuse: bool = True


@dataclass(frozen=True)
class Final:
    """The result of the final rounds; `recorded` is the date of recorded rounds, else empty."""

    finals: Finals = field(hash=False)
    recorded: str = ""

    def measurement(self, key: str) -> Measurement | None:
        """Return the measurement of the schedule named `key`; None if it did not take part."""
        try:
            return self.finals.measurement(key)
        except KeyError:
            return None

    @property
    def words(self) -> str:
        """The number of rounds, number of schedules and date, as a phrase for reports."""
        rounds = max((len(m.times) for m in self.finals.measurements), default=0)
        when = f"recorded {self.recorded}" if self.recorded else "in this run"
        return f"{rounds} of {len(self.finals.candidates)} schedules, {when}"


def final_rounds(
    session: Session, variants: Sequence[Variant], rounds: Rounds, *, brief: Collection[str] = ()
) -> Final:
    """Time the variants in interleaved rounds, or return recorded rounds of the same variants.

    Args:
        session: times the variants and records the result.
        variants: the variants, with distinct names.
        rounds: the number of rounds and their time limit.
        brief: names of slow variants that only take part in the first rounds.

    Raises:
        OutOfTimeError: the session's deadline came before all variants completed `LEAST_ROUNDS`.
    """
    problem = session.prepare()
    together = sorted(canonical(variant.configuration) for variant in variants)
    field_hash = hashlib.sha256("\n".join(together).encode()).hexdigest()[:32]
    configurations = [{**variant.configuration, "finals": field_hash} for variant in variants]
    if rounds.reuse and not session.remeasure:
        known = _recorded(session, configurations)
        if known:
            candidates = tuple(problem.candidate(variant) for variant in variants)
            finals = Finals(candidates, tuple(r.measurement for r in known))
            when = min(r.time for r in known)
            return Final(finals, f"{when[:16].replace('T', ' ')} UTC")
    finals = session.finals(variants, rounds.number, seconds=rounds.seconds, brief=brief)
    if session.deadline is not None and time.monotonic() >= session.deadline:
        return Final(_in_common(finals, brief))
    _record(session, configurations, finals)
    return Final(finals)


def _recorded(
    session: Session, configurations: Sequence[dict[str, Any]]
) -> list[MeasurementRecord]:
    """Return the records of these configurations if all belong to the same run, else none."""
    if session.records is None:
        return []
    found: list[MeasurementRecord] = []
    for configuration in configurations:
        record = session.records.lookup(
            session.problem.key, configuration, session.machine, versions()
        )
        run = record.context.get("run") if record is not None else None
        if record is None or not run or (found and found[0].context.get("run") != run):
            return []
        found.append(record)
    return found


def _record(session: Session, configurations: Sequence[dict[str, Any]], finals: Finals) -> None:
    if session.records is None:
        return
    # If the process is killed in this loop, the run is incomplete and `_recorded` ignores it.
    context = {"finals": len(configurations), "run": uuid.uuid4().hex}
    for configuration, measurement in zip(configurations, finals.measurements, strict=True):
        session.records.add(
            MeasurementRecord(
                session.problem.key,
                configuration,
                session.machine,
                versions(),
                measurement,
                context,
            )
        )


def _in_common(finals: Finals, brief: Collection[str]) -> Finals:
    """Return interrupted final rounds, cut to the rounds that all candidates completed.

    Raises `OutOfTimeError` if these are fewer than `LEAST_ROUNDS`.
    """
    running = [
        (candidate.key, len(m.times))
        for candidate, m in zip(finals.candidates, finals.measurements, strict=True)
        if m.status in ("ok", "timeout")
    ]
    if min((done for _, done in running), default=0) < LEAST_ROUNDS:
        raise OutOfTimeError("the time limit was reached before the final rounds were done")
    common = min((done for key, done in running if key not in brief), default=LEAST_ROUNDS)
    cut = (
        replace(m, times=m.times[:common], cpu_times=m.cpu_times[:common])
        for m in finals.measurements
    )
    return Finals(finals.candidates, tuple(cut))
