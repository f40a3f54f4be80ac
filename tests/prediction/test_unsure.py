"""Intervals and warnings where a model has seen nothing: gaps between and sizes beyond its data."""

import json

import numpy as np
import pytest

from tilewright.prediction import Augmented, Auto, Estimator

FEATURES = ("m", "n", "k")


def seconds(table, seed=0, noise=0.02):
    """A product's time on a machine with two caches."""
    m, n, k = table.T
    held = 8 * (m * n + n * k + m * k)
    rate = np.where(held < 1e6, 6e10, np.where(held < 3e7, 2e10, 8e9))
    random = np.random.default_rng(seed)
    return (2e-6 + 2 * m * n * k / 5e10 + held / rate) * np.exp(noise * random.normal(size=len(m)))


def between(low, high, count, seed):
    random = np.random.default_rng(seed)
    return np.floor(2 ** random.uniform(low, high, (count, 3)))


@pytest.fixture(scope="module")
def model():
    """Fitted to sizes that are powers of two from 16 to 2048."""
    X = 2.0 ** np.random.default_rng(1).integers(4, 12, (80, 3))
    model = Augmented(features=FEATURES, complexity="m*n*k", max_seconds=None)
    return model.fit(X, seconds(X))


def covered(model, X):
    y = seconds(X, seed=3)
    low, high = model.predict_interval(X)
    return float(np.mean((low <= y) & (y <= high)))


def test_intervals_hold_between_and_beyond_what_was_measured(model):
    assert covered(model, between(4, 11, 300, 2)) > 0.85
    assert covered(model, between(10, 13, 300, 2)) > 0.85


def test_intervals_widen_and_queries_are_flagged_beyond_the_data(model):
    near, far = between(5, 10, 300, 4), between(13, 15, 300, 5)

    def width(X):
        low, high = model.predict_interval(X)
        return np.median(np.log(high / low))

    assert width(far) > 2 * width(near)
    assert model.unsure(far).mean() > 0.5 > 5 * model.unsure(near).mean()


def test_the_folds_models_survive_storage_and_older_files_have_none(model):
    data = json.loads(json.dumps(model.to_dict()))
    X = between(10, 14, 50, 6)
    again = Estimator.from_dict(data)
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
    np.testing.assert_array_equal(again.unsure(X), model.unsure(X))
    del data["state"]["committee"]
    older = Estimator.from_dict(data)
    np.testing.assert_array_equal(older.predict(X), model.predict(X))
    assert not older.unsure(X).any()
    low, high = older.predict_interval(X)
    assert np.all(high / low < np.divide(*model.predict_interval(X)[::-1]))


def test_a_chosen_model_keeps_its_intervals_and_warnings(model):
    X = 2.0 ** np.random.default_rng(1).integers(4, 12, (80, 3))
    chosen = Auto(features=FEATURES, complexity="m*n*k", max_parameters=75).fit(X, seconds(X))
    far = between(13, 15, 50, 5)
    (alone,) = chosen.models_
    expected = alone.predict_interval(far)
    np.testing.assert_array_equal(chosen.predict_interval(far), expected)
    np.testing.assert_array_equal(chosen.unsure(far), alone.unsure(far))
    again = Estimator.from_dict(json.loads(json.dumps(chosen.to_dict())))
    np.testing.assert_array_equal(again.predict_interval(far), expected)
    assert chosen.unsure(far).any()


def test_a_committee_of_another_shape_is_damage(model):
    data = model.to_dict()
    data["state"]["committee"] = [[1.0, 2.0]]
    with pytest.raises(Exception, match=r"damaged: .*another number of parameters"):
        Estimator.from_dict(data)
