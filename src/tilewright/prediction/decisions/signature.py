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
_ALL = -1  # in a signature: all entries that were read of a dense array are non-zeros


class Outline:
    """An array's shape, number of non-zeros and storage, instead of the array.

    It has the attributes of a sparse array that `tilewright.prediction.kernels` needs to describe a
    query.
    """

    __slots__ = ("nnz", "shape", "storage")
    tocsr = toarray = None

    def __init__(self, shape: tuple[int, ...], nnz: float, storage: float = DENSE) -> None:
        self.shape, self.nnz, self.storage = shape, nnz, storage


def outline(thing: Any, samples: int = SAMPLES, part: tuple[Any, ...] | None = None) -> Any:
    """Return the outline of a sparse array, or of a dense one, estimated from `samples` entries.

    Anything without a shape is returned unchanged. At least one non-zero is assumed, or half of
    what a single hit in the sample would imply.

    Args:
        thing: an argument of a call.
        samples: the number of entries that are read of a dense array.
        part: its part of the call's signature, if entries were read for that.
    """
    if type(thing) is _NDARRAY:
        shape = thing.shape
        return Outline(shape, _sampled(thing, samples, part)) if shape else thing
    shape = getattr(thing, "shape", None)
    if not shape:
        return thing
    nnz = getattr(thing, "nnz", None)
    if nnz is None:
        return Outline(shape, _sampled(thing, samples, None))
    return Outline(shape, int(nnz) or 1, SPARSE if hasattr(thing, "toarray") else DENSE)


def _sampled(array: Any, samples: int, part: tuple[Any, ...] | None) -> float:
    """Return the estimated number of non-zeros of a dense array."""
    if samples > GLANCE:
        if part is None:
            hits, looked = _hits(array, GLANCE)
            full = hits == looked
        else:
            full = part[-1] == _ALL
        if full:
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

    It has a part for each argument: the shape and dtype of an array, for sparse ones also the
    storage format and the approximate number of non-zeros, which is estimated for dense ones if
    `samples` is not 0.
    Numbers and texts enter by value, lists and the like by type and length, anything else by type.
    """
    key: list[tuple[Any, ...]] = []
    for a in args:
        if type(a) is not _NDARRAY:
            key.append(_part(a))
        elif samples:
            # Zero, one, two to three, four to seven, ... hits, and all of them.
            hits, looked = _hits(a, samples)
            key.append((a.shape, a.dtype, hits.bit_length() if hits < looked else _ALL))
        else:
            key.append((a.shape, a.dtype))
    return tuple(key)


def _part(a: Any) -> tuple[Any, ...]:
    """Return the part of a signature for anything but an array of NumPy."""
    kind = type(a)
    if kind in _PLAIN:
        return kind, a  # 1, 1.0 and True are equal, but not the same
    if hasattr(a, "toarray") and (nnz := getattr(a, "nnz", None)) is not None:
        bucket = round(_STEPS * math.log2(nnz)) if nnz > 0 else -1
        return kind, a.shape, a.dtype, bucket
    if isinstance(a, np.generic):
        return kind, a
    if hasattr(a, "shape"):
        return kind, tuple(a.shape), getattr(a, "dtype", None)
    return (kind, len(a)) if hasattr(a, "__len__") else (kind,)


_PLAIN = frozenset({int, float, complex, bool, str, type(None)})
