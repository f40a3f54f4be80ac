"""The best models together: weighted by their errors on held-out instances.

The logarithm of the prediction is the weighted mean of the members' (stacked generalisation,
Wolpert 1992; with weights that are positive and sum to one, Breiman 1996).

| symbol | meaning | shape, unit |
|---|---|---|
| `rows` | instances whose held-out predictions choose the weights | (rows,) |
| `held_out` | their log times, predicted by each member without them | (members, rows), log |
| `weights` | of the members | (members,), sum 1 |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from tilewright.prediction.errors import PredictionError
from tilewright.prediction.models.augmented import Augmented
from tilewright.prediction.models.boosted import Boosted
from tilewright.prediction.models.estimator import Estimator
from tilewright.prediction.models.gaussian_process import GaussianProcess
from tilewright.prediction.models.intervals import IntervalCalibration, thresholded
from tilewright.prediction.models.tables import table, times

Array: TypeAlias = np.ndarray[Any, Any]
_STEPS = 20  # of a weight from 0 to 1
_FOLDS = 5  # of the members that are fitted again
_LEAST = 1e-300  # seconds, whose logarithm is finite
# Cap of an error, in medians of the best member's errors, and its lower limit, so that disturbed
# runs do not determine the weights.
_CAP, _LEAST_CAP = 10.0, 0.3


@dataclass(eq=False)
class Auto(Estimator):
    """`Augmented`, `GaussianProcess` and `Boosted`, weighted by cross-validation.

    Args:
        max_parameters: a limit on fitted numbers, which only `Augmented` respects; None for none.

    After ``fit``, ``models_`` are those with a weight, ``weights_`` their weights.
    """

    kind: ClassVar[str] = "auto"

    max_parameters: int | None = None

    def _fit(self, data: Array, seconds: Array) -> None:
        limit = {} if self.max_parameters is None else {"max_parameters": self.max_parameters}
        common = {**self._common(), "folds": max(2, self.folds or _FOLDS), **limit}
        self._stack(Augmented(**common).fit(data, seconds), data, seconds)

    def fit_around(self, model: Augmented, X: Any, y: Any) -> Self:
        """Fit the other members to the instances that `model` was just fitted to.

        Raises:
            PredictionError: the model was not fitted in this process.
        """
        if not hasattr(model, "held_out_"):
            raise PredictionError("the model was not fitted here: fit it, or fit Auto")
        self.features = model.names_
        data = table(X, model.names_, model.levels)
        seconds = times(y, len(data))
        self._describe(model.names_, data, seconds)
        self.calibration_, self.chosen_ = None, {}
        self._stack(model, data, seconds)
        return self

    def _common(self) -> dict[str, Any]:
        return {"features": self.names_, "complexity": self.complexity, "seed": self.seed}

    def _stack(self, small: Augmented, data: Array, seconds: Array) -> None:
        models: list[Estimator] = [small]
        rows, known = small.held_out_
        held_out = [known]
        logs = np.log(seconds)
        if self.max_parameters is None and len(data) > 2:
            process = getattr(small, "process_", None)
            if process is None:
                process = GaussianProcess(**self._common(), folds=0).fit(data, seconds)
            boosted = Boosted(**self._common(), folds=0).fit(data, seconds)
            models += [process, boosted]
            held_out += [
                self._process_without(process, rows, data, logs),
                self._fitted_without(boosted, rows, data, seconds),
            ]
        errors = {
            model.kind: thresholded(np.exp(own), seconds[rows])
            for model, own in zip(models, held_out, strict=True)
        }
        predicted = np.stack(held_out)
        weights = _best_weights(predicted, logs[rows])
        kept = np.flatnonzero(weights)
        self._keep([models[i] for i in kept], weights[kept])
        if self.folds > 1 and len(data) > 2:
            middle = self.weights_ @ predicted[kept]
            spread = self._apart(predicted[kept], middle, data[rows])
            self.calibration_ = IntervalCalibration.fit(np.exp(middle), seconds[rows], spread)
        self.chosen_ = {
            "model": "+".join(model.kind for model in self.models_),
            "errors": errors,
            "weights": {models[i].kind: float(weights[i]) for i in kept},
            **(small.chosen_ if len(kept) == 1 and not kept[0] else {}),
        }

    def _process_without(
        self, process: GaussianProcess, rows: Array, data: Array, logs: Array
    ) -> Array:
        """Return the predictions of the process for `rows` without their folds."""
        place = np.full(len(data), _FOLDS)
        place[rows] = np.arange(len(rows)) % _FOLDS
        found = process.left_out(place, logs)[rows]
        # Instances that the process does not use are held out anyway.
        return np.where(np.isnan(found), _logs(process, data[rows]), found)

    def _fitted_without(self, model: Boosted, rows: Array, data: Array, seconds: Array) -> Array:
        """Return log times of `rows` by models fitted without their fold."""
        # With many instances, those of all folds may be left out at once.
        folds = 1 if len(data) >= 2 * len(rows) else min(_FOLDS, len(rows))
        found = np.empty(len(rows))
        chosen = {name: getattr(model, f"{name}_", None) for name in ("fine", "leaves")}
        settings = model.get_params() | chosen
        for fold in range(folds):
            own = np.arange(len(rows)) % folds == fold
            rest = np.setdiff1d(np.arange(len(data)), rows[own])
            fresh = Boosted(**settings).fit(data[rest], seconds[rest])
            found[own] = _logs(fresh, data[rows[own]])
        return found

    def _keep(self, models: Sequence[Estimator], weights: Array) -> None:
        self.models_, self.weights_ = tuple(models), np.asarray(weights, dtype=float)
        self.parameter_count_ = sum(model.parameter_count_ for model in models)

    def _predict(self, data: Array) -> Array:
        found = np.ones(len(data))
        with np.errstate(over="ignore", invalid="ignore"):
            for weight, model in zip(self.weights_.tolist(), self.models_, strict=True):
                found = found * model._predict(data) ** weight
        return found

    def _spread(self, data: Array) -> Array | None:
        each = np.stack([_logs(model, data) for model in self.models_])
        return self._apart(each, self.weights_ @ each, data)

    def _apart(self, each: Array, middle: Array, data: Array) -> Array | None:
        """Return how far members, and the models of their folds, are apart in log time, (n,)."""
        with np.errstate(invalid="ignore"):
            squares = self.weights_ @ (each - middle) ** 2
        spreads = [model._spread(data) for model in self.models_]
        if len(self.models_) == 1:
            return spreads[0]
        for weight, spread in zip(self.weights_.tolist(), spreads, strict=True):
            if spread is not None:
                squares = squares + (weight * spread) ** 2
        return np.asarray(np.sqrt(np.nan_to_num(squares, nan=np.inf)))

    def _state(self) -> dict[str, Any]:
        return {
            "models": [model.to_dict() for model in self.models_],
            "weights": self.weights_.tolist(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        models = [Estimator.from_dict(model) for model in state["models"]]
        if any(isinstance(model, Auto) for model in models):
            raise PredictionError("a chosen model cannot be another choice")
        if not models or len(models) != len(state["weights"]):
            raise ValueError(f"{len(models)} models have {len(state['weights'])} weights")
        self._keep(models, np.asarray(state["weights"], dtype=float))


def _logs(model: Estimator, data: Array) -> Array:
    return np.asarray(np.log(np.maximum(model._predict(data), _LEAST)))


def _best_weights(held_out: Array, logs: Array) -> Array:
    """Return the weights on a grid with the least mean error relative to the time, (members,)."""
    cap = max(_LEAST_CAP, _CAP * float(np.median(np.abs(held_out - logs), axis=1).min()))
    grid = _simplex(len(held_out), _STEPS) / _STEPS
    long = logs >= np.quantile(logs, 0.3)  # as in `thresholded`
    errors = grid @ held_out[:, long] - logs[long]
    errors = np.minimum(np.abs(np.expm1(np.minimum(errors, cap))), cap).mean(axis=1)
    return np.asarray(grid[int(errors.argmin())])


def _simplex(count: int, total: int) -> Array:
    """Return every way to share whole parts among `count` members, shape (ways, count)."""
    if count == 1:
        return np.array([[total]])
    return np.concatenate(
        [
            np.column_stack([np.full(len(rest), first), rest])
            for first in range(total, -1, -1)
            for rest in [_simplex(count - 1, total - first)]
        ]
    )
