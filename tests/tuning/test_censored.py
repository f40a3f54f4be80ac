"""Evaluations cut short: reported as lower bounds, learned from as censored data."""

import math

import numpy as np
import pytest
from scipy.stats import truncnorm

from tilewright.tuning import Integer, Space, tune
from tilewright.tuning.bayes.gp import Hyperparameters, Posterior
from tilewright.tuning.bayes.surrogate import uncensored


def test_a_lower_bound_is_learned_as_at_least_that():
    points = np.linspace(0, 1, 9)[:, None]
    truth = 4.0 * points[:, 0] - 2.0
    bounded = points[:, 0] == 0.75
    outputs = np.where(bounded, -1.0, truth)  # cut short at -1, the truth is 1
    hyper = Hyperparameters(np.log(np.array([0.5, 4.0, 1e-4])))
    blocks = np.array([0])
    naive = Posterior(points, outputs, blocks, hyper)
    aware = uncensored(naive, points, outputs, bounded, blocks)
    at = np.array([[0.75]])
    assert abs(aware.predict(at)[0][0] - 1.0) < 0.1 < abs(naive.predict(at)[0][0] - 1.0)
    # a bound that says more than the others: the prediction is above it
    outputs[bounded] = 3.0
    higher = uncensored(naive, points, outputs, bounded, blocks)
    assert higher.predict(at)[0][0] > 2.5
    none = np.zeros(9, dtype=bool)
    assert uncensored(naive, points, outputs, none, blocks) is naive


@pytest.mark.parametrize("above", [-3.0, -0.5, 0.0, 1.5])
def test_what_was_cut_short_counts_as_the_mean_of_what_is_above_its_bound(above):
    points = np.linspace(0, 1, 9)[:, None]
    outputs = np.sin(3.0 * points[:, 0])
    bounded, blocks = points[:, 0] == 0.5, np.array([0])
    hyper = Hyperparameters(np.log(np.array([0.5, 4.0, 0.01])))
    known = Posterior(points[~bounded], outputs[~bounded], blocks, hyper)
    mean, variance = known.predict(points[bounded])
    deviation = float(np.sqrt(variance[0] + hyper.noise))
    outputs[bounded] = mean + above * deviation
    aware = uncensored(Posterior(points, outputs, blocks, hyper), points, outputs, bounded, blocks)
    outputs[bounded] = truncnorm.mean(above, np.inf, loc=mean[0], scale=deviation)
    expected = Posterior(points, outputs, blocks, hyper)
    for found, wanted in zip(aware.predict(points), expected.predict(points), strict=True):
        assert found == pytest.approx(wanted, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("least", [1.0, 0.01])
def test_slow_evaluations_may_stop_at_the_limit(least):
    limits = []

    def objective(c, limit):
        limits.append(limit)
        seconds = least + (c["x"] - 30) ** 2
        if seconds > limit:
            return {"value": limit, "lower_bound": True}
        return seconds

    found = tune(objective, Space([Integer("x", 0, 99)]), budget=25, cutoff=3.0)
    assert limits[0] == math.inf
    best = math.inf
    for trial, limit in zip(found.trials, limits, strict=True):
        assert limit == (math.inf if best == math.inf else max(3 * best, best + 0.5))
        if not trial.lower_bound:
            best = min(best, trial.value)
    assert any(t.lower_bound for t in found.trials)
    assert not found.best.lower_bound
    assert found.best.value == pytest.approx(least, abs=1.0)
