"""The interface of models that rank candidates: any object with ``fit`` and ``predict``.

Performance is throughput over the best throughput of the same program and sizes, so that programs
with different numbers of operations can be compared (Lift 2020, section 5.1). Larger is better.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias

import numpy as np

from tilewright.patterns.errors import PatternError

Array: TypeAlias = np.ndarray[Any, Any]

LEAST_TIME = 1e-3  # multiple of the best time, to which smaller predictions are raised


class PerformanceModel(Protocol):
    """Predicts performance from features; `NearestNeighbours` is one, `FromRunTimes` another."""

    def fit(self, features: Any, performance: Any) -> Any:
        """Learn from features of shape (points, features), and performance of shape (points,)."""

    def predict(self, features: Any) -> Array:
        """Return performance of shape (n,) for features of shape (n, features)."""


class RunTimeModel(Protocol):
    """Predicts run times from features, as the estimators of `tilewright.prediction` do."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from features X of shape (points, features), and times y of shape (points,)."""

    def predict(self, X: Any) -> Array:
        """Return times of shape (n,) for features X of shape (n, features)."""


@contextmanager
def scikit_learn_for(model: str) -> Iterator[None]:
    """Turn an import error of scikit-learn into one that says what to install.

    Raises:
        PatternError: scikit-learn cannot be imported.
    """
    try:
        yield
    except ImportError as error:
        raise PatternError(
            f"{model} is fitted by scikit-learn, which cannot be imported ({error}): "
            "pip install 'tilewright[prediction]', or use NearestNeighbours"
        ) from error


def log_performance(performance: Any) -> Array:
    """Return the logarithms of performance, shape (points,).

    Raises:
        PatternError: a performance is not positive.
    """
    wanted = np.asarray(performance, dtype=float)
    if not (wanted > 0).all():
        raise PatternError(f"a performance is {wanted.min():g}; give positive numbers only")
    return np.asarray(np.log(wanted))


@dataclass(eq=False)
class GeometricMean:
    """The geometric mean of the predictions of several models.

    Args:
        models: the models, all fitted to the same points.
    """

    models: tuple[PerformanceModel, ...]

    def fit(self, features: Any, performance: Any) -> Self:
        """Fit all models, as `PerformanceModel` does; errors are those of the models."""
        for model in self.models:
            model.fit(features, performance)
        return self

    def predict(self, features: Any) -> Array:
        """Return predicted performance, shape (n,), for features of shape (n, features)."""
        each = [np.maximum(model.predict(features), LEAST_TIME) for model in self.models]
        return np.asarray(np.exp(np.mean(np.log(each), axis=0)))


@dataclass(eq=False)
class FromRunTimes:
    """A performance model made of a model of run times.

    The estimator learns run times relative to the program's best time: the inverse of performance.

    Args:
        estimator: a model of run times, such as ``tilewright.prediction.Boosted(folds=0)``.
    """

    estimator: RunTimeModel

    def fit(self, features: Any, performance: Any) -> Self:
        """Fit the estimator, as `PerformanceModel` does; errors are those of the estimator."""
        self.estimator.fit(np.asarray(features, dtype=float), 1 / np.asarray(performance))
        return self

    def predict(self, features: Any) -> Array:
        """Return predicted performance, shape (n,), for features of shape (n, features)."""
        times = self.estimator.predict(np.asarray(features, dtype=float))
        return np.asarray(1 / np.maximum(times, LEAST_TIME))
