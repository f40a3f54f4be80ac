"""Reference answers for verification, computed once and cached on disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.files import scratch_folder
from tilewright.halide.execution.inputs import Inputs
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.measure import (
    Candidate,
    Event,
    Measurement,
    RunLimits,
    Timing,
    Workers,
    measure_all,
)
from tilewright.records import cache_directory

_KEPT_BYTES = 4 << 30
_SECONDS = 600.0
_ONCE = Timing(warmup=0, min_samples=1, max_samples=1, sample_seconds=0.0, verify=False)


class ReferenceError(TilewrightError):
    """The pipeline could not be run even with plain schedules."""


class OutOfTimeError(TilewrightError):
    """The time limit was reached."""


def reference(
    algorithm: Algorithm,
    inputs: Inputs,
    *,
    workers: Workers,
    limits: RunLimits,
    directory: Path | None = None,
    on_event: Callable[[Event], object] | None = None,
    deadline: float | None = None,
) -> tuple[str, ...]:
    """Return paths of ``.npy`` files with the values of all outputs; axis d is dimension d.

    The answers of an earlier run are reused. Otherwise a worker computes them on the CPU, with the
    Funcs at root (`tilewright.halide.execution.runner.Reference`). If that fails, the pipeline runs
    unscheduled.

    Args:
        algorithm: the pipeline.
        inputs: its inputs.
        workers: run the pipeline.
        limits: limits of the run; the time limit is raised to 10 minutes.
        directory: the cache, by default ``references`` in the cache directory. The least recently
            used answers are removed when it exceeds 4 GiB.
        on_event: called with each `Event` of the workers.
        deadline: the time of `time.monotonic` at which to give up.

    Raises:
        ReferenceError: the pipeline fails in both ways; the message has the reasons.
        OutOfTimeError: the deadline was reached.
    """
    root = directory or cache_directory() / "references"
    key = hashlib.sha256(f"{algorithm.digest} {inputs.digest}".encode()).hexdigest()[:32]
    count = sum(len(output.types) for output in inputs.outputs)
    home = root / key
    paths = tuple(str(home / f"{i}.npy") for i in range(count))
    with contextlib.suppress(OSError):
        os.utime(home)  # mark as used: `_trim` removes the least recently used
    if home.exists():
        return paths
    root.mkdir(parents=True, exist_ok=True)
    patient = _patient(limits)
    failures = []
    for inline in (False, True):
        with scratch_folder(".draft-", root) as draft:
            measurement = _measure(
                _candidate(algorithm, inputs, draft, inline), patient, workers, on_event, deadline
            )
            if measurement.ok:
                with contextlib.suppress(OSError):  # another process has written it meanwhile
                    draft.rename(home)
                _trim(root, keep=home)
                return paths
            failures.append(f"{measurement.status}: {measurement.message}{_printed(measurement)}")
    raise ReferenceError(
        "the reference answers could not be computed because the pipeline failed. With all Funcs "
        f"at root: {failures[0]}. Unscheduled: {failures[1]}. Try smaller estimates, other inputs, "
        "or more memory"
    )


def _patient(limits: RunLimits) -> RunLimits:
    """Return limits that are at least those of a reference."""
    return replace(
        limits,
        build_seconds=max(limits.build_seconds, _SECONDS),
        run_seconds=max(limits.run_seconds, _SECONDS),
        memory_bytes=max(limits.memory_bytes, _most_memory()),
    )


def _candidate(algorithm: Algorithm, inputs: Inputs, directory: Path, inline: bool) -> Candidate:
    """Return the candidate that computes reference answers and saves them in a directory."""
    payload = {
        "serialized": algorithm.serialized,
        "inputs": inputs.to_json(),
        "directory": str(directory),
        "inline": inline,
    }
    return Candidate("tilewright.halide.execution.runner:Reference", payload, "reference")


def _measure(
    candidate: Candidate,
    limits: RunLimits,
    workers: Workers,
    on_event: Callable[[Event], object] | None,
    deadline: float | None,
) -> Measurement:
    for _, measurement in measure_all(
        [candidate],
        limits=limits,
        timing=_ONCE,
        workers=workers,
        on_event=on_event,
        deadline=deadline,
    ):
        return measurement
    raise OutOfTimeError("the time limit was reached before the reference answers were computed")


def _printed(measurement: Measurement) -> str:
    """Return the worker's output before its traceback, such as messages of the JIT compiler."""
    lines = measurement.output.partition("Traceback (most recent")[0].split("\n")
    text = " ".join(line.strip() for line in lines if line.strip())
    return f" ({text[-300:]})" if text else ""


def _most_memory() -> int:
    import psutil

    return int(0.75 * psutil.virtual_memory().total)


def _trim(root: Path, keep: Path) -> None:
    """Remove the least recently used references until they take at most `_KEPT_BYTES`.

    Other processes may do the same: a folder that has disappeared counts as empty. A folder is
    renamed before it is removed, so that other processes find it complete or not at all.
    """
    homes = []
    for home in root.iterdir():
        with contextlib.suppress(OSError):
            size = sum(file.stat().st_size for file in home.iterdir())
            homes.append((home.stat().st_mtime, home, size))
    total = 0
    for used, home, size in sorted(homes, reverse=True):
        total += size
        if total > _KEPT_BYTES and home != keep and not home.name.startswith("."):
            with scratch_folder(".old-", root) as old, contextlib.suppress(OSError):
                if home.stat().st_mtime == used:  # otherwise another process has just used it
                    home.rename(old / home.name)
