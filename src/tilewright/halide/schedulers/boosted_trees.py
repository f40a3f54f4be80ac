"""Sums of boosted regression trees: stored as JSON, evaluated with NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
DIGITS = 5  # significant digits of stored numbers


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """A sum of complete binary trees of the same depth, as arrays of shape (trees, nodes).

    Node i has the children 2 i + 1 and 2 i + 2. `feature` and `threshold` belong to inner nodes
    (``x <= threshold`` goes left), `value` to leaves.
    """

    feature: npt.NDArray[np.int64]
    threshold: Array
    value: Array

    def __call__(self, rows: Array) -> Array:
        """Return the sums over trees, shape (N,), for rows of shape (N, inputs)."""
        rows = rows.astype(np.float32)  # as scikit-learn does, to reach the same leaves
        count, inner = self.feature.shape
        # Index flattened arrays, which NumPy reads faster than arrays with two indices.
        root = np.arange(count) * inner
        leaf = np.arange(count) * (inner + 1)
        at = np.arange(len(rows))[:, None] * rows.shape[1]
        node = np.zeros((len(rows), count), dtype=np.int64)
        for _ in range(int(np.log2(inner + 1))):
            place = root + node
            inputs = rows.take(at + self.feature.take(place))
            node = 2 * node + 1 + (inputs > self.threshold.take(place))
        return np.asarray(self.value.take(leaf + node - inner).sum(axis=1))

    @classmethod
    def of(cls, trees: Sequence[Any], rate: float, depth: int) -> BoostedTrees:
        """Return the sum of fitted ``DecisionTreeRegressor``s, each weighted by `rate`.

        A leaf above the full depth is repeated in the leaves below it.
        """
        inner = 2**depth - 1
        feature = np.zeros((len(trees), inner), dtype=np.int64)
        threshold = np.full((len(trees), inner), np.inf)
        value = np.zeros((len(trees), inner + 1))
        for t, tree in enumerate(each.tree_ for each in trees):
            stack = [(0, 0)]
            while stack:
                node, position = stack.pop()
                leaf = tree.children_left[node] < 0
                if position >= inner:
                    value[t, position - inner] = rate * tree.value[node, 0, 0]
                    continue
                if not leaf:
                    feature[t, position] = tree.feature[node]
                    threshold[t, position] = tree.threshold[node]
                left = node if leaf else tree.children_left[node]
                right = node if leaf else tree.children_right[node]
                stack += [(left, 2 * position + 1), (right, 2 * position + 2)]
        return cls(feature, threshold, value)

    def to_dict(self) -> dict[str, Any]:
        """Return the trees as JSON data."""
        return {
            "feature": self.feature.tolist(),
            "threshold": [[_rounded(t) for t in row] for row in self.threshold.tolist()],
            "value": [[_rounded(v) for v in row] for row in self.value.tolist()],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BoostedTrees:
        """Return the inverse of `to_dict`."""
        threshold = np.array(
            [[np.inf if t is None else t for t in row] for row in data["threshold"]], dtype=float
        )
        return cls(np.array(data["feature"]), threshold, np.array(data["value"], dtype=float))


def _rounded(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None
