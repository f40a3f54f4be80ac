"""The signature of a dispatched call: shapes, dtypes, densities of its arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# Entries of a dense array that are read to estimate its density. A density of 5 % is then known
# within a factor of 1.5; of one below 1 %, only that it is small.
SAMPLES = 256
# Numbers of non-zeros that share a decision: within a factor of 2^(1/4).
_STEPS = 4
# Entries of a dense array that every call reads: enough to see whether a decision still holds.
GLANCE = 32


# How an array is stored, as a number that models of conversions are chosen by.
DENSE, SPARSE = 1.0, 2.0
_NDARRAY = np.ndarray


class Outline:
    """An array's shape, number of non-zeros and storage, instead of the array.

    It has the attributes of a sparse array that `tilewright.prediction.kernels` needs to describe a
    query.
    """

    __slots__ = ("nnz", "shape", "storage")
    tocsr = toarray = None

    def __init__(self, shape: tuple[int, ...], nnz: float, storage: float = DENSE) -> None:
        self.shape, self.nnz, self.storage = shape, nnz, storage


def outline(thing: Any, samples: int = SAMPLES) -> Any:
    """Return the outline of a sparse array, or of a dense one, estimated from `samples` entries.

    Anything without a shape is returned unchanged. At least one non-zero is assumed, or half of
    what a single hit in the sample would imply.
    """
    if type(thing) is _NDARRAY:
        shape = thing.shape
        return Outline(shape, _sampled(thing, samples)) if shape else thing
    shape = getattr(thing, "shape", None)
    if not shape:
        return thing
    nnz = getattr(thing, "nnz", None)
    if nnz is None:
        return Outline(shape, _sampled(thing, samples))
    return Outline(shape, int(nnz) or 1, SPARSE if hasattr(thing, "toarray") else DENSE)


def _sampled(array: Any, samples: int) -> float:
    """Return the estimated number of non-zeros of a dense array."""
    if samples > GLANCE:
        hits, looked = _hits(array, GLANCE)
        if hits == looked:
            # More entries would hardly change the density: it is 0.9 or more with a probability of
            # 97%. They are far apart in memory, and reading them takes longer than the decision.
            return float(array.size)
    hits, looked = _hits(array, samples)
    if looked == array.size:
        return max(1.0, float(hits))
    return max(1.0, float(array.size) * max(hits, 0.5) / looked)


def _hits(array: Any, samples: int) -> tuple[int, int]:
    """Non-zeros among about `samples` entries, and how many entries these are."""
    size = array.size
    # An odd step, so that it does not return to the same columns of rows of even length.
    step = (size // samples) | 1 if size > samples else 1
    # Flattening copies arrays that are not contiguous.
    some = (array.ravel() if array.flags.c_contiguous else array.flat)[::step]
    return int(np.count_nonzero(some)), len(some)


def is_sparse(thing: Any) -> bool:
    """Return whether it is a SciPy sparse array or matrix."""
    # Asking the class first avoids counting the non-zeros, which is what `nnz` does.
    return hasattr(thing, "toarray") and (hasattr(type(thing), "nnz") or hasattr(thing, "nnz"))


def signature(args: tuple[Any, ...], samples: int = 0) -> tuple[Any, ...]:
    """Return the signature of a call; calls with equal signatures share a decision.

    It has the shapes and dtypes of arrays, for sparse ones also the storage format and the
    approximate number of non-zeros, which is estimated for dense ones if `samples` is not 0.
    Numbers and texts enter by value, lists and the like by type and length, anything else by type.
    """
    key: list[Any] = []
    for a in args:
        kind = type(a)
        if kind is np.ndarray:
            key.append(a.shape)
            key.append(a.dtype)
            if samples:
                # Zero, one, two to three, four to seven, ... hits, and all of them.
                hits, looked = _hits(a, samples)
                key.append(hits.bit_length() if hits < looked else -1)
        elif kind in _PLAIN:
            key += (kind, a)  # 1, 1.0 and True are equal, but not the same
        elif hasattr(a, "toarray") and (nnz := getattr(a, "nnz", None)) is not None:
            bucket = round(_STEPS * math.log2(nnz)) if nnz > 0 else -1
            key += (kind, a.shape, a.dtype, bucket)
        elif isinstance(a, np.generic):
            key.append(a)
        elif hasattr(a, "shape"):
            key += (kind, tuple(a.shape), getattr(a, "dtype", None))
        else:
            key.append(kind)
            if hasattr(a, "__len__"):
                key.append(len(a))
    return tuple(key)


_PLAIN = frozenset({int, float, complex, bool, str, type(None)})
