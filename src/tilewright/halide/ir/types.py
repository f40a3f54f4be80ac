"""Conversion of Halide's types to NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.halide.ir.algorithm import Type


def numpy_type(kind: Type) -> np.dtype[Any]:
    """Return NumPy's type with the same bits: ``uint16`` for bfloat16, which NumPy lacks."""
    if kind.code == "bfloat":
        return np.dtype(np.uint16)
    if kind == Type("uint", 1):
        return np.dtype(np.bool_)
    return np.dtype(f"{kind.code}{kind.bits}")
