"""Regression trees as plain arrays: fitted by scikit-learn, evaluated and stored without it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
_AT_ONCE = 2_000_000  # queries times trees, whose nodes are in memory


@dataclass(frozen=True)
class Trees:
    """A weighted sum of trees: ``offset + sum of values of the leaves reached``.

    All trees' nodes lie in one array; a leaf is its own child.

    Attributes:
        roots: first node of each tree. feature, threshold: of each node.
        left, right: children of each node (``x <= threshold`` goes left).
        value: the value of each node, already weighted. offset: added to the sum. depth: of the
            deepest.
    """

    roots: Array
    feature: Array
    threshold: Array
    left: Array
    right: Array
    value: Array
    offset: float
    depth: int

    @classmethod
    def from_sklearn(cls, trees: list[Any], weight: float, offset: float = 0.0) -> Trees:
        """From fitted ``DecisionTreeRegressor``s, each leaf's value times ``weight``."""
        starts = np.cumsum([0, *(tree.tree_.node_count for tree in trees)])
        columns: dict[str, list[Array]] = {k: [] for k in ("f", "t", "l", "r", "v")}
        for start, tree in zip(starts[:-1], (t.tree_ for t in trees), strict=True):
            own = np.arange(tree.node_count)
            leaf = tree.children_left < 0
            columns["f"].append(np.where(leaf, 0, tree.feature))
            columns["t"].append(tree.threshold)
            columns["l"].append(start + np.where(leaf, own, tree.children_left))
            columns["r"].append(start + np.where(leaf, own, tree.children_right))
            columns["v"].append(tree.value[:, 0, 0] * weight)
        f, t, left, right, v = (np.concatenate(columns[k]) for k in ("f", "t", "l", "r", "v"))
        depth = max(tree.tree_.max_depth for tree in trees)
        return cls(starts[:-1], f, t, left, right, v, float(offset), int(depth))

    @classmethod
    def from_histograms(cls, trees: list[Any], offset: float) -> Trees:
        """From the predictors of a fitted ``HistGradientBoostingRegressor``, and its baseline."""
        nodes = [tree.nodes for tree in trees]
        starts = np.cumsum([0, *map(len, nodes)])
        every = np.concatenate(nodes)
        first, own = np.repeat(starts[:-1], np.diff(starts)), np.arange(len(every))
        leaf = every["is_leaf"].astype(bool)
        return cls(
            starts[:-1],
            np.where(leaf, 0, every["feature_idx"]),
            every["num_threshold"].astype(float),
            np.where(leaf, own, first + every["left"]),
            np.where(leaf, own, first + every["right"]),
            every["value"].astype(float),
            offset,
            int(every["depth"].max()),
        )

    @cached_property
    def _inputs(self) -> int:
        """The number of inputs of the trees: the index of the last one used, plus one."""
        inner = self.left != np.arange(len(self.left))
        return int(self.feature[inner].max(initial=-1)) + 1

    def __call__(self, data: Array) -> Array:
        """Return sums of shape (n,) for inputs of shape (n, inputs)."""
        # Compare in single precision, as scikit-learn does, to reach the same leaves.
        with np.errstate(over="ignore"):
            data = data.astype(np.float32)
        if self._inputs > data.shape[1]:
            raise ValueError(f"the trees ask for {self._inputs} inputs, there are {data.shape[1]}")
        step = max(1, _AT_ONCE // max(1, len(self.roots)))
        parts = [self._sums(data[i : i + step]) for i in range(0, max(1, len(data)), step)]
        return np.concatenate(parts)

    def _sums(self, data: Array) -> Array:
        rows = np.arange(len(data))[:, None]
        node = np.broadcast_to(self.roots, (len(data), len(self.roots)))
        for _ in range(self.depth):
            goes_left = data[rows, self.feature[node]] <= self.threshold[node]
            node = np.where(goes_left, self.left[node], self.right[node])
        return np.asarray(self.value[node].sum(axis=1) + self.offset)

    def to_dict(self) -> dict[str, Any]:
        """Return the trees as JSON data."""
        return {
            "roots": self.roots.tolist(),
            "feature": self.feature.tolist(),
            "threshold": self.threshold.tolist(),
            "left": self.left.tolist(),
            "right": self.right.tolist(),
            "value": self.value.tolist(),
            "offset": self.offset,
            "depth": self.depth,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Trees:
        """Return the inverse of `to_dict`.

        Raises:
            ValueError: the arrays do not describe trees.
        """
        whole = {k: np.asarray(data[k], dtype=np.int64) for k in ("roots", "feature")}
        links = {k: np.asarray(data[k], dtype=np.int64) for k in ("left", "right")}
        real = {k: np.asarray(data[k], dtype=float) for k in ("threshold", "value")}
        nodes, depth = len(whole["feature"]), int(data["depth"])
        for name, array in (whole | links | real).items():
            if array.ndim != 1 or (name != "roots" and len(array) != nodes):
                raise ValueError(f"the trees have {nodes} nodes, and {array.shape} of {name!r}")
        for array in (whole["roots"], *links.values()):
            if not ((array >= 0) & (array < nodes)).all():
                raise ValueError(f"a link between nodes leads out of the {nodes} nodes")
        if not 0 <= depth <= nodes or not (whole["feature"] >= 0).all():
            raise ValueError("a depth or a feature is negative, or deeper than there are nodes")
        return cls(**whole, **links, **real, offset=float(data["offset"]), depth=depth)
