"""A model to rank candidates by: extremely randomised trees of log time.

Schedules differ by factors that are powers of two, and their times by orders of magnitude, in
steps: a vector that does not fill a register, a tile that outgrows a cache. Trees represent steps,
and their mean is robust. The best candidate of a smooth model is often one of its errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from tilewright.prediction.errors import scikit_learn_for
from tilewright.prediction.models.complexity import Complexity
from tilewright.prediction.models.estimator import Estimator
from tilewright.prediction.models.trees import Trees

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(eq=False)
class Forest(Estimator):
    """Extremely randomised trees (Geurts et al. 2006) of log time, or of log time per operation.

    Args:
        trees: the number of trees; their predictions are averaged.
        leaf: the smallest number of instances in a leaf. With 1, the prediction for a training
            instance is its measured time.
        work: expressions of the features, used as further inputs, such as the bytes of a
            tile (`tilewright.prediction.kernels.schedules.Family.work`).
    """

    kind: ClassVar[str] = "forest"

    trees: int = 300
    leaf: int = 1
    work: tuple[str, ...] | list[str] | None = None

    def _fit(self, data: Array, seconds: Array) -> None:
        with scikit_learn_for("Forest"):
            from sklearn.ensemble import ExtraTreesRegressor

        columns = self._columns(data)
        forest = ExtraTreesRegressor(
            self.trees,
            min_samples_leaf=min(self.leaf, max(1, len(data) // 2)),
            random_state=self.seed,
            n_jobs=1,
        )
        forest.fit(columns, np.log(seconds) - self._scale(data))
        self.trees_ = Trees.from_sklearn(list(forest.estimators_), 1.0 / self.trees)
        self.parameter_count_ = len(self.trees_.value)
        self.chosen_ = {"trees": self.trees, "nodes": len(self.trees_.value)}

    def _predict(self, data: Array) -> Array:
        return np.asarray(np.exp(self.trees_(self._columns(data)) + self._scale(data)))

    def _columns(self, data: Array) -> Array:
        """Return the features and the work, whose scale does not matter to trees."""
        work = (Complexity(text, self.names_).column(data) for text in self.work or ())
        return np.column_stack([data, *work])

    def _scale(self, data: Array) -> Array | float:
        """Logarithms of the operations, 0 if no complexity is given."""
        if self.complexity is None:
            return 0.0
        return np.asarray(np.log(np.maximum(self._with_complexity(data)[:, -1], 1e-300)))

    def _state(self) -> dict[str, Any]:
        return {"trees": self.trees_.to_dict()}

    def _restore(self, state: dict[str, Any]) -> None:
        self.trees_ = Trees.from_dict(state["trees"])
