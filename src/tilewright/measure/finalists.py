"""The last few candidates measured against each other in interleaved rounds."""

from __future__ import annotations

import math
import queue
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from .candidate import Candidate, Measurement, RunLimits, Timing, machine_id
from .client import Event, Workers
from .measuring import remaining
from .statistics import ConfidenceInterval, bootstrap_interval, ratio_interval
from .token import say_wait

# How a candidate is timed in each round, unless the caller says otherwise.
VISIT = Timing(min_samples=5, max_samples=10, seconds=0.5, sample_seconds=0.01, precision=0.01)


@dataclass(frozen=True)
class Finals:
    """The results of interleaved rounds, in the order of the candidates.

    A measurement's `times` hold one entry per round, the median of that visit's samples, so
    entry r of every candidate belongs to the same round. A candidate that failed on the way
    keeps only what the status says.
    """

    candidates: tuple[Candidate, ...]
    measurements: tuple[Measurement, ...]

    def ratio_interval(
        self, a: int | str, b: int | str, *, confidence: float = 0.95
    ) -> ConfidenceInterval:
        """Return the interval of time(a) / time(b), candidates given by index or key.

        Above 1, b is the faster. Raises ValueError when one of them has no samples.
        """
        first, second = self.measurement(a), self.measurement(b)
        rounds = min(len(first.times), len(second.times))
        if rounds == 0:
            which = a if not first.times else b
            status = (first if not first.times else second).status
            raise ValueError(f"candidate {which!r} has no samples: {status}")
        return ratio_interval(first.times[:rounds], second.times[:rounds], confidence=confidence)

    def interval(self, which: int | str, *, confidence: float = 0.95) -> ConfidenceInterval:
        """Return the interval of a candidate's median time in seconds."""
        return bootstrap_interval(self.measurement(which).times, confidence=confidence)

    def measurement(self, which: int | str) -> Measurement:
        """Return a candidate's measurement, by index or key; KeyError for an unknown key."""
        if isinstance(which, int):
            return self.measurements[which]
        for candidate, measurement in zip(self.candidates, self.measurements, strict=True):
            if candidate.key == which:
                return measurement
        raise KeyError(which)

    @property
    def best(self) -> int | None:
        """Index of the candidate with the least median; None if all failed."""
        alive = [i for i, m in enumerate(self.measurements) if m.ok]
        return min(alive, key=lambda i: self.measurements[i].median, default=None)


# Rounds that are always done, and the only ones of candidates that take part briefly.
_FIRST_ROUNDS = 2


@dataclass
class _Finalist:
    candidate: Candidate
    number: int = -1
    ready: bool = False
    final: Measurement | None = None
    times: list[float] = field(default_factory=list)
    cpu_times: list[float] = field(default_factory=list)


def finalists(
    candidates: Sequence[Candidate],
    rounds: int = 10,
    *,
    seconds: float | None = None,
    limits: RunLimits | None = None,
    visit: Timing | None = None,
    verify: bool = True,
    jobs: int | None = None,
    preload: Sequence[str] = (),
    workers: Workers | None = None,
    on_event: Callable[[Event], object] | None = None,
    deadline: float | None = None,
    brief: Collection[str] = (),
) -> Finals:
    """Keep a worker for every candidate and time them in turn, `rounds` times.

    Every second round goes backwards (A B C, C B A, ...), so that a steady drift of the
    machine's speed favours none. A visit is timed as `visit` says (by default `VISIT`), with a
    warm-up run because the others have emptied the caches. All other workers are stopped meanwhile.
    With `seconds`, no further round begins after that time (two are always done). At the
    `deadline` (of `time.monotonic`) everything ends: candidates with samples keep them, others
    count as timed out. Slow ones, with keys in `brief`, take part in the first two rounds alone.

    All candidates are in memory at the same time. One that fails is left out of further
    rounds. Raises WorkersError when no server can be started, ValueError for a command that
    runs only once (`command` with ``repeated=True`` is timed like any other).
    """
    visit = visit or VISIT
    with ExitStack() as stack:
        if workers is None:
            workers = stack.enter_context(Workers(jobs=jobs, preload=preload))
        runners = [_Finalist(candidate) for candidate in candidates]
        match = _Match(workers, runners, on_event, deadline)
        try:
            match.begin(limits or RunLimits(), replace(visit, verify=verify))
            match.play(rounds, math.inf if seconds is None else seconds, visit, brief)
            match.end()
        except queue.Empty:
            for runner in runners:
                runner.final = runner.final or _cut_short(runner, verify)
        finally:
            match.cancel()
    return Finals(tuple(candidates), tuple(_conclude(runner) for runner in runners))


@dataclass
class _Match:
    """The finalists with their workers; its methods raise queue.Empty at the deadline."""

    workers: Workers
    runners: list[_Finalist]
    on_event: Callable[[Event], object] | None
    deadline: float | None
    mailbox: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)

    def begin(self, limits: RunLimits, timing: Timing) -> None:
        """Start all workers, and wait until each is built and verified, or has failed."""
        for runner in self.runners:
            runner.number = self.workers.submit(
                runner.candidate, limits, timing, self.mailbox, hold=True
            )
        self._listen(lambda: all(r.ready or r.final for r in self.runners))

    def play(self, rounds: int, seconds: float, visit: Timing, brief: Collection[str]) -> None:
        """Time all in turn; after `seconds` no further round begins."""
        began = time.monotonic()
        for turn in range(rounds):
            if turn >= _FIRST_ROUNDS and time.monotonic() - began > seconds:
                break
            for runner in self.runners if turn % 2 == 0 else reversed(self.runners):
                if _plays(runner, turn, brief):
                    self.workers.sample(runner.number, visit)
                    done = len(runner.times)
                    self._listen(lambda r=runner, n=done: r.final or len(r.times) > n)  # type: ignore[misc]

    def end(self) -> None:
        """Ask all workers for their details."""
        for runner in self.runners:
            if runner.final is None:
                self.workers.end(runner.number)
        self._listen(lambda: all(r.final for r in self.runners))

    def cancel(self) -> None:
        """Stop the workers that are left."""
        for runner in self.runners:
            if runner.number >= 0:
                self.workers.cancel(runner.number)

    def _listen(self, until: Callable[[], bool]) -> None:
        by_number = {runner.number: runner for runner in self.runners}
        while not until():
            event = self.mailbox.get(timeout=remaining(self.deadline))
            if event.name == "waiting":
                say_wait()
            if self.on_event is not None:
                self.on_event(event)
            runner = by_number[event.data["number"]]
            if event.name == "ready":
                runner.ready = True
            elif event.name == "sampled":
                runner.times.append(statistics.median(event.data["times"]))
                runner.cpu_times.append(statistics.median(event.data["cpu_times"]))
            elif event.measurement is not None:
                runner.final = event.measurement


def _plays(runner: _Finalist, turn: int, brief: Collection[str]) -> bool:
    """Return whether a finalist takes part in a round, counted from 0."""
    return runner.final is None and (turn < _FIRST_ROUNDS or runner.candidate.key not in brief)


def _cut_short(runner: _Finalist, verified: bool) -> Measurement:
    """Return the measurement of a finalist that was running at the deadline."""
    if runner.times:
        return Measurement("ok", verified=verified, machine=machine_id())
    return Measurement("timeout", message="the time limit was reached", machine=machine_id())


def _conclude(runner: _Finalist) -> Measurement:
    assert runner.final is not None
    if not runner.final.ok:
        return runner.final
    times, cpus = tuple(runner.times), tuple(runner.cpu_times)
    return replace(runner.final, times=times, cpu_times=cpus, runs=len(times))
