"""A model of performance that averages many randomised trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from tilewright.patterns.ranking.models import log_performance, scikit_learn_for

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(eq=False)
class RandomisedTrees:
    """Extremely randomised trees of log performance (Geurts et al. 2006).

    Fitting needs scikit-learn.

    Args:
        trees: the number of trees, whose predictions are averaged. With 300, unseen stencils are
            ranked as well, and fitting takes three times as long.
        leaf: the minimum number of points per leaf; repeated times differ by some 10%.
        seed: the seed of the splits.
    """

    trees: int = 100
    leaf: int = 2
    seed: int = 0

    def fit(self, features: Any, performance: Any) -> Self:
        """Fit the trees.

        Args:
            features: of shape (points, features), at least one point.
            performance: of shape (points,), positive.

        Raises:
            PatternError: scikit-learn is not installed, or a performance is not positive.
        """
        with scikit_learn_for("RandomisedTrees"):
            from sklearn.ensemble import ExtraTreesRegressor

        logs = log_performance(performance)
        self.trees_ = ExtraTreesRegressor(
            self.trees,
            min_samples_leaf=min(self.leaf, max(1, len(logs) // 2)),
            random_state=self.seed,
            n_jobs=1,
        ).fit(np.asarray(features, dtype=float), logs)
        return self

    def predict(self, features: Any) -> Array:
        """Return predicted performance, shape (n,), for features of shape (n, features)."""
        return np.asarray(np.exp(self.trees_.predict(np.asarray(features, dtype=float))))
