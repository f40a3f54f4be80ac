"""A model of performance that extrapolates: a linear trend, corrected by trees.

| symbol | meaning | shape |
|---|---|---|
| `features` | features of kernels | (points, features) |
| `performance` | throughput over the best throughput of the same program, 0 to 1 | (points,) |
| `inputs` | sign(feature) log(1 + abs(feature)) | (points, features) |

Trees do not extrapolate. For a program with more work per point than all training programs, the
trend determines the ranking; its few parameters and its penalty keep it from diverging.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from tilewright.patterns.ranking.models import log_performance, scikit_learn_for

Array: TypeAlias = np.ndarray[Any, Any]

PENALTIES = np.logspace(-1, 4, 12)  # candidate weights of the penalty; cross-validation selects


@dataclass(eq=False)
class TrendAndTrees:
    """Ridge regression of log performance, and gradient boosting of its residuals.

    Fitting needs scikit-learn. Sources: Hoerl and Kennard 1970; Friedman 2001 and 2002.

    Args:
        trees: the number of trees.
        rate: the learning rate, a factor of each tree's prediction.
        depth: the maximum depth of a tree.
        subsample: the share of the points that each tree is fitted to.
        leaf: the minimum number of points per leaf.
        seed: the seed of the subsamples.
    """

    trees: int = 150
    rate: float = 0.05
    depth: int = 3
    subsample: float = 0.7
    leaf: int = 8
    seed: int = 0

    def fit(self, features: Any, performance: Any) -> Self:
        """Fit the trend and the trees.

        Args:
            features: of shape (points, features), at least one point.
            performance: of shape (points,), positive.

        Raises:
            PatternError: scikit-learn is not installed, or a performance is not positive.
        """
        with scikit_learn_for("TrendAndTrees"):
            from sklearn.ensemble import GradientBoostingRegressor
            from sklearn.linear_model import RidgeCV
            from sklearn.pipeline import make_pipeline
            from sklearn.preprocessing import StandardScaler

        inputs, logs = _logarithms(features), log_performance(performance)
        self.trend_ = make_pipeline(StandardScaler(), RidgeCV(PENALTIES)).fit(inputs, logs)
        self.trees_ = GradientBoostingRegressor(
            loss="huber",
            n_estimators=self.trees,
            learning_rate=self.rate,
            max_depth=self.depth,
            subsample=self.subsample,
            min_samples_leaf=min(self.leaf, max(1, len(logs) // 4)),
            random_state=self.seed,
        ).fit(inputs, logs - self.trend_.predict(inputs))
        return self

    def predict(self, features: Any) -> Array:
        """Return predicted performance, shape (n,), for features of shape (n, features)."""
        inputs = _logarithms(features)
        return np.asarray(np.exp(self.trend_.predict(inputs) + self.trees_.predict(inputs)))


def _logarithms(features: Any) -> Array:
    """Return the `inputs` of the regression."""
    table = np.asarray(features, dtype=float)
    return np.asarray(np.sign(table) * np.log1p(np.abs(table)))
