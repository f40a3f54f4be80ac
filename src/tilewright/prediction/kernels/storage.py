"""Dense and compressed sparse row storage, and conversions between them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.prediction.data.kernel import Array, KernelVariant, Operands, Run
from tilewright.prediction.errors import PredictionError

_FLOAT64 = np.dtype(np.float64)


def is_sparse(thing: Any) -> bool:
    """Return whether it is a SciPy sparse array or matrix, without importing SciPy for it."""
    return hasattr(thing, "tocsr") and hasattr(thing, "toarray")


def dense(thing: Any) -> Array:
    """Convert to a C-ordered array of float64; return the argument itself if it is one.

    Raises:
        PredictionError: complex numbers, a mask, or anything but an array of numbers.
    """
    if type(thing) is np.ndarray and thing.dtype is _FLOAT64 and thing.flags.c_contiguous:
        return thing
    if is_sparse(thing):
        thing = thing.toarray()
    _check(thing)
    try:
        array: Array = np.asarray(thing, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise PredictionError(f"an operand is not an array of numbers: {error}") from None
    return array


def _check(thing: Any) -> None:
    """Reject values that an array of float64 cannot represent."""
    dtype = getattr(thing, "dtype", None)
    if dtype is None:
        dtype = np.asarray(thing).dtype
    if getattr(dtype, "kind", "") == "c":
        raise PredictionError("the kernels take real numbers, and an operand is complex")
    if isinstance(thing, np.ma.MaskedArray):
        raise PredictionError("an operand is masked: give it without a mask (numpy.ma.filled)")


def csr(thing: Any) -> Any:
    """Convert to a ``scipy.sparse.csr_array`` of float64 with sorted 32-bit indices.

    Returns the argument itself if it is one.

    Stored zeros stay, as they do in SciPy.

    Raises:
        PredictionError: as `dense`.
    """
    from scipy.sparse import csr_array

    if not is_sparse(thing):
        thing = dense(thing)
    elif thing.dtype is not _FLOAT64:
        _check(thing)
    if not isinstance(thing, csr_array) or thing.dtype != np.float64:
        thing = csr_array(thing, dtype=np.float64)
    if not thing.has_sorted_indices:
        thing = thing.sorted_indices()
    if thing.indices.dtype != np.int32 or thing.indptr.dtype != np.int32:
        thing = csr_array(
            (thing.data, thing.indices.astype(np.int32), thing.indptr.astype(np.int32)),
            shape=thing.shape,
        )
    return thing


def density_of(thing: Any) -> float:
    """Share of non-zeros among the entries; of a sparse array, of stored ones."""
    entries = thing.shape[0] * thing.shape[1]
    stored = getattr(thing, "nnz", None)
    count = int(np.count_nonzero(thing)) if stored is None else stored
    return count / entries if entries else 0.0


def numpy_versions() -> dict[str, str]:
    """Return NumPy's version."""
    return {"numpy": np.__version__}


def scipy_variant(build: Callable[[Operands, Mapping[str, int]], Run]) -> KernelVariant:
    """Return the variant ``scipy_sparse`` of a kernel."""
    return KernelVariant("scipy_sparse", build, storage="sparse", versions=scipy_versions)


def scipy_versions() -> dict[str, str]:
    """Return NumPy's and SciPy's versions."""
    return {**numpy_versions(), "scipy": importlib.metadata.version("scipy")}
