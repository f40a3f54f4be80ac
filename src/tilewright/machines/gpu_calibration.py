"""The constants of the time model as fitted to measurements of one GPU, and the file with them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.machines import calibration_file
from tilewright.machines.gpu_machine import GpuMachine

_AGAIN = "fit again (`tilewright machine --calibrate-gpu RECORDS`), or ignore it (--no-calibration)"


@dataclass(frozen=True)
class GpuCalibration:
    """Constants fitted to measured schedules of one GPU.

    `gpu` are the facts that identify it, `date` is in ISO format. The fit was to `schedules` of
    `programs`; predicted times are off by the factor `error` (median), by `default_error` with the
    default constants. `constants` has the fitted values by name.
    """

    gpu: Mapping[str, Any]
    date: str
    schedules: int
    programs: tuple[str, ...]
    error: float
    default_error: float
    constants: Mapping[str, float]


def gpu_facts(machine: GpuMachine) -> dict[str, Any]:
    """Return the facts that identify a GPU."""
    return json.loads(json.dumps(dataclasses.asdict(machine)))  # type: ignore[no-any-return]


def gpu_key(machine: GpuMachine) -> str:
    """Return a short name for a GPU, fit for a file.

    >>> from tilewright.machines import gpu
    >>> gpu_key(gpu("v100"))[:-8]
    'gpu-nvidia-tesla-v100-sxm2-'
    """
    return f"gpu-{calibration_file.short_name(machine.name, gpu_facts(machine))}"


def gpu_calibration_to_json(calibration: GpuCalibration) -> str:
    """Return a calibration as indented JSON."""
    return calibration_file.to_json(calibration)


def gpu_calibration_from_json(text: str, source: str = "a calibration") -> GpuCalibration:
    """Return the calibration of `gpu_calibration_to_json`; `TilewrightError` on anything else."""
    return calibration_file.parse(text, _calibration, source, _AGAIN)


def _calibration(data: dict[str, Any]) -> GpuCalibration:
    return GpuCalibration(
        dict(data["gpu"]),
        str(data["date"]),
        int(data["schedules"]),
        tuple(str(name) for name in data["programs"]),
        _positive("error", data["error"]),
        _positive("default_error", data["default_error"]),
        {str(k): _positive(f"constants.{k}", v) for k, v in data["constants"].items()},
    )


def _positive(name: str, value: Any) -> float:
    if isinstance(value, bool) or not math.isfinite(value) or value <= 0.0:
        raise ValueError(f"{name} is {value!r}")
    return float(value)


def read_gpu_calibration(path: Path, machine: GpuMachine) -> GpuCalibration | None:
    """Return the calibration in a file, None if the file does not exist.

    Raises `TilewrightError` if it cannot be read or is of another GPU.
    """
    text = calibration_file.text_of(path, _AGAIN)
    if text is None:
        return None
    found = gpu_calibration_from_json(text, str(path))
    if dict(found.gpu) != gpu_facts(machine):
        raise TilewrightError(
            f"{path} is of {found.gpu.get('name', 'another GPU')}, or of another description of "
            f"{machine.name}: {_AGAIN}"
        )
    return found


def write_gpu_calibration(path: Path, calibration: GpuCalibration) -> None:
    """Write a calibration completely or not at all; raises `TilewrightError` if it cannot."""
    calibration_file.write(path, gpu_calibration_to_json(calibration))
