"""Several objectives: the Pareto front, and a random scalarisation per decision."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tilewright.tuning.bayes.logarithms import logarithms

Array: TypeAlias = np.ndarray[Any, Any]


def front(values: Array) -> list[int]:
    """Return the indices of the rows, shape (n, objectives), that no other row dominates."""
    kept = []
    for i, row in enumerate(values):
        no_worse = (values <= row).all(axis=1)
        better = (values < row).any(axis=1)
        if not (no_worse & better).any():
            kept.append(i)
    return kept


def scalarise(values: Array, rng: np.random.Generator) -> Array:
    """Return one positive value per row by a randomly weighted augmented Chebyshev norm (ParEGO).

    Each objective is replaced by its logarithm if all its values have the same sign, then mapped to
    [0, 1] by its smallest and largest value. Rows with NaN stay NaN.

    Source: Knowles, ParEGO, IEEE Transactions on Evolutionary Computation 10(1), 2006.
    """
    valid = ~np.isnan(values).any(axis=1)
    result = np.full(len(values), np.nan)
    if not valid.any():
        return result
    columns = [(column, logarithms(column)) for column in values[valid].T]
    seen = np.stack([column if logs is None else logs for column, logs in columns], axis=1)
    low, high = seen.min(axis=0), seen.max(axis=0)
    unit = (seen - low) / np.where(high > low, high - low, 1.0)
    weights = rng.dirichlet(np.ones(values.shape[1]))
    weighted = unit * weights
    result[valid] = np.exp(weighted.max(axis=1) + 0.05 * weighted.sum(axis=1))
    return result
