"""Matrix times matrix (MM of the paper): C = A B, with A m x n and B n x k."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.prediction.data import instances
from tilewright.prediction.data.kernel import Array, Instance, Kernel, KernelVariant, Operands, Run
from tilewright.prediction.kernels.blas import numpy_variant
from tilewright.prediction.kernels.storage import csr, dense, density_of, scipy_variant

FEATURES = {
    "m": "rows",
    "n": "columns",
    "k": "columns",
    "d1": "non-zeros/entry",
    "d2": "non-zeros/entry",
}


def draw(rng: np.random.Generator) -> Instance:
    """Dimensions and densities as in Table II, dimensions up to 512."""
    m, n, k = (instances.dimension(rng, high=instances.LARGEST_PRODUCT) for _ in range(3))
    d1, d2 = instances.density(rng, m * n), instances.density(rng, n * k)
    return {"m": m, "n": n, "k": k, "d1": d1, "d2": d2}


def make(instance: Instance, rng: np.random.Generator) -> Operands:
    """Return ``a`` and ``b``, dense arrays with zeros in them."""
    m, n, k = int(instance["m"]), int(instance["n"]), int(instance["k"])
    a = instances.matrix(rng, m, n, instance["d1"])
    b = instances.matrix(rng, n, k, instance["d2"])
    instance["d1"] = instances.nonzeros(m * n, instance["d1"]) / (m * n)
    instance["d2"] = instances.nonzeros(n * k, instance["d2"]) / (n * k)
    return {"a": a, "b": b}


def reference(operands: Operands) -> Array:
    """Return the product by NumPy."""
    product: Array = dense(operands["a"]) @ dense(operands["b"])
    return product


def describe(operands: Operands) -> Instance:
    """m, n, k and the densities."""
    a, b = operands["a"], operands["b"]
    (m, n), k = a.shape, b.shape[1]
    return {"m": m, "n": n, "k": k, "d1": density_of(a), "d2": density_of(b)}


def _numpy(operands: Operands) -> Run:
    a, b = dense(operands["a"]), dense(operands["b"])
    return lambda: a @ b


def _scipy(operands: Operands, settings: Mapping[str, int]) -> Run:
    a, b = csr(operands["a"]), csr(operands["b"])
    return lambda: a @ b


def kernel(variants: Mapping[str, KernelVariant]) -> Kernel:
    """Return the kernel with variants by NumPy, SciPy and those given."""
    own = {"numpy": numpy_variant(_numpy), "scipy_sparse": scipy_variant(_scipy)}
    return Kernel("matmul", FEATURES, "m*n*k", draw, make, reference, describe, {**own, **variants})
