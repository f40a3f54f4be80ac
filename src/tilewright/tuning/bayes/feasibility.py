"""Hidden constraints: the probability that a configuration does not fail (Section 4.3).

It is a random forest on the encoded parameters. Trees split on one feature at a time, but what
fails on hardware is often a product of parameters that exceeds a limit: threads per block, memory
per tile, registers. As soon as enough has failed, the forest therefore also has the products of two
numbers as features.

| symbol | meaning | shape, unit |
|---|---|---|
| `codes` | configurations | (n, width) |
| `points` | the same, encoded | (n, features) |
| `worked` | whether each evaluation succeeded, 0 or 1, or the probability of it | (n,) |
| `logs` | logarithms of the numbers above zero | (n, numbers) |
| products | sums of two columns of `logs` | (n, pairs) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilewright.tuning.bayes.encoding import Encoder
from tilewright.tuning.bayes.forest import GrownTrees, grow
from tilewright.tuning.space.parameters import Integer, Ordinal
from tilewright.tuning.space.space import Space

Array: TypeAlias = np.ndarray[Any, Any]
# Failures, and successes, from which on products are features. From the first failure on, they
# cost quality early in the search, see docs/decisions/tuning-model.md.
_ENOUGH = 5
# Maximum number of thresholds of a feature: products have many different values; with a
# threshold between any two, a decision after 1000 evaluations took three times as long.
_MOST_CUTS = 16
# Maximum number of products, so that a decision's cost does not grow with the square of parameters.
_MOST_PRODUCTS = 80


@dataclass(frozen=True)
class FeasibilityForest:
    """A forest of the probability of success, and which products are among its features.

    ``pairs`` holds places among the numbers, shape (pairs, 2).
    """

    encoder: Encoder
    trees: GrownTrees
    pairs: Array

    def mean(self, codes: Array, points: Array) -> Array:
        """Return the probability of success, shape (n,), of codes that are encoded as points."""
        return self.trees.mean(_features(self.encoder.space, codes, points, self.pairs))


def fit_feasibility(
    encoder: Encoder,
    codes: Array,
    worked: Array,
    pending: Array,
    rng: np.random.Generator,
) -> FeasibilityForest:
    """Fit the forest to evaluations; those that are pending count as expected.

    Args:
        encoder: embeds codes.
        codes: evaluated codes, shape (n, width).
        worked: whether each succeeded, shape (n,).
        pending: codes that are being evaluated, shape (m, width).
        rng: draws bootstrap samples, each node's features and, of many products, which are used.
    """
    outputs = worked.astype(float)
    few = min(int(outputs.sum()), int((1 - outputs).sum())) < _ENOUGH
    pairs = _pairs(0 if few else len(_numeric(encoder.space)), rng)
    forest = _grown(encoder, codes, outputs, pairs, rng)
    if len(pending) == 0:
        return forest
    expected = forest.mean(pending, encoder(pending))
    everything = np.concatenate([codes, pending])
    return _grown(encoder, everything, np.concatenate([outputs, expected]), pairs, rng)


def log_numbers(space: Space, codes: Array) -> Array:
    """Return logarithms of the parameters that are always present, ordered and above zero.

    Args:
        space: the space.
        codes: shape (n, width).

    Returns:
        shape (n, numbers), in the order of the space's parameters.
    """
    columns = []
    for p in _numeric(space):
        code = codes[:, space.columns[p.name].start]
        if isinstance(p, Integer):
            columns.append(np.log(code + p.low))
        else:
            columns.append(np.log(np.array(p.values, dtype=float))[code.astype(np.int64)])
    return np.array(columns).reshape(len(columns), len(codes)).T


def _numeric(space: Space) -> list[Integer | Ordinal]:
    found: list[Integer | Ordinal] = []
    for p in space.parameters:
        if isinstance(p, Integer | Ordinal) and p.when is None and len(p) > 1:
            least = p.low if isinstance(p, Integer) else min(p.values)
            found += [p] if least > 0 else []
    return found


def _pairs(numbers: int, rng: np.random.Generator) -> Array:
    """Return all pairs of numbers, or as many at random as are allowed, shape (pairs, 2)."""
    pairs = np.stack(np.triu_indices(numbers, 1), axis=1)
    if len(pairs) > _MOST_PRODUCTS:
        pairs = pairs[np.sort(rng.permutation(len(pairs))[:_MOST_PRODUCTS])]
    return pairs


def _features(space: Space, codes: Array, points: Array, pairs: Array) -> Array:
    if len(pairs) == 0:
        return points
    logs = log_numbers(space, codes)
    return np.concatenate([points, logs[:, pairs[:, 0]] + logs[:, pairs[:, 1]]], axis=1)


def _grown(
    encoder: Encoder, codes: Array, outputs: Array, pairs: Array, rng: np.random.Generator
) -> FeasibilityForest:
    features = _features(encoder.space, codes, encoder(codes), pairs)
    return FeasibilityForest(
        encoder, grow(features, outputs, rng, most_cuts=_MOST_CUTS if len(pairs) else None), pairs
    )
