"""The default model learns from a Gaussian process between the instances."""

import copy
import json

import numpy as np
import pytest

from tilewright.prediction import Augmented, GaussianProcess
from tilewright.prediction.models import augmented
from tilewright.prediction.models.distillation import MADE, shuffled
from tilewright.prediction.models.intervals import thresholded
from tilewright.prediction.models.levenberg_marquardt import minimise
from tilewright.prediction.models.model_selection import ridge, with_ones
from tilewright.prediction.models.surface import Shape

NAMES = ("a", "b", "c", "d")


def tuned(count, seed):
    """Times of a kernel whose factors interact, as those of tiles and blocks do."""
    random = np.random.default_rng(seed)
    X = 2.0 ** random.integers(0, 8, (count, 4))
    a, b, c, d = np.log2(X).T
    curved = 0.1 * (a - 4) ** 2 + 0.4 * np.sin(a + b) + 0.05 * c * d + 0.3 * np.cos(b - d)
    return X, 1e-4 * np.exp(curved)


def test_a_teacher_makes_ours_better_between_the_instances(monkeypatch):
    X, y = tuned(200, 0)
    queries, measured = tuned(400, 1)
    limits = {"features": NAMES, "max_parameters": 60, "max_seconds": None}
    taught = Augmented(**limits).fit(X, y)
    monkeypatch.setattr(augmented, "_FEWEST", len(X) + 1)
    alone = Augmented(**limits).fit(X, y)
    assert taught.chosen_["teacher"] > 0 == alone.chosen_["teacher"]
    assert taught.parameter_count_ <= 60
    errors = [thresholded(model.predict(queries), measured) for model in (taught, alone)]
    assert errors[0] < 0.9 * errors[1]
    low, high = taught.predict_interval(queries)
    assert np.mean((low <= measured) & (measured <= high)) > 0.85


def test_there_is_no_teacher_without_time_or_among_many_instances():
    X, y = tuned(60, 2)
    hurried = Augmented(features=NAMES, max_seconds=0.0).fit(X, y)
    assert hurried.chosen_["teacher"] == 0
    X, y = tuned(700, 3)
    assert Augmented(features=NAMES, max_parameters=8).fit(X, y).chosen_["teacher"] == 0


def test_a_process_without_instances_predicts_what_it_leaves_out():
    X, y = tuned(80, 4)
    process = GaussianProcess(features=NAMES, folds=0, steps=10).fit(X, y)
    before = process.predict(X)
    place = np.arange(80) % 4
    left_out = process.left_out(place, np.log(y))
    for fold in range(4):
        own = np.flatnonzero(place == fold)
        lesser = process.without(own)
        assert np.log(lesser.predict(X[own])) == pytest.approx(left_out[own], abs=1e-6)
        assert not np.allclose(lesser.predict(X[own]), before[own])
    assert np.array_equal(process.predict(X), before)


def test_problems_of_a_batch_may_have_targets_of_their_own():
    X, y = tuned(60, 5)
    inputs, shape = with_ones(np.log2(X) - 3.5), Shape(4, 1, 2)
    theta = np.random.default_rng(0).normal(size=(2, shape.count))
    targets = np.stack([np.log(y), -np.log(y)])
    weights = np.ones((2, 60))
    how = {"ridge": ridge(shape), "steps": 10, "relative": 1.0}
    both = minimise(shape, theta, inputs, targets, weights, **how)
    for i in range(2):
        alone = minimise(shape, theta[[i]], inputs, targets[i], weights[[i]], **how)
        assert np.allclose(both.theta[i], alone.theta[0])
        assert both.loss[i] == pytest.approx(alone.loss[0])


def test_made_up_queries_have_values_that_were_measured():
    X, _ = tuned(50, 6)
    made = shuffled(X, seed=3)
    assert made.shape == (MADE, 4)
    assert all(set(made[:, j]) <= set(X[:, j]) for j in range(4))
    assert len(np.unique(made, axis=0)) > len(np.unique(X, axis=0))
    assert np.array_equal(made, shuffled(X, seed=3))


@pytest.mark.thorough
def test_the_models_before_a_teacher_widen_intervals_beyond_the_range(monkeypatch):
    X, y = tuned(200, 0)
    limits = {"features": NAMES, "max_parameters": 60, "max_seconds": None}
    taught = Augmented(**limits).fit(X, y)
    monkeypatch.setattr(augmented, "_FEWEST", len(X) + 1)
    alone = Augmented(**limits).fit(X, y)
    assert taught.chosen_["teacher"] > 0
    folds = len(alone.committee_)
    assert taught.committee_.shape == (2 * folds, len(taught.theta_))
    np.testing.assert_array_equal(taught.committee_[folds:], alone.committee_)
    far = 2.0 ** np.random.default_rng(7).uniform(8, 11, (200, 4))
    students = copy.copy(taught)
    students.committee_ = taught.committee_[:folds]
    np.testing.assert_array_equal(students.predict(far), taught.predict(far))
    assert np.median(taught._spread(far)) > np.median(students._spread(far))
    again = Augmented.from_dict(json.loads(json.dumps(taught.to_dict())))
    np.testing.assert_array_equal(again.predict_interval(far), taught.predict_interval(far))
