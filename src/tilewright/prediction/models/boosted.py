"""Models without a limit on their size: gradient boosting and a Gaussian process, on log time.

Both model the residuals of our default model, which provides the trend.

| symbol | meaning | shape, unit |
|---|---|---|
| `data` | features of the training instances | (n, features) |
| `seconds` | their run times | (n,), seconds |
| `inputs` | standardised logarithms of features and complexity | (n, inputs) |
| `rest` | log (measured / trend), clipped | (n,), log |
| `lengths_` | length scales of the inputs | (inputs,), 1 |
| `signal_` | variance of `rest` without noise | log² |
| `points_` | inputs over their length scales | (n, inputs) |
| `weights_` | (K + noise I)⁻¹ rest | (n,) |
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from tilewright.prediction.errors import scikit_learn_for
from tilewright.prediction.models.augmented import Augmented
from tilewright.prediction.models.estimator import Estimator
from tilewright.prediction.models.inputs import ModelInputs
from tilewright.prediction.models.trees import Trees

Array: TypeAlias = np.ndarray[Any, Any]
_AT_ONCE = 2000  # queries, whose distances to all points are in memory
_OUTLYING = 4.0  # robust standard deviations that a residual counts for at most


def _trend(model: Estimator, data: Array, seconds: Array) -> tuple[Augmented, Array]:
    """Return our default model, fitted, and its residuals in log time, with outliers clipped."""
    names = model.names_
    trend = Augmented(
        features=names, complexity=model.complexity, folds=0, seed=model.seed, max_seconds=None
    ).fit(data, seconds)
    rest = np.log(seconds / np.maximum(trend._predict(data), 1e-300))
    most = _OUTLYING * max(1.4826 * float(np.median(np.abs(rest))), 1e-6)
    return trend, np.clip(rest, -most, most)


@dataclass(eq=False)
class Boosted(Estimator):
    """Gradient boosting of our default model's residuals in log time, with Huber's loss.

    Args:
        trees: the number of trees (Friedman 2001, 2002).
        rate: the factor of each tree's prediction.
        depth: the maximum depth of a tree.
        subsample: the share of the instances that each tree is fitted to.
        leaf: the minimum number of instances in a leaf.
    """

    kind: ClassVar[str] = "boosted"

    trees: int = 150
    rate: float = 0.05
    depth: int = 3
    subsample: float = 0.7
    leaf: int = 8

    def _fit(self, data: Array, seconds: Array) -> None:
        with scikit_learn_for("Boosted"):
            from sklearn.ensemble import GradientBoostingRegressor

        self.inputs_ = ModelInputs.fit(self._with_complexity(data))
        inputs = self.inputs_(self._with_complexity(data))
        self.trend_, rest = _trend(self, data, seconds)
        boosting = GradientBoostingRegressor(
            loss="huber",
            n_estimators=self.trees,
            learning_rate=self.rate,
            max_depth=self.depth,
            subsample=self.subsample,
            min_samples_leaf=min(self.leaf, max(1, len(data) // 4)),
            init="zero",
            random_state=self.seed,
        )
        # If no column varies there is still a constant.
        boosting.fit(inputs if len(self.inputs_) else np.ones((len(data), 1)), rest)
        self.trees_ = Trees.from_sklearn(list(boosting.estimators_[:, 0]), self.rate)
        self.parameter_count_ = len(self.trees_.value) + self.trend_.parameter_count_
        self.chosen_ = {"trees": self.trees, "nodes": len(self.trees_.value)}

    def _predict(self, data: Array) -> Array:
        inputs = self.inputs_(self._with_complexity(data))
        return np.asarray(self.trend_._predict(data) * np.exp(self.trees_(inputs)))

    def _state(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs_.to_dict(),
            "trend": self.trend_.to_dict(),
            "trees": self.trees_.to_dict(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.inputs_ = ModelInputs.from_dict(state["inputs"])
        self.trend_ = Augmented.from_dict(state["trend"])
        self.trees_ = Trees.from_dict(state["trees"])


@dataclass(eq=False)
class GaussianProcess(Estimator):
    """A Gaussian process of our default model's residuals in log time: Matérn 5/2, ARD.

    Args:
        largest: the number of instances from which the hyperparameters are estimated.
        most: the number of instances of the process; a random subset of larger sets.
        steps: the maximum number of steps of the estimation.
    """

    kind: ClassVar[str] = "gp"

    largest: int = 400
    most: int = 2500
    steps: int = 40

    def _fit(self, data: Array, seconds: Array) -> None:
        from scipy.linalg import cho_factor, cho_solve
        from scipy.optimize import minimize

        with scikit_learn_for("GaussianProcess"):
            from sklearn.exceptions import ConvergenceWarning
            from sklearn.gaussian_process import GaussianProcessRegressor
            from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        self.inputs_ = ModelInputs.fit(self._with_complexity(data))
        inputs = self.inputs_(self._with_complexity(data))
        self.trend_, rest = _trend(self, data, seconds)

        def optimise(objective: Any, start: Array, bounds: Any) -> tuple[Array, float]:
            options = {"maxiter": self.steps}
            found = minimize(objective, start, jac=True, bounds=bounds, options=options)
            return found.x, found.fun

        if not len(self.inputs_):  # no column varies
            self.signal_ = 0.0
            self.lengths_, self.weights_ = np.zeros(0), np.zeros(0)
            self.points_ = np.zeros((0, 0))
            self.parameter_count_ = self.trend_.parameter_count_
            return
        unit = float(rest.std()) or 1.0
        kernel = ConstantKernel(0.5, (1e-6, 1e2)) * Matern(
            np.full(inputs.shape[1], 2.0), (5e-2, 1e3), nu=2.5
        ) + WhiteKernel(0.5, (1e-3, 1e1))
        regressor = GaussianProcessRegressor(kernel, optimizer=optimise, random_state=self.seed)
        order = np.random.default_rng(self.seed).permutation(len(inputs))
        subset = order[: self.largest]
        with warnings.catch_warnings():  # a length scale at its bound: an input that is of no use
            warnings.simplefilter("ignore", ConvergenceWarning)
            regressor.fit(inputs[subset], rest[subset] / unit)
        found = regressor.kernel_
        signal = float(found.k1.k1.constant_value) * unit**2
        noise = float(found.k2.noise_level) * unit**2
        self.lengths_ = np.atleast_1d(found.k1.k2.length_scale).astype(float)
        self.signal_ = signal
        kept = np.sort(order[: self.most])
        rest = rest[kept]
        self.points_ = inputs[kept] / self.lengths_
        gram = signal * matern(self.points_, self.points_)
        gram.flat[:: len(gram) + 1] += noise + 1e-9 * signal
        self.weights_ = cho_solve(cho_factor(gram, lower=True), rest)
        self.parameter_count_ = self.weights_.size + self.points_.size
        self.parameter_count_ += self.trend_.parameter_count_
        self.chosen_ = {
            "length_scales": self.lengths_.tolist(),
            "signal": signal**0.5,
            "noise": noise**0.5,
        }

    def _predict(self, data: Array) -> Array:
        inputs = self.inputs_(self._with_complexity(data)) / self.lengths_
        corrections = [
            self.signal_ * matern(inputs[i : i + _AT_ONCE], self.points_) @ self.weights_
            for i in range(0, max(1, len(inputs)), _AT_ONCE)
        ]
        return np.asarray(self.trend_._predict(data) * np.exp(np.concatenate(corrections)))

    def _state(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs_.to_dict(),
            "trend": self.trend_.to_dict(),
            "lengths": self.lengths_.tolist(),
            "signal": self.signal_,
            "points": self.points_.tolist(),
            "weights": self.weights_.tolist(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.inputs_ = ModelInputs.from_dict(state["inputs"])
        self.trend_ = Augmented.from_dict(state["trend"])
        self.lengths_ = np.asarray(state["lengths"], dtype=float)
        self.signal_ = float(state["signal"])
        self.weights_ = np.asarray(state["weights"], dtype=float)
        shape = len(self.weights_), len(self.lengths_)
        self.points_ = np.asarray(state["points"], dtype=float).reshape(shape)


def matern(a: Array, b: Array) -> Array:
    """Matérn 5/2 correlations of scaled points, shape (len(a), len(b))."""
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    distance = np.sqrt(5 * np.maximum(squares, 0.0))
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance))
