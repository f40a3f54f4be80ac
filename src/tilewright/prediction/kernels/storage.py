"""Dense and compressed sparse row storage, and turning one into the other."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import numpy as np

from tilewright.prediction.kernels.registry import Array


def is_sparse(thing: Any) -> bool:
    """Whether it is a SciPy sparse array or matrix, without importing SciPy for it."""
    return hasattr(thing, "tocsr") and hasattr(thing, "toarray")


def dense(thing: Any) -> Array:
    """As a C-ordered array of float64; itself if it is one."""
    if is_sparse(thing):
        thing = thing.toarray()
    return np.ascontiguousarray(thing, dtype=np.float64)


def csr(thing: Any) -> Any:
    """As a ``scipy.sparse.csr_array`` of float64 with sorted 32-bit indices; itself if it is one.

    Stored zeros stay, as they do in SciPy.
    """
    from scipy.sparse import csr_array

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
    count = thing.nnz if is_sparse(thing) else int(np.count_nonzero(thing))
    return count / entries if entries else 0.0


def numpy_versions() -> dict[str, str]:
    """NumPy's version."""
    return {"numpy": np.__version__}


def scipy_versions() -> dict[str, str]:
    """NumPy's and SciPy's versions."""
    return {**numpy_versions(), "scipy": importlib.metadata.version("scipy")}
