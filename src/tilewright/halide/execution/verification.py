"""Compare the answers of two runs of a pipeline, with a tolerance for rounding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.halide.execution.contents import from_bfloat16
from tilewright.halide.ir.algorithm import Algorithm, Call, Expr, Op, Type, walk

# Allowed relative error, by the least precise float type that the pipeline computes with.
# Reordered long sums, fused multiply-adds and a device's exp and pow stay well below it; the
# errors of a wrong schedule do not.
_RELATIVE = {"bfloat16": 5e-2, "float16": 2e-2, "float32": 1e-4, "float64": 1e-9}
_OUTLIERS = 1e-4  # allowed share of values changed by rounding across a threshold
_ROUNDERS = ("floor", "ceil", "round", "trunc", "nearbyint", "rint")
_COMPARISONS = frozenset("eq ne lt le gt ge".split())
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The allowed differences from the reference.

    Attributes:
        relative: the bound on the error of floats, relative to the value's magnitude plus the mean
            magnitude of the output.
        exact: integers must be equal. Otherwise they are computed from floats, and may differ by
            1 + `relative` times the value.
        outliers: the share of values that may differ arbitrarily. It is positive only if
            comparisons or rounding of floats determine results.
    """

    relative: float = 0.0
    exact: bool = True
    outliers: float = 0.0


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """The number of wrong values, of all values, and the largest error.

    A value is wrong if it exceeds the tolerance. `max_error` is relative for floats and absolute
    for integers. `where` is the index of the first wrong value from the start of the output; axis d
    is dimension d.
    """

    wrong: int
    values: int
    max_error: float
    where: tuple[int, ...] = ()


def tolerance(algorithm: Algorithm) -> Tolerance:
    """Return the tolerance for an algorithm: exact if it computes only with integers."""
    floats: set[str] = set()
    thresholds = False
    for node in _expressions(algorithm):
        kind = node.type
        if kind.code in ("float", "bfloat"):
            floats.add(f"{kind.code}{kind.bits}")
        thresholds = thresholds or _decides(node)
    if not floats:
        return Tolerance()
    relative = max(_RELATIVE.get(name, 1e-4) for name in floats)
    return Tolerance(relative, exact=False, outliers=_OUTLIERS if thresholds else 0.0)


def _expressions(algorithm: Algorithm) -> Iterator[Expr]:
    for func in algorithm.funcs:
        for stage in func.stages:
            yield from walk(*stage.values, *stage.args, *stage.predicates)


def _decides(node: Expr) -> bool:
    """Return whether a tiny change of a float operand can change the result strongly."""
    if isinstance(node, Op):
        from_float = any(_is_float(arg.type) for arg in node.args)
        to_integer = node.name == "cast" and not _is_float(node.type)
        return from_float and (to_integer or node.name in _COMPARISONS)
    if not isinstance(node, Call):
        return False
    if node.name == "saturating_cast" and not _is_float(node.type):
        return any(_is_float(arg.type) for arg in node.args)
    return _is_float(node.type) and node.name.startswith(_ROUNDERS)


def _is_float(kind: Type) -> bool:
    return kind.code in ("float", "bfloat")


def compare(
    found: npt.NDArray[Any], expected: npt.NDArray[Any], kind: Type, allowed: Tolerance
) -> Discrepancy:
    """Compare two outputs with the same shape and the type `kind`; bfloat16 is given as bits.

    NaN equals NaN, and an infinity equals only itself. The arrays are compared in pieces to save
    memory. Raises ValueError if the shapes differ.
    """
    if found.shape != expected.shape:
        raise ValueError(f"the outputs' shapes differ: {found.shape} and {expected.shape}")
    scale = _mean_magnitude(expected, kind) if _is_float(kind) else 0.0
    wrong, worst = 0, 0.0
    where: tuple[int, ...] = ()
    for start, ours, theirs in _pieces(found, expected):
        if _is_float(kind):
            bad, error = _float_errors(_floats(ours, kind), _floats(theirs, kind), scale, allowed)
        else:
            bad, error = _integer_errors(ours, theirs, allowed)
        worst = max(worst, error)
        count = int(np.count_nonzero(bad))
        if count and not wrong:
            first = np.unravel_index(int(np.argmax(bad)), bad.shape)
            where = tuple(int(i) for i in first)
            if where:
                where = (*where[:-1], where[-1] + start)
        wrong += count
    return Discrepancy(wrong, found.size, worst, where)


def accepted(comparison: Discrepancy, allowed: Tolerance) -> bool:
    """Return whether an output is right: its wrong values are within the allowed share."""
    return comparison.wrong <= allowed.outliers * comparison.values


def _pieces(
    found: npt.NDArray[Any], expected: npt.NDArray[Any]
) -> Iterator[tuple[int, npt.NDArray[Any], npt.NDArray[Any]]]:
    """Yield (start, piece, piece) of both arrays along the last axis, outermost in memory."""
    if found.ndim == 0:
        yield 0, found, expected
        return
    length = found.shape[-1]
    step = max(1, _CHUNK // max(1, math.prod(found.shape[:-1])))
    for start in range(0, length, step):
        yield start, found[..., start : start + step], expected[..., start : start + step]


def _floats(values: npt.NDArray[Any], kind: Type) -> npt.NDArray[np.float64]:
    if kind.code == "bfloat":
        values = from_bfloat16(values)
    return values.astype(np.float64)


def _mean_magnitude(values: npt.NDArray[Any], kind: Type) -> float:
    total, count = 0.0, 0
    for _, piece, _ in _pieces(values, values):
        magnitudes = np.abs(_floats(piece, kind))
        finite = magnitudes[np.isfinite(magnitudes)]
        total, count = total + float(finite.sum()), count + finite.size
    return total / count if count else 0.0


def _float_errors(
    ours: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64], scale: float, allowed: Tolerance
) -> tuple[npt.NDArray[np.bool_], float]:
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.abs(ours - theirs) / (np.abs(theirs) + scale)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    error = np.where(same, 0.0, error)
    error = np.where(np.isnan(error), np.inf, error)  # NaN or an infinity on one side only
    return error > allowed.relative, float(error.max(initial=0.0))


def _integer_errors(
    ours: npt.NDArray[Any], theirs: npt.NDArray[Any], allowed: Tolerance
) -> tuple[npt.NDArray[np.bool_], float]:
    if ours.dtype == np.bool_:
        bad: npt.NDArray[np.bool_] = ours != theirs
        return bad, float(bad.any())
    # Subtraction modulo 2^bits is exact if the result is read as an unsigned number.
    unsigned = np.dtype(f"uint{ours.dtype.itemsize * 8}")
    larger, smaller = np.maximum(ours, theirs), np.minimum(ours, theirs)
    difference = larger.view(unsigned) - smaller.view(unsigned)
    worst = float(difference.max(initial=0))
    if allowed.exact:
        return difference != 0, worst
    return difference > 1 + allowed.relative * np.abs(theirs.astype(np.float64)), worst
