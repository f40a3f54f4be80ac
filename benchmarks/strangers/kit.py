"""What the strangers' files share: a program with its two sizes, inputs and outputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import halide as hl
import numpy as np

U1, U8, U16, U32 = hl.UInt(1), hl.UInt(8), hl.UInt(16), hl.UInt(32)
I8, I16, I32 = hl.Int(8), hl.Int(16), hl.Int(32)
F32, F64 = hl.Float(32), hl.Float(64)

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Program:
    """A pipeline that was not written for the scheduler.

    ``build(target, **sizes)`` gives it unscheduled where `target` is None, and scheduled by
    hand where `hand` is true and a target is given. `expected` is the answer by NumPy: from
    the inputs by name (axis d is dimension d) and the sizes, one array per output value.
    `contents` gives the range of an input's random values where the default does not fit.
    `extern` says that it calls a C function of ``externs.c``.
    """

    build: Callable[..., hl.Pipeline]
    full: Sizes
    small: Sizes
    expected: Callable[..., tuple[np.ndarray, ...]] | None = None
    contents: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    hand: bool = False
    extern: bool = False

    @property
    def name(self) -> str:
        """What it is called: as its function."""
        return self.build.__name__

    def sizes(self, small: bool) -> Sizes:
        """One of its two sizes."""
        return self.small if small else self.full

    def pipeline(self, small: bool) -> hl.Pipeline:
        """The unscheduled pipeline."""
        with warnings.catch_warnings():
            # Halide warns of every literal that is no 32-bit float exactly.
            warnings.simplefilter("ignore", RuntimeWarning)
            return self.build(None, **self.sizes(small))


def image(name: str, dtype: hl.Type, *extents: int) -> hl.ImageParam:
    """An input with estimates."""
    param = hl.ImageParam(dtype, len(extents), name)
    if extents:
        param.set_estimates([(0, extent) for extent in extents])
    return param


def scalar(name: str, dtype: hl.Type, value: float) -> hl.Param:
    """A scalar parameter with a value and an estimate."""
    param = hl.Param(dtype, name, value)
    param.set_estimate(value)
    return param


def pipeline(*outputs: tuple[hl.Func, tuple[int, ...]]) -> hl.Pipeline:
    """A pipeline from its outputs, each with the extents it is wanted at."""
    for func, extents in outputs:
        if extents:
            func.set_estimates([(0, extent) for extent in extents])
    return hl.Pipeline([func for func, _ in outputs])


def lanes(target: hl.Target, dtype: hl.Type) -> int:
    """Values of a type in a vector register."""
    return int(target.natural_vector_size(dtype))


def clamped(param: hl.ImageParam) -> hl.Func:
    """An input whose border is repeated."""
    return hl.BoundaryConditions.repeat_edge(param)


def padded(array: np.ndarray, margin: int, axes: int = 2) -> np.ndarray:
    """The array with its border repeated in the first `axes` axes."""
    width = [(margin, margin) if d < axes else (0, 0) for d in range(array.ndim)]
    return np.pad(array, width, mode="edge")


def single(array: Any) -> tuple[np.ndarray, ...]:
    """One output of 32-bit floats."""
    return (np.asarray(array).astype(np.float32),)
