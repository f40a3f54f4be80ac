"""Conversions between storages as a kernel: the cost of a change of storage in a dispatch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.prediction.data import instances
from tilewright.prediction.data.kernel import Array, Instance, Kernel, KernelVariant, Operands, Run
from tilewright.prediction.kernels.storage import csr, dense, density_of, scipy_versions

FEATURES = {"m": "rows", "n": "columns", "d": "non-zeros/entry"}


def draw(rng: np.random.Generator) -> Instance:
    """Dimensions and density as a matrix product's operands have them."""
    m, n = (instances.dimension(rng, high=instances.LARGEST_PRODUCT) for _ in range(2))
    return {"m": m, "n": n, "d": instances.density(rng, m * n)}


def make(instance: Instance, rng: np.random.Generator) -> Operands:
    """Return ``a``, a dense array with zeros in it."""
    m, n = int(instance["m"]), int(instance["n"])
    a = instances.matrix(rng, m, n, instance["d"])
    instance["d"] = instances.nonzeros(m * n, instance["d"]) / (m * n)
    return {"a": a}


def reference(operands: Operands) -> Array:
    """Return the matrix itself."""
    return dense(operands["a"])


def describe(operands: Operands) -> Instance:
    """m, n and the density."""
    m, n = operands["a"].shape
    return {"m": m, "n": n, "d": density_of(operands["a"])}


def _to_sparse(operands: Operands, settings: Mapping[str, int]) -> Run:
    a = dense(operands["a"])
    return lambda: csr(a)


def _to_dense(operands: Operands, settings: Mapping[str, int]) -> Run:
    a = csr(operands["a"])
    return lambda: dense(a)


def kernel() -> Kernel:
    """Return the kernel; its variants are directions, so they are not alternatives."""
    return Kernel(
        "conversion",
        FEATURES,
        "m*n",
        draw,
        make,
        reference,
        describe,
        {
            "to_sparse": KernelVariant("to_sparse", _to_sparse, versions=scipy_versions),
            "to_dense": KernelVariant(
                "to_dense", _to_dense, storage="sparse", versions=scipy_versions
            ),
        },
    )
