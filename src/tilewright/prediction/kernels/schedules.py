"""Measures thousands of schedules of one Halide pipeline as variants of one kernel.

A `ScheduleFamily` is a pipeline of a size and a schedule for every choice of split factors; the
factors are features of the run time, as is the size (Section V of the paper).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np

from tilewright.halide import Session, Variant, load, versions
from tilewright.halide.ir import Algorithm, Schedule
from tilewright.measure import Measurement, RunLimits, Timing
from tilewright.prediction.data.collect import REPEATS, machine
from tilewright.prediction.data.runs import Runs
from tilewright.prediction.errors import PredictionError
from tilewright.records import Records

Factors: TypeAlias = Mapping[str, int]

# A first run on fresh memory takes up to ten times as long as later ones. If it ends within
# `seconds`, it is a warm-up, and others follow.
TIMING = Timing(warmup=1, min_samples=3, max_samples=20, seconds=2.0, precision=0.01)
CLOSE = 2.0  # times the fastest time of its size: up to this, a schedule gets further rounds
LIMITS = RunLimits(build_seconds=60.0, run_seconds=6.0, memory_bytes=6 << 30)


@dataclass(frozen=True)
class ScheduleFamily:
    """Schedules of a pipeline that differ in their split factors.

    Args:
        name: such as ``halide_blur``.
        features: the size and the factors, with units.
        complexity: the number of operations, an expression of the features.
        sizes: those of the paper's Table IV.
        pipeline: builds the unscheduled ``halide.Pipeline`` of a size.
        schedule: the schedule of a choice of factors.
        draw: draws factors for a size.
        target: the Halide target.
        work: expressions of the features that determine the time more directly: shares of
            vectors, tiles, bytes (for `tilewright.prediction.models.forest.Forest`).
    """

    name: str
    features: Mapping[str, str]
    complexity: str
    sizes: tuple[int, ...]
    pipeline: Callable[[int], Any]
    schedule: Callable[[Algorithm, Factors], Schedule]
    draw: Callable[[np.random.Generator, int], Factors]
    target: str = "host"
    work: tuple[str, ...] = ()

    def algorithm(self, size: int) -> Algorithm:
        """Return the pipeline of a size as it is before scheduling."""
        return load(self.pipeline(size))

    def candidates(self, size: int, count: int, seed: int = 0) -> list[dict[str, int]]:
        """Distinct choices of factors, drawn from the seed; fewer if there are fewer."""
        found: dict[tuple[int, ...], dict[str, int]] = {}
        for index in range(50 * count):
            factors = dict(self.draw(np.random.default_rng([seed, size, index]), size))
            found.setdefault(tuple(factors.values()), factors)
            if len(found) == count:
                break
        return list(found.values())


@dataclass(frozen=True)
class TriedFactors:
    """A choice of factors with the counts of its measurements."""

    factors: Factors
    measurement: Measurement
    repeat: int = 0


def measure_candidates(
    family: ScheduleFamily,
    size: int,
    candidates: Sequence[Factors],
    records: Records | None = None,
    *,
    repeat: int = 0,
    verify: bool = True,
    timing: Timing = TIMING,
    limits: RunLimits = LIMITS,
    deadline: float | None = None,
) -> Iterator[TriedFactors]:
    """Build, verify and time schedules, each in a separate worker process.

    Recorded schedules are not measured again. `repeat` distinguishes independent measurements of
    the same schedule. A schedule that cannot be built or run, is wrong, or exceeds the limits has a
    measurement that says so. Ends early at the `deadline`, of ``time.monotonic``.

    Raises:
        PredictionError: a candidate of another size.
    """
    strays = [factors for factors in candidates if factors["n"] != size]
    if strays:
        raise PredictionError(f"the candidate {dict(strays[0])} is not of size {size}")
    algorithm = family.algorithm(size)
    by_name = {_label(factors): factors for factors in candidates}
    variants = (
        Variant(family.schedule(algorithm, factors), target=family.target, name=name)
        for name, factors in by_name.items()
    )
    place = {**machine(), "target": family.target, "repeat": repeat}
    with Session(
        algorithm,
        targets=[family.target],
        records=records,
        machine=place,
        timing=timing,
        limits=limits,
        verify=verify,
        deadline=deadline,
    ) as session:
        for measured in session.measure(variants):
            yield TriedFactors(by_name[measured.variant.name], measured.measurement, repeat)


def collect_schedules(
    family: ScheduleFamily,
    sizes: Sequence[int],
    count: int,
    seed: int = 0,
    records: Records | None = None,
    *,
    also: Callable[[int], Sequence[Factors]] = lambda size: (),
    verify_up_to: int | None = None,
    retime: bool = True,
    rounds: int = 1,
    deadline: float | None = None,
    keep_interrupted: bool = False,
    on_progress: Callable[[int, int], object] | None = None,
    **how: Any,
) -> tuple[Runs, bool]:
    """Measure candidates of every size twice; return the runs, and whether all were measured.

    Args:
        family: the family of schedules.
        sizes: the sizes of the pipeline.
        count: the number of candidates per size.
        seed: the seed from which candidates are drawn.
        records: where measurements are kept and looked up.
        also: candidates per size that are measured in any case.
        verify_up_to: the largest size whose answers are verified; by default all are.
        retime: whether everything is measured a second time.
        rounds: the maximum number of times that a schedule is built and started for one
            measurement: all in the first round, in further rounds those near the fastest of their
                size (`CLOSE`).
        deadline: when to stop, of ``time.monotonic``.
        keep_interrupted: whether Ctrl-C ends the collection as the deadline does; by default the
            KeyboardInterrupt is raised.
        on_progress: called with the number of measurements done and their total.
        **how: `timing` and `limits` of `measure_candidates`.
    """
    wanted = {size: _wanted(family, size, count, seed, also(size)) for size in sizes}
    stride = REPEATS if retime else 1  # rounds of the first and of the second take turns
    total = sum(map(len, wanted.values())) * rounds * stride
    found: dict[str, dict[int, Measurement]] = {
        _label(factors): {} for candidates in wanted.values() for factors in candidates
    }
    settled, missing, finished = 0, False, False
    with suppress(KeyboardInterrupt) if keep_interrupted else nullcontext():
        for repeat in range(rounds * stride):
            for size, candidates in wanted.items():
                if deadline is not None and time.monotonic() >= deadline:
                    return _runs(family, wanted, found, stride, seed), False
                queue = candidates if repeat < stride else _close(candidates, found)
                settled += len(candidates) - len(queue)
                verify = repeat == 0 and (verify_up_to is None or size <= verify_up_to)
                for tried in measure_candidates(
                    family,
                    size,
                    queue,
                    records,
                    repeat=repeat,
                    verify=verify,
                    deadline=deadline,
                    **how,
                ):
                    found[_label(tried.factors)][repeat] = tried.measurement
                    if on_progress is not None:
                        on_progress(settled + sum(map(len, found.values())), total)
                missing |= any(repeat not in found[_label(factors)] for factors in queue)
        finished = True
    return _runs(family, wanted, found, stride, seed), finished and not missing


def _wanted(
    family: ScheduleFamily, size: int, count: int, seed: int, also: Sequence[Factors]
) -> Sequence[Factors]:
    """Return the candidates of a size: those given, and others drawn until there are `count`."""
    given = [dict(factors) for factors in also]
    drawn = [f for f in family.candidates(size, count, seed) if f not in given]
    return [*given, *drawn][: max(count, len(given))]


def _close(
    candidates: Sequence[Factors], found: Mapping[str, Mapping[int, Measurement]]
) -> list[Factors]:
    """Return the candidates that take at most `CLOSE` times as long as the fastest."""
    times = [_typical(found[_label(factors)].values()) for factors in candidates]
    limit = CLOSE * min(times, default=math.inf)
    return [f for f, typical in zip(candidates, times, strict=True) if typical <= limit < math.inf]


def _typical(made: Iterable[Measurement]) -> float:
    """Return seconds of a typical start; infinite if one failed or none is known.

    The speed of a start depends on the memory that the process gets and on other load of the
    hardware. The median over starts counts, and within each start the median of its samples.
    """
    medians = [m.median if m.ok else math.inf for m in made]
    return statistics.median(medians) if medians else math.inf


def _runs(
    family: ScheduleFamily,
    wanted: Mapping[int, Sequence[Factors]],
    found: Mapping[str, Mapping[int, Measurement]],
    stride: int,
    seed: int,
) -> Runs:
    rows, times, again, dropped = [], [], [], []
    for factors in (f for candidates in wanted.values() for f in candidates):
        label = _label(factors)
        made = found[label]
        first = [m for repeat, m in made.items() if repeat % stride == 0]
        second = [m for repeat, m in made.items() if repeat % stride]
        if not first:
            continue
        failed = next((m for m in first if not m.ok), None)
        if failed is not None:
            dropped.append(f"{label}: {failed.status}: {failed.message.splitlines()[0][:200]}")
            continue
        rows.append([float(factors[name]) for name in family.features])
        times.append(_typical(first))
        again.append(_typical(second))
    if not rows:
        raise PredictionError(f"{family.name}: no schedule was measured; {'; '.join(dropped[:1])}")
    retimes = np.array([typical if math.isfinite(typical) else math.nan for typical in again])
    facts = {
        "kernel": family.name,
        "variant": "cpu" if family.target == "host" else family.target,
        "complexity": family.complexity,
        "features": dict(family.features),
        "dense": True,
        "threads": False,
        "machine": machine(),
        "versions": versions(),
        "date": datetime.now(UTC).date().isoformat(),
        "seed": seed,
    }
    both = None if np.isnan(retimes).all() else retimes
    runs = Runs(family.features, np.array(rows), np.array(times), both, facts, tuple(dropped))
    measurements = sum(map(len, found.values()))
    facts["noise"] = {"floor": runs.floor, "measurements": measurements}
    return runs


def _label(factors: Factors) -> str:
    return " ".join(f"{name}={value}" for name, value in factors.items())
