"""Mode ``top``: build, verify and measure the best few schedules, then compare the leaders.

The load of the machine changes over time, so that times measured separately only tell which
schedules are candidates for the fastest. The choice and all speedups come from the final rounds
(`final_rounds`), in which these leaders are timed in turns.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tilewright.halide.execution.reference import OutOfTimeError
from tilewright.halide.execution.session import Measured, Session, Variant
from tilewright.halide.frontend.extents import input_boxes
from tilewright.halide.ir.algorithm import Algorithm, Span
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.search.drift import AT_FIRST_SPEED
from tilewright.halide.search.finals import Final, Rounds, final_rounds
from tilewright.measure import Event, Measurement, RunLimits, Timing
from tilewright.report import Progress

# Sampling of a schedule stops when it is slower than the best by this factor.
CUTOFF_RATIO = 2.0
TIMING = Timing(cutoff_ratio=CUTOFF_RATIO)
# Leaders are schedules within this factor of the best. Times of the same schedule, measured with
# and without other work on the machine, have been seen to differ by 1.5.
LEADING = 1.5
MOST_LEADERS = 5
# The key in `Measurement.details` for the times before the final rounds.
FIRST_TIMES = "first_times"
# Statuses in the final rounds that do not discredit a schedule: the time limit came, or the
# finalists together needed too much memory.
_NO_FAULT = ("timeout", "out_of_memory")

NAIVE = "naive"
INTERRUPTED = "an interruption"


@dataclass(frozen=True)
class Tried:
    """A schedule and its measurement.

    Attributes:
        planned: the schedule.
        rank: its position in the model's order, from 0.
        measurement: None if there was no time for it. For several sizes, the measurement at the
            largest size, or the first one that failed.
        recorded: whether the measurement comes from the records.
        reads_beyond: the inputs that it reads outside the pipeline's required region. Inputs with
            the estimated sizes are too small for it.
        final: whether the measurement comes from the final rounds.
        others: for several sizes, the measurements at the smaller ones.
    """

    planned: PlannedSchedule
    rank: int
    measurement: Measurement | None = None
    recorded: bool = False
    reads_beyond: tuple[str, ...] = ()
    final: bool = False
    others: tuple[Measurement, ...] = ()

    @property
    def sizes(self) -> tuple[Measurement, ...]:
        """The measurements at every size, the largest first."""
        return () if self.measurement is None else (self.measurement, *self.others)

    @property
    def ok(self) -> bool:
        """Whether it ran completely with the right answer."""
        return self.measurement is not None and self.measurement.ok

    @property
    def cut_short(self) -> bool:
        """Whether its measurement was cut short because it was clearly slower than the best."""
        return self.measurement is not None and self.measurement.ok and self.measurement.lower_bound

    @property
    def seconds(self) -> float | None:
        """Median time of a run in seconds; None if unknown or only a lower bound is known."""
        if self.measurement is None or not self.ok or self.cut_short:
            return None
        return self.measurement.median

    @property
    def source(self) -> str:
        """How its time was measured, as a phrase for reports; empty without a time."""
        if not self.ok:
            return ""
        if self.final:
            how = "final rounds"
        elif self.measurement is not None and FIRST_TIMES in self.measurement.details:
            how = "earlier rounds"
        else:
            how = "alone"
            if self.measurement is not None and AT_FIRST_SPEED in self.measurement.details:
                how += ", at the speed of the final rounds"
        return f"{how}, recorded" if self.recorded else how

    @property
    def note(self) -> str:
        """A remark for reports: why it has no time, or what to know about it."""
        if self.measurement is None:
            return "not measured: the time limit was reached"
        said = self.measurement.message
        if self.cut_short:
            said = "cut short: clearly slower than the best"
        if self.reads_beyond:
            beyond = f"reads {', '.join(self.reads_beyond)} outside the required region"
            said = f"{beyond}; {said}" if said else beyond
        return said


@dataclass(frozen=True)
class Outcome:
    """The result of a search with measurements.

    Attributes:
        tried: the schedules in the model's order.
        naive: the measurement of the naive schedule, from the final rounds if it was in them.
        stopped: why the search ended early; empty if it did not.
        final: the final rounds, if there were any.
    """

    tried: tuple[Tried, ...]
    naive: Measurement | None = None
    stopped: str = ""
    final: Final | None = field(default=None, hash=False)

    @property
    def ranking(self) -> tuple[Tried, ...]:
        """The schedules, best first: measured ones by time, then unmeasured ones, then failed ones.

        Among the measured ones, those that read outside the required region come last. Times from
        the final rounds come before other times, and those before times that were cut short.
        """

        def key(tried: Tried) -> tuple[float, ...]:
            if not tried.ok:
                return (3 if tried.measurement is not None else 2, tried.rank)
            short = any(measured.lower_bound for measured in tried.sizes)
            # In a product, all sizes have equal weight, regardless of their times.
            times = math.prod(measured.median for measured in tried.sizes)
            return (bool(tried.reads_beyond), not tried.final, short, times)

        return tuple(sorted(self.tried, key=key))

    @property
    def baseline(self) -> Measurement | None:
        """The naive schedule's measurement from the final rounds of the best one, else None."""
        best = self.best
        if self.final is None or best is None or not best.final:
            return None
        found = self.final.measurement(NAIVE)
        return found if found is not None and found.ok else None

    @property
    def best(self) -> Tried | None:
        """The fastest schedule with the right answer; None if there is none."""
        first = self.ranking[0] if self.tried else None
        return first if first is not None and first.ok else None


