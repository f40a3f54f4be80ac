"""What a dispatched call knows of its arguments: shapes, dtypes, densities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# Entries of a dense array that are looked at for its density. With so many a density of 5 %
# is known within a factor of 1.5; below 1 % only its smallness is.
SAMPLES = 256
# Numbers of non-zeros that share a decision: within a factor of 2^(1/4).
_STEPS = 4


class Outline:
    """An array's shape and number of non-zeros, in place of the array.

    It has what `tilewright.prediction.kernels` asks of a sparse array to describe a query.
    """

    __slots__ = ("nnz", "shape")
    tocsr = toarray = None

    def __init__(self, shape: tuple[int, ...], nnz: float) -> None:
        self.shape, self.nnz = shape, nnz


def outline(thing: Any, samples: int = SAMPLES) -> Any:
    """Of a sparse array its stored count; of a dense one estimated from `samples` entries.

    Anything without a shape is given back as it is. At least one non-zero is assumed, or half
    of what a single hit in the sample would mean.
    """
    shape = getattr(thing, "shape", None)
    if shape is None or not shape:
        return thing
    nnz = getattr(thing, "nnz", None)
    if nnz is not None:
        return Outline(shape, max(1, int(nnz)))
    return Outline(shape, _sampled(thing, samples))


def _sampled(array: Any, samples: int) -> float:
    size = array.size
    if size <= samples:
        return max(1.0, float(np.count_nonzero(array)))
    # An odd step, so that columns of even-sized rows are not met over and over.
    step = (size // samples) | 1
    some = array.reshape(-1)[::step] if array.flags.c_contiguous else array.flat[::step]
    hits = np.count_nonzero(some)
    return max(1.0, size * max(hits, 0.5) / len(some))


def is_sparse(thing: Any) -> bool:
    """Whether it is a SciPy sparse array or matrix."""
    return hasattr(thing, "nnz") and hasattr(thing, "toarray")


def signature(args: tuple[Any, ...], samples: int = 0) -> tuple[Any, ...]:
    """What calls that share a decision have in common.

    Shapes and dtypes of arrays, of sparse ones also the storage format and about how many
    non-zeros there are; with `samples` the same of dense ones, estimated. Numbers and texts by
    value, anything else by its type.
    """
    key: list[Any] = []
    for a in args:
        kind = type(a)
        if kind is np.ndarray:
            key.append(a.shape)
            key.append(a.dtype)
            if samples:
                key.append(_bucket(_sampled(a, samples)) if a.size else 0)
        elif kind in _PLAIN:
            key.append(a)
        elif is_sparse(a):
            key += (kind, a.shape, a.dtype, _bucket(a.nnz))
        elif isinstance(a, np.ndarray):
            key += (kind, a.shape, a.dtype)
        else:
            key.append(kind)
    return tuple(key)


_PLAIN = frozenset({int, float, bool, str, type(None)})


def _bucket(count: float) -> int:
    return round(_STEPS * math.log2(count)) if count > 0 else -1
