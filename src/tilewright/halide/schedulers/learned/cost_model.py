"""The learned cost model: a correction of predicted times, with its uncertainty.

It predicts the logarithm of the measured over the predicted time from the features of a nest. Only
differences between schedules of one pipeline matter, so that the mean of every pipeline is taken
out of the labels before fitting. There are two corrections: of the roofline of the features, which
rates many sizes at once, and of the analytic model's time, which decides among schedules. Each is a
mean of boosted trees fitted to several draws of pipelines; their spread says how far it can be
trusted. Fitting a model needs scikit-learn; using it needs only NumPy.

| symbol | meaning | shape, unit |
|---|---|---|
| `rows` | features (`NAMES`), or with the analytic model's (`PRIOR_NAMES`) | (N, inputs) |
| `targets` | logarithm of measured over predicted time | (N,) |
| `groups` | the pipeline of each label | (N,) |
| correction | predicted logarithm, mean and standard deviation of the members | (N,) |
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.errors import TilewrightError

Array: TypeAlias = npt.NDArray[np.float64]
SCHEMA = 1
FILE = "cost_model_cpu.json"
# Sets of trees, each of draws of pipelines; trees of a set, their depth, the share that each adds,
# and the least labels in a leaf. Chosen for a file of some 200 kB.
MEMBERS = 6
TREES = 70
DEPTH = 3
RATE = 0.08
LEAF = 8
SUBSAMPLE = 0.6
DIGITS = 5  # significant digits of what is stored


class Correction(NamedTuple):
    """Logarithms of measured over predicted time: mean and standard deviation, shape (N,)."""

    mean: Array
    spread: Array


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """A sum of binary trees of one depth, as arrays of shape (trees, nodes).

    Node i has the children 2 i + 1 and 2 i + 2. `feature` and `threshold` are of inner nodes
    (``x <= threshold`` goes left), `value` of leaves.
    """

    feature: npt.NDArray[np.int64]
    threshold: Array
    value: Array

    def __call__(self, rows: Array) -> Array:
        """Return sums of shape (N,) for rows of shape (N, inputs)."""
        rows = rows.astype(np.float32)  # as scikit-learn does, to reach the same leaves
        trees = np.arange(len(self.feature))
        node = np.zeros((len(rows), len(trees)), dtype=np.int64)
        inner = self.feature.shape[1]
        at = np.arange(len(rows))[:, None]
        for _ in range(int(np.log2(inner + 1))):
            right = rows[at, self.feature[trees, node]] > self.threshold[trees, node]
            node = 2 * node + 1 + right
        return np.asarray(self.value[trees, node - inner].sum(axis=1))

    @classmethod
    def of(cls, trees: Sequence[Any], rate: float, depth: int) -> BoostedTrees:
        """Read fitted ``DecisionTreeRegressor``s; a leaf that comes early fills what is below."""
        inner = 2**depth - 1
        feature = np.zeros((len(trees), inner), dtype=np.int64)
        threshold = np.full((len(trees), inner), np.inf)
        value = np.zeros((len(trees), inner + 1))
        for t, tree in enumerate(each.tree_ for each in trees):
            stack = [(0, 0)]
            while stack:
                node, place = stack.pop()
                leaf = tree.children_left[node] < 0
                if place >= inner:
                    value[t, place - inner] = rate * tree.value[node, 0, 0]
                    continue
                if not leaf:
                    feature[t, place] = tree.feature[node]
                    threshold[t, place] = tree.threshold[node]
                left = node if leaf else tree.children_left[node]
                right = node if leaf else tree.children_right[node]
                stack += [(left, 2 * place + 1), (right, 2 * place + 2)]
        return cls(feature, threshold, value)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
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


@dataclass(frozen=True, eq=False)
class CorrectionModel:
    """The correction of one predicted time, from features of these names."""

    names: tuple[str, ...]
    members: tuple[BoostedTrees, ...]

    def correction(self, rows: Array) -> Correction:
        """Return the corrections of rows of features.

        Raises `ValueError` if the rows have another number of features.
        """
        if rows.shape[1] != len(self.names):
            raise ValueError(f"{rows.shape[1]} features, and the model has {len(self.names)}")
        each = np.stack([member(rows) for member in self.members])
        return Correction(each.mean(axis=0), each.std(axis=0))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        members = [member.to_dict() for member in self.members]
        return {"names": list(self.names), "members": members}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CorrectionModel:
        """Return the inverse of `to_dict`."""
        members = tuple(BoostedTrees.from_dict(member) for member in data["members"])
        return cls(tuple(data["names"]), members)


@dataclass(frozen=True, eq=False)
class LearnedModel:
    """Corrections of the roofline (`sizes`) and of the analytic model's time (`schedules`).

    `residual` is the standard deviation of what is left to explain in pipelines that were held out:
    logarithms of measured over predicted times, each pipeline's mean taken out. `provenance` says
    what the corrections were made of, and how good they are.
    """

    sizes: CorrectionModel
    schedules: CorrectionModel
    residual: float = 0.0
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return it as JSON text."""
        data = {
            "schema": SCHEMA,
            "provenance": dict(self.provenance),
            "residual": self.residual,
            "sizes": self.sizes.to_dict(),
            "schedules": self.schedules.to_dict(),
        }
        return json.dumps(data, separators=(",", ":")) + "\n"


def from_json(text: str) -> LearnedModel:
    """Read a model.

    Raises `TilewrightError` if the text is not one.
    """
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise TilewrightError(f"the cost model has schema {data['schema']}, not {SCHEMA}")
        sizes, schedules = (CorrectionModel.from_dict(data[n]) for n in ("sizes", "schedules"))
        return LearnedModel(sizes, schedules, float(data["residual"]), data["provenance"])
    except (ValueError, KeyError, TypeError) as error:
        raise TilewrightError(f"this is not a cost model: {error}; train one again") from error


@cache
def shipped() -> LearnedModel:
    """Return the model that comes with the package."""
    return from_json((files(__package__) / FILE).read_text(encoding="utf-8"))


def fitted(
    rows: Array,
    targets: Array,
    groups: Sequence[str],
    names: Sequence[str],
    *,
    seed: int = 0,
    members: int = MEMBERS,
) -> CorrectionModel:
    """Fit a correction to labels.

    Every pipeline counts alike, however many labels it has.

    Raises `TilewrightError` if scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import GradientBoostingRegressor
    except ImportError as error:
        raise TilewrightError(
            "training needs scikit-learn: pip install 'tilewright[prediction]'"
        ) from error
    of = np.asarray(groups)
    pipelines = sorted(set(groups))
    centred = targets - np.array([targets[of == group].mean() for group in groups])
    rng = np.random.default_rng(seed)
    found = []
    for member in range(members):
        drawn = rng.choice(len(pipelines), size=len(pipelines))
        times = dict(zip(pipelines, np.bincount(drawn, minlength=len(pipelines)), strict=True))
        weight = np.array([times[group] / np.sum(of == group) for group in groups])
        used = weight > 0
        model = GradientBoostingRegressor(
            n_estimators=TREES,
            max_depth=DEPTH,
            learning_rate=RATE,
            min_samples_leaf=LEAF,
            subsample=SUBSAMPLE,
            init="zero",
            random_state=seed + member,
        )
        model.fit(rows[used], centred[used], sample_weight=weight[used])
        found.append(BoostedTrees.of(list(model.estimators_[:, 0]), RATE, DEPTH))
    return CorrectionModel(tuple(names), tuple(found))
