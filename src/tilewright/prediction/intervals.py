"""Prediction intervals from held-out residuals, scaled to how uncertain each query is.

Split-conformal quantiles of signed residuals in log time (Lei et al. 2018, "Distribution-free
predictive inference for regression", their locally weighted form), the residuals being those of
cross-validation (Barber et al. 2021, "Predictive inference with the jackknife+").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
_MOMENTS = 3


@dataclass(frozen=True)
class Calibration:
    """How far measured times lie from held-out predictions.

    Attributes:
        residuals: sorted log(measured / predicted), each divided by its scale. Shape (n,).
        scale: coefficients of the log scale in the standardised log prediction, constant first.
        centre: mean of the log predictions. spread: their standard deviation.
        error: of the held-out predictions, mean absolute relative error without the 30% of
            instances that run shortest.
        low: smallest standardised log prediction that was seen. high: the largest.
    """

    residuals: Array
    scale: Array
    centre: float
    spread: float
    low: float
    high: float
    error: float

    @classmethod
    def fit(cls, predicted: Array, measured: Array) -> Calibration:
        """From held-out predictions and the measured times, seconds of shape (n,)."""
        residuals = np.log(measured) - np.log(predicted)
        logs = np.log(predicted)
        centre, spread = float(logs.mean()), float(logs.std()) or 1.0
        position = (logs - centre) / spread
        scale = _fit_scale(position, residuals)
        low, high = float(position.min()), float(position.max())
        unscaled = cls(np.zeros(1), scale, centre, spread, low, high, 0.0)
        scaled = np.sort(residuals / unscaled.scales(predicted))
        return cls(scaled, scale, centre, spread, low, high, thresholded(predicted, measured))

    def scales(self, predicted: Array) -> Array:
        """The scale of the log residual for predictions in seconds, shape (n,)."""
        position = (np.log(predicted) - self.centre) / self.spread
        return np.exp(
            np.polynomial.polynomial.polyval(np.clip(position, self.low, self.high), self.scale)
        )

    def interval(self, predicted: Array, coverage: float) -> tuple[Array, Array]:
        """The interval in seconds around predictions in seconds."""
        low, high = self.quantiles(coverage)
        scales = self.scales(predicted)
        return predicted * np.exp(low * scales), predicted * np.exp(high * scales)

    def quantiles(self, coverage: float) -> tuple[float, float]:
        """Of the scaled residuals, with the correction for a finite number of them."""
        n = len(self.residuals)
        tail = (1 - coverage) / 2
        below = math.floor(tail * (n + 1))
        low = self.residuals[max(0, below - 1)]
        high = self.residuals[min(n - 1, n - below)]
        return float(low), float(high)

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "residuals": self.residuals.tolist(),
            "scale": self.scale.tolist(),
            "centre": self.centre,
            "spread": self.spread,
            "low": self.low,
            "high": self.high,
            "error": self.error,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Calibration:
        """The inverse of `to_dict`."""
        return cls(
            np.asarray(data["residuals"], dtype=float),
            np.asarray(data["scale"], dtype=float),
            float(data["centre"]),
            float(data["spread"]),
            float(data["low"]),
            float(data["high"]),
            float(data["error"]),
        )


def thresholded(predicted: Array, measured: Array, dropped: float = 0.3) -> float:
    """The paper's MAPE: without the share of instances that run shortest (Section IV-E)."""
    long = measured >= np.quantile(measured, dropped)
    return float(np.mean(np.abs(predicted[long] / measured[long] - 1)))


def _fit_scale(position: Array, residuals: Array) -> Array:
    """Coefficients of a smooth log scale: a Gaussian likelihood of clipped residuals, shrunk."""
    size = np.abs(residuals)
    typical = max(float(np.median(size)), 1e-9)
    size = np.clip(size, 0.05 * typical, 6 * typical)
    basis = np.polynomial.polynomial.polyvander(position, _MOMENTS - 1)
    # Regression of log |residual|; its mean is off by a constant, which the quantiles absorb.
    penalty = np.diag([1e-9, *([0.05 * len(position)] * (_MOMENTS - 1))])
    gram = basis.T @ basis + penalty
    return np.linalg.solve(gram, basis.T @ np.log(size))
