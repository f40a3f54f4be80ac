"""The features of a schedule, put together from what its parts contribute.

A part is a Func at root with the Funcs computed in its loops. What it contributes depends only on
its own schedule, so that a search that changes one part of a schedule keeps those of the others.

| symbol | meaning | shape, unit |
|---|---|---|
| N | rows of sizes | count |
| `roofline` | cycles of the pipeline by the simple model of `features` | (N,), cycles |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.bounds import Bound, Box, union_boxes
from tilewright.halide.analysis.nest_structure import StageKey
from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.learned.term_counts import TERM_COUNT

Array: TypeAlias = npt.NDArray[np.float64]

INSTANCE_NAMES = (
    "vectorised lanes registers gathered loads copies size indirect clamped update scatter scan "
    "member trips"
).split()
TERM_NAMES = "compute second third memory overhead".split()
ROOT_NAMES = ["tasks", "imbalance", "serial", "innermost", "line use", "parts"]
NAMES = (
    *INSTANCE_NAMES,
    *TERM_NAMES,
    *ROOT_NAMES,
    "recomputed",
    "root over third",
    "inner over first",
    "inner over second",
    "heap",
    "roofline",
)


@dataclass(frozen=True, eq=False)
class NestFeatures:
    """Features, shape (N, `len(NAMES)`), and the cycles of the roofline, shape (N,).

    `terms` has the cycles of `term_counts.TERMS`, shape (N, K).
    """

    rows: Array
    roofline: Array
    terms: Array


@dataclass(frozen=True, eq=False)
class PartFeatures:
    """What a part contributes to the features.

    | symbol | meaning | shape, unit |
    |---|---|---|
    | I, K | instances; stages at root with loops or points | count |
    | `points` | evaluations of each instance | (I, N), count |
    | `weights` | cycles of each instance with the overhead of its loops | (I, N), cycles |
    | `facts` | the features of `INSTANCE_NAMES` | (I, `len(INSTANCE_NAMES)`, N) |
    | `roots` | each stage's cycles, its terms, and cycles times `ROOT_NAMES` | (K, 12, N), cycles |
    | `least` | points in the region of each stage | count |
    | `touched` | boxes loaded or stored by Func or input | (N,), coordinates |
    | `inner` | sizes of the allocations in loops | (N,), bytes |
    | `terms` | the terms of the linear model | (K, N), cycles |
    """

    points: Array
    weights: Array
    facts: Array
    roots: Array
    least: Mapping[StageKey, float]
    touched: Mapping[str, Box]
    inner: tuple[Array, ...]
    terms: Array


def assembled(nest: ScheduledNest, model: CpuModel, parts: Sequence[PartFeatures]) -> NestFeatures:
    """Return the features of a nest from what its parts contribute."""
    n = max([1, *(part.weights.shape[1] for part in parts), *map(np.size, nest.factors.values())])

    def joined(arrays: Sequence[Array]) -> Array:
        return np.concatenate([np.broadcast_to(a, (*a.shape[:-1], n)) for a in arrays])

    def row(values: Bound) -> Array:
        return np.broadcast_to(np.asarray(values, dtype=np.float64), (n,))

    weights = joined([part.weights for part in parts])
    total = np.sum(weights, axis=0) if len(weights) else np.ones(n)
    facts = (joined([part.facts for part in parts]) * weights[:, None, :]).sum(axis=0) / total
    computed = sum(joined([part.points for part in parts]), np.zeros(n))
    at_root = joined([part.roots for part in parts])
    sums = at_root.sum(axis=0)
    roofline, shares = sums[0], sums[1 : 1 + len(TERM_NAMES)]
    of_root = dict(zip(ROOT_NAMES, sums[1 + len(TERM_NAMES) :], strict=True))
    of_root = {name: fact / np.maximum(roofline, 1.0) for name, fact in of_root.items()}
    of_root["parts"] = row(math.log2(1 + len(at_root)))
    known = {key: value for part in parts for key, value in part.least.items()}
    least = float(sum(known[key] for key in nest.structure.stages))
    rows = [*facts, *(shares / np.maximum(roofline, 1.0))]
    rows += [of_root[name] for name in ROOT_NAMES]
    rows.append(np.log2(np.maximum(computed / np.maximum(least, 1.0), 2.0**-8)))
    rows += _allocated(nest, model, parts, n)
    rows.append(np.log2(np.maximum(roofline, 1.0)) - 20.0)
    stacked = np.nan_to_num(np.stack([row(each) for each in rows], axis=1))
    terms = np.sum([np.broadcast_to(part.terms, (TERM_COUNT, n)) for part in parts], axis=0)
    counted = np.nan_to_num(terms.reshape(TERM_COUNT, n).T, posinf=0.0)
    return NestFeatures(stacked, row(np.maximum(roofline, 1.0)), counted)


def _allocated(
    nest: ScheduledNest, model: CpuModel, parts: Sequence[PartFeatures], n: int
) -> list[Array]:
    """Return the last features but one: allocations over caches, and heap allocations."""
    root, inner, heap = np.zeros(n), np.zeros(n), np.zeros(n)
    for func in nest.structure.root.stored:
        name = nest.structure.names[func]
        box: Box | None = None
        for part in parts:
            if name in part.touched:
                box = union_boxes(box, part.touched[name])
        if box is not None:
            root = root + np.nan_to_num(nest.stored_bytes(func, box), posinf=0.0)
    for size in (size for part in parts for size in part.inner):
        inner = inner + size
        heap = heap + (size > model.constants.stack_bytes)
    return [
        np.log2(1.0 + root / model.l3_bytes),
        np.log2(1.0 + inner / model.l1_bytes),
        np.log2(1.0 + inner / model.l2_bytes),
        heap,
    ]
