"""The weight of a correction: 0 where it does not generalise, 1 where it does."""

import numpy as np
import pytest

from tilewright.halide.schedulers.learned import shrinkage
from tilewright.halide.schedulers.learned.cost_model import LearnedModel, from_json
from tilewright.halide.schedulers.learned.shrinkage import (
    WEIGHTS,
    Training,
    chosen_weight,
    held_out_losses,
    misordering,
    shrunk,
)

PIPELINES, EACH = 12, 12
GROUPS = [f"pipeline{i}" for i in range(PIPELINES) for _ in range(EACH)]
rng = np.random.default_rng(0)
ROWS = rng.normal(size=(PIPELINES * EACH, 3))
BASE = rng.normal(size=PIPELINES * EACH)


def labels(targets):
    return Training(ROWS, np.asarray(targets), BASE, GROUPS, GROUPS, list("abc"))


def test_an_error_that_all_pipelines_share_is_corrected_in_full():
    model = shrunk(labels(2.0 * ROWS[:, 0]))
    assert model.weight >= 0.75
    assert np.corrcoef(model.correction(ROWS).mean, ROWS[:, 0])[0, 1] > 0.9


def test_an_error_with_another_sign_in_every_pipeline_is_not_corrected():
    sign = np.repeat(rng.permutation([1.0, -1.0] * (PIPELINES // 2)), EACH)
    model = shrunk(labels(1.5 * sign * ROWS[:, 0]))
    assert model.weight == 0.0
    assert model.members == ()
    found = model.correction(ROWS)
    assert not found.mean.any()
    assert not found.spread.any()
    again = from_json(LearnedModel(model, model, 0.3, {}).to_json())
    assert not again.schedules.correction(ROWS).mean.any()


def test_the_weight_multiplies_mean_and_spread_and_is_stored():
    full = labels(2.0 * ROWS[:, 0]).model(0)
    half = type(full)(full.names, full.members, 0.5)
    np.testing.assert_allclose(half.correction(ROWS).mean, 0.5 * full.correction(ROWS).mean)
    np.testing.assert_allclose(half.correction(ROWS).spread, 0.5 * full.correction(ROWS).spread)
    stored = from_json(LearnedModel(half, full, 0.3, {}).to_json())
    assert (stored.sizes.weight, stored.schedules.weight) == (0.5, 1.0)


def test_whether_targets_are_centred_is_kept_for_parts():
    full = Training(ROWS, np.full(len(ROWS), 2.0), BASE, GROUPS, GROUPS, list("abc"), centred=False)
    part = full.only(np.arange(len(ROWS)) % 2 == 0)
    assert part.model(0).correction(ROWS).mean == pytest.approx(2.0, abs=0.05)


def test_families_are_held_out_together(monkeypatch):
    families = [f"family{i // 2}" for i in range(PIPELINES) for _ in range(EACH)]
    some = Training(ROWS, ROWS[:, 0], BASE, GROUPS, families, list("abc"))
    fitted_to = []

    def model(self, seed):
        fitted_to.append(set(self.families))
        return type("Zero", (), {"correction": lambda _, r: Zeros(len(r))})()

    class Zeros:
        def __init__(self, count):
            self.mean = np.zeros(count)

    monkeypatch.setattr(shrinkage.Training, "model", model)
    losses = held_out_losses(some)
    assert losses.shape == (PIPELINES, len(WEIGHTS))
    left_out = [set(families) - used for used in fitted_to]
    assert sorted(family for some in left_out for family in some) == sorted(set(families))


def test_misordering_weighs_pairs_by_their_difference():
    times = np.array([0.0, 1.0, 3.0])
    assert misordering(times, times) == 0.0
    assert misordering(-times, times) == 1.0
    assert misordering(np.zeros(3), times) == 0.5
    assert misordering(np.array([1.0, 0.0, 3.0]), times) == pytest.approx(1 / 6)


def test_the_best_weight_is_chosen_if_it_is_clearly_better_than_none():
    rising = np.tile(np.linspace(0.2, 0.4, len(WEIGHTS)), (10, 1))
    assert chosen_weight(rising) == 0.0
    assert chosen_weight(rising[:, ::-1]) == 1.0
    # The least loss counts, also if that of a smaller weight is hardly greater.
    almost = rising[:, ::-1] + np.random.default_rng(0).normal(scale=0.2, size=(10, 1))
    almost[:, -2] = almost[:, -1] + np.linspace(-0.1, 0.101, 10)
    assert chosen_weight(almost) == 1.0
    # Half of the pipelines gain and the others lose almost as much: not distinguishable from none.
    mixed = np.outer([1.0, -0.9] * 5, np.linspace(0.0, -0.1, len(WEIGHTS)))
    assert mixed.mean(axis=0).argmin() == len(WEIGHTS) - 1
    assert chosen_weight(0.3 + mixed) == 0.0
    assert chosen_weight(np.empty((0, len(WEIGHTS)))) == 0.0
