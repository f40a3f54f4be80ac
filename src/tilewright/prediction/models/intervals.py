"""Prediction intervals from held-out residuals, scaled to how uncertain each query is.

Split-conformal quantiles of signed residuals in log time (Lei et al. 2018, "Distribution-free
predictive inference for regression", their locally weighted form), the residuals being those of
cross-validation (Barber et al. 2021, "Predictive inference with the jackknife+"). Where the models
of its folds disagree, between and beyond the training instances, the scale grows by their spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
_KNOTS = 9  # of the scale
_WIDTH = 0.12  # of the neighbourhood, as a share of the instances
_TRUST = 0.8  # of the local scale against the overall one
_LARGEST = 6.0  # maximum size of a residual, in medians
# Share of the spread among the folds' models that adds to the scale, chosen for the coverage of
# gaps and larger sizes on two thirds of the data sets in benchmarks/data/prediction.
SPREAD = 0.75
UNSURE = 2.0  # in scales; a larger spread makes an interval more than twice as wide


@dataclass(frozen=True)
class IntervalCalibration:
    """The distances of measured times from held-out predictions.

    Attributes:
        residuals: sorted log(measured / predicted), each divided by its scale. Shape (n,).
        knots: log predictions, ascending, shape (k,).
        scale: of the residuals there, shape (k,), linear between the knots and constant beyond
            them.
        error: the error of the held-out predictions, mean absolute relative error without the 30%
            of instances that run shortest.
    """

    residuals: Array
    knots: Array
    scale: Array
    error: float

    @classmethod
    def fit(
        cls, predicted: Array, measured: Array, spread: Array | None = None
    ) -> IntervalCalibration:
        """Calibrate from held-out predictions and measured times, seconds of shape (n,).

        `spread` is the distance between models of the same instances there, in log time, shape
        (n,).
        """
        logs = np.log(predicted)
        residuals = np.log(measured) - logs
        knots, scale = _local_scale(logs, residuals)
        found = cls(residuals, knots, scale, thresholded(predicted, measured))
        return replace(found, residuals=np.sort(residuals / found.scales(predicted, spread)))

    def scales(self, predicted: Array, spread: Array | None = None) -> Array:
        """Return the scale of the log residual for predictions in seconds, shape (n,).

        `spread` is as in `fit`.
        """
        local = np.interp(np.log(predicted), self.knots, self.scale)
        return np.asarray(local if spread is None else np.hypot(local, SPREAD * spread))

    def unsure(self, predicted: Array, spread: Array) -> Array:
        """Return whether the spread is most of an interval's width, booleans (n,)."""
        return np.asarray(SPREAD * spread > UNSURE * self.scales(predicted))

    def interval(
        self, predicted: Array, coverage: float, spread: Array | None = None
    ) -> tuple[Array, Array]:
        """Return the interval in seconds around predictions in seconds; `spread` as in `fit`."""
        low, high = self.quantiles(coverage)
        scales = self.scales(predicted, spread)
        with np.errstate(over="ignore"):
            return predicted * np.exp(low * scales), predicted * np.exp(high * scales)

    def quantiles(self, coverage: float) -> tuple[float, float]:
        """Return quantiles of the scaled residuals, corrected for their finite number.

        With n residuals, they cover at most (n - 1) / (n + 1), so that a coverage c needs
        (1 + c) / (1 - c) residuals; for fewer, they are the smallest and the largest residual.
        """
        n = len(self.residuals)
        tail = (1 - coverage) / 2
        below = math.floor(tail * (n + 1))
        low = self.residuals[max(0, below - 1)]
        high = self.residuals[min(n - 1, n - below)]
        return float(low), float(high)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {
            "residuals": self.residuals.tolist(),
            "knots": self.knots.tolist(),
            "scale": self.scale.tolist(),
            "error": self.error,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> IntervalCalibration:
        """Return the inverse of `to_dict`.

        Raises:
            ValueError: the arrays have wrong lengths.
        """
        residuals, knots, scale = (
            np.asarray(data[key], dtype=float) for key in ("residuals", "knots", "scale")
        )
        if not (residuals.ndim == knots.ndim == 1 and len(residuals) and len(knots)):
            raise ValueError("the calibration has no residuals, or no knots")
        if knots.shape != scale.shape:
            raise ValueError(f"{len(knots)} knots have {scale.size} scales")
        return cls(residuals, knots, scale, float(data["error"]))


def thresholded(predicted: Array, measured: Array, dropped: float = 0.3) -> float:
    """Return the paper's MAPE: without the share of instances that run shortest (Section IV-E)."""
    long = measured >= np.quantile(measured, dropped)
    return float(np.mean(np.abs(predicted[long] / measured[long] - 1)))


def _local_scale(logs: Array, residuals: Array) -> tuple[Array, Array]:
    """Knots among the log predictions, and the mean size of the residuals around each.

    Neighbours count by their distance in rank, so that no knot rests on few instances, and an
    outlier counts as a few times the median.
    """
    order = np.argsort(logs, kind="stable")
    size = np.abs(residuals[order])
    typical = max(float(np.median(size)), 1e-9)
    size = np.clip(size, 0.1 * typical, _LARGEST * typical)
    rank = (np.arange(len(size)) + 0.5) / len(size)
    at = np.linspace(0, 1, _KNOTS)
    weight = np.exp(-0.5 * ((rank - at[:, None]) / _WIDTH) ** 2)
    weight /= weight.sum(axis=1, keepdims=True)
    local = np.exp(weight @ np.log(size))
    overall = float(np.exp(np.log(size).mean()))
    scale = local**_TRUST * overall ** (1 - _TRUST)
    knots = np.quantile(logs, at)
    return knots + 1e-12 * np.arange(_KNOTS), scale
