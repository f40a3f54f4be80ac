"""Mode ``tune``: tune the factors of the best planned structures on measured times.

The analytic scheduler decides where Funcs are computed. Its model is less reliable for tile sizes,
vector widths, unroll factors and threads. Therefore the planned schedules (on CPUs more than in
mode ``top``) are measured; then the tuner varies the factors of the best structures. Before that,
other structures are measured: those of the learned scheduler for CPUs (`MeasuredSearch`), and on
GPUs those that are best by sampled constants of the model (`SampledStructures`). The best planned
schedule takes part in the final rounds with the tuned ones: the result is never slower than that of
``top``.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.halide.analysis.gpu_launches import launches, number
from tilewright.halide.analysis.scheduled_nest import UNKNOWN, sized_nest
from tilewright.halide.execution.reference import OutOfTimeError
from tilewright.halide.execution.session import Measured, Session, Variant
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.ir.variants import running_at
from tilewright.halide.legality.check import Limits, check
from tilewright.halide.schedulers.prediction import with_prediction
from tilewright.halide.schedulers.registry import sized
from tilewright.halide.schedulers.task import Task
from tilewright.halide.search.drift import Drift, at_first_speed
from tilewright.halide.search.factors import (
    Knobs,
    find_knobs,
    replanned,
    settings,
    structure,
    turned,
)
from tilewright.halide.search.finals import Final, Rounds
from tilewright.halide.search.top_k import (
    INTERRUPTED,
    NAIVE,
    Outcome,
    Tried,
    Watch,
    allowed_reads,
    decide,
    early_end,
    key_of,
    leaders_of,
    measure_top,
    reads_beyond,
    with_final,
)
from tilewright.machines import HALIDE_JIT_MAX_REGISTERS, GpuMachine, max_registers
from tilewright.measure import Measurement

if TYPE_CHECKING:
    from tilewright.tuning import Suggestion, Tuner

MOST_STRUCTURES = 2
# The share of evaluations for other structures, and the number of structures proposed at a time.
STRUCTURE_SHARE = 0.5
BATCH = 4
# A structure within this factor of the leader also gets evaluations.
WORTH = 1.25
# The largest share of the remaining time that is reserved for the final rounds.
FINAL_SHARE = 0.25
_ASKED = 10  # maximum number of proposals per evaluation; illegal ones are not measured
# The tuner's name for the cap on registers per thread. Names of factors have an underscore.
_REGISTERS = "registers"


class Structures(Protocol):
    """Proposes schedules with other structures, and learns from their times."""

    def propose(self, count: int) -> list[PlannedSchedule]:
        """Return up to `count` schedules to measure."""

    def tell(self, schedule: Schedule, seconds: float | None) -> None:
        """Add the measured time of a schedule in seconds; None if it failed."""


@dataclass
class _Structure:
    """Planned schedules that differ only in factors, and the tuner of these factors."""

    plans: list[PlannedSchedule]
    knobs: Knobs
    tuner: Tuner
    best: float = math.inf
    waiting: list[Suggestion] = field(default_factory=list)


def measure_tuned(
    session: Session,
    planned: Sequence[PlannedSchedule],
    task: Task,
    *,
    watch: Watch,
    naive: Variant | None = None,
    evaluations: int,
    seed: int = 0,
    limits: Limits | None = None,
    structures: Structures | None = None,
    batch: int = BATCH,
    rounds: Rounds | None = None,
) -> tuple[Outcome, dict[str, str]]:
    """Measure the planned schedules and those found by tuning their factors.

    Args:
        session: measures the schedules; it has the records and the deadline.
        planned: the planned schedules, the model's best one first.
        task: the pipeline and its target.
        watch: shows the progress.
        naive: the baseline of speedups.
        evaluations: the number of schedules to measure, recorded ones included, after the planned.
        seed: the seed of the tuner.
        limits: the limits of the device, for legality checks.
        structures: proposes other structures; they get the first share of the evaluations.
        batch: the number of structures proposed at a time.
        rounds: the number and time limit of the final rounds; by default those of `Rounds`.

    Returns:
        the outcome, with the tuned schedules after the planned ones, and facts for the report.
    """
    base = measure_top(
        session, planned, target=task.target, watch=watch, naive=naive, rounds=rounds
    )
    tried = list(base.tried)
    if base.stopped:
        return base, {}
    session.remeasure = False  # the planned schedules have been remeasured
    found: list[_Structure] = []
    with early_end() as tuning, _time_left(session), _drift_noted(session, base, task):
        if structures is not None:
            share = round(STRUCTURE_SHARE * evaluations)
            watch.enter("searching structures", share)
            for each in _explored(session, structures, tried, task, share, watch, batch):
                tried.append(replace(each, rank=len(tried)))
        found = _structures(tried, task, seed)
        left = evaluations - (len(tried) - len(planned))
        if found:
            watch.enter("tuning", left)
        for each in _search(session, list(found), task, left, limits, watch):
            tried.append(replace(each, rank=len(tried)))
    if len(tried) == len(planned) and not found and not tuning.reason:
        return base, {"tuning": "nothing to tune: the schedules have no factors"}
    leaders = leaders_of(tried)
    if base.best is not None and base.best.rank not in [t.rank for t in leaders]:
        leaders.append(tried[base.best.rank])
    final, stopped = base.final, tuning.reason
    if any(t.rank >= len(planned) for t in leaders):
        variants = [_variant(t, task) for t in leaders]
        final, stopped = _decided(session, variants, watch, naive, base, stopped, rounds)
        tried = [with_final(replace(t, final=False), final) for t in tried]
    watch.message = ""
    baseline = final.measurement(NAIVE) if final is not None else None
    outcome = Outcome(tuple(tried), baseline or base.naive, stopped, final)
    return outcome, _facts(tried, planned)


@contextmanager
def _drift_noted(session: Session, base: Outcome, task: Task) -> Iterator[None]:
    """Have the session note how much slower the machine is than when `base` was decided."""
    best = base.best
    if best is None or not best.seconds:
        yield
        return
    with session.hold(_variant(best, task)) as anchor:
        session.note = Drift(anchor, best.seconds).noted
        try:
            yield
        finally:
            session.note = None


def _decided(
    session: Session,
    variants: Sequence[Variant],
    watch: Watch,
    naive: Variant | None,
    base: Outcome,
    stopped: str,
    rounds: Rounds | None,
) -> tuple[Final | None, str]:
    """Return the final rounds of the leaders (None after Ctrl-C) and why the search ended early."""
    if stopped == INTERRUPTED:
        return None, stopped
    with early_end() as deciding:
        return decide(
            session, variants, watch, _measured(naive, base.naive), rounds=rounds
        ), stopped
    return None, stopped or deciding.reason


def _measured(naive: Variant | None, measurement: Measurement | None) -> Measured | None:
    """Return the naive schedule with its measurement, if it has one."""
    if naive is None or measurement is None:
        return None
    return Measured(replace(naive, name=NAIVE), measurement)


@contextmanager
def _time_left(session: Session) -> Iterator[None]:
    """Bring the session's deadline forward to reserve time for the final rounds."""
    deadline = session.deadline
    if deadline is not None:
        left = max(0.0, deadline - time.monotonic())
        session.deadline = deadline - min(FINAL_SHARE * left, 2 * Rounds().seconds)
    try:
        yield
    finally:
        session.deadline = deadline


