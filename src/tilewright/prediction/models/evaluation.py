"""Evaluation of predictions: the paper's error, rank correlation, coverage of intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilewright.prediction.data.runs import noise_floor
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.models.censored import fit_censored
from tilewright.prediction.models.estimator import Estimator
from tilewright.prediction.models.intervals import thresholded
from tilewright.prediction.models.tables import names_of, table, times

Array: TypeAlias = np.ndarray[Any, Any]
# Further nominal probabilities at which the intervals' coverage is reported.
NOMINAL = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Evaluation:
    """Predicted and measured times, side by side.

    Attributes:
        measured: seconds, shape (n,).
        predicted: seconds, shape (n,).
        outside: whether each query lies outside the training range, booleans (n,).
        nominal: the probability of the intervals.
        low: their lower bounds in seconds, shape (n,); None for a model without intervals.
        high: their upper bounds.
        coverages: the share of times inside the intervals, for some nominal probabilities.
        floor: the noise floor of the measured times, if they were measured twice.
    """

    measured: Array
    predicted: Array
    outside: Array
    nominal: float = 0.9
    low: Array | None = None
    high: Array | None = None
    coverages: Mapping[float, float] | None = None
    floor: float | None = None

    def __len__(self) -> int:
        return len(self.measured)

    @property
    def errors(self) -> Array:
        """Relative errors, predicted / measured - 1, shape (n,)."""
        return np.asarray(self.predicted / self.measured - 1)

    @property
    def mape(self) -> float:
        """Mean absolute relative error of all instances, 0.05 for 5%."""
        return float(np.abs(self.errors).mean())

    @property
    def mape_long(self) -> float:
        """The paper's error: without the 30% of the instances that run shortest (Section IV-E)."""
        return thresholded(self.predicted, self.measured)

    @property
    def median_error(self) -> float:
        """Median absolute relative error, which outliers hardly move."""
        return float(np.median(np.abs(self.errors)))

    @property
    def spearman(self) -> float | None:
        """Spearman's rank correlation; None if all times or all predictions are equal."""
        if np.ptp(self.measured) == 0 or np.ptp(self.predicted) == 0:
            return None
        from scipy.stats import rankdata

        ranks = rankdata(self.predicted), rankdata(self.measured)
        return float(np.corrcoef(*ranks)[0, 1])

    @property
    def inside(self) -> Array | None:
        """Whether each measured time lies in its interval, booleans (n,)."""
        if self.low is None or self.high is None:
            return None
        return np.asarray((self.low <= self.measured) & (self.measured <= self.high))

    @property
    def coverage(self) -> float | None:
        """The share of measured times in their intervals."""
        inside = self.inside
        return None if inside is None else float(inside.mean())

    @property
    def width(self) -> float | None:
        """The median of an interval's upper over its lower bound."""
        if self.low is None or self.high is None:
            return None
        return float(np.median(self.high / self.low))

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON data."""
        return {
            "rows": len(self),
            "mape": self.mape,
            "mape_without_shortest_30_percent": self.mape_long,
            "median_error": self.median_error,
            "spearman": self.spearman,
            "nominal_coverage": None if self.coverage is None else self.nominal,
            "coverage": self.coverage,
            "interval_ratio": self.width,
            "outside_training_range": int(self.outside.sum()),
            "noise_floor": self.floor,
        }


def evaluate(
    model: Estimator, X: Any, y: Any, *, coverage: float = 0.9, retimes: Any = None
) -> Evaluation:
    """Evaluate a model on instances whose times are known.

    Args:
        model: a model fitted to other instances.
        X: the instances, as for ``predict``.
        y: measured seconds, shape (n,).
        coverage: nominal probability of the intervals.
        retimes: an independent second measurement, for the noise floor.

    Raises:
        PredictionError: data that cannot be used, no instance, or a model that is not fitted.
    """
    predicted = model.predict(X)
    measured = times(y, len(predicted))
    if not len(measured):
        raise PredictionError("there are no runs to evaluate the model on")
    low = high = coverages = None
    if getattr(model, "calibration_", None) is not None:
        low, high = model.predict_interval(X, coverage)
        coverages = {}
        for nominal in sorted({*NOMINAL, coverage}):
            bounds = model.predict_interval(X, nominal)
            coverages[nominal] = float(np.mean((bounds[0] <= measured) & (measured <= bounds[1])))
    return Evaluation(
        measured, predicted, model.outside(X), coverage, low, high, coverages, _floor(y, retimes)
    )


def cross_validate(
    model: Estimator,
    X: Any,
    y: Any,
    *,
    folds: int = 5,
    coverage: float = 0.9,
    retimes: Any = None,
    censored: Any = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> Evaluation:
    """Predict every instance by a model that was fitted without it.

    Args:
        model: the model whose parameters are used; it is not changed.
        X: instances.
        y: seconds, shape (n,).
        folds: the number of parts that the instances are divided into.
        coverage: nominal probability of the intervals.
        retimes: an independent second measurement, for the noise floor.
        censored: whether each run was stopped, booleans (n,); such runs are fitted to
            (`fit_censored`), but not predicted.
        on_progress: called with the number of folds done and their total.

    Raises:
        PredictionError: data that cannot be used, or fewer than four instances.
    """
    names = names_of(X, model.features)
    data = table(X, names, model.levels)
    measured = times(y, len(data))
    if len(data) < 4:
        raise PredictionError(f"there are {len(data)} runs; cross-validation needs at least 4")
    ended = (
        np.ones(len(data), dtype=bool) if censored is None else ~np.asarray(censored, dtype=bool)
    )
    folds = max(2, min(folds, len(data) // 2))
    place = np.random.default_rng([model.seed, 3]).permutation(len(data)) % folds
    parts: list[Evaluation] = []
    rows: list[Array] = []
    for fold in range(folds):
        if on_progress is not None:
            on_progress(fold, folds)
        out = place == fold
        fresh = type(model)(**{**model.get_params(), "features": names})
        fit_censored(fresh, data[~out], measured[~out], ~ended[~out])
        tested = out & ended
        if not tested.any():
            continue
        parts.append(evaluate(fresh, data[tested], measured[tested], coverage=coverage))
        rows.append(np.flatnonzero(tested))
    if on_progress is not None:
        on_progress(folds, folds)
    order = np.argsort(np.concatenate(rows))

    def whole(values: list[Any]) -> Any:
        return None if any(v is None for v in values) else np.concatenate(values)[order]

    again = None if retimes is None else np.asarray(retimes, dtype=float)[ended]
    return Evaluation(
        measured[ended],
        whole([p.predicted for p in parts]),
        whole([p.outside for p in parts]),
        coverage,
        whole([p.low for p in parts]),
        whole([p.high for p in parts]),
        _coverages(parts),
        _floor(measured[ended], again),
    )


def _coverages(parts: Sequence[Evaluation]) -> dict[float, float] | None:
    """Return the coverages of all parts together; None if a part has none."""
    if any(part.coverages is None for part in parts):
        return None
    total = sum(map(len, parts))
    return {
        nominal: sum(len(p) * (p.coverages or {})[nominal] for p in parts) / total
        for nominal in parts[0].coverages or {}
    }


def _floor(y: Any, retimes: Any) -> float | None:
    if retimes is None:
        return None
    first, second = np.asarray(y, dtype=float), np.asarray(retimes, dtype=float)
    known = np.isfinite(second)
    return noise_floor(first[known], second[known]) if known.any() else None
