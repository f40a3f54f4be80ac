"""Convolution of a matrix with a small square filter (MC of the paper).

As in neural networks, the filter is not flipped, and only positions where it lies completely inside
the matrix count: out[i, j] = sum over p, q of A[i + p, j + q] w[p, q].
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

FEATURES = {"m": "rows", "n": "columns", "r": "rows", "d": "non-zeros/entry"}


def draw(rng: np.random.Generator) -> Instance:
    """Dimensions, filter size and density as in Table II."""
    r = int(rng.choice(instances.FILTERS))
    m, n = instances.dimension(rng, low=r), instances.dimension(rng, low=r)
    return {"m": m, "n": n, "r": r, "d": instances.density(rng, m * n)}


def make(instance: Instance, rng: np.random.Generator) -> Operands:
    """Return ``a``, a dense array with zeros in it, and the filter ``w``, without zeros."""
    m, n, r = int(instance["m"]), int(instance["n"]), int(instance["r"])
    a = instances.matrix(rng, m, n, instance["d"])
    instance["d"] = instances.nonzeros(m * n, instance["d"]) / (m * n)
    return {"a": a, "w": rng.uniform(0.5, 1.5, (r, r))}


def reference(operands: Operands) -> Array:
    """Sum windows times filter with NumPy."""
    a, w = dense(operands["a"]), operands["w"]
    windows = np.lib.stride_tricks.sliding_window_view(a, w.shape)
    return np.tensordot(windows, w, axes=2)


def describe(operands: Operands) -> Instance:
    """m, n, the filter's size and the matrix's density."""
    m, n = operands["a"].shape
    return {"m": m, "n": n, "r": operands["w"].shape[0], "d": density_of(operands["a"])}


def _numpy(operands: Operands, settings: Mapping[str, int]) -> Run:
    a, w = dense(operands["a"]), dense(operands["w"])
    r = w.shape[0]
    rows, columns = a.shape[0] - r + 1, a.shape[1] - r + 1

    def run() -> Array:
        out = np.zeros((rows, columns))
        product = np.empty_like(out)
        for p in range(r):
            for q in range(r):
                np.multiply(a[p : p + rows, q : q + columns], w[p, q], out=product)
                out += product
        return out

    return run


def _scipy(operands: Operands, settings: Mapping[str, int]) -> Run:
    """Add every non-zero to the r x r results that it contributes to."""
    a, w = csr(operands["a"]).tocoo(), dense(operands["w"])
    r = w.shape[0]
    shape = a.shape[0] - r + 1, a.shape[1] - r + 1
    at_row, at_column = a.row.astype(np.intp), a.col.astype(np.intp)
    values = a.data

    def run() -> Array:
        out = np.zeros(shape[0] * shape[1])
        for p in range(r):
            for q in range(r):
                i, j = at_row - p, at_column - q
                within = (i >= 0) & (i < shape[0]) & (j >= 0) & (j < shape[1])
                # A filter's offset moves different non-zeros to different places.
                out[i[within] * shape[1] + j[within]] += values[within] * w[p, q]
        return out.reshape(shape)

    return run


def kernel(variants: Mapping[str, KernelVariant]) -> Kernel:
    """Return the kernel with variants by NumPy, SciPy and those given."""
    numpy = KernelVariant("numpy", _numpy, versions=numpy_versions)
    own = {"numpy": numpy, "scipy_sparse": scipy_variant(_scipy)}
    return Kernel(
        "convolution",
        FEATURES,
        "(m - r + 1) * (n - r + 1) * r**2",
        draw,
        make,
        reference,
        describe,
        {**own, **variants},
    )
