"""Estimate the registers that ``ptxas`` gives a thread of a kernel if nothing limits them.

LLVM and ``ptxas`` unroll loops that Halide left as loops: short ones completely, longer ones in
part. Then they move loads ahead, so that the loads of all copies need registers at once. A linear
estimate counts this; boosted trees correct its logarithm, which depends on what no term counts.
Both are fitted to what ``ptxas`` says of kernels (`benchmarks/gpu_registers.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants, without_rates
from tilewright.halide.schedulers.analytic.gpu.nest_work import KernelWork
from tilewright.halide.schedulers.analytic.gpu.register_features import (
    FEATURES,
    Array,
    RegisterTerms,
    register_features,
)
from tilewright.halide.schedulers.boosted_trees import BoostedTrees

SCHEMA = 1
FILE = "registers.json"
# Least linear estimate, in registers (chosen: keeps its logarithm finite; few kernels take less).
LEAST = 8.0
# Kernels whose estimate is kept: a search times the same kernels by several constants (chosen).
KNOWN_KERNELS = 1024


@dataclass(frozen=True, eq=False)
class RegisterModel:
    """The logarithm of the registers that ``ptxas`` gives over the linear estimate.

    `trees` take the features of `inputs`. `provenance` describes the training data and the
    accuracy.
    """

    trees: BoostedTrees
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the model as JSON text."""
        data = {
            "schema": SCHEMA,
            "provenance": dict(self.provenance),
            "features": list(FEATURES),
            "trees": self.trees.to_dict(),
        }
        return json.dumps(data, separators=(",", ":")) + "\n"


def from_json(text: str) -> RegisterModel:
    """Return the inverse of `RegisterModel.to_json`; raise `ValueError` for another version's."""
    data = json.loads(text)
    if data["schema"] != SCHEMA or data["features"] != list(FEATURES):
        raise ValueError("the model of registers has other features: train it again")
    return RegisterModel(BoostedTrees.from_dict(data["trees"]), data["provenance"])


@cache
def shipped() -> RegisterModel:
    """Return the model that comes with the package."""
    return from_json((files(__package__) / FILE).read_text(encoding="utf-8"))


def inputs(features: Array, c: GpuConstants) -> Array:
    """Return what the trees take: the features and the linear estimate, (N, `FEATURES` + 1)."""
    return np.column_stack([features, linear_estimate(features, c)])


def linear_estimate(features: Array, c: GpuConstants) -> Array:
    """Return the linear estimates for features of shape (N, `FEATURES`), at least `LEAST`."""
    weights = [getattr(c, f"ptxas_{name}") for name in RegisterTerms._fields]
    return np.asarray(np.maximum(c.ptxas_base + features[:, : len(weights)] @ weights, LEAST))


def estimated_registers(kernel: KernelWork, c: GpuConstants) -> float:
    """Return the estimated registers per thread if nothing limits them."""
    return _estimated(kernel, without_rates(c))


@lru_cache(maxsize=KNOWN_KERNELS)
def _estimated(kernel: KernelWork, c: GpuConstants) -> float:
    rows = inputs(register_features(kernel, c)[None], c)
    linear = float(rows[0, -1])
    if not c.learned_registers:
        return linear
    return linear * math.exp(c.learned_registers * float(shipped().trees(rows)[0]))
