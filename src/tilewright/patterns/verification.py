"""Random inputs of a program, and the difference of a kernel's result from the interpreter's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from tilewright.patterns import nodes as n
from tilewright.patterns.errors import PatternError
from tilewright.patterns.sizing import size_names, with_sizes
from tilewright.patterns.types import ScalarType, dimensions

Array: TypeAlias = np.ndarray[Any, Any]

LARGEST_INTEGER = 9  # in random inputs, so that products of several values do not overflow


def random_inputs(
    program: n.Pattern, sizes: Mapping[str, int] | None = None, seed: int = 0
) -> list[Array]:
    """Return a random array for each input of a program.

    Floating-point numbers are between 0.5 and 1.5, integers between -9 and 9.

    Args:
        program: the program.
        sizes: the values of its sizes, by name.
        seed: the seed of the random numbers.

    Raises:
        PatternError: a size has no value, or an input is an array of tuples.
    """
    rng = np.random.default_rng(seed)
    fixed = with_sizes(program, dict(sizes or {}))
    if missing := size_names(fixed):
        raise PatternError(f"no value for {', '.join(missing)}: give the value of every size")
    made = []
    for p in n.inputs(fixed):
        lengths, item = dimensions(p.type)
        if not isinstance(item, ScalarType):
            raise PatternError(f"input {p.name} is an array of {item}; pass arrays and zip them")
        shape = [int(length.value or 0) for length in lengths]
        if item.kind == "f":
            made.append((rng.random(shape) + 0.5).astype(item.dtype))
        elif item.kind == "b":
            made.append(rng.random(shape) < 0.5)
        else:
            numbers = rng.integers(-LARGEST_INTEGER, LARGEST_INTEGER, shape, endpoint=True)
            made.append(np.asarray(numbers, item.dtype))
    return made


def relative_error(result: Any, expected: Any) -> float:
    """Return the largest difference of two results, relative to the largest expected number.

    Results are arrays or tuples of results. The error is infinite if shapes differ, or if only one
    of two corresponding numbers is finite.
    """
    if isinstance(expected, tuple):
        if not isinstance(result, tuple) or len(result) != len(expected):
            return float("inf")
        parts = zip(result, expected, strict=True)
        return max((relative_error(a, b) for a, b in parts), default=0.0)
    a, b = np.asarray(result, dtype=float), np.asarray(expected, dtype=float)
    if a.shape != b.shape:
        return float("inf")
    finite = np.isfinite(b)
    if not np.array_equal(finite, np.isfinite(a)):
        return float("inf")
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = float(np.abs(b[finite]).max()) or 1.0
    return float(np.abs(a[finite] - b[finite]).max()) / scale
