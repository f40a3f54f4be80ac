"""A Gaussian process of log time in the logarithms of the sizes, with a monomial as its mean.

| symbol | meaning | shape, unit |
|---|---|---|
| `points` | standardised logarithms of features and complexity | (n, inputs) |
| `targets` | log time, standardised | (n,) |
| ℓ, `lengths` | length scales of the inputs | (inputs,), 1 |
| `signal`, `slope`, `noise` | variances of the smooth part, of exponents, of the noise | targets² |
| `doubt` | factors of the noise of each instance, above 1 for outliers | (n,) |
| K, `inverse` | covariance of the targets, and its inverse | (n, n) |
| α | K⁻¹ `targets` | (n,) |

K = level + slope z zᵀ / inputs + signal Matérn(z / ℓ) + noise doubt I. The hyperparameters maximise
the likelihood times priors that keep a few instances from choosing extreme ones.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from tilewright.prediction.models.estimator import Estimator
from tilewright.prediction.models.inputs import ModelInputs

Array: TypeAlias = np.ndarray[Any, Any]
_AT_ONCE = 2000  # queries, whose distances to all points are in memory
_LEVEL = 4.0  # variance of the constant
_JITTER = 1e-8
# Logarithms of the hyperparameters at the two starts, and their bounds; half of them for variances.
_STARTS = ((0.7, -0.5, -0.5, -2.0), (1.8, 0.5, -1.0, -3.0))  # lengths, signal, slope, noise
_BOUNDS = ((-2.3, 4.6), (-5.0, 3.0), (-5.0, 3.0), (-6.0, 1.0))
# Normal priors: mean and standard deviation of those logarithms. None of the signal's.
_LENGTH, _SLOPE, _NOISE = (0.7, 1.2), (0.0, 1.5), (-3.0, 1.5)
_OUTLYING = 3.0  # robust standard deviations beyond which the noise of an instance is raised
_INPUTS = 30  # maximum number of inputs, the strongest ones


@dataclass(eq=False)
class GaussianProcess(Estimator):
    """A Gaussian process of log time: a monomial and Matérn 5/2 with a length for each input.

    Args:
        largest: the number of instances from which the hyperparameters are estimated.
        most: the number of instances of the process; a random subset of larger sets.
        steps: the maximum number of steps of the estimation.
    """

    kind: ClassVar[str] = "gp"

    largest: int = 400
    most: int = 2000
    steps: int = 60

    def _fit(self, data: Array, seconds: Array) -> None:
        with threadpool_limits(1):
            self._condition(data, np.log(seconds))

    def _condition(self, data: Array, logs: Array) -> None:
        columns = self._with_complexity(data)
        self.inputs_ = ModelInputs.fit(columns).strongest(columns, logs, _INPUTS)
        rows = np.random.default_rng(self.seed).permutation(len(data))[: self.most]
        points, logs = self.inputs_(columns[rows]), logs[rows]
        middle, unit = float(logs.mean()), float(logs.std()) or 1.0
        targets, doubt = (logs - middle) / unit, np.ones(len(rows))
        some = slice(self.largest)
        starts = [[start[0]] * len(self.inputs_) + list(start[1:]) for start in _STARTS]
        found = self._likeliest(starts, points[some], targets[some], doubt[some])
        for _ in range(2):
            covariance = _Covariance(found, points)
            inverse = np.linalg.inv(covariance(points) + np.diag(covariance.noise * doubt))
            alpha = inverse @ targets
            far = np.abs(alpha) / np.sqrt(np.diag(inverse))  # leave-one-out, in deviations
            usual = max(1.4826 * float(np.median(far)), 1e-9)
            if doubt.max() > 1 or far.max() < _OUTLYING * usual:
                break
            doubt = np.maximum(1.0, (far / (_OUTLYING * usual)) ** 2)
            found = self._likeliest([found], points[some], targets[some], doubt[some])
        self._inverse, self._alpha, self._rows = inverse * unit**-2, alpha / unit, rows
        self._scales = middle, unit**2, covariance.signal, covariance.slope
        self.lengths_ = covariance.lengths
        self.points_ = points / self.lengths_
        self._weigh(self._alpha)
        self.parameter_count_ = self.weights_.size + self.points_.size + self.slopes_.size + 1
        self.chosen_ = {
            "length_scales": self.lengths_.tolist(),
            "signal": unit * covariance.signal**0.5,
            "noise": unit * covariance.noise**0.5,
        }

    def _weigh(self, alpha: Array) -> None:
        """Set what a prediction needs from K⁻¹ targets, in units of log time."""
        middle, unit, signal, slope = self._scales
        self.weights_ = unit * signal * alpha
        self.slopes_ = unit * slope * ((self.points_ * self.lengths_).T @ alpha)
        self.constant_ = middle + unit * _LEVEL * float(alpha.sum())

    def _likeliest(self, starts: Any, points: Array, targets: Array, doubt: Array) -> Array:
        """Return the logarithms of the most likely hyperparameters."""
        from scipy.optimize import minimize

        bounds = [_BOUNDS[0]] * points.shape[1] + list(_BOUNDS[1:])
        found = [
            minimize(
                _unlikelihood,
                np.array(start),
                (points, targets, doubt),
                jac=True,
                bounds=bounds,
                method="L-BFGS-B",
                options={"maxiter": self.steps},
            )
            for start in starts
        ]
        return np.asarray(min(found, key=lambda f: float(f.fun)).x)

    def left_out(self, place: Array, logs: Array) -> Array:
        """Return log times of the training instances by the process without their fold, (n,).

        The hyperparameters are those of all instances. NaN for instances that the process does not
        use.

        Args:
            place: the fold of each instance, shape (n,).
            logs: their log times.
        """
        found = np.full(len(place), np.nan)
        for fold in np.unique(place[self._rows]):
            own = np.flatnonzero(place[self._rows] == fold)
            moved = np.linalg.solve(self._inverse[np.ix_(own, own)], self._alpha[own])
            found[self._rows[own]] = logs[self._rows[own]] - moved
        return found

    def without(self, instances: Array) -> GaussianProcess:
        """Return the process without some training instances, its hyperparameters kept.

        Args:
            instances: their places among the instances that it was fitted to.
        """
        own = np.flatnonzero(np.isin(self._rows, instances))
        moved = np.linalg.solve(self._inverse[np.ix_(own, own)], self._alpha[own])
        alpha = self._alpha - self._inverse[:, own] @ moved
        alpha[own] = 0.0
        lesser = copy.copy(self)
        lesser._weigh(alpha)
        return lesser

    def renumbered(self, places: Array) -> GaussianProcess:
        """Return the process for its training instances in another order.

        Args:
            places: where each instance that it was fitted to is in that order.
        """
        same = copy.copy(self)
        same._rows = places[self._rows]
        return same

    def _predict(self, data: Array) -> Array:
        inputs = self.inputs_(self._with_complexity(data))
        near = inputs / self.lengths_
        smooth = [
            matern(near[i : i + _AT_ONCE], self.points_) @ self.weights_
            for i in range(0, max(1, len(inputs)), _AT_ONCE)
        ]
        with np.errstate(over="ignore"):
            return np.asarray(
                np.exp(self.constant_ + inputs @ self.slopes_ + np.concatenate(smooth))
            )

    def _state(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs_.to_dict(),
            "constant": self.constant_,
            "slopes": self.slopes_.tolist(),
            "lengths": self.lengths_.tolist(),
            "points": self.points_.tolist(),
            "weights": self.weights_.tolist(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.inputs_ = ModelInputs.from_dict(state["inputs"])
        self.constant_ = float(state["constant"])
        self.slopes_ = np.asarray(state["slopes"], dtype=float)
        self.lengths_ = np.asarray(state["lengths"], dtype=float)
        self.weights_ = np.asarray(state["weights"], dtype=float)
        shape = len(self.weights_), len(self.lengths_)
        self.points_ = np.asarray(state["points"], dtype=float).reshape(shape)


class _Covariance:
    """Covariances without noise of queries with points, for logarithms of hyperparameters."""

    def __init__(self, logarithms: Array, points: Array) -> None:
        count = points.shape[1]
        self.points = points
        self.lengths = np.exp(logarithms[:count])
        signal, slope, noise = np.exp(2 * logarithms[count:]).tolist()
        self.signal, self.slope = float(signal), float(slope) / max(count, 1)
        self.noise = float(noise) + _JITTER

    def __call__(self, queries: Array) -> Array:
        smooth = matern(queries / self.lengths, self.points / self.lengths)
        return np.asarray(_LEVEL + self.slope * queries @ self.points.T + self.signal * smooth)


def _unlikelihood(
    logarithms: Array, points: Array, targets: Array, doubt: Array
) -> tuple[float, Array]:
    """Return the negative log posterior of the hyperparameters, and its gradient."""
    from scipy.linalg import LinAlgError, cho_factor, lapack

    count, covariance = points.shape[1], _Covariance(logarithms, points)
    scaled = points / covariance.lengths
    distance = _distances(scaled, scaled)
    decay = np.exp(-distance)
    linear = covariance.slope * points @ points.T
    smooth = covariance.signal * (1 + distance + distance**2 / 3) * decay
    try:
        gram = _LEVEL + linear + smooth + np.diag(covariance.noise * doubt)
        factor = cho_factor(gram, lower=True, check_finite=False)
    except LinAlgError:
        return 1e10, np.zeros_like(logarithms)
    # A third of the time of solving for the columns of the identity.
    lower, _ = lapack.dpotri(factor[0], lower=1)
    inverse = np.tril(lower) + np.tril(lower, -1).T
    alpha = inverse @ targets
    value = 0.5 * targets @ alpha + float(np.log(np.diag(factor[0])).sum())
    half = 0.5 * (inverse - np.outer(alpha, alpha))
    # d smooth / d log ℓ_i = steep (z_i - z_i')² / ℓ_i², summed without an array of (n, n, inputs).
    steep = half * (covariance.signal * 5 / 3 * (1 + distance) * decay)
    gradient = np.empty_like(logarithms)
    gradient[:count] = 2 * (
        (scaled**2 * steep.sum(axis=1)[:, None]).sum(axis=0) - (scaled * (steep @ scaled)).sum(0)
    )
    gradient[count:] = (
        2 * float((half * smooth).sum()),
        2 * float((half * linear).sum()),
        2 * covariance.noise * float(np.diag(half) @ doubt),
    )
    for place, (mean, width) in (
        (slice(count), _LENGTH),
        (slice(count + 1, count + 2), _SLOPE),
        (slice(count + 2, None), _NOISE),
    ):
        off = (logarithms[place] - mean) / width
        value += 0.5 * float(off @ off)
        gradient[place] += off / width
    return float(value), gradient


def _distances(a: Array, b: Array) -> Array:
    """Return √5 times the distances of scaled points, shape (len(a), len(b))."""
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.asarray(np.sqrt(5 * np.maximum(squares, 0.0)))


def matern(a: Array, b: Array) -> Array:
    """Matérn 5/2 correlations of scaled points, shape (len(a), len(b))."""
    distance = _distances(a, b)
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance))
