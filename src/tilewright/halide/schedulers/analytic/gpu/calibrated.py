"""The constants of a GPU: the defaults, or values fitted to measurements of it."""

from __future__ import annotations

import dataclasses
from typing import Any

from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.machines import GpuCalibration


def fitted_constants(calibration: GpuCalibration | None) -> GpuConstants:
    """Return the constants of a calibration, with defaults for those that it does not have."""
    if calibration is None:
        return GpuConstants()
    known = {field.name for field in dataclasses.fields(GpuConstants)}
    given: dict[str, Any] = {
        name: value for name, value in calibration.constants.items() if name in known
    }
    return GpuConstants(**given)


def description(calibration: GpuCalibration | None) -> str:
    """Return a short text on the origin of the time model's constants."""
    if calibration is None:
        return (
            "fitted to simulations of a V100 (fit to measurements: tilewright machine "
            "--calibrate-gpu)"
        )
    count, programs = calibration.schedules, len(calibration.programs)
    return (
        f"fitted to {count} schedules of {programs} programs measured on this GPU on "
        f"{calibration.date[:10]} (ignore: --no-calibration)"
    )