def _variant(tried: Tried, task: Task) -> Variant:
    return _as_variant(tried.planned, task, key_of(tried))


def _as_variant(planned: PlannedSchedule, task: Task, name: str) -> Variant:
    return Variant(
        planned.schedule, target=task.target, name=name, max_registers=planned.max_registers
    )


def register_caps(task: Task) -> tuple[int, ...]:
    """Return the limits on registers per thread to try: Halide's and the device's; CUDA only.

    With fewer registers, more threads are resident; with more registers, there are fewer spills.
    """
    machine = task.machine
    if not isinstance(machine, GpuMachine) or machine.api != "cuda":
        return ()
    caps = {HALIDE_JIT_MAX_REGISTERS, machine.max_registers_per_thread}
    return tuple(sorted(caps)) if len(caps) > 1 else ()


def capped(planned: PlannedSchedule, registers: int, task: Task) -> PlannedSchedule:
    """Return the plan, to be compiled with at most `registers` registers per thread.

    The limit is lower if the threads of a block could not have as many: such a kernel does not
    start.
    """
    registers = min(registers, _registers_of_blocks(planned.schedule, task))
    if registers <= HALIDE_JIT_MAX_REGISTERS:
        return planned
    note = (
        f"Measured with HL_CUDA_JIT_MAX_REGISTERS={registers} in the environment: "
        "set it wherever this schedule runs."
    )
    return replace(planned, max_registers=registers, notes=(*planned.notes, note))


