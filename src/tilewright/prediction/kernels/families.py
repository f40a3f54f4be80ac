"""The families of Halide schedules that come with Tilewright, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilewright.prediction.errors import PredictionError
from tilewright.prediction.kernels import halide_blur, halide_fft
from tilewright.prediction.kernels.schedules import ScheduleFamily


def schedule_family(name: str) -> ScheduleFamily:
    """Return a family by name: ``halide_blur``, ``halide_blur_gpu`` or ``halide_fft``."""
    made: dict[str, Callable[[], ScheduleFamily]] = {
        "halide_blur": partial(halide_blur.family, gpu=False),
        "halide_blur_gpu": partial(halide_blur.family, gpu=True),
        "halide_fft": halide_fft.family,
    }
    if name not in made:
        raise PredictionError(f"there is no family {name!r}; there are {', '.join(made)}")
    return made[name]()
