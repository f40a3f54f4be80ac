"""Build, verify, measure and record schedules of one pipeline."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tilewright.halide.emit.apply import halide_target
from tilewright.halide.execution.inputs import Inputs, describe_inputs
from tilewright.halide.execution.reference import reference
from tilewright.halide.execution.verification import tolerance
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.json import to_data, to_json
from tilewright.halide.ir.schedule import Schedule
from tilewright.measure import (
    Candidate,
    Event,
    Finals,
    Held,
    Measurement,
    RunLimits,
    Timing,
    Workers,
    finalists,
    machine_id,
)
from tilewright.records import CandidateTrial, Records, cache_directory, measure_recorded

RUNNER = "tilewright.halide.execution.runner:Runner"
HANDWRITTEN = "tilewright.halide.execution.handwritten:Handwritten"
REGISTERS = "HL_CUDA_JIT_MAX_REGISTERS"
THREADS = "HL_NUM_THREADS"


@dataclass(frozen=True)
class Source:
    """A function in a Python file that takes a ``halide.Target`` and builds a pipeline.

    `content` is a hash of the file: records of other versions of the file do not apply.
    """

    path: str
    function: str
    content: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Variant:
    """One way to run the pipeline.

    At most one of `schedule`, `serialized` and `handwritten` is given; without them, the pipeline
    runs with the schedule that it came with.

    Attributes:
        schedule: a schedule of Tilewright.
        serialized: the same pipeline with another author's schedule, as bytes.
        handwritten: a function that builds and schedules the same pipeline.
        target: the Halide target.
        name: a name for reports.
        max_registers: limit on registers per thread for the CUDA runtime; None: Halide's, 64.
        threads: the size of Halide's thread pool; None: one thread per CPU.
        env: further environment variables.
    """

    schedule: Schedule | None = None
    serialized: bytes | None = None
    handwritten: Source | None = None
    target: str = "host"
    name: str = ""
    max_registers: int | None = None
    threads: int | None = None
    env: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that the variant needs."""
        env = dict(self.env)
        if self.max_registers is not None:
            env[REGISTERS] = str(self.max_registers)
        if self.threads is not None:
            env[THREADS] = str(self.threads)
        return env

    @property
    def configuration(self) -> dict[str, Any]:
        """JSON data that identify the variant in the records of its pipeline."""
        schedule = None if self.schedule is None else to_data(self.schedule)
        data = {"schedule": schedule, "target": self.target, "env": self.environment}
        if self.serialized is not None:
            data["serialized"] = hashlib.sha256(self.serialized).hexdigest()
        if self.handwritten is not None:
            data["handwritten"] = asdict(self.handwritten)
        return data


@dataclass(frozen=True)
class Measured:
    """A variant and its measurement; `recorded` if that came from the records."""

    variant: Variant
    measurement: Measurement
    recorded: bool = False


@dataclass(frozen=True)
class Problem:
    """A pipeline with the inputs of its measurements and the expected answers.

    `reference` holds the paths of the expected answers; None: answers are not verified.
    """

    algorithm: Algorithm
    inputs: Inputs
    reference: tuple[str, ...] | None = None

    @property
    def key(self) -> str:
        """The key of the problem in the records: digests of the pipeline and of its inputs."""
        return f"halide/{self.algorithm.digest[:32]}/{self.inputs.digest[:32]}"

    def candidate(self, variant: Variant) -> Candidate:
        """Return the variant as a candidate: plain data for a worker."""
        payload = {
            "serialized": variant.serialized or self.algorithm.serialized,
            "schedule": None if variant.schedule is None else to_json(variant.schedule),
            "target": variant.target,
            "inputs": self.inputs.to_json(),
            "reference": self.reference,
            "tolerance": asdict(tolerance(self.algorithm)),
        }
        if variant.handwritten is not None:
            payload["handwritten"] = asdict(variant.handwritten)
            return Candidate(HANDWRITTEN, payload, variant.name, variant.environment)
        return Candidate(RUNNER, payload, variant.name, variant.environment)


def make_inputs(
    algorithm: Algorithm, *, seed: int = 0, contents: Mapping[str, Any] | None = None
) -> Inputs:
    """Return the inputs from `describe_inputs`, with given arrays saved in the cache directory.

    Raises `InputError` if `contents` do not fit the pipeline.
    """
    hashed = hashlib.sha256(algorithm.digest.encode())
    settled: dict[str, Any] = {}
    for name, given in sorted((contents or {}).items()):
        settled[name] = given
        if callable(given):
            spans = next((p.estimates for p in algorithm.parameters if p.name == name), ())
            settled[name] = given(tuple(span.extent for span in spans if span is not None))
        hashed.update(name.encode())
        if hasattr(settled[name], "tobytes"):
            array = settled[name]
            hashed.update(repr((array.shape, str(array.dtype))).encode() + array.tobytes())
    directory = None
    if any(hasattr(given, "tobytes") for given in settled.values()):
        directory = cache_directory() / "inputs" / hashed.hexdigest()[:32]
        directory.mkdir(parents=True, exist_ok=True)
    return describe_inputs(algorithm, seed=seed, contents=settled, directory=directory)


def preload(targets: Iterable[str]) -> tuple[str, ...]:
    """Return the modules and calls that the workers' server preloads for these targets."""
    warm = tuple(
        f"tilewright.halide.execution.runner:warm:{target}" for target in dict.fromkeys(targets)
    )
    return ("tilewright.halide.execution.runner", *warm)