class Watch:
    """Turns events of the workers into progress reports."""

    def __init__(self, show: Callable[[Progress], object] | None) -> None:
        self._show = show
        self.phase = ""
        self.total: int | None = None
        self.done = 0
        self.failed: Counter[str] = Counter()
        self.best: float | None = None
        self.message = ""

    def enter(self, phase: str, total: int | None = None) -> None:
        """Start a phase of `total` steps (None: unknown)."""
        self.phase, self.total, self.done, self.message = phase, total, 0, ""
        self.show()

    def count(self, measured: Measurement) -> None:
        """Count a finished candidate."""
        self.done += 1
        if not measured.ok:
            self.failed[measured.status] += 1
        self.show()

    def on_event(self, event: Event) -> None:
        """Report the current step of a candidate."""
        words = {"started": "building", "built": "verifying", "timing": "timing"}
        if event.name in words:
            self.message = f"{words[event.name]} {event.candidate.key}"
            self.show()

    def show(self) -> None:
        """Report the current progress."""
        if self._show is not None:
            failed = dict(self.failed)
            self._show(Progress(self.phase, self.done, self.total, failed, self.best, self.message))


def timing(seconds: float = 1.0) -> Timing:
    """Return the timing of candidates in `measure_top`: about `seconds` each."""
    return replace(TIMING, seconds=seconds)


def measure_top(
    session: Session,
    planned: Sequence[PlannedSchedule],
    *,
    target: str,
    watch: Watch,
    naive: Variant | None = None,
    others: Sequence[Variant] = (),
    rounds: Rounds | None = None,
) -> Outcome:
    """Measure the planned schedules, then time the leaders again in the final rounds.

    Recorded schedules are not measured again. If the session's deadline is reached or the user
    interrupts, the outcome contains the results so far.

    Args:
        session: measures the schedules; it has the records and the deadline.
        planned: the schedules, the model's best one first.
        target: the Halide target.
        watch: shows the progress.
        naive: the baseline of speedups; it takes part in the final rounds.
        others: further variants to time in the final rounds; they are never chosen.
        rounds: the number and time limit of the final rounds; by default those of `Rounds`.

    Raises:
        TilewrightError: the errors of `Session`.
    """
    variants = _variants(planned, target)
    allowed = allowed_reads(session.problem.algorithm, session)
    found: dict[str, Measured] = {}
    final: Final | None = None
    watch.enter("measuring", len(variants))

    def collect(wanted: Sequence[Variant]) -> None:
        for measured in session.measure(wanted):
            found[measured.variant.name] = measured
            if measured.variant.name != NAIVE:
                if measured.measurement.ok:
                    watch.best = min(watch.best or float("inf"), measured.measurement.median)
                watch.count(measured.measurement)

    try:
        with early_end() as why:
            collect(list(variants.values()))
            if naive is not None:
                watch.enter("measuring the naive schedule")
                collect([replace(naive, name=NAIVE)])
            leaders = leaders_of(_tried(planned, variants, found, allowed))
            chosen = [variants[key_of(t)] for t in leaders]
            final = decide(session, chosen, watch, found.get(NAIVE), others, rounds)
    finally:
        watch.message = ""
    tried = [with_final(t, final) for t in _tried(planned, variants, found, allowed)]
    stopped = why.reason
    if not stopped and any(t.measurement is None for t in tried):
        stopped = "the time limit"
    return Outcome(tuple(tried), _baseline(found.get(NAIVE), final), stopped, final)


def _variants(planned: Sequence[PlannedSchedule], target: str) -> dict[str, Variant]:
    """Return the planned schedules as variants to measure, by name, in the order of the model."""
    return {
        (name := name_of(p, i)): Variant(
            p.schedule, target=target, name=name, max_registers=p.max_registers
        )
        for i, p in enumerate(planned)
    }


def decide(
    session: Session,
    leaders: Sequence[Variant],
    watch: Watch,
    naive: Measured | None,
    others: Sequence[Variant] = (),
    rounds: Rounds | None = None,
) -> Final | None:
    """Run the final rounds of the leaders, the naive schedule if it ran, and `others`.

    Returns None if there are less than two variants. Raises `OutOfTimeError` like `final_rounds`.
    """
    rounds = rounds or Rounds()
    field_ = [*leaders, *others]
    brief: tuple[str, ...] = ()
    if leaders and naive is not None and naive.measurement.ok:
        field_.append(naive.variant)
        if naive.measurement.median > rounds.seconds / rounds.number:
            brief = (NAIVE,)
    if len(field_) < 2:
        return None
    watch.enter(f"comparing {len(field_)} schedules in final rounds")
    return final_rounds(session, field_, rounds, brief=brief)