def _registers_of_blocks(schedule: Schedule, task: Task) -> int:
    """Return the registers that each thread of the largest block may have."""
    machine = task.machine
    if not isinstance(machine, GpuMachine):
        return HALIDE_JIT_MAX_REGISTERS
    threads = machine.max_threads_per_block
    algorithm = with_clones(task.algorithm, schedule.clones)
    nest = sized_nest(algorithm, running_at(schedule, task.algorithm))
    if nest is not None:
        with suppress(*UNKNOWN):
            blocks = [math.prod(map(number, one.block)) for one in launches(nest)]
            threads = max(blocks, default=threads) or threads
    return int(max_registers(machine, threads))


def _structures(tried: Sequence[Tried], task: Task, seed: int) -> list[_Structure]:
    """Return the structures with the fastest schedules; their tuners know the measurements."""
    from tilewright.tuning import Ordinal, Space, Tuner

    groups: dict[Schedule, list[Tried]] = {}
    for one in tried:
        groups.setdefault(structure(one.planned.schedule), []).append(one)
    ranked = sorted(groups.values(), key=lambda g: min(_seconds(t) for t in g))
    result: list[_Structure] = []
    for group in ranked:
        if len(result) == MOST_STRUCTURES or not math.isfinite(min(_seconds(t) for t in group)):
            break
        group.sort(key=_seconds)
        plans = [t.planned for t in group]
        knobs = find_knobs(plans, task.algorithm)
        if not knobs.knobs:
            continue
        parameters = [Ordinal(k.name, k.values, scale="log") for k in knobs.knobs]
        caps = register_caps(task)
        if caps:
            parameters.append(Ordinal(_REGISTERS, caps, default=HALIDE_JIT_MAX_REGISTERS))
        tuner = Tuner(Space(parameters, knobs.constraints), seed=seed + len(result))
        found = _Structure(plans, knobs, tuner)
        known: set[tuple[tuple[str, int], ...]] = set()
        for t in group:
            values = settings(t.planned.schedule, knobs)
            if caps:
                values[_REGISTERS] = HALIDE_JIT_MAX_REGISTERS
            if t.measurement is not None and tuple(values.items()) not in known:
                known.add(tuple(values.items()))
                _tell(found, values, t.measurement, ())
        result.append(found)
    return result


def _seconds(tried: Tried) -> float:
    return tried.seconds if tried.seconds is not None and not tried.reads_beyond else math.inf


def _tell(
    one: _Structure, asked: Suggestion | dict[str, int], found: Measurement, beyond: Sequence[str]
) -> None:
    if found.ok and not beyond:
        one.tuner.tell(asked, found.median, lower_bound=found.lower_bound)
        if not found.lower_bound:
            one.best = min(one.best, found.median)
    else:
        status = "wrong_answer" if found.ok else found.status
        one.tuner.tell(asked, status=status, message=found.message)


