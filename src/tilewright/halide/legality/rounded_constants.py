"""Find constants that lose digits in OpenCL kernels.

Halide 21 writes every constant of an OpenCL kernel as a 32-bit float, also those of 64-bit floats
(``CodeGen_OpenCL_Dev.cpp``). ``x * 0.1`` in doubles then differs in the eighth digit. Elements of
inputs keep all digits; Halide's Python bindings round the values of a ``Param``, for all targets.
Code for CUDA and for CPUs is not affected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tilewright.halide.ir.algorithm import Algorithm, Const, Expr, Func, Op, Type, walk


def rounded_constant(algorithm: Algorithm) -> tuple[Func, float] | None:
    """Return the first constant in doubles that a 32-bit float cannot hold, and the Func with it.

    Halide multiplies by the reciprocal of a constant divisor, so the reciprocal counts as well.
    """
    for func in algorithm.funcs:
        for stage in func.stages:
            for e in walk(*stage.values, *stage.args, *stage.predicates):
                for value in _doubles(e):
                    if not _fits(value):
                        return func, value
    return None


def _doubles(e: Expr) -> Iterator[float]:
    if isinstance(e, Const) and _double(e.type):
        yield float(e.value)
    elif isinstance(e, Op) and e.name in ("cast", "div") and _double(e.type):
        last = e.args[-1]
        if isinstance(last, Const) and not isinstance(last.value, str) and last.value:
            yield 1.0 / last.value if e.name == "div" else float(last.value)


def _double(kind: Type) -> bool:
    return kind.code == "float" and kind.bits == 64


def _fits(value: float) -> bool:
    with np.errstate(over="ignore"):
        return math.isnan(value) or float(np.float32(value)) == value
