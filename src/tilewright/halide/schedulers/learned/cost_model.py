"""The learned cost model: a linear model, and a correction of its times, with its uncertainty.

The time before the correction is the analytic model's; for many sizes at once, it is that of a
linear model (`linear_model`). The linear model can be adapted to a machine: half of the change, as
a logarithm, is then applied to the analytic model's time, too.

The correction is the logarithm of measured over predicted time, predicted from the features of a
nest. Only differences between schedules of one pipeline matter. There are two corrections. One is
for rating many sizes at once; the mean of each pipeline's labels is subtracted before fitting. The
other is for choosing among schedules: its labels and half of its features are relative to those of
the analytic schedule of the pipeline, which every search knows.
Each is the mean of an ensemble of boosted trees, whose members are fitted to different bootstrap
samples of pipelines. Their standard deviation is the uncertainty. The mean is multiplied by a
weight that is chosen on held-out pipelines (`shrinkage`) and may be 0. Fitting needs scikit-learn;
using a model needs only NumPy.

| symbol | meaning | shape, unit |
|---|---|---|
| `rows` | features: `NAMES` for sizes, `CHANGE_NAMES` for schedules | (N, inputs) |
| `targets` | logarithm of measured over predicted time | (N,) |
| `groups` | the pipeline of each label | (N,) |
| correction | predicted logarithm: mean and standard deviation over members | (N,) |
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.errors import TilewrightError
from tilewright.halide.schedulers.boosted_trees import DIGITS, BoostedTrees
from tilewright.halide.schedulers.learned.evaluation import with_changes
from tilewright.halide.schedulers.learned.part_features import NestFeatures
from tilewright.halide.schedulers.learned.term_counts import TERMS
from tilewright.shapes import naming

Array: TypeAlias = npt.NDArray[np.float64]
SCHEMA = 3
FILE = "cost_model_cpu.json"
# Members of the ensemble; trees per member, their depth, the learning rate, the least labels per
# leaf, the share of labels per tree, and the number of features per split. Chosen for a file of
# about 200 kB.
MEMBERS = 6
TREES = 70
DEPTH = 3
RATE = 0.08
LEAF = 8
SUBSAMPLE = 0.6
FEATURES = 25
# The share of what adapting the linear model changes that is applied to the analytic model's time
# (chosen: the errors of both are largely independent).
ADAPTED = 0.5


class Correction(NamedTuple):
    """The natural logarithm of measured over predicted time: mean and deviation, each (N,)."""

    mean: Array
    spread: Array


@dataclass(frozen=True, eq=False)
class CorrectionModel:
    """The correction of one predicted time, as a function of the features in `names`.

    The mean over members is multiplied by `weight` (see `shrinkage`). Without members, nothing is
    corrected.
    """

    names: tuple[str, ...]
    members: tuple[BoostedTrees, ...]
    weight: float = 1.0

    def correction(self, rows: Array) -> Correction:
        """Return the corrections for features of shape (N, `len(names)`).

        Raises `ValueError` if the number of features differs.
        """
        if rows.shape[1] != len(self.names):
            raise ValueError(
                f"{rows.shape[1]} features are given, but the model has {len(self.names)}"
            )
        if not self.members:
            return Correction(np.zeros(len(rows)), np.zeros(len(rows)))
        each = self.weight * np.stack([member(rows) for member in self.members])
        return Correction(each.mean(axis=0), each.std(axis=0))

    def to_dict(self) -> dict[str, Any]:
        """Return the correction as JSON data."""
        members = [member.to_dict() for member in self.members]
        return {"names": list(self.names), "weight": self.weight, "members": members}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CorrectionModel:
        """Return the inverse of `to_dict`."""
        members = tuple(BoostedTrees.from_dict(member) for member in data["members"])
        return cls(tuple(data["names"]), members, float(data.get("weight", 1.0)))


@dataclass(frozen=True, eq=False)
class LearnedModel:
    """The linear model and the corrections for many `sizes` at once and for single `schedules`.

    `coefficients` are those of `term_counts.TERMS` by name, and `reference` those before the linear
    model was adapted to a machine. Without coefficients, the roofline of the features takes the
    place of the linear time.
    `residual` is the standard deviation of the corrected logarithms of measured over predicted time
    in held-out pipelines, after subtracting the mean of each pipeline. `drift` and `deviation` are
    the mean and the standard deviation of the logarithm of the time that random moves lead to, over
    that of the analytic schedule. `provenance` describes the training data and the accuracy.
    """

    sizes: CorrectionModel
    schedules: CorrectionModel
    residual: float = 0.0
    provenance: Mapping[str, Any] = field(default_factory=dict)
    coefficients: Mapping[str, float] = field(default_factory=dict)
    drift: float = 0.0
    deviation: float = 1.0
    reference: Mapping[str, float] = field(default_factory=dict)

    @property
    def needed_gain(self) -> float:
        """The gain over the analytic schedule from which another is expected to be faster.

        It is the logarithm of a predicted ratio of times. Few moves from a good schedule lead to a
        better one, so that a small predicted gain is more likely an error of the model: before the
        prediction, the logarithm of the time over the analytic schedule's is normal with the mean
        `drift` and `deviation`, and the prediction adds an error of `residual`. The mean after the
        prediction is negative where the predicted gain exceeds this value.
        """
        return max(self.drift, 0.0) * (self.residual / self.deviation) ** 2

    @property
    def needs_features(self) -> bool:
        """Whether the time of a schedule depends on its features."""
        return bool(self.adapted or self.schedules.members)

    @property
    def adapted(self) -> bool:
        """Whether the linear model was adapted to a machine."""
        known = bool(self.reference and self.coefficients)
        return known and self.reference != self.coefficients

    def linear(self, found: NestFeatures, clock_hz: float) -> Array:
        """Return the logarithms of seconds by the linear model, shape (N,)."""
        if not self.coefficients:
            return np.asarray(np.log(found.roofline / clock_hz))
        return _linear(self.coefficients, found, clock_hz)

    def shares(self, found: NestFeatures) -> dict[str, float]:
        """Return each term's share of the linear model's time, 0 to 1, for the first row."""
        if not self.coefficients:
            return {}
        cycles = {
            term.name: self.coefficients[term.name] * float(found.terms[0, i])
            for i, term in enumerate(TERMS)
        }
        total = max(sum(cycles.values()), 1.0)
        return {name: each / total for name, each in cycles.items()}

    def correction(self, row: Array, analytic: Array | None) -> tuple[float, float]:
        """Return the mean and the standard deviation of a schedule's correction.

        `row` has its features, and `analytic` those of the analytic schedule of its pipeline, both
        of shape (1, `len(PRIOR_NAMES)`). Without the latter, nothing is corrected.
        """
        if analytic is None or not self.schedules.members:
            return 0.0, 0.0
        mean, spread = self.schedules.correction(with_changes(row, analytic))
        return float(mean[0]), float(spread[0])

    def before(self, prior: float, found: NestFeatures | None, clock_hz: float) -> float:
        """Return the logarithm of a schedule's seconds before the correction.

        `prior` is the analytic model's time in seconds. Without features, nothing is adapted.
        """
        if found is None or not self.adapted:
            return math.log(prior)
        was = _linear(self.reference, found, clock_hz)
        return math.log(prior) + ADAPTED * float((self.linear(found, clock_hz) - was)[0])

    def to_json(self) -> str:
        """Return the model as JSON text."""
        data = {
            "schema": SCHEMA,
            "provenance": dict(self.provenance),
            "residual": self.residual,
            "drift": self.drift,
            "deviation": self.deviation,
            "coefficients": _rounded(self.coefficients),
            "reference": _rounded(self.reference) if self.adapted else {},
            "sizes": self.sizes.to_dict(),
            "schedules": self.schedules.to_dict(),
        }
        return json.dumps(data, separators=(",", ":")) + "\n"


def _rounded(coefficients: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.{DIGITS}g}") for name, value in coefficients.items()}


def _linear(coefficients: Mapping[str, float], found: NestFeatures, clock_hz: float) -> Array:
    each = np.array([coefficients[term.name] for term in TERMS])
    return np.asarray(np.log(np.maximum(found.terms @ each, 1.0) / clock_hz))


def _coefficients(data: Mapping[str, Any]) -> dict[str, float]:
    """Return coefficients by term. Raises `TilewrightError` if the terms are others."""
    found = {str(name): float(c) for name, c in data.items()}
    if found and set(found) != {term.name for term in TERMS}:
        raise TilewrightError("the cost model has other terms: train it again")
    return found


def from_json(text: str) -> LearnedModel:
    """Return the model in JSON text of `LearnedModel.to_json`.

    Raises `TilewrightError` if the text is not a model.
    """
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise TilewrightError(
                f"the cost model has schema {data['schema']}, not {SCHEMA}: train it again"
            )
        sizes, schedules = (CorrectionModel.from_dict(data[n]) for n in ("sizes", "schedules"))
        coefficients = _coefficients(data["coefficients"])
        return LearnedModel(
            sizes,
            schedules,
            float(data["residual"]),
            data["provenance"],
            coefficients,
            float(data["drift"]),
            float(data["deviation"]),
            _coefficients(data.get("reference", {})) or coefficients,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TilewrightError(f"this is not a cost model: {error}; train one again") from error


def model_of_file(path: str | os.PathLike[str] | None) -> LearnedModel:
    """Return the model in a file of ``tilewright train``; without a file, the shipped one.

    Raises `TilewrightError` if the file cannot be read or is not a model.
    """
    if path is None:
        return shipped()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TilewrightError(f"cannot read the model {path}: {error}") from error
    with naming(os.fspath(path)):
        return from_json(text)


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
    centred: bool = True,
) -> CorrectionModel:
    """Return a correction fitted to labels; all pipelines have equal weight.

    Args:
        rows: features, shape (N, inputs).
        targets: logarithms of measured over predicted time, shape (N,).
        groups: the pipeline of each label.
        names: the names of the features.
        seed: the seed of the ensemble.
        members: the number of members.
        centred: subtract the mean of each pipeline's targets before fitting.

    Raises:
        TilewrightError: scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import GradientBoostingRegressor
    except ImportError as error:
        raise TilewrightError(
            "training needs scikit-learn: pip install 'tilewright[prediction]'"
        ) from error
    pipelines, of = np.unique(np.asarray(groups), return_inverse=True)
    count = np.bincount(of)
    if centred:
        targets = targets - (np.bincount(of, weights=targets) / count)[of]
    rng = np.random.default_rng(seed)
    found = []
    for member in range(members):
        drawn = rng.choice(len(pipelines), size=len(pipelines))
        weight = (np.bincount(drawn, minlength=len(pipelines)) / count)[of]
        used = weight > 0
        model = GradientBoostingRegressor(
            n_estimators=TREES,
            max_depth=DEPTH,
            learning_rate=RATE,
            min_samples_leaf=LEAF,
            subsample=SUBSAMPLE,
            max_features=min(FEATURES, rows.shape[1]),
            init="zero",
            random_state=seed + member,
        )
        model.fit(rows[used], targets[used], sample_weight=weight[used])
        found.append(BoostedTrees.of(list(model.estimators_[:, 0]), RATE, DEPTH))
    return CorrectionModel(tuple(names), tuple(found))
