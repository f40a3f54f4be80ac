"""The model that cross-validates best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from tilewright.prediction.errors import PredictionError
from tilewright.prediction.models.augmented import Augmented
from tilewright.prediction.models.boosted import Boosted, GaussianProcess
from tilewright.prediction.models.estimator import Estimator

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(eq=False)
class Auto(Estimator):
    """The best of `Augmented`, `Boosted` and `GaussianProcess` by cross-validation.

    Args:
        max_parameters: a limit on fitted numbers, which only `Augmented` keeps; None for none.

    After ``fit``, ``model_`` is the chosen one.
    """

    kind: ClassVar[str] = "auto"

    max_parameters: int | None = None

    def _fit(self, data: Array, seconds: Array) -> None:
        names = self.names_
        common: dict[str, Any] = {
            "features": names,
            "complexity": self.complexity,
            "folds": max(2, self.folds or 5),
            "seed": self.seed,
        }
        models: list[Estimator] = [Augmented(**common)]
        if self.max_parameters is not None:
            models = [Augmented(**common, max_parameters=self.max_parameters)]
        elif len(data) > 2:  # the others' intervals need three
            models = [Augmented(**common), Boosted(**common), GaussianProcess(**common)]
        errors: dict[str, float] = {}
        best: Estimator | None = None
        for model in models:
            model.fit(data, seconds)
            assert model.calibration_ is not None
            errors[model.kind] = model.calibration_.error
            if best is None or errors[model.kind] < errors[best.kind]:
                best = model
        assert best is not None
        self.model_ = best
        self.calibration_ = best.calibration_ if self.folds > 1 else None
        self.parameter_count_ = best.parameter_count_
        self.chosen_ = {"model": best.kind, "errors": errors, **best.chosen_}

    def _predict(self, data: Array) -> Array:
        return self.model_._predict(data)

    def _spread(self, data: Array) -> Array | None:
        return self.model_._spread(data)

    def _state(self) -> dict[str, Any]:
        return {"model": self.model_.to_dict()}

    def _restore(self, state: dict[str, Any]) -> None:
        model = Estimator.from_dict(state["model"])
        if isinstance(model, Auto):
            raise PredictionError("a chosen model cannot be another choice")
        self.model_ = model
