"""The reference answers for verification, computed once and kept on disk."""

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
    """The pipeline could not be run even with its plainest schedules."""


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
    """Return paths of ``.npy`` files with every value of every output, axis d dimension d.

    They are computed in a worker, on the CPU, unless they are in `directory` (by default
    ``references`` in the cache directory) since an earlier run; the folder is kept below
    4 GB. The pipeline runs with its Funcs at root
    (`tilewright.halide.execution.runner.Reference`), and wholly unscheduled where that
    fails, with at least 10 minutes of time, but not beyond the `deadline` (of
    `time.monotonic`).

    Raises `ReferenceError` if neither runs, saying why, `OutOfTimeError` at the deadline.
    """
    root = directory or cache_directory() / "references"
    key = hashlib.sha256(f"{algorithm.digest} {inputs.digest}".encode()).hexdigest()[:32]
    count = sum(len(output.types) for output in inputs.outputs)
    home = root / key
    paths = tuple(str(home / f"{i}.npy") for i in range(count))
    with contextlib.suppress(OSError):
        os.utime(home)  # the least recently used go first
    if home.exists():
        return paths
    root.mkdir(parents=True, exist_ok=True)
    patient = replace(
        limits,
        build_seconds=max(limits.build_seconds, _SECONDS),
        run_seconds=max(limits.run_seconds, _SECONDS),
        memory_bytes=max(limits.memory_bytes, _most_memory()),
    )
    failures = []
    for inline in (False, True):
        with scratch_folder(".draft-", root) as draft:
            measurement = _measure(
                _candidate(algorithm, inputs, draft, inline), patient, workers, on_event, deadline
            )
            if measurement.ok:
                with contextlib.suppress(OSError):  # another process was first: as good
                    draft.rename(home)
                _trim(root, keep=home)
                return paths
            failures.append(f"{measurement.status}: {measurement.message}{_printed(measurement)}")
    raise ReferenceError(
        "the pipeline could not be run to compute reference answers. With every Func at "
        f"root: {failures[0]}. Unscheduled: {failures[1]}. Try smaller estimates, other inputs, "
        "or more memory"
    )


def _candidate(algorithm: Algorithm, inputs: Inputs, directory: Path, inline: bool) -> Candidate:
    """Return the work of computing reference answers into a directory."""
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
    """Return the worker's output without its traceback, such as messages of the JIT compiler."""
    lines = measurement.output.partition("Traceback (most recent")[0].split("\n")
    text = " ".join(line.strip() for line in lines if line.strip())
    return f" ({text[-300:]})" if text else ""


def _most_memory() -> int:
    import psutil

    return int(0.75 * psutil.virtual_memory().total)


def _trim(root: Path, keep: Path) -> None:
    """Remove the least recently used references beyond what may be kept.

    Another process may do the same: a folder that has disappeared counts as empty. A folder is
    moved away before it is removed, so that a process finds all of it or nothing.
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
                if home.stat().st_mtime == used:  # else another process has just begun to use it
                    home.rename(old / home.name)
