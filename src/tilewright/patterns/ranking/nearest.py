"""The performance model of Lift 2020, section 5: principal components and nearest neighbours.

| symbol | meaning | shape |
|---|---|---|
| `features` | features of kernels (`tilewright.patterns.features`) | (points, features) |
| `performance` | throughput over the best throughput of the same program, 0 to 1 | (points,) |
| `axes_` | principal components of the standardised features | (features, components) |
| `places_` | training points in the coordinates of the components | (points, components) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from tilewright.patterns.errors import PatternError

Array: TypeAlias = np.ndarray[Any, Any]

NEIGHBOURS = 5  # section 5.3
VARIANCE = 0.95  # share of the variance that the components explain (section 5.2)
MOST_DISTANCES = 2**22  # distances in memory at a time: 32 MiB
TIED = 1e-9  # relative difference of squared distances below which they are equal
ROUNDING = 1e-12  # tolerance for rounding of sums of shares of the variance


@dataclass(eq=False)
class NearestNeighbours:
    """Prediction of performance as the mean over the nearest training points.

    Distances are between coordinates of principal components.

    Args:
        neighbours: the number of training points to average.
        variance: the share of the features' variance that the components explain.
        logarithms: take sign(feature) log(1 + abs(feature)) first; the paper does not.
    """

    neighbours: int = NEIGHBOURS
    variance: float = VARIANCE
    logarithms: bool = False

    def fit(self, features: Any, performance: Any) -> Self:
        """Store the training points.

        Args:
            features: of shape (points, features), at least one point.
            performance: of shape (points,).

        Raises:
            PatternError: the settings or shapes do not fit, or a number is not finite.
        """
        if self.neighbours < 1 or not 0 < self.variance <= 1:
            raise PatternError(
                f"neighbours is {self.neighbours} and variance {self.variance}; give a whole "
                "number from 1, and a share above 0 up to 1"
            )
        table = self._table(features)
        self.performance_ = np.asarray(performance, dtype=float)
        if not len(table) or self.performance_.shape != (len(table),):
            raise PatternError(
                f"{len(table)} rows of features and performance of shape "
                f"{self.performance_.shape}; give one number for each of at least one row"
            )
        if not np.isfinite(self.performance_).all():
            raise PatternError("a performance is not a finite number: leave failed points out")
        self.mean_ = table.mean(axis=0)
        deviation = table.std(axis=0)
        # A constant column is ignored: standardising it would divide zero by zero.
        self.scale_ = np.where(deviation > 0, deviation, 1.0)
        _, singular, rows = np.linalg.svd((table - self.mean_) / self.scale_, full_matrices=False)
        self.explained_ = _shares(singular)
        count = int(np.searchsorted(np.cumsum(self.explained_), self.variance - ROUNDING)) + 1
        self.axes_ = rows[: min(count, len(self.explained_))].T
        self.places_ = self._places(table)
        return self

    def predict(self, features: Any) -> Array:
        """Return predicted performance, shape (n,), for features of shape (n, features).

        Raises:
            PatternError: the number of features differs from that of ``fit``, or one is not
                finite.
        """
        places = self._places(self._table(features))
        if not self.axes_.shape[1]:
            return np.full(len(places), self.performance_.mean())
        count = min(self.neighbours, len(self.places_))
        step = max(1, MOST_DISTANCES // len(self.places_))
        found = np.empty(len(places))
        norms = (self.places_**2).sum(axis=1)
        for start in range(0, len(places), step):
            block = places[start : start + step]
            # The query's squared norm is omitted: it does not change the order of its distances.
            distances = norms - 2 * block @ self.places_.T
            found[start : start + step] = self._mean_of_nearest(distances, count, norms.max())
        return found

    def _mean_of_nearest(self, distances: Array, count: int, largest: float) -> Array:
        """Return the mean performance of the `count` nearest points, shape (n,).

        Points that are as far as the last one count equally: kernels that differ only in what the
        features do not see lie in one place, and rounding, which depends on the processor, must
        not choose among them.
        """
        last = np.partition(distances, count - 1, axis=1)[:, count - 1 : count]
        slack = TIED * (largest + np.abs(last))
        nearer, tied = distances < last - slack, np.abs(distances - last) <= slack
        places = count - nearer.sum(axis=1)
        share = np.asarray(places / tied.sum(axis=1))[:, None]
        weights = np.where(nearer, 1.0, np.where(tied, share, 0.0))
        return np.asarray((weights * self.performance_).sum(axis=1) / count)

    def _table(self, features: Any) -> Array:
        table = np.asarray(features, dtype=float)
        if table.ndim != 2:
            raise PatternError(f"features of shape {table.shape}; give one row for each point")
        if not np.isfinite(table).all():
            raise PatternError("a feature is not a finite number")
        return np.sign(table) * np.log1p(np.abs(table)) if self.logarithms else table

    def _places(self, table: Array) -> Array:
        if table.shape[1] != len(self.mean_):
            raise PatternError(
                f"{table.shape[1]} features; the model was fitted to {len(self.mean_)}"
            )
        return np.asarray((table - self.mean_) / self.scale_ @ self.axes_)


def _shares(singular: Array) -> Array:
    """Return the share of the variance that each component explains; empty if none varies."""
    variances = singular**2
    total = variances.sum()
    return np.asarray(variances / total) if total > 0 else np.zeros(0)
