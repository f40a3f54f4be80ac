"""Our default model of run time: see `tilewright.prediction.surface` for its form.

Beyond the paper: log time of log sizes, a sum of monomials beside the hidden layer, second-order
training on the relative error that outliers cannot bend, and a choice among a few such
configurations by cross-validation, from which the intervals come as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from tilewright.prediction.errors import PredictionError
from tilewright.prediction.estimator import Estimator
from tilewright.prediction.inputs import Inputs
from tilewright.prediction.intervals import Calibration
from tilewright.prediction.levenberg import minimise
from tilewright.prediction.starts import monomials, starts
from tilewright.prediction.surface import Shape, value

_THREADS = set("threads nthreads n_threads num_threads thread workers cores procs".split())
Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(eq=False)
class Augmented(Estimator):
    """Run time from at most ``max_parameters`` fitted numbers, in at most 2 s.

    Args:
        max_parameters: the limit on weights and biases (standardisation by the training
            instances' statistics is not counted).
        threads: the features that count threads; by default those named so.
    """

    kind: ClassVar[str] = "augmented"

    max_parameters: int = 75
    threads: tuple[str, ...] | list[str] | None = None

    def _fit(self, data: Array, seconds: Array) -> None:
        with threadpool_limits(1):
            self._choose(data, seconds)

    def _choose(self, data: Array, seconds: Array) -> None:
        columns = self._with_complexity(data)
        logs = np.log(seconds)
        self.centre_ = float(np.median(logs))
        targets = logs - self.centre_
        self.inputs_ = Inputs.fit(columns)
        inputs = np.vstack([self.inputs_(columns).T, np.ones(len(data))])
        found = monomials(self.inputs_, inputs, targets, self._threads())
        folds = max(2, min(self.folds or 5, len(data)))
        place = np.random.default_rng([self.seed, 1]).permutation(len(data)) % folds
        best: tuple[float, Shape, Array] | None = None
        tried: list[dict[str, Any]] = []
        for shape in candidates(len(self.inputs_), self.max_parameters):
            held_out = self._held_out(shape, inputs, targets, place, folds, found)
            error = score(held_out, targets)
            tried.append({"terms": shape.terms, "hidden": shape.hidden, "error": error})
            if best is None or error < best[0]:
                best = (error, shape, held_out)
        assert best is not None
        _, self.shape_, held_out = best
        theta = starts(self.shape_, inputs, targets, found, 6, self.seed)
        weights = np.ones((len(theta), len(data)))
        fitted = minimise(
            self.shape_, theta, inputs, targets, weights, ridge=ridge(self.shape_), steps=60
        )
        self.theta_ = fitted.theta[int(fitted.loss.argmin())]
        self.calibration_ = (
            Calibration.fit(np.exp(held_out + self.centre_), seconds) if self.folds > 1 else None
        )
        self.parameter_count_ = self.shape_.count
        self.chosen_ = {
            "terms": self.shape_.terms,
            "hidden": self.shape_.hidden,
            "inputs": [
                [int(column), function]
                for column, function in zip(
                    self.inputs_.columns, self.inputs_.functions, strict=True
                )
            ],
            "tried": tried,
        }

    def _threads(self) -> set[int]:
        """The columns that count threads."""
        names = [name.lower() for name in self.names_]
        if self.threads is None:
            return {j for j, name in enumerate(names) if name in _THREADS}
        absent = [name for name in self.threads if name not in self.names_]
        if absent:
            raise PredictionError(f"threads names {', '.join(absent)}, which is not a feature")
        return {self.names_.index(name) for name in self.threads}

    def _held_out(
        self, shape: Shape, inputs: Array, targets: Array, place: Array, folds: int, found: Array
    ) -> Array:
        """Log times predicted by models that have not seen them."""
        restarts = 2
        theta = np.concatenate(
            [starts(shape, inputs, targets, found, restarts, self.seed + f) for f in range(folds)]
        )
        fold = np.repeat(np.arange(folds), restarts)
        weights = (place[None, :] != fold[:, None]).astype(float)
        fitted = minimise(shape, theta, inputs, targets, weights, ridge=ridge(shape), steps=40)
        predicted = value(shape, fitted.theta, inputs)
        held_out = np.empty(len(targets))
        for f in range(folds):
            own = np.flatnonzero(fold == f)
            best = own[int(fitted.loss[own].argmin())]
            held_out[place == f] = predicted[best, place == f]
        return held_out

    def _predict(self, data: Array) -> Array:
        inputs = self.inputs_(self._with_complexity(data))
        ones = np.vstack([inputs.T, np.ones(len(data))])
        return np.asarray(np.exp(value(self.shape_, self.theta_[None], ones)[0] + self.centre_))

    def folded(self) -> tuple[Array, Array, Array]:
        """Terms, units (each with its constant last) and outputs for inputs not standardised.

        The median log time is in the terms' constants, so that the model gives seconds.
        """
        terms, units, outputs = self.shape_.split(self.theta_)
        rows = []
        for block in (terms, units):
            weights = block[:, :-1] / self.inputs_.std
            constant = block[:, -1] - weights @ self.inputs_.mean
            rows.append(np.column_stack([weights, constant]))
        rows[0][:, -1] += self.centre_
        return rows[0], rows[1], outputs

    def _state(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs_.to_dict(),
            "shape": [self.shape_.inputs, self.shape_.terms, self.shape_.hidden],
            "theta": self.theta_.tolist(),
            "centre": self.centre_,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.inputs_ = Inputs.from_dict(state["inputs"])
        self.shape_ = Shape(*(int(number) for number in state["shape"]))
        self.theta_ = np.asarray(state["theta"], dtype=float)
        if len(self.theta_) != self.shape_.count:
            raise ValueError("another number of parameters")
        self.centre_ = float(state["centre"])


def candidates(inputs: int, limit: int) -> list[Shape]:
    """The shapes to choose from: few or many terms, the rest of the budget hidden units."""
    found: list[Shape] = []
    for terms in (1, 2, 4):
        hidden = (limit - terms * (inputs + 1)) // (inputs + 2)
        if hidden >= 0:
            found.append(Shape(inputs, terms, min(hidden, 12)))
    if not found:
        raise PredictionError(f"{inputs} inputs need more than {limit} parameters")
    return found


def ridge(shape: Shape) -> Array:
    """How strongly each parameter is held near zero, in units of the noise."""
    terms = np.full(shape.terms * (shape.inputs + 1), 1e-4)
    units = np.full(shape.hidden * (shape.inputs + 2), 1e-2)
    return np.concatenate([terms, units])


def score(predicted: Array, logs: Array) -> float:
    """Mean absolute relative error without the 30% of instances that run shortest."""
    long = logs >= np.quantile(logs, 0.3)
    return float(np.mean(np.minimum(np.abs(np.expm1(predicted - logs)[long]), 2.0)))
