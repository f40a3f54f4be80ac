"""A small random forest, all trees grown together level by level with NumPy.

It serves as the model of hidden constraints (Section 4.2) and as the surrogate to compare the
Gaussian process with. With a few hundred points, growing every tree at once costs a few
milliseconds, which matters where the tuner runs inside a compiler.

| symbol | meaning | shape, unit |
|---|---|---|
| `points`, `outputs` | encoded configurations and the values to predict | (n, features), (n,) |
| `bins` | rank of each value among those of its feature | (n, features) |
| `cuts` | thresholds between ranks | (features, ranks) |
| `weight` | how often each tree's bootstrap sample holds an observation | (trees, n), count |
| `slot` | open node, counted over all trees, of an observation; -1 in a leaf | (trees, n) |
| `total`, `mass` | weighted sum of outputs, and of weights, in each open node | (slots,) |
| `gain` | sum² / mass on both sides; largest for the least error | (slots, features, ranks) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class GrownTrees:
    """Grown trees: for each tree and node a feature, a threshold, two children and a value.

    A leaf is its own child. ``depth`` is the longest path.
    """

    feature: Array
    threshold: Array
    children: Array
    value: Array
    depth: int

    def each(self, points: Array) -> Array:
        """Return the prediction of each tree at ``points``, shape (trees, count)."""
        trees, nodes = self.feature.shape
        width = points.shape[1]
        # flat indices and take: several times faster than indexing with pairs of arrays
        flat = np.ascontiguousarray(points).reshape(-1)
        feature, threshold = self.feature.reshape(-1), self.threshold.reshape(-1)
        below = (self.children + nodes * np.arange(trees)[:, None, None]).reshape(-1)
        node = np.repeat(nodes * np.arange(trees), len(points))
        row = np.tile(width * np.arange(len(points)), trees)
        for _ in range(self.depth):
            above = flat.take(row + feature.take(node)) > threshold.take(node)
            node = below.take(2 * node + above)
        return np.asarray(self.value.reshape(-1).take(node).reshape(trees, len(points)))

    def mean(self, points: Array) -> Array:
        """Return the mean over trees, shape (count,): of 0/1 outputs, the probability of 1."""
        return np.asarray(self.each(points).mean(axis=0))


def grow(
    points: Array,
    outputs: Array,
    rng: np.random.Generator,
    *,
    trees: int = 32,
    depth: int = 10,
    leaf: int = 1,
    share: float | None = None,
    most_cuts: int | None = None,
) -> GrownTrees:
    """Grow a forest on bootstrap samples, splitting where squared error falls most.

    Args:
        points: shape (n, features).
        outputs: shape (n,); 0 and 1 to classify (the split rule is then Gini's).
        rng: draws the bootstrap samples and each node's features.
        trees: number of trees.
        depth: maximum depth of a tree.
        leaf: minimum number of observations in a child.
        share: the share of features tried at a node; by default their number's square root.
        most_cuts: maximum number of thresholds of a feature, evenly spaced among those between
            its values; by default all.
    """
    count, width = points.shape
    between = [_thresholds(points[:, f], most_cuts) for f in range(width)]
    most = max(len(v) for v in between) + 1
    bins = np.stack([np.searchsorted(v, points[:, f]) for f, v in enumerate(between)], axis=1)
    bins = bins.astype(np.min_scalar_type(most))
    cuts = np.zeros((width, most))
    for f, v in enumerate(between):
        cuts[f, : len(v)] = v
    tried = max(1, round(width * share if share is not None else np.sqrt(width)))
    weight = np.zeros((trees, count))
    picks = rng.integers(0, count, (trees, count))
    np.add.at(weight, (np.arange(trees)[:, None], picks), 1.0)
    grower = _Grower(bins, outputs, weight, cuts, most, tried, leaf)
    return grower.run(rng, depth)


def _thresholds(values: Array, most: int | None) -> Array:
    """Return thresholds between different values, in ascending order, at most ``most``."""
    levels = np.unique(values)
    cuts = (levels[1:] + levels[:-1]) / 2
    if most is None or len(cuts) <= most:
        return np.asarray(cuts)
    return np.asarray(cuts[np.linspace(0, len(cuts) - 1, most).round().astype(int)])


class _Grower:
    """The growing state: the node that each observation has reached in each tree."""

    def __init__(
        self,
        bins: Array,
        outputs: Array,
        weight: Array,
        cuts: Array,
        most: int,
        tried: int,
        leaf: int,
    ) -> None:
        self.bins, self.outputs, self.weight, self.cuts = bins, outputs, weight, cuts
        self.most, self.tried, self.leaf = most, tried, leaf
        self.trees, self.count = weight.shape
        self.width = bins.shape[1]

    def run(self, rng: np.random.Generator, depth: int) -> GrownTrees:
        # slots number the open nodes of all trees; tree_of and local say which nodes they are
        slot = np.repeat(np.arange(self.trees)[:, None], self.count, axis=1)
        slot[self.weight == 0] = -1
        self.tree_of = np.arange(self.trees)
        self.local = np.zeros(self.trees, dtype=np.int64)
        sizes = np.ones(self.trees, dtype=np.int64)
        record: list[tuple[Array, Array, Array, Array, Array, Array]] = []
        values: list[tuple[Array, Array, Array]] = []
        reached = 0
        for level in range(depth + 1):
            total, mass = self._totals(slot, len(self.tree_of))
            values.append((self.tree_of, self.local, total / mass))
            if level == depth:
                break
            slot, mixed = self._mixed(slot, total / mass)
            if len(mixed) == 0:
                break
            split, cut = self._best(slot, len(mixed), total[mixed], mass[mixed], rng)
            self.tree_of, self.local = self.tree_of[mixed], self.local[mixed]
            splits = np.flatnonzero(split >= 0)
            if len(splits) == 0:
                break
            reached = level + 1
            left, right = np.empty(len(splits), np.int64), np.empty(len(splits), np.int64)
            trees = self.tree_of[splits]
            order = np.argsort(trees, kind="stable")
            first = np.searchsorted(trees[order], trees[order], side="left")
            rank = np.arange(len(splits)) - first
            left[order] = sizes[trees[order]] + 2 * rank
            right[order] = left[order] + 1
            np.add.at(sizes, trees, 2)
            f = split[splits]
            record.append((trees, self.local[splits], f, self.cuts[f, cut[splits]], left, right))
            slot = self._descend(slot, splits, f, cut[splits])
            self.tree_of = np.repeat(trees, 2)
            self.local = np.stack([left, right], axis=1).reshape(-1)
        return self._pack(int(sizes.max()), record, values, reached)

    def _mixed(self, slot: Array, mean: Array) -> tuple[Array, Array]:
        """Return the slots whose outputs differ, renumbered from 0, and their old numbers."""
        inside = slot >= 0
        outputs = np.broadcast_to(self.outputs, slot.shape)[inside]
        apart = np.abs(outputs - mean[slot[inside]]) > 1e-12
        mixed = np.flatnonzero(np.bincount(slot[inside], apart, len(mean)))
        number = np.full(len(mean) + 1, -1, dtype=np.int64)
        number[mixed] = np.arange(len(mixed))
        return number[slot], mixed

    def _totals(self, slot: Array, open_slots: int) -> tuple[Array, Array]:
        inside = slot >= 0
        where = slot[inside]
        weighted = (self.weight * self.outputs)[inside]
        total = np.bincount(where, weighted, open_slots)
        mass = np.bincount(where, self.weight[inside], open_slots)
        return total, np.maximum(mass, 1e-12)

    def _best(
        self, slot: Array, open_slots: int, total: Array, mass: Array, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Return the feature and cut of each open node, -1 where it stays a leaf."""
        tree, row = np.nonzero(slot >= 0)
        where = slot[tree, row]
        weight = self.weight[tree, row]
        # features that cannot split a node do not use up its draws
        draw = rng.random((open_slots, self.width))
        draw[~self._able(where, row, weight, mass)] = 2.0
        tried = min(self.tried, self.width)
        drawn = np.sort(np.argpartition(draw, tried - 1, axis=1)[:, :tried], axis=1)
        ones = self._below(where, row, drawn, weight)
        sums = self._below(where, row, drawn, weight * self.outputs[row])
        rest = mass[:, None, None] - ones
        gain = sums**2 / np.maximum(ones, 1e-12)
        gain += (total[:, None, None] - sums) ** 2 / np.maximum(rest, 1e-12)
        gain[(ones < self.leaf) | (rest < self.leaf)] = -np.inf
        nodes = np.arange(open_slots)
        cut = gain.argmax(axis=2)
        score = np.take_along_axis(gain, cut[:, :, None], axis=2)[:, :, 0]
        chosen = score.argmax(axis=1)
        worth = score[nodes, chosen] > total**2 / mass + 1e-9
        return np.where(worth, drawn[nodes, chosen], -1), cut[nodes, chosen]

    def _able(self, where: Array, row: Array, weight: Array, mass: Array) -> Array:
        """Return whether a feature can split a node, shape (nodes, features)."""
        if self.leaf > 1:
            every = np.broadcast_to(np.arange(self.width), (len(mass), self.width))
            ones = self._below(where, row, every, weight)
            rest = mass[:, None, None] - ones
            return np.asarray(((ones >= self.leaf) & (rest >= self.leaf)).any(axis=2))
        # it can if two observations of the node are in different bins
        order = np.argsort(where, kind="stable")
        first = np.searchsorted(where[order], np.arange(len(mass)))
        bins = self.bins[row[order]]
        lowest = np.minimum.reduceat(bins, first, axis=0)
        return np.asarray(lowest < np.maximum.reduceat(bins, first, axis=0))

    def _below(self, where: Array, row: Array, features: Array, values: Array) -> Array:
        """Return the sums of values up to each bin, shape (nodes, features per node, bins).

        Args:
            where: the node of each value.
            row: the observation of each value.
            features: of each node, shape (nodes, features per node).
            values: one for each entry of ``where``.
        """
        nodes, count = features.shape
        key = where[:, None] * count + np.arange(count)
        key = key * self.most + self.bins[row[:, None], features[where]]
        sums = np.bincount(key.reshape(-1), np.repeat(values, count), nodes * count * self.most)
        return np.asarray(sums.reshape(nodes, count, self.most).cumsum(axis=2))

    def _descend(self, slot: Array, splits: Array, feature: Array, cut: Array) -> Array:
        """Return each observation's slot one level down, -1 where its node became a leaf."""
        number = np.full(int(slot.max()) + 1, -1, dtype=np.int64)
        number[splits] = np.arange(len(splits))
        below = np.full_like(slot, -1)
        tree, row = np.nonzero(slot >= 0)
        split = number[slot[tree, row]]
        go = split >= 0
        tree, row, split = tree[go], row[go], split[go]
        above = self.bins[row, feature[split]] > cut[split]
        below[tree, row] = 2 * split + above
        return below

    def _pack(
        self,
        nodes: int,
        record: list[tuple[Array, Array, Array, Array, Array, Array]],
        values: list[tuple[Array, Array, Array]],
        depth: int,
    ) -> GrownTrees:
        feature = np.zeros((self.trees, nodes), dtype=np.int64)
        threshold = np.zeros((self.trees, nodes))
        children = np.broadcast_to(np.arange(nodes)[None, :, None], (self.trees, nodes, 2)).copy()
        value = np.zeros((self.trees, nodes))
        for trees, local, f, t, left, right in record:
            feature[trees, local] = f
            threshold[trees, local] = t
            children[trees, local, 0] = left
            children[trees, local, 1] = right
        for trees, local, mean in values:
            value[trees, local] = mean
        return GrownTrees(feature, threshold, children, value, depth)
