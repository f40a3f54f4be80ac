"""Gradient boosting of log time: a monomial, corrected by trees.

| symbol | meaning | shape, unit |
|---|---|---|
| `inputs` | standardised logarithms of features and complexity | (n, inputs) |
| `logs` | logarithms of the run times | (n,), log seconds |
| `slopes_`, `constant_` | of the monomial, whose logarithm is linear in the inputs | (inputs,) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from tilewright.prediction.errors import scikit_learn_for
from tilewright.prediction.models.estimator import Estimator
from tilewright.prediction.models.inputs import ModelInputs
from tilewright.prediction.models.trees import Trees

Array: TypeAlias = np.ndarray[Any, Any]
_MANY = 1000  # instances from which trees are grown on histograms, which is much faster
_LEAVES, _MANY_LEAVES = 31, 255  # of a small and of a large tree that is grown on histograms
_ENOUGH = 4000  # instances from which large trees are tried
_PLENTY = 50_000  # instances from which more large trees are grown
_JUDGED, _PARTS = 20_000, 5  # instances that decide between settings, and parts, one held out
_RIDGE = 1e-3  # of the slopes, per instance
_OUTLYING = 6.0  # maximum size of a residual, in robust standard deviations


@dataclass(eq=False)
class Boosted(Estimator):
    """Gradient boosting of log time, applied to the residual of a monomial.

    Args:
        trees: the number of trees (Friedman 2001, 2002); three to five times as many for 1,000
            instances or more.
        rate: the factor of each tree's prediction.
        depth: the maximum depth of a tree.
        subsample: the share of the instances that each tree is fitted to.
        leaf: the minimum number of instances in a leaf.
        fine: of 1,000 instances or more, whether leaves of single instances and trees of any depth
            follow every step of the times, as suits undisturbed ones; by default, what predicts
            held-out instances better.
        leaves: of 1,000 instances or more, the maximum number of leaves of a tree: 31, or with
            fine trees of 4,000 instances or more also 255, by what predicts held-out instances
            better. A hundred thousand instances have more to tell than small trees hold.
    """

    kind: ClassVar[str] = "boosted"

    trees: int = 200
    rate: float = 0.07
    depth: int = 4
    subsample: float = 0.7
    leaf: int = 2
    fine: bool | None = None
    leaves: int | None = None

    def _fit(self, data: Array, seconds: Array) -> None:
        columns = self._with_complexity(data)
        self.inputs_ = ModelInputs.fit(columns)
        inputs, logs = self.inputs_(columns), np.log(seconds)
        gram = inputs.T @ inputs + _RIDGE * len(logs) * np.eye(len(self.inputs_))
        self.slopes_ = np.linalg.solve(gram, inputs.T @ (logs - logs.mean()))
        self.constant_ = float(logs.mean())
        rest = logs - self.constant_ - inputs @ self.slopes_
        most = _OUTLYING * max(1.4826 * float(np.median(np.abs(rest))), 1e-6)
        # If no column varies there is still a constant.
        inputs = inputs if len(self.inputs_) else np.ones((len(data), 1))
        self.trees_ = self._boost(inputs, np.clip(rest, -most, most))
        self.parameter_count_ = len(self.trees_.value) + len(self.slopes_) + 1
        self.chosen_ = {"trees": len(self.trees_.roots), "nodes": len(self.trees_.value)}

    def _boost(self, inputs: Array, rest: Array) -> Trees:
        with scikit_learn_for("Boosted"):
            from sklearn.ensemble import GradientBoostingRegressor

        if len(rest) >= _MANY:
            inputs = inputs.astype(np.float32)  # as `Trees` compares
            # Threads wait for each other by spinning: two take 25 times as long on busy cores.
            with threadpool_limits(1, user_api="openmp"):
                self.fine_, self.leaves_ = self._best_settings(inputs, rest)
                plenty = len(rest) >= _PLENTY
                many = self._histograms(self.fine_, self.leaves_, plenty).fit(inputs, rest)
            return Trees.from_histograms(
                [tree for (tree,) in many._predictors],
                float(np.ravel(many._baseline_prediction)[0]),
            )
        boosting = GradientBoostingRegressor(
            n_estimators=self.trees,
            learning_rate=self.rate,
            max_depth=self.depth,
            subsample=self.subsample,
            min_samples_leaf=min(self.leaf, max(1, len(rest) // 4)),
            init="zero",
            random_state=self.seed,
        )
        boosting.fit(inputs, rest)
        return Trees.from_sklearn(list(boosting.estimators_[:, 0]), self.rate)

    def _histograms(self, fine: bool, leaves: int, plenty: bool = False) -> Any:
        """Return boosting of trees that are grown on histograms, not fitted."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        settings: dict[str, Any]
        if not fine:
            settings = {
                "learning_rate": self.rate,
                "max_iter": 3 * self.trees,
                "min_samples_leaf": max(self.leaf, 5),
                "max_depth": 2 * self.depth,
            }
        elif leaves > _LEAVES:
            settings = {
                "learning_rate": 2 * self.rate,
                "max_iter": (5 if plenty else 2) * self.trees,
                "min_samples_leaf": 1,
            }
        else:
            settings = {"learning_rate": 0.1, "max_iter": 5 * self.trees, "min_samples_leaf": 1}
        return HistGradientBoostingRegressor(
            **settings, max_leaf_nodes=leaves, early_stopping=False, random_state=self.seed
        )

    def _best_settings(self, inputs: Array, rest: Array) -> tuple[bool, int]:
        """Return whether trees are fine, and their leaves: what predicts held-out instances."""
        settings = [(True, _LEAVES), (False, _LEAVES)]
        if len(rest) >= _ENOUGH:
            settings.append((True, _MANY_LEAVES))
        settings = [(f, n) for f, n in settings if self.fine is None or f is self.fine]
        if self.leaves is not None:
            settings = list(dict.fromkeys((fine, self.leaves) for fine, _ in settings))
        if len(settings) == 1:
            return settings[0]
        some = np.random.default_rng([self.seed, 2]).permutation(len(rest))[:_JUDGED]
        out, kept = some[: len(some) // _PARTS], some[len(some) // _PARTS :]
        errors = [
            float(
                np.abs(
                    self._histograms(fine, leaves)
                    .fit(inputs[kept], rest[kept])
                    .predict(inputs[out])
                    - rest[out]
                ).mean()
            )
            for fine, leaves in settings
        ]
        return settings[errors.index(min(errors))]

    def _predict(self, data: Array) -> Array:
        inputs = self.inputs_(self._with_complexity(data))
        logs = self.constant_ + inputs @ self.slopes_
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(logs + self.trees_(inputs)))

    def _state(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs_.to_dict(),
            "constant": self.constant_,
            "slopes": self.slopes_.tolist(),
            "trees": self.trees_.to_dict(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.inputs_ = ModelInputs.from_dict(state["inputs"])
        self.constant_ = float(state["constant"])
        self.slopes_ = np.asarray(state["slopes"], dtype=float)
        self.trees_ = Trees.from_dict(state["trees"])
