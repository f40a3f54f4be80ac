"""The weight of a correction, chosen by cross-validation over pipelines.

A correction fitted to few pipelines may order the schedules of other pipelines worse than the
predicted time alone. Each candidate weight is rated on pipelines that the correction was not fitted
to, by the loss from ordering pairs of schedules: the share of the differences in (logarithmic) time
between the schedules of a pipeline that fall on pairs in the wrong order. The weight with the
least mean loss is chosen, or 0 (the predicted time is not corrected) if its loss is within one
standard error of the least (the one-standard-error rule of Breiman et al. 1984).

| symbol | meaning | shape, unit |
|---|---|---|
| `base` | logarithm of the predicted time | (N,) |
| `targets` | logarithm of measured over predicted time | (N,) |
| `families` | the labels of one family are held out together | (N,) |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tilewright.halide.schedulers.learned.cost_model import Array, CorrectionModel, fitted

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
FOLDS = 5


@dataclass(frozen=True, eq=False)
class Training:
    """The labels of one correction; see the module's table and `fitted`."""

    rows: Array
    targets: Array
    base: Array
    groups: Sequence[str]
    families: Sequence[str]
    names: Sequence[str]
    centred: bool = True

    def only(self, used: npt.NDArray[np.bool_]) -> Training:
        """Return the labels where `used` (booleans) is true."""
        return Training(
            self.rows[used],
            self.targets[used],
            self.base[used],
            [group for group, keep in zip(self.groups, used, strict=True) if keep],
            [family for family, keep in zip(self.families, used, strict=True) if keep],
            self.names,
            self.centred,
        )

    def model(self, seed: int) -> CorrectionModel:
        """Return the correction fitted to all labels, at full weight."""
        return fitted(
            self.rows, self.targets, self.groups, self.names, seed=seed, centred=self.centred
        )


def shrunk(labels: Training, seed: int = 0) -> CorrectionModel:
    """Return the correction fitted to the labels, with the weight that `chosen_weight` gives."""
    losses = held_out_losses(labels, seed)
    weight = chosen_weight(losses)
    if weight == 0.0:
        return CorrectionModel(tuple(labels.names), (), 0.0)
    return replace(labels.model(seed), weight=weight)


def held_out_losses(labels: Training, seed: int = 0) -> Array:
    """Return the loss per pipeline and weight, shape (pipelines, `len(WEIGHTS)`).

    The families are divided into `FOLDS` at random; each part is predicted by a correction that is
    fitted to the others. Pipelines whose schedules take equal times are left out.
    """
    families = np.asarray(labels.families)
    order = np.random.default_rng(seed).permutation(sorted(set(labels.families)))
    corrections = np.zeros(len(labels.targets))
    for fold in range(min(FOLDS, len(order))):
        held = np.isin(families, order[fold::FOLDS])
        if not held.all():
            model = labels.only(~held).model(seed)
            corrections[held] = model.correction(labels.rows[held]).mean
    of = np.asarray(labels.groups)
    times = labels.base + labels.targets
    losses = []
    for group in sorted(set(labels.groups)):
        own = of == group
        costs = [labels.base[own] + weight * corrections[own] for weight in WEIGHTS]
        if np.ptp(times[own]) > 0.0:
            losses.append([misordering(cost, times[own]) for cost in costs])
    return np.array(losses).reshape(-1, len(WEIGHTS))


def misordering(costs: Array, times: Array) -> float:
    """Return the share of the differences in time between pairs that `costs` order wrongly.

    Pairs of equal costs count half.

    >>> misordering(np.array([1.0, 2.0, 3.0]), np.array([0.0, 3.0, 1.0]))
    0.3333333333333333
    """
    apart = np.abs(times[:, None] - times)
    wrong = (np.sign(costs[:, None] - costs) * np.sign(times[:, None] - times) - 1.0) / -2.0
    return float((apart * wrong).sum() / apart.sum())


def chosen_weight(losses: Array) -> float:
    """Return the weight of `WEIGHTS` with the least mean loss, if it is clearly better than none.

    Otherwise 0: if the loss without a correction is within one standard error of the least. The
    standard error is that of the difference over pipelines.
    """
    if len(losses) < 2:
        return 0.0
    best = int(np.argmin(losses.mean(axis=0)))
    worse = losses[:, 0] - losses[:, best]
    error = worse.std(ddof=1) / np.sqrt(len(losses))
    return WEIGHTS[best] if worse.mean() > error else 0.0
