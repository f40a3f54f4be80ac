"""The best few schedules built, verified and measured; the fastest is found in finals."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.halide.execution.reference import OutOfTimeError
from tilewright.halide.execution.session import Measured, Session, Variant, versions
from tilewright.halide.frontend.extents import input_boxes
from tilewright.halide.ir.algorithm import Algorithm, Span
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.measure import Event, Finals, Limits, Measurement, Timing
from tilewright.records import Record, canonical
from tilewright.report import Progress

# Twice as slow as the best is clearly slower: no more samples are taken.
CUTOFF_RATIO = 2.0
# What is this close to the best is measured again, interleaved with it.
CLOSE = 1.15
MOST_FINALISTS = 4
FINAL_ROUNDS = 9
FINAL_SECONDS = 8.0

NAIVE = "naive"


@dataclass(frozen=True)
class Tried:
    """A schedule and how it did: `measurement` is None where there was no time for it.

    `reads_beyond` names the inputs that it reads more of than the pipeline needs; inputs
    made as large as the pipeline's estimates say are too small for it.
    """

    planned: PlannedSchedule
    rank: int
    measurement: Measurement | None = None
    recorded: bool = False
    reads_beyond: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it ran to the end with the right answer."""
        return self.measurement is not None and self.measurement.ok

    @property
    def seconds(self) -> float | None:
        """Median time of a run, None where it is not known or only bounded from below."""
        if self.measurement is None or not self.measurement.ok or self.measurement.lower_bound:
            return None
        return self.measurement.median

    @property
    def note(self) -> str:
        """What a reader should know of it."""
        if self.measurement is None:
            return "not tried: the time was up"
        said = self.measurement.message
        if self.measurement.ok and self.measurement.lower_bound:
            said = "cut short: clearly slower than the best"
        if self.reads_beyond:
            beyond = f"reads {', '.join(self.reads_beyond)} beyond what the pipeline needs of it"
            said = f"{beyond}; {said}" if said else beyond
        return said


@dataclass(frozen=True)
class Outcome:
    """What measuring gave: every schedule in the order of the model, and the naive one.

    `stopped` says why it ended early, if it did.
    """

    tried: tuple[Tried, ...]
    naive: Measurement | None = None
    stopped: str = ""
    finals: Finals | None = field(default=None, hash=False)

    @property
    def ranking(self) -> tuple[Tried, ...]:
        """Measured ones by time, those that read beyond after those that do not; then the rest."""

        def key(tried: Tried) -> tuple[int, float]:
            if not tried.ok:
                return (3 if tried.measurement is not None else 2, tried.rank)
            assert tried.measurement is not None
            return (1 if tried.reads_beyond else 0, tried.measurement.median)

        return tuple(sorted(self.tried, key=key))

    @property
    def best(self) -> Tried | None:
        """The fastest that ran with the right answer, None where none did."""
        first = self.ranking[0] if self.tried else None
        return first if first is not None and first.ok else None


class Watch:
    """Turns the workers' events into the progress that is shown."""

    def __init__(self, show: Callable[[Progress], object] | None) -> None:
        self._show = show
        self.phase = ""
        self.total: int | None = None
        self.done = 0
        self.failed: Counter[str] = Counter()
        self.best: float | None = None
        self.message = ""

    def enter(self, phase: str, total: int | None = None) -> None:
        """Begin a phase."""
        self.phase, self.total, self.done, self.message = phase, total, 0, ""
        self.show()

    def count(self, measured: Measurement) -> None:
        """Count a candidate that is finished."""
        self.done += 1
        if not measured.ok:
            self.failed[measured.status] += 1
        self.show()

    def on_event(self, event: Event) -> None:
        """Say what is being done."""
        words = {"started": "building", "built": "verifying", "timing": "timing"}
        if event.name in words:
            self.message = f"{words[event.name]} {event.candidate.key}"
            self.show()

    def show(self) -> None:
        """Tell whoever watches."""
        if self._show is not None:
            failed = dict(self.failed)
            self._show(Progress(self.phase, self.done, self.total, failed, self.best, self.message))


def timing(seconds: float = 1.0) -> Timing:
    """How the candidates of `measure_top` are timed."""
    return Timing(seconds=seconds, cutoff_ratio=CUTOFF_RATIO)


