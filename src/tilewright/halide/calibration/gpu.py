"""Fit the time model of a GPU to a file of measured schedules.

Each line of the file is a JSON object for one schedule. The file may be compressed (``.gz``).

| key | meaning |
|---|---|
| `program` | the pipeline: an example, ``FILE.py:function`` or ``FILE.hlpipe`` |
| `size` | arguments of the function (optional) |
| `estimates` | missing sizes and values of the pipeline, as for `schedule` (optional) |
| `schedule` | the schedule, as in `Result.to_json`; lines without one are skipped |
| `seconds` | time of a run with launches; or `cycles`: cycles of all kernels without launches |
| `kernels` | the launches: ``kernel``, ``blocks``, ``threads``, ``cycles`` (optional) |
| `right` | whether the answers were right (optional); if not, the line is skipped |
"""

from __future__ import annotations

import gzip
import math
import statistics
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.halide.analysis.scheduled_nest import UNKNOWN
from tilewright.halide.ir.json import from_data
from tilewright.halide.schedulers.analytic.constant import sheet
from tilewright.halide.schedulers.analytic.gpu.calibrated import fitted_constants
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.fitting import (
    PRIORS,
    Observation,
    fitted,
    predicted_cycles,
)
from tilewright.halide.schedulers.analytic.gpu.recorded import observation
from tilewright.halide.schedulers.prediction import schedule_nest
from tilewright.halide.schedulers.task import Task, make_task
from tilewright.machines import GpuCalibration, GpuMachine, gpu_facts
from tilewright.shapes import damaged, parse_json

# The number of fitted constants: fewer schedules cannot determine them.
LEAST_SCHEDULES = len(PRIORS)
# Loads a pipeline, given the `program` and the `size` of a record.
Load = Callable[[str, Mapping[str, Any]], Any]


def calibrate_gpu(path: str | Path, machine: GpuMachine, load: Load) -> GpuCalibration:
    """Return the calibration of the time model, fitted to the records in a file.

    Args:
        path: the file of records.
        machine: the GPU on which the records were measured.
        load: returns a pipeline, given the `program` and the `size` of a record.

    Raises:
        TilewrightError: the file cannot be read, a line is not a record, or too few records are
            usable; also the errors of `load`.
    """
    if machine.clock_hz is None or machine.memory_bandwidth is None:
        raise TilewrightError(
            f"the clock and the bandwidth of {machine.name} are unknown, so that times cannot be "
            "predicted: describe the GPU in a JSON file (--gpu FILE.json)"
        )
    observed = list(_observed(Path(path), machine, load))
    if len(observed) < LEAST_SCHEDULES:
        raise TilewrightError(
            f"{path} has {len(observed)} usable schedules, a fit needs {LEAST_SCHEDULES}: measure "
            "more of them, of several programs"
        )
    found = fitted(observed, machine)
    return GpuCalibration(
        gpu_facts(machine),
        datetime.now(UTC).isoformat(timespec="seconds"),
        len(observed),
        tuple(dict.fromkeys(one.program for one in observed)),
        _error(observed, machine, found),
        _error(observed, machine, GpuConstants()),
        {name: float(f"{getattr(found, name):.6g}") for name in PRIORS},
    )


def _error(observed: Sequence[Observation], machine: GpuMachine, c: GpuConstants) -> float:
    """Return the median factor between predicted and measured times (1: equal)."""
    assert machine.clock_hz is not None
    predicted = predicted_cycles(observed, machine, c) / machine.clock_hz
    logs = [
        abs(math.log(p / one.seconds)) for p, one in zip(predicted.tolist(), observed, strict=True)
    ]
    return math.exp(statistics.median(logs))


def _observed(path: Path, machine: GpuMachine, load: Load) -> Iterator[Observation]:
    tasks: dict[str, Task] = {}
    for number, row in _lines(path):
        if row.get("schedule") is None or row.get("right") is False:
            continue
        place = f"line {number} of {path}"
        program, size = row.get("program"), row.get("size") or {}
        if not isinstance(program, str):
            raise TilewrightError(f'{place}: "program" is missing or not a string')
        if not isinstance(size, dict):
            raise TilewrightError(f'{place}: "size" is not an object')
        key = repr((program, sorted(size.items()), row.get("estimates")))
        if key not in tasks:
            pipeline = load(program, size)
            with damaged(f'{place}: "estimates" cannot be used', TilewrightError):
                tasks[key] = make_task(pipeline, machine=machine, estimates=row.get("estimates"))
        found = _observation(row, place, program, tasks[key])
        if found is not None:
            yield found


def _observation(
    row: Mapping[str, Any], place: str, program: str, task: Task
) -> Observation | None:
    """Return the observation of a record; None if its schedule's sizes cannot be determined."""
    assert isinstance(task.machine, GpuMachine)
    c = GpuConstants()
    kernels = _kernels(row, place)
    seconds = _seconds(row, kernels, task.machine, c, place)
    try:
        schedule = from_data(row["schedule"], task.algorithm)
    except TilewrightError as error:
        raise TilewrightError(f"{place}: {error}") from error
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            nest = schedule_nest(task, schedule)
            return observation(program, nest, task.machine, c, seconds, kernels)
    except UNKNOWN:
        return None


def _kernels(row: Mapping[str, Any], place: str) -> list[dict[str, Any]]:
    """Return the recorded launches. Raises `TilewrightError` if a value is missing or invalid."""
    kernels = row.get("kernels") or []
    wanted = {"kernel": str, "blocks": list, "threads": list, "cycles": int | float}
    for kernel in kernels if isinstance(kernels, list) else [kernels]:
        for name, kind in wanted.items():
            value = kernel.get(name) if isinstance(kernel, dict) else None
            counts = value if isinstance(value, list) else [1]
            positive = all(isinstance(n, int) and n > 0 for n in counts)
            if not isinstance(value, kind) or not positive:
                raise TilewrightError(
                    f'{place}: a launch in "kernels" has {name} {value!r}: give "kernel" (its '
                    'name), "blocks" and "threads" (positive extents), and "cycles"'
                )
    return list(kernels)


def _seconds(
    row: Mapping[str, Any],
    kernels: Sequence[Any],
    machine: GpuMachine,
    c: GpuConstants,
    place: str,
) -> float:
    """Return the seconds of a run; with recorded cycles, the time of launches is added."""
    for name in ("seconds", "cycles"):
        value = row.get(name)
        if value is None:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not (0.0 < value < math.inf):
            raise TilewrightError(f'{place}: "{name}" is {value!r}, not a positive number')
        if name == "seconds":
            return float(value)
        assert machine.clock_hz is not None
        return float(value / machine.clock_hz + c.launch_seconds * max(len(kernels), 1))
    raise TilewrightError(f'{place} has neither "seconds" nor "cycles"')


def fitted_numbers(calibration: GpuCalibration) -> list[tuple[str, float, str]]:
    """Return the constants that a calibration sets, as (name, value, unit)."""
    return [
        (each.name, each.value, each.unit)
        for each in sheet(fitted_constants(calibration))
        if each.name in calibration.constants
    ]


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a file of JSON lines."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                row = parse_json(line, f"line {number} of {path}", TilewrightError)
                if not isinstance(row, dict):
                    raise TilewrightError(f"line {number} of {path} is not a JSON object")
                yield number, row
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TilewrightError(f"cannot read {path}: {reason}") from error