def _search(
    session: Session,
    structures: list[_Structure],
    task: Task,
    evaluations: int,
    limits: Limits | None,
    watch: Watch,
) -> Iterator[Tried]:
    """Tune in a loop of ask, check, measure and tell.

    It ends when `evaluations` are done or the tuners expect little gain.
    """
    at_once = max(1, min(4, (os.cpu_count() or 1) // 2))
    done = 0
    turn = 0
    left = _ASKED * evaluations
    while done < evaluations:
        one = _next(structures, turn, evaluations - done)
        turn += 1
        if one is None:
            return
        batch: list[tuple[Suggestion, PlannedSchedule]] = []
        while len(batch) < min(at_once, evaluations - done) and left > 0:
            left -= 1
            asked = one.tuner.ask()
            if asked is None:
                break
            values: Any = asked.configuration
            schedule, doubts = sized(turned(one.plans[0].schedule, one.knobs, values), task)
            problems = check(schedule, task.algorithm, limits)
            if problems:
                one.tuner.tell(asked, status="build_failed", message=str(problems[0]))
            else:
                made = replanned(one.plans[0], schedule, task.algorithm)
                made = replace(made, notes=tuple(dict.fromkeys((*made.notes, *doubts))))
                registers = values.get(_REGISTERS, HALIDE_JIT_MAX_REGISTERS)
                batch.append((asked, with_prediction(capped(made, registers, task), task)))
        if not batch:
            structures.remove(one)
            continue
        plans = [plan for _, plan in batch]
        names = [f"tuned {asked.index}" for asked, _ in batch]
        # As zip's first argument, `measured` is exhausted: its code after the last yield runs.
        measured = _measured_batch(session, plans, names, task, watch)
        for each, (asked, _) in zip(measured, batch, strict=True):
            assert each.measurement is not None
            _tell(one, asked, each.measurement, each.reads_beyond)
            done += 1
            yield each


def _explored(
    session: Session,
    search: Structures,
    tried: Sequence[Tried],
    task: Task,
    evaluations: int,
    watch: Watch,
    batch: int,
) -> Iterator[Tried]:
    """Measure the structures that `search` proposes, until `evaluations` are done."""
    for one in tried:
        if one.measurement is not None:
            _learn(search, one)
    done = 0
    while done < evaluations:
        plans = search.propose(min(batch, evaluations - done))
        if not plans:
            return
        names = [f"structure {done + i + 1}" for i in range(len(plans))]
        for each in _measured_batch(session, plans, names, task, watch):
            _learn(search, each)
            done += 1
            yield each


def _learn(search: Structures, tried: Tried) -> None:
    assert tried.measurement is not None
    ran = tried.ok and not tried.reads_beyond
    search.tell(tried.planned.schedule, tried.measurement.median if ran else None)


def _measured_batch(
    session: Session,
    plans: Sequence[PlannedSchedule],
    names: Sequence[str],
    task: Task,
    watch: Watch,
) -> Iterator[Tried]:
    """Measure schedules, built at the same time, and yield them in the given order.

    Their times are given at the speed that the machine had in the first final rounds.
    If the time limit or the user ends it early, the measured schedules are yielded first. Then
    `OutOfTimeError` or `KeyboardInterrupt` is raised.
    """
    allowed = allowed_reads(task.algorithm, session)
    variants = [_as_variant(plan, task, name) for plan, name in zip(plans, names, strict=True)]
    measured: dict[str, Measured] = {}
    ended: BaseException = OutOfTimeError("the time limit was reached")
    try:
        for each in session.measure(variants):
            there = at_first_speed(each.measurement)
            measured[each.variant.name] = replace(each, measurement=there)
    except KeyboardInterrupt as error:
        ended = error
    for plan, name in zip(plans, names, strict=True):
        if name in measured:
            found = measured[name]
            beyond = reads_beyond(found.measurement, allowed)
            if found.measurement.ok:
                watch.best = min(watch.best or math.inf, found.measurement.median)
            yield Tried(plan, 0, found.measurement, found.recorded, beyond)
            watch.count(found.measurement)
    if len(measured) < len(plans):
        raise ended


def _next(structures: list[_Structure], turn: int, rest: int) -> _Structure | None:
    """Return the structure to tune next: the fastest, or a close second every third turn.

    Returns None if all tuners are exhausted. `rest` is the number of evaluations left.
    """
    still = [s for s in structures if not s.tuner.exhausted(rest=rest)]
    open_ones = sorted(still, key=lambda s: s.best)
    if not open_ones:
        return None
    near = len(open_ones) > 1 and open_ones[1].best <= WORTH * open_ones[0].best
    return open_ones[1] if near and turn % 3 == 2 else open_ones[0]


def _facts(tried: Sequence[Tried], planned: Sequence[PlannedSchedule]) -> dict[str, str]:
    tuned = tried[len(planned) :]
    failed = Counter(t.measurement.status for t in tuned if t.measurement and not t.ok)
    said = f"{len(tuned)} evaluations"
    if failed:
        said += f", {sum(failed.values())} failed"
    # Only times from the same rounds can be compared.
    before = min((_seconds(t) for t in tried[: len(planned)] if t.final), default=math.inf)
    after = min((_seconds(t) for t in tuned if t.final), default=math.inf)
    if math.isfinite(before) and math.isfinite(after):
        said += f"; the best is {before / after:.2f} times as fast as the best planned"
    return {"tuning": said}
