"""Measurement of a program's best-ranked kernels; the fastest correct one is the result.

Derived programs are ranked before any of them runs. Worker processes compile the top ones, compare
their results with the interpreter's and time them; every measurement is recorded. The fastest are
then timed in turn with the program as written, so that the speedup compares times of one
interleaved run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import tilewright
from tilewright.files import scratch_folder
from tilewright.measure import (
    Candidate,
    ConfidenceInterval,
    Measurement,
    RunLimits,
    Timing,
    VerifyResult,
    finalists,
    machine_id,
)
from tilewright.patterns import nodes as n
from tilewright.patterns.check import requirements
from tilewright.patterns.codegen.generate import generate
from tilewright.patterns.codegen.grid import ThreadGrid
from tilewright.patterns.compiling import compile
from tilewright.patterns.errors import LoweringError, SizeError
from tilewright.patterns.features import Features
from tilewright.patterns.interpreter import interpret
from tilewright.patterns.json_form import from_json, to_json
from tilewright.patterns.ranking.candidates import candidates, rank
from tilewright.patterns.ranking.cpu import CpuFeatures, cpu_features, cpu_vector
from tilewright.patterns.ranking.models import PerformanceModel
from tilewright.patterns.ranking.trained import cpu_model
from tilewright.patterns.rewriting.exploration import ExplorationSettings, explore
from tilewright.patterns.rewriting.strategies import Derivation
from tilewright.patterns.sizing import with_sizes
from tilewright.patterns.verification import random_inputs, relative_error
from tilewright.records import CandidateTrial, Records, digest, measure_recorded
from tilewright.report import units
from tilewright.report.standing import Standing, standing

TOLERANCE = 1e-4  # relative to the largest result; f32 rounds to 6e-8, and sums are regrouped
FINALISTS = 3  # kernels timed in turn with the program as written
ROUNDS = 10  # rounds of that
CUTOFF = 4.0  # multiple of the best time at which timing of a kernel stops
BUILDER = "tilewright.patterns.tuning:build_kernel"
PRELOAD = ("tilewright.patterns.tuning",)


@dataclass(frozen=True, eq=False)
class RankedKernel:
    """A derived program with its predicted time.

    Args:
        derivation: the derivation of the program.
        launch: work-groups and threads; None for the default, and for C.
        features: the features that the prediction uses; None for the program as written.
        predicted: seconds (an estimate), or the ratio to the best time (a fitted model).
    """

    derivation: Derivation
    launch: ThreadGrid | None = None
    features: Features | CpuFeatures | None = None
    predicted: float | None = None


@dataclass(frozen=True, eq=False)
class MeasuredKernel:
    """A kernel and its measurement.

    Args:
        number: its rank, from 1; 0 for the program as written.
        recorded: whether the measurement comes from the records.
        final: the times of the interleaved rounds, if the kernel took part.
    """

    number: int
    kernel: RankedKernel
    measurement: Measurement
    recorded: bool = False
    final: Measurement | None = None

    @property
    def seconds(self) -> float:
        """The median time per run, from the interleaved rounds if the kernel took part."""
        return (self.final or self.measurement).median

    @property
    def lower_bound(self) -> bool:
        """Whether runs were cut short, so that `seconds` is a lower bound."""
        return self.final is None and self.measurement.lower_bound

    @property
    def time(self) -> str:
        """`seconds` as text, with ``>`` for a lower bound; or why there is no time."""
        if not self.measurement.ok:
            return self.measurement.status.replace("_", " ")
        return "> " * self.lower_bound + units.seconds(self.seconds)


@dataclass(frozen=True, eq=False)
class PatternTuning:
    """The outcome of `tune_kernels`.

    Args:
        program: the program, with numbers for its sizes.
        target: ``c`` or ``opencl``.
        considered: the number of kernels that were ranked.
        measured: the measured kernels, in the order of the ranking.
        best: the fastest kernel with a correct result; None if there is none.
        speedup: the speedup of `best` over the program as written, with its interval; None if one
            of them has no final times.
    """

    program: n.Pattern
    target: str
    considered: int
    measured: tuple[MeasuredKernel, ...]
    best: MeasuredKernel | None
    speedup: ConfidenceInterval | None

    @property
    def standing(self) -> Standing | None:
        """The best kernel compared with the program as written; None without `speedup`."""
        if self.speedup is None:
            return None
        s = self.speedup
        return standing("the program as it is written", s.estimate, (s.low, s.high))


@dataclass(frozen=True)
class TuningOptions:
    """Options of the measurement.

    Args:
        top: the number of top-ranked kernels to measure.
        threads: cores per C kernel; None for all.
        seed: the seed of the random inputs.
        limits: time and memory limits per kernel.
        jobs: the number of concurrent builds.
        deadline: when to stop, as ``time.monotonic`` counts; None for no limit.
        remeasure: measure recorded kernels again.
    """

    top: int = 20
    threads: int | None = None
    seed: int = 0
    limits: RunLimits = field(default_factory=RunLimits)
    jobs: int | None = None
    deadline: float | None = None
    remeasure: bool = False


def ranked_for_cpu(
    program: n.Pattern,
    sizes: Mapping[str, int],
    settings: ExplorationSettings,
    model: PerformanceModel | None = None,
    threads: int | None = None,
) -> list[RankedKernel]:
    """Return the C kernels of a program in the order of a model's predictions, best first.

    Args:
        program: the program.
        sizes: the values of its sizes, by name.
        settings: the settings of the exploration.
        model: a model over `CPU_FEATURES`; None for `ranking.cpu_model`.
        threads: cores per kernel; None for all.

    Raises:
        PatternTypeError: the program is not well typed.
        SizeError: a size is unknown, or does not fit the program.
        LoweringError: neither the program nor any derived program can be compiled.
    """
    cores = threads or len(os.sched_getaffinity(0))
    found = []
    for derivation in explore(with_sizes(program, sizes), settings):
        try:
            for requirement in requirements(derivation.program):
                requirement.check({})
            counted = cpu_features(generate(derivation.program), {})
        except (LoweringError, SizeError):
            continue
        found.append((derivation, counted))
    if not found:
        generate(with_sizes(program, sizes))
        return []
    table = np.array([cpu_vector(counted, cores) for _, counted in found])
    values = (model or cpu_model(program)[0]).predict(table)
    return [
        RankedKernel(found[i][0], None, found[i][1], float(1 / values[i]))
        for i in np.argsort(-values, kind="stable")
    ]


def ranked_for_gpu(
    program: n.Pattern,
    sizes: Mapping[str, int],
    settings: ExplorationSettings,
    model: PerformanceModel,
    launches: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[RankedKernel]:
    """Return a program's kernels for a grid of threads in the order of a model's predictions.

    Args:
        program: the program.
        sizes: the values of its sizes, by name.
        settings: the settings of the exploration.
        model: a model over GPU features.
        launches: the maximum number of launches per derived program.
        on_progress: called with the numbers of programs done and of all programs.

    Raises:
        PatternError: as `ranking.candidates`.
    """
    found = candidates(program, sizes, settings, launches, on_progress=on_progress)
    return [
        RankedKernel(c.derivation, c.launch, c.features, 1 / value)
        for value, c in rank(found, model)
        if value > 0
    ]


def tune_kernels(
    program: n.Pattern,
    ranked: Sequence[RankedKernel],
    target: str,
    options: TuningOptions,
    records: Records | None = None,
    on_measured: Callable[[MeasuredKernel], None] | None = None,
) -> PatternTuning:
    """Measure the top kernels of a ranking, and the program as written.

    Args:
        program: the program, with numbers for its sizes.
        ranked: its kernels, best first.
        target: ``c`` or ``opencl``.
        options: the options of the measurement.
        records: where measurements are looked up and stored; None to do neither.
        on_measured: called with each measurement.

    Raises:
        PatternError: a size has no value, or an input has a type that has no random values.
    """
    chosen = [RankedKernel(Derivation(program)), *ranked[: options.top]]
    inputs = random_inputs(program, None, options.seed)
    with scratch_folder("tilewright-patterns-tuning-") as folder:
        expected = folder / "expected.npz"
        np.savez(expected, *_leaves(interpret(program, *inputs)))
        trials = [_trial(k, i, target, program, expected, options) for i, k in enumerate(chosen)]
        measured: list[MeasuredKernel] = []
        for outcome in measure_recorded(
            trials,
            records,
            problem=_problem(program, target, options),
            machine={"id": machine_id(), "threads": options.threads},
            versions={"tilewright": tilewright.__version__},
            limits=options.limits,
            timing=Timing(cutoff_ratio=CUTOFF),
            remeasure=options.remeasure,
            jobs=options.jobs,
            preload=PRELOAD,
            deadline=options.deadline,
        ):
            number = outcome.trial.tag
            one = MeasuredKernel(number, chosen[number], outcome.measurement, outcome.recorded)
            measured.append(one)
            if on_measured is not None:
                on_measured(one)
        measured.sort(key=lambda m: m.number)
        speedup = _final_rounds(measured, trials, options)
    right = [m for m in measured if m.number and m.measurement.ok]
    # The finalists were the fastest, and only their times were taken under equal conditions.
    best = min(right, key=lambda m: (m.final is None, m.seconds), default=None)
    return PatternTuning(
        program,
        target,
        len(ranked),
        tuple(measured),
        best,
        speedup.get(best.number) if best else None,
    )


def _problem(program: n.Pattern, target: str, options: TuningOptions) -> str:
    return f"patterns {target} {digest([to_json(program), options.seed])[:32]}"


def _trial(
    kernel: RankedKernel,
    number: int,
    target: str,
    start: n.Pattern,
    expected: Path,
    options: TuningOptions,
) -> CandidateTrial:
    launch = None if kernel.launch is None else kernel.launch.to_json()
    program = to_json(kernel.derivation.program)
    payload = {
        "program": program,
        "start": to_json(start),
        "launch": launch,
        "target": target,
        "threads": options.threads,
        "seed": options.seed,
        "expected": str(expected),
    }
    configuration = {"program": digest(program), "launch": launch}
    return CandidateTrial(configuration, Candidate(BUILDER, payload, str(number)), number)


def _final_rounds(
    measured: list[MeasuredKernel], trials: Sequence[CandidateTrial], options: TuningOptions
) -> dict[int, ConfidenceInterval]:
    """Time the fastest kernels in turn with the program as written; add the times to `measured`.

    Returns:
        Speedups over the program as written, by rank.
    """
    right = sorted((m for m in measured if m.measurement.ok), key=lambda m: m.measurement.median)
    runners = [m for m in right if m.number][:FINALISTS] + [m for m in right if not m.number]
    late = options.deadline is not None and time.monotonic() >= options.deadline
    if late or len(runners) < 2:
        return {}
    made = [trials[m.number].candidate for m in runners]
    finals = finalists(
        [c for c in made if isinstance(c, Candidate)],
        ROUNDS,
        limits=options.limits,
        verify=False,  # verified when first measured
        preload=PRELOAD,
        deadline=options.deadline,
    )
    timed = {
        m.number: final
        for m, final in zip(runners, finals.measurements, strict=True)
        if final.ok and final.times
    }
    measured[:] = [replace(m, final=timed.get(m.number)) for m in measured]
    return {number: finals.ratio_interval("0", str(number)) for number in timed if 0 in timed}


def _leaves(result: Any) -> list[Any]:
    """Return the arrays of a result, which may be a tuple of tuples."""
    if isinstance(result, tuple):
        return [leaf for part in result for leaf in _leaves(part)]
    return [np.asarray(result)]


class _Runnable:
    """A kernel in a worker process, with the methods of `tilewright.measure.Candidate`."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        start, target = from_json(payload["start"]), payload["target"]
        launch = None if payload["launch"] is None else ThreadGrid.from_json(payload["launch"])
        kernel = compile(from_json(payload["program"]), target, launch=launch)
        options = {"threads": payload["threads"]} if target == "c" else {}
        self._bound = kernel.bound(*random_inputs(start, None, payload["seed"]), **options)
        self._expected = payload["expected"]
        self.run = self._bound.run

    def verify(self) -> VerifyResult:
        """Run the kernel once, and compare its result with the interpreter's."""
        self.run()
        found = _leaves(self._bound.result())
        with np.load(self._expected) as expected:
            wanted = [expected[name] for name in expected.files]
        error = relative_error(tuple(found), tuple(wanted))
        message = f"relative error {error:.2g} of the interpreter's result"
        return VerifyResult(error <= TOLERANCE, message, error)


def build_kernel(payload: Mapping[str, Any]) -> _Runnable:
    """Build a kernel in a worker process."""
    return _Runnable(payload)
