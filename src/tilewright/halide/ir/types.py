"""Halide's types as NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.halide.ir.algorithm import Type


def numpy_type(kind: Type) -> np.dtype[Any]:
    """Return NumPy's type of the same bits; NumPy has no bfloat16, so that is ``uint16``."""
    if kind.code == "bfloat":
        return np.dtype(np.uint16)
    if kind == Type("uint", 1):
        return np.dtype(np.bool_)
    return np.dtype(f"{kind.code}{kind.bits}")
