"""Checks that operands fit each other: compiled code would read beyond those that do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.prediction.data.kernel import Operands
from tilewright.prediction.errors import PredictionError


def check(kernel: str, operands: Operands) -> None:
    """Raise PredictionError, with their shapes, if operands do not fit each other."""
    if not _FITS[kernel](operands):
        shapes = ", ".join(f"{name} {_shape(thing)}" for name, thing in operands.items())
        raise PredictionError(f"the operands of {kernel} do not fit each other: {shapes}")


def _shape(thing: Any) -> tuple[int, ...]:
    return thing.shape if hasattr(thing, "shape") else np.shape(thing)


def _matrices(operands: Operands) -> bool:
    a, b = _shape(operands["a"]), _shape(operands["b"])
    return len(a) == 2 and len(b) == 2 and a[1] == b[0]


def _matrix_and_vector(operands: Operands) -> bool:
    a, x = _shape(operands["a"]), _shape(operands["x"])
    return len(a) == 2 and len(x) == 1 and a[1] == x[0]


def _image_and_filter(operands: Operands) -> bool:
    a, w = _shape(operands["a"]), _shape(operands["w"])
    return len(a) == 2 and len(w) == 2 and 0 < w[0] == w[1] <= min(a)


def _image_and_window(operands: Operands) -> bool:
    return len(_shape(operands["a"])) == 2 and int(operands["s"]) >= 1


_FITS: dict[str, Callable[[Operands], bool]] = {
    "matmul": _matrices,
    "matvec": _matrix_and_vector,
    "convolution": _image_and_filter,
    "pooling": _image_and_window,
}
