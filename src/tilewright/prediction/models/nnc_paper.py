"""NN+C and the paper's baselines, as its Section IV describes them.

Raw seconds are fitted with the mean squared error; features are standardised by the training
instances' statistics (the public code uses the test instances', which is not copied).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from tilewright.prediction.errors import PredictionError, scikit_learn_for
from tilewright.prediction.models.estimator import Estimator
from tilewright.prediction.models.network import Network, count_parameters, train
from tilewright.prediction.models.trees import Trees

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(eq=False)
class NN(Estimator):
    """A feed-forward network of the features alone (Section IV-D, baseline 1).

    Args:
        hidden: widths of one or two hidden layers; by default one layer, as wide as
            ``max_parameters`` allows and at most 9, the paper's widest.
        max_parameters: the limit on weights and biases; None for the unconstrained version,
            whose default is two hidden layers of 16.
        rates: Adam's learning rates, one stage after the other.
        epochs: over all stages.
        restarts: initialisations; the one with the smallest training loss is kept.
    """

    kind: ClassVar[str] = "nn"

    hidden: tuple[int, ...] | list[int] | None = None
    max_parameters: int | None = 75
    rates: tuple[float, ...] | list[float] = (1e-2, 1e-3, 1e-4)
    epochs: int = 6000
    restarts: int = 3

    def _inputs(self, data: Array) -> Array:
        return data

    def _widths(self, inputs: int) -> tuple[int, ...]:
        if self.hidden is not None:
            given = [self.hidden] if isinstance(self.hidden, int) else self.hidden
            widths = tuple(int(width) for width in given)
        elif self.max_parameters is None:
            widths = (16, 16)
        else:
            widths = (max(1, min(9, (self.max_parameters - 1) // (inputs + 2))),)
        if not 1 <= len(widths) <= 2 or min(widths) < 1:
            raise PredictionError(f"hidden is {widths}; give the widths of one or two layers")
        count = count_parameters(inputs, widths)
        if self.max_parameters is not None and count > self.max_parameters:
            raise PredictionError(
                f"a network {inputs}-{'-'.join(map(str, widths))}-1 has {count} parameters, more "
                f"than {self.max_parameters}; use narrower layers, fewer features, or "
                "max_parameters=None"
            )
        return widths

    def _fit(self, data: Array, seconds: Array) -> None:
        inputs = self._inputs(data)
        widths = self._widths(inputs.shape[1])
        self.mean_, self.std_ = inputs.mean(axis=0), inputs.std(axis=0)
        self.std_[self.std_ == 0] = 1.0
        self.network_, loss = train(
            (inputs - self.mean_) / self.std_,
            seconds,
            widths,
            rates=self.rates,
            epochs=self.epochs,
            restarts=self.restarts,
            seed=self.seed,
        )
        self.parameter_count_ = self.network_.count
        assert self.max_parameters is None or self.parameter_count_ <= self.max_parameters
        self.chosen_ = {
            "layers": [inputs.shape[1], *widths, 1],
            "training_loss": loss,
        }

    def _predict(self, data: Array) -> Array:
        return self.network_((self._inputs(data) - self.mean_) / self.std_)

    def _state(self) -> dict[str, Any]:
        return {
            "mean": self.mean_.tolist(),
            "std": self.std_.tolist(),
            "weights": [weight.tolist() for weight in self.network_.weights],
            "biases": [bias.tolist() for bias in self.network_.biases],
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.mean_ = np.asarray(state["mean"], dtype=float)
        self.std_ = np.asarray(state["std"], dtype=float)
        self.network_ = Network(
            tuple(np.asarray(weight, dtype=float) for weight in state["weights"]),
            tuple(np.asarray(bias, dtype=float) for bias in state["biases"]),
        )


@dataclass(eq=False)
class NNC(NN):
    """NN+C: the network of the features and the complexity (Section III)."""

    kind: ClassVar[str] = "nnc"
    needs_complexity: ClassVar[bool] = True

    def _inputs(self, data: Array) -> Array:
        return self._with_complexity(data)


@dataclass(eq=False)
class LRC(Estimator):
    """LR+C: linear regression of seconds on the features and the complexity."""

    kind: ClassVar[str] = "lrc"
    needs_complexity: ClassVar[bool] = True

    def _inputs(self, data: Array) -> Array:
        return self._with_complexity(data)

    def _fit(self, data: Array, seconds: Array) -> None:
        inputs = self._inputs(data)
        # Scale the columns before solving: complexities are about 1e9, threads about 4.
        size = np.abs(inputs).max(axis=0)
        size[size == 0] = 1.0
        design = np.column_stack([np.ones(len(inputs)), inputs / size])
        solution, *_ = np.linalg.lstsq(design, seconds, rcond=None)
        self.intercept_ = float(solution[0])
        self.coefficients_ = solution[1:] / size
        self.parameter_count_ = len(solution)
        self.chosen_ = {"inputs": inputs.shape[1]}

    def _predict(self, data: Array) -> Array:
        return np.asarray(self._inputs(data) @ self.coefficients_ + self.intercept_)

    def _state(self) -> dict[str, Any]:
        return {"intercept": self.intercept_, "coefficients": self.coefficients_.tolist()}

    def _restore(self, state: dict[str, Any]) -> None:
        self.intercept_ = float(state["intercept"])
        self.coefficients_ = np.asarray(state["coefficients"], dtype=float)


@dataclass(eq=False)
class C(LRC):
    """C: linear regression of seconds on the complexity alone."""

    kind: ClassVar[str] = "c"

    def _inputs(self, data: Array) -> Array:
        return self._with_complexity(data)[:, -1:]


@dataclass(eq=False)
class NLRC(Estimator):
    """NLR+C: a random forest of the features and the complexity, on seconds.

    Args:
        trees: the number of trees.
    """

    kind: ClassVar[str] = "nlrc"
    needs_complexity: ClassVar[bool] = True

    trees: int = 100

    def _fit(self, data: Array, seconds: Array) -> None:
        with scikit_learn_for("NLRC"):
            from sklearn.ensemble import RandomForestRegressor

        inputs = self._with_complexity(data)
        if np.abs(inputs).max() > np.finfo(np.float32).max:
            raise PredictionError(
                "a feature or the complexity is too large for a forest, which compares in single "
                "precision; give it in a larger unit"
            )
        forest = RandomForestRegressor(n_estimators=self.trees, random_state=self.seed)
        forest.fit(inputs, seconds)
        self.trees_ = Trees.from_sklearn(list(forest.estimators_), 1 / self.trees)
        self.parameter_count_ = len(self.trees_.value)
        self.chosen_ = {"trees": self.trees, "nodes": self.parameter_count_}

    def _predict(self, data: Array) -> Array:
        return self.trees_(self._with_complexity(data))

    def _state(self) -> dict[str, Any]:
        return self.trees_.to_dict()

    def _restore(self, state: dict[str, Any]) -> None:
        self.trees_ = Trees.from_dict(state)
