"""Max-pooling (MP of the paper): the largest entry of each s x s block of a matrix.

Blocks at the right and lower edges are clipped. Entries are not negative, so the maximum of a
sparse block with a zero in it is that of its non-zeros.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.prediction.data import instances
from tilewright.prediction.data.kernel import Array, Instance, Kernel, KernelVariant, Operands, Run
from tilewright.prediction.kernels.storage import (
    csr,
    dense,
    density_of,
    numpy_versions,
    scipy_variant,
)

FEATURES = {"m": "rows", "n": "columns", "s": "rows", "d": "non-zeros/entry"}


def draw(rng: np.random.Generator) -> Instance:
    """Dimensions, block size and density as in Table II."""
    s = int(rng.choice(instances.WINDOWS))
    m, n = instances.dimension(rng, low=s), instances.dimension(rng, low=s)
    return {"m": m, "n": n, "s": s, "d": instances.density(rng, m * n)}


def make(instance: Instance, rng: np.random.Generator) -> Operands:
    """Return ``a``, a dense array with zeros in it, and the block size ``s``."""
    m, n, s = int(instance["m"]), int(instance["n"]), int(instance["s"])
    a = instances.matrix(rng, m, n, instance["d"])
    instance["d"] = instances.nonzeros(m * n, instance["d"]) / (m * n)
    return {"a": a, "s": s}


def reference(operands: Operands) -> Array:
    """Return blocks of a padded array, their maxima by NumPy."""
    a, s = dense(operands["a"]), operands["s"]
    m, n = a.shape
    padded = np.pad(a, ((0, -m % s), (0, -n % s)))
    result: Array = padded.reshape(-(-m // s), s, -(-n // s), s).max(axis=(1, 3))
    return result


def describe(operands: Operands) -> Instance:
    """m, n, the block's size and the matrix's density."""
    m, n = operands["a"].shape
    return {"m": m, "n": n, "s": operands["s"], "d": density_of(operands["a"])}


def _numpy(operands: Operands, settings: Mapping[str, int]) -> Run:
    a, s = dense(operands["a"]), int(operands["s"])

    def run() -> Array:
        out = a[::s, ::s].copy()
        for p in range(s):
            for q in range(s):
                if p or q:
                    part = a[p::s, q::s]
                    rows, columns = part.shape
                    np.maximum(out[:rows, :columns], part, out=out[:rows, :columns])
        return out

    return run


def _scipy(operands: Operands, settings: Mapping[str, int]) -> Run:
    """Compare every non-zero with the maximum of its block so far."""
    a, s = csr(operands["a"]).tocoo(), int(operands["s"])
    shape = -(-a.shape[0] // s), -(-a.shape[1] // s)
    at_row, at_column = a.row.astype(np.intp), a.col.astype(np.intp)
    values = a.data

    def run() -> Array:
        out = np.zeros(shape)
        np.maximum.at(out.reshape(-1), at_row // s * shape[1] + at_column // s, values)
        return out

    return run


def kernel(variants: Mapping[str, KernelVariant]) -> Kernel:
    """Return the kernel with variants by NumPy, SciPy and those given."""
    numpy = KernelVariant("numpy", _numpy, versions=numpy_versions)
    own = {"numpy": numpy, "scipy_sparse": scipy_variant(_scipy)}
    return Kernel(
        "pooling",
        FEATURES,
        "ceil(n/s) * ceil(m/s) * s**2",
        draw,
        make,
        reference,
        describe,
        {**own, **variants},
    )