def measure_top(
    session: Session,
    planned: Sequence[PlannedSchedule],
    *,
    target: str,
    watch: Watch,
    naive: Variant | None = None,
) -> Outcome:
    """Measure the planned schedules, and those that lead again, interleaved.

    What the session's records know is not measured again. At the session's deadline, or when
    the user interrupts, what there is by then is the outcome. Raises what `Session` raises.
    """
    variants = {
        (name := name_of(p, i)): Variant(
            p.schedule, target=target, name=name, max_registers=p.max_registers
        )
        for i, p in enumerate(planned)
    }
    allowed = allowed_reads(session.problem.algorithm, session)
    found: dict[str, Measured] = {}
    finals: Finals | None = None
    stopped = ""
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
            tried = _tried(planned, variants, found, allowed)
            leaders = leaders_of(tried)
            if len(leaders) > 1:
                watch.enter(f"comparing the best {len(leaders)}")
                finals = recorded_finals(session, [variants[key_of(t)] for t in leaders])
        stopped = why.reason
    finally:
        watch.message = ""
    tried = _tried(planned, variants, found, allowed)
    if finals is not None:
        tried = [with_final(t, finals) for t in tried]
    if not stopped and any(t.measurement is None for t in tried):
        stopped = "the time limit"
    baseline = found.get(NAIVE)
    return Outcome(
        tuple(tried), baseline.measurement if baseline is not None else None, stopped, finals
    )


@dataclass
class Why:
    """Why a block ended before its end; empty if it did not."""

    reason: str = ""


@contextmanager
def early_end() -> Iterator[Why]:
    """Let Ctrl-C and the deadline end the block, and say which it was."""
    why = Why()
    try:
        yield why
    except KeyboardInterrupt:
        why.reason = "an interruption"
    except OutOfTimeError:
        why.reason = "the time limit"


def key_of(tried: Tried) -> str:
    """What the variant of a tried schedule is called."""
    return name_of(tried.planned, tried.rank)


def name_of(planned: PlannedSchedule, rank: int) -> str:
    """What a planned schedule is called, `rank` counting from 0."""
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
    """The ones that may turn out to be the fastest."""
    running = [t for t in tried if t.seconds is not None]
    clean = [t for t in running if not t.reads_beyond] or running
    clean.sort(key=lambda t: t.seconds or 0.0)
    return [t for t in clean if (t.seconds or 0) <= CLOSE * (clean[0].seconds or 0)][
        :MOST_FINALISTS
    ]


def with_final(tried: Tried, finals: Finals) -> Tried:
    """The schedule with what the finals measured, if it was among them."""
    for candidate, final in zip(finals.candidates, finals.measurements, strict=True):
        if candidate.key == key_of(tried) and final.ok and final.times:
            before = tried.measurement
            assert before is not None
            details = {**before.details, "first_times": list(before.times)}
            return replace(tried, measurement=replace(final, details=details))
    return tried


def recorded_finals(session: Session, variants: Sequence[Variant]) -> Finals:
    """Finals among `variants`, from the records where the same ones have met before."""
    problem = session.prepare()
    candidates = tuple(problem.candidate(variant) for variant in variants)
    together = sorted(canonical(variant.configuration) for variant in variants)
    field_hash = hashlib.sha256("\n".join(together).encode()).hexdigest()[:32]
    configurations = [{**variant.configuration, "finals": field_hash} for variant in variants]
    records = session.records
    if records is not None and not session.remeasure:
        known = [
            records.lookup(problem.key, c, session.machine, versions()) for c in configurations
        ]
        if all(record is not None for record in known):
            return Finals(candidates, tuple(r.measurement for r in known if r is not None))
    finals = session.finals(variants, FINAL_ROUNDS, seconds=FINAL_SECONDS)
    if records is not None:
        for configuration, measurement in zip(configurations, finals.measurements, strict=True):
            context: dict[str, Any] = {"finals": len(variants)}
            records.add(
                Record(
                    problem.key,
                    configuration,
                    session.machine,
                    versions(),
                    measurement,
                    context,
                )
            )
    return finals


def allowed_reads(algorithm: Algorithm, session: Session) -> dict[str, tuple[Span, ...]]:
    """What may be read of each input: its estimate and what the pipeline needs anyway."""
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
    """The inputs that a run read beyond what is allowed (see `allowed_reads`)."""
    boxes = measurement.details.get("input_boxes", {})
    return tuple(
        name
        for name, spans in allowed.items()
        if any(
            low < span.min or low + extent > span.min + span.extent
            for (low, extent), span in zip(boxes.get(name, ()), spans, strict=False)
        )
    )


def limits(seconds: float = 120.0, memory_bytes: int = 8 << 30) -> Limits:
    """What a candidate may use: `seconds` to build, half as many for a run."""
    return Limits(
        build_seconds=seconds, run_seconds=max(10.0, seconds / 2), memory_bytes=memory_bytes
    )