def _baseline(naive: Measured | None, final: Final | None) -> Measurement | None:
    """Return the naive schedule's measurement from the final rounds, else its separate one."""
    decided = final.measurement(NAIVE) if final is not None else None
    if decided is not None and decided.ok:
        return decided
    return naive.measurement if naive is not None else None


@dataclass
class Why:
    """The reason for which a block ended early; empty if it did not."""

    reason: str = ""


@contextmanager
def early_end() -> Iterator[Why]:
    """End the block on Ctrl-C or at the deadline, and report which of them it was."""
    why = Why()
    try:
        yield why
    except KeyboardInterrupt:
        why.reason = INTERRUPTED
    except OutOfTimeError:
        why.reason = "the time limit"


def key_of(tried: Tried) -> str:
    """Return the variant name of a tried schedule."""
    return name_of(tried.planned, tried.rank)


def name_of(planned: PlannedSchedule, rank: int) -> str:
    """Return the name of a planned schedule; `rank` counts from 0."""
    return planned.name or f"schedule {rank + 1}"


def _tried(
    planned: Sequence[PlannedSchedule],
    variants: dict[str, Variant],
    found: dict[str, Measured],
    allowed: dict[str, tuple[Span, ...]],
) -> list[Tried]:
    result = []
    for i, (plan, key) in enumerate(zip(planned, variants, strict=True)):
        measured = found.get(key)
        if measured is None:
            result.append(Tried(plan, i))
            continue
        beyond = reads_beyond(measured.measurement, allowed)
        result.append(Tried(plan, i, measured.measurement, measured.recorded, beyond))
    return result


def leaders_of(tried: Sequence[Tried]) -> list[Tried]:
    """Return the schedules to compare in the final rounds, in the model's order.

    The model's best schedule and a schedule that came with the pipeline (it has a name) always take
    part, so that the result is never slower than they are. The others are within a factor of
    `LEADING` of the best time.
    """
    running = [t for t in tried if t.ok]
    clean = [t for t in running if not t.reads_beyond] or running
    named = next((t for t in clean if t.rank == 0 and t.planned.name), None)
    first = next((t for t in clean if t.rank == (1 if tried[0].planned.name else 0)), None)
    leaders = [t for t in (named, first) if t is not None]
    timed = sorted((t for t in clean if t.seconds is not None), key=lambda t: t.seconds or 0.0)
    for one in timed:
        near = (one.seconds or 0.0) <= LEADING * (timed[0].seconds or 0.0)
        if near and one not in leaders and len(leaders) < MOST_LEADERS:
            leaders.append(one)
    return sorted(leaders, key=lambda t: t.rank)


def with_final(tried: Tried, final: Final | None) -> Tried:
    """Return the schedule with its measurement from the final rounds, if it took part.

    A schedule that gave a wrong answer or crashed in the final rounds counts as failed.
    """
    found = final.measurement(key_of(tried)) if final is not None else None
    if final is None or found is None or tried.measurement is None:
        return tried
    if found.ok and found.times:
        details = {**tried.measurement.details, FIRST_TIMES: list(tried.measurement.times)}
        return replace(
            tried,
            measurement=replace(found, details=details),
            recorded=bool(final.recorded),
            final=True,
        )
    if found.status in _NO_FAULT or found.ok or found.details.get("lost"):
        return tried
    return replace(tried, measurement=found)


def allowed_reads(algorithm: Algorithm, session: Session) -> dict[str, tuple[Span, ...]]:
    """Return the box that may be read of each input: the hull of estimate and required region."""
    needed = input_boxes(algorithm, algorithm.symbols)
    allowed = {}
    for buffer in session.inputs.buffers:
        spans = []
        for d, span in enumerate(buffer.dims):
            box = needed.get(buffer.name)
            low, high = float(span.min), float(span.max)
            if box is not None:
                low, high = min(low, float(box[d].lo)), max(high, float(box[d].hi))
            bound = 2**31 - 1
            first = int(max(low, -bound))
            spans.append(Span(first, int(min(high, bound)) - first + 1))
        allowed[buffer.name] = tuple(spans)
    return allowed


def reads_beyond(measurement: Measurement, allowed: dict[str, tuple[Span, ...]]) -> tuple[str, ...]:
    """Return the inputs that a run read outside the `allowed` boxes (see `allowed_reads`)."""
    boxes = measurement.details.get("input_boxes", {})
    return tuple(
        name
        for name, spans in allowed.items()
        if any(
            low < span.min or low + extent > span.min + span.extent
            for (low, extent), span in zip(boxes.get(name, ()), spans, strict=False)
        )
    )


def limits(seconds: float = 120.0, memory_bytes: int = 8 << 30) -> RunLimits:
    """Return the limits of a candidate: `seconds` to build, half of that (10 s at least) to run."""
    return RunLimits(
        build_seconds=seconds, run_seconds=max(10.0, seconds / 2), memory_bytes=memory_bytes
    )
