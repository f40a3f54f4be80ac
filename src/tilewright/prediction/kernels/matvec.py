"""Matrix times vector (MV of the paper): y = A x, with A m x n."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.prediction.data import instances
from tilewright.prediction.data.kernel import Array, Instance, Kernel, KernelVariant, Operands, Run
from tilewright.prediction.kernels.blas import numpy_variant
from tilewright.prediction.kernels.storage import csr, dense, density_of, scipy_variant

FEATURES = {"m": "rows", "n": "columns", "d": "non-zeros/entry"}


def draw(rng: np.random.Generator) -> Instance:
    """Dimensions and density as in Table II; the density is at most one half."""
    m, n = instances.dimension(rng), instances.dimension(rng)
    return {"m": m, "n": n, "d": instances.density(rng, m * n, first=1)}


def make(instance: Instance, rng: np.random.Generator) -> Operands:
    """Return ``a``, a dense array with zeros in it, and the vector ``x``, without zeros."""
    m, n = int(instance["m"]), int(instance["n"])
    a = instances.matrix(rng, m, n, instance["d"])
    instance["d"] = instances.nonzeros(m * n, instance["d"]) / (m * n)
    return {"a": a, "x": rng.uniform(0.5, 1.5, n)}


def reference(operands: Operands) -> Array:
    """Return the product by NumPy."""
    product: Array = dense(operands["a"]) @ operands["x"]
    return product


def describe(operands: Operands) -> Instance:
    """m, n and the matrix's density."""
    m, n = operands["a"].shape
    return {"m": m, "n": n, "d": density_of(operands["a"])}


def _numpy(operands: Operands) -> Run:
    a, x = dense(operands["a"]), dense(operands["x"])
    return lambda: a @ x


def _scipy(operands: Operands, settings: Mapping[str, int]) -> Run:
    a, x = csr(operands["a"]), dense(operands["x"])
    return lambda: a @ x


def kernel(variants: Mapping[str, KernelVariant]) -> Kernel:
    """Return the kernel with variants by NumPy, SciPy and those given."""
    own = {"numpy": numpy_variant(_numpy), "scipy_sparse": scipy_variant(_scipy)}
    return Kernel("matvec", FEATURES, "m*n", draw, make, reference, describe, {**own, **variants})
