"""The base of all run-time models: scikit-learn's conventions, ranges, intervals, JSON."""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.files import write_text
from tilewright.prediction.errors import PredictionError, not_fitted
from tilewright.prediction.models.complexity import Complexity
from tilewright.prediction.models.intervals import IntervalCalibration
from tilewright.prediction.models.tables import names_of, table, times
from tilewright.shapes import damaged, naming, read_json

Array: TypeAlias = np.ndarray[Any, Any]
FORMAT = "tilewright-prediction"
VERSION = 1
# Lower limit of a prediction, as a share of the shortest training run, before its logarithm is
# taken for an interval.
LEAST_SECONDS = 1e-3


@dataclass(eq=False)
class Estimator:
    """A model of run time in seconds, with scikit-learn's conventions.

    Args:
        features: names of the columns of X; by default those of the data.
        complexity: the kernel's mathematical complexity, an expression of the features.
        units: a unit for each feature that has one, by name.
        levels: the words of a feature in the order of their numbers, for features that are words.
        folds: folds of the cross-validation that calibrates intervals; 0 for no intervals.
        seed: the seed of every random choice.

    After ``fit``: ``feature_names_in_``, ``n_features_in_``, ``ranges_`` (smallest and largest
    value of each feature, shape (2, features)), ``target_range_`` (seconds),
    ``parameter_count_`` (fitted numbers of the model), ``chosen_`` (a report on the choice).
    """

    kind: ClassVar[str] = ""
    needs_complexity: ClassVar[bool] = False

    features: tuple[str, ...] | list[str] | None = None
    complexity: str | None = None
    units: dict[str, str] | None = None
    folds: int = 5
    seed: int = 0
    levels: dict[str, list[str]] | None = None

    # scikit-learn's conventions, without importing it -------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise PredictionError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}"
                )
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True, positive_only=True),
            regressor_tags=RegressorTags(),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "ranges_")

    def score(self, X: Any, y: Any) -> float:
        """Return the coefficient of determination of the logarithms of the times."""
        predicted = np.log(np.maximum(self.predict(X), 1e-300))
        logs = np.log(times(y, len(predicted)))
        return float(1 - ((logs - predicted) ** 2).sum() / ((logs - logs.mean()) ** 2).sum())

    def _repr_html_(self) -> str:
        from tilewright.prediction.models.notebook import model_html

        return model_html(self)

    # Fitting and predicting ---------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to instances X (a table, data frame, or rows by name) and times y in seconds.

        Raises:
            PredictionError: data that cannot be used; the message names the column or row.
        """
        self._check()
        names = names_of(X, self.features)
        data = table(X, names, self.levels)
        seconds = times(y, len(data))
        if len(data) < 2:
            raise PredictionError(
                f"there {'is 1 instance' if len(data) else 'are no instances'} "
                f"(n_samples={len(data)}); measure at least 2"
            )
        self._describe(names, data, seconds)
        self.calibration_: IntervalCalibration | None = None
        self.parameter_count_ = 0
        self.chosen_: dict[str, Any] = {}
        self._fit(data, seconds)
        if self.calibration_ is None and self.folds > 1 and len(data) > 2:
            self._calibrate(data, seconds)
        return self

    def predict(self, X: Any) -> Array:
        """Return predicted seconds, shape (n,), of queries X of shape (n, features)."""
        return self._predict(self._table(X))

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Array, Array]:
        """Return bounds in seconds that contain the measured time with the given probability.

        With n held-out instances, the bounds cannot contain it with more than (n - 1) / (n + 1):
        a coverage of 0.9 needs 19 instances, 0.95 needs 39, and 0.99 needs 199. For fewer, the
        bounds are those of the smallest and the largest residual.

        Raises:
            PredictionError: the model was fitted with ``folds=0``, or ``coverage`` is not
                between 0 and 1.
        """
        if not 0 < coverage < 1:
            raise PredictionError(f"coverage is {coverage}; give a number between 0 and 1")
        data = self._table(X)
        if self.calibration_ is None:
            raise PredictionError(
                "the model has no intervals; fit it with folds=5 to 3 instances or more"
            )
        return self.calibration_.interval(self._centre(data), coverage, self._spread(data))

    def outside(self, X: Any) -> Array:
        """Return which queries lie outside the range of the training instances: booleans (n,)."""
        data = self._table(X)
        low, high = self.ranges_
        slack = 1e-9 * np.maximum(np.abs(low), np.abs(high))
        return np.asarray(((data < low - slack) | (data > high + slack)).any(axis=1))

    def unsure(self, X: Any) -> Array:
        """Return the queries for which models of parts of the training instances disagree.

        Such queries lie far from every training instance, outside their range or in a gap of it.
        Booleans of shape (n,); all false for models without intervals, or of another kind than
        `Augmented`.
        """
        data = self._table(X)
        spread = self._spread(data)
        if spread is None or self.calibration_ is None:
            return np.zeros(len(data), dtype=bool)
        return self.calibration_.unsure(self._centre(data), spread)

    def _centre(self, data: Array) -> Array:
        """Return predicted seconds, positive ones, shape (n,)."""
        return np.asarray(np.maximum(self._predict(data), self.target_range_[0] * LEAST_SECONDS))

    def _describe(self, names: tuple[str, ...], data: Array, seconds: Array) -> None:
        self.feature_names_in_ = np.asarray(names, dtype=object)
        self.names_ = names
        self.n_features_in_ = len(names)
        self.ranges_ = np.stack([data.min(axis=0), data.max(axis=0)])
        self.target_range_ = (float(seconds.min()), float(seconds.max()))
        self._complexity()
        for what, given in (("a unit is", self.units), ("levels are", self.levels)):
            for name in given or {}:
                if name not in names:
                    raise PredictionError(f"{what} given for {name!r}, which is not a feature")

    def _check(self) -> None:
        """Reject settings that would fail later or be misunderstood."""
        for name, least in (("folds", 0), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < least:
                raise PredictionError(f"{name} is {value!r}; give a whole number from {least}")
        for name in ("features", "threads", "work"):
            if isinstance(getattr(self, name, None), str):
                raise PredictionError(f"{name} is one text; give a list of texts")

    def _complexity(self) -> Complexity | None:
        if self.complexity is None:
            if self.needs_complexity:
                raise PredictionError(
                    f"{type(self).__name__} needs the kernel's complexity, e.g. complexity='m*n*k'"
                )
            return None
        return Complexity(self.complexity, self.names_)

    def _table(self, X: Any) -> Array:
        if not hasattr(self, "ranges_"):
            raise not_fitted(f"this {type(self).__name__} is not fitted; call fit first")
        if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] != self.n_features_in_:
            raise PredictionError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input: {', '.join(self.names_)}"
            )
        return table(X, self.names_, self.levels)

    def _calibrate(self, data: Array, seconds: Array) -> None:
        """Predict held-out instances by cross-validation, with a new model for each fold."""
        folds = min(self.folds, len(data))
        if len(data) - -(-len(data) // folds) < 2:
            folds = len(data)
        place = np.random.default_rng([self.seed, 1]).permutation(len(data)) % folds
        held_out = np.empty(len(data))
        for fold in range(folds):
            out = place == fold
            model = type(self)(**{**self.get_params(), "folds": 0})
            model.features = self.names_
            model.fit(data[~out], seconds[~out])
            held_out[out] = model.predict(data[out])
        held_out = np.maximum(held_out, seconds.min() * LEAST_SECONDS)
        self.calibration_ = IntervalCalibration.fit(held_out, seconds)

    def _with_complexity(self, data: Array) -> Array:
        """Return the features and, as the last column, the complexity, shape (n, features + 1)."""
        complexity = self._complexity()
        if complexity is None:
            return data
        return np.column_stack([data, complexity.column(data, "complexity")])

    def _fit(self, data: Array, seconds: Array) -> None:
        raise AssertionError(f"{type(self).__name__} fits nothing")

    def _spread(self, data: Array) -> Array | None:
        """Return the distance between models of parts of the instances, in log time, shape (n,)."""
        return None

    def _predict(self, data: Array) -> Array:
        raise AssertionError(f"{type(self).__name__} predicts nothing")

    # JSON ---------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        """Return the fitted model as JSON data."""
        raise AssertionError(f"{type(self).__name__} has no JSON form")

    def _restore(self, state: dict[str, Any]) -> None:
        """Restore the model from the data of `_state`."""
        raise AssertionError(f"{type(self).__name__} has no JSON form")

    def to_dict(self) -> dict[str, Any]:
        """Return the fitted model as JSON data: schema, features, units, ranges, numbers."""
        self._table(np.zeros((0, getattr(self, "n_features_in_", 0))))
        units = self.units or {}
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "params": {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in self.get_params().items()
            },
            "features": [
                {"name": name, "unit": units.get(name), "min": low, "max": high}
                for name, low, high in zip(self.names_, *self.ranges_.tolist(), strict=True)
            ],
            "target": {
                "name": "time",
                "unit": "s",
                "min": self.target_range_[0],
                "max": self.target_range_[1],
            },
            "complexity": self.complexity,
            "parameter_count": self.parameter_count_,
            "chosen": self.chosen_,
            "calibration": self.calibration_.to_dict() if self.calibration_ else None,
            "state": self._state(),
        }

    def save(self, path: str | Path) -> None:
        """Write the fitted model as JSON.

        Raises:
            PredictionError: the model is not fitted, or the file cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=1) + "\n"
        try:
            write_text(path, text)
        except TilewrightError as error:
            raise PredictionError(f"the model is not written: {error}") from None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the inverse of `to_dict`; the class is the one that the data name.

        Raises:
            PredictionError: not such data, or of another schema version.
        """
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise PredictionError(
                "not a prediction model: give a file that tilewright predict fit wrote"
            )
        if data.get("version") != VERSION:
            raise PredictionError(
                f"the model has schema version {data.get('version')!r}, this Tilewright reads "
                f"{VERSION}; fit it again"
            )
        kinds = {kind.kind: kind for kind in _subclasses(Estimator) if kind.kind}
        found = kinds.get(str(data.get("kind")))
        if found is None:
            raise PredictionError(
                f"this Tilewright has no models of kind {data.get('kind')!r}; fit it again"
            )
        if not issubclass(found, cls):
            raise PredictionError(
                f"the model is of kind {data.get('kind')!r}, which is not a {cls.__name__}: load "
                "it with tilewright.prediction.load"
            )
        words = "the model's data are damaged"
        try:
            with damaged(words, PredictionError):
                model = found._from_dict(data)
                with suppress(PredictionError):  # an expression may have no value there
                    model._predict(model.ranges_[:1])
        except PredictionError as error:
            said = str(error)
            raise PredictionError(said if said.startswith(words) else f"{words}: {said}") from None
        return model

    @classmethod
    def _from_dict(cls, data: dict[str, Any]) -> Self:
        model = cls(**data["params"])
        if isinstance(model.features, list):
            model.features = tuple(model.features)
        names = tuple(str(feature["name"]) for feature in data["features"])
        ranges = np.array([[float(f["min"]), float(f["max"])] for f in data["features"]]).T
        seconds = np.array([float(data["target"]["min"]), float(data["target"]["max"])])
        model._describe(names, ranges, seconds)
        model.parameter_count_ = int(data["parameter_count"])
        model.chosen_ = dict(data["chosen"])
        calibration = data["calibration"]
        model.calibration_ = IntervalCalibration.from_dict(calibration) if calibration else None
        model._restore(data["state"])
        return model

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote.

        Raises:
            PredictionError: the file is missing, is not a model, or has another schema version.
        """
        data = read_json(path, PredictionError)
        with naming(path):
            return cls.from_dict(data)


def _subclasses(cls: type[Estimator]) -> list[type[Estimator]]:
    return [cls, *(found for child in cls.__subclasses__() for found in _subclasses(child))]