def versions() -> dict[str, str]:
    """Return the software versions to record with measurements of Halide pipelines."""
    return {"halide": importlib.metadata.version("halide")}


def machine_key(target: str) -> dict[str, Any]:
    """Return a short description of this machine for the records, as a default."""
    model = machine_id().split(", ", 1)[1]
    return {"processor": model, "system": platform.system(), "target": str(halide_target(target))}


class Session:
    """Measures variants of one pipeline; workers, inputs and reference are created once.

    A session is a context manager.

    Args:
        algorithm: the pipeline, with all estimates (`tilewright.halide.frontend.source.load`).
        targets: the Halide targets of the variants.
        inputs: the inputs of all runs; by default `make_inputs` with `seed` and `contents`.
        seed: the seed of random contents.
        contents: contents of inputs, by name.
        records: stores measurements and finds earlier ones; None: no records.
        machine: JSON data that identifies this machine in the records.
        limits: limits on the time and memory of a candidate.
        timing: the number and length of a candidate's samples.
        jobs: the number of candidates to build at once; by default one per usable CPU.
        verify: compare answers with the reference.
        remeasure: measure candidates again even if the records have them.
        references: the folder for reference answers; by default in the cache directory.
        on_event: called with each `Event` of the workers.
        deadline: the time of `time.monotonic` at which measuring ends: `measure` then stops,
            `finals` returns the rounds so far, and `prepare` raises `OutOfTimeError`.

    Raises:
        WorkersError: no worker can be started.
        InputError: the inputs cannot be made.
        ReferenceError: the reference cannot be computed (at the first measurement).
    """

    def __init__(
        self,
        algorithm: Algorithm,
        *,
        targets: Sequence[str] = ("host",),
        inputs: Inputs | None = None,
        seed: int = 0,
        contents: Mapping[str, Any] | None = None,
        records: Records | None = None,
        machine: Mapping[str, Any] | None = None,
        limits: RunLimits | None = None,
        timing: Timing | None = None,
        jobs: int | None = None,
        verify: bool = True,
        remeasure: bool = False,
        references: str | os.PathLike[str] | None = None,
        on_event: Callable[[Event], object] | None = None,
        deadline: float | None = None,
    ) -> None:
        self.inputs = inputs or make_inputs(algorithm, seed=seed, contents=contents)
        self.problem = Problem(algorithm, self.inputs)
        self.limits = limits or RunLimits()
        self.timing = replace(timing or Timing(), verify=verify)
        self.workers = Workers(jobs=jobs, preload=preload(targets))
        self.records = records
        self.machine: Mapping[str, Any] = (
            machine if machine is not None else machine_key(targets[0])
        )
        self._verify = verify
        self.remeasure = remeasure
        self.note: Callable[[Measurement], Measurement] | None = None
        self._references = None if references is None else Path(references)
        self._on_event = on_event
        self.deadline = deadline

    def __enter__(self) -> Session:
        """Return the session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session."""
        self.close()

    def close(self) -> None:
        """Stop the workers."""
        self.workers.close()

    def prepare(self) -> Problem:
        """Return the problem; compute its reference first if it is needed and missing."""
        if self._verify and self.problem.reference is None:
            paths = reference(
                self.problem.algorithm,
                self.inputs,
                workers=self.workers,
                limits=self.limits,
                directory=self._references,
                on_event=self._on_event,
                deadline=self.deadline,
            )
            self.problem = replace(self.problem, reference=paths)
        return self.problem

    def measure(self, variants: Iterable[Variant]) -> Iterator[Measured]:
        """Yield measurements of the variants as they arrive; recorded ones are not repeated."""
        trials = (
            CandidateTrial(variant.configuration, partial(self._candidate, variant), variant)
            for variant in variants
        )
        for outcome in measure_recorded(
            trials,
            self.records,
            problem=self.problem.key,
            machine=self.machine,
            versions=versions(),
            limits=self.limits,
            timing=self.timing,
            context={"outputs": list(self.problem.algorithm.outputs)},
            remeasure=self.remeasure,
            note=self.note,
            workers=self.workers,
            on_event=self._on_event,
            deadline=self.deadline,
        ):
            yield Measured(outcome.trial.tag, outcome.measurement, outcome.recorded)

    def _candidate(self, variant: Variant) -> Candidate:
        return self.prepare().candidate(variant)

    def hold(self, variant: Variant) -> Held:
        """Return the variant as one that stays in a worker, to be timed between others."""
        problem = self.prepare()
        return Held(
            problem.candidate(variant),
            self.workers,
            self.limits,
            self.timing,
            deadline=self.deadline,
        )

    def finals(
        self,
        variants: Sequence[Variant],
        rounds: int = 10,
        *,
        seconds: float | None = None,
        brief: Collection[str] = (),
    ) -> Finals:
        """Return times of the variants in interleaved rounds, without the records.

        Variants named in `brief` only take part in the first two rounds. No round starts after
        `seconds`.
        """
        problem = self.prepare()
        return finalists(
            [problem.candidate(variant) for variant in variants],
            rounds,
            seconds=seconds,
            limits=self.limits,
            verify=self._verify,
            workers=self.workers,
            on_event=self._on_event,
            deadline=self.deadline,
            brief=brief,
        )
