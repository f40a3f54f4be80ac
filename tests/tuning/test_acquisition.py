import numpy as np
import pytest

from tilewright.tuning import Integer, Space
from tilewright.tuning.bayes.acquisition import local_search, log_expected_improvement


def test_expected_improvement_is_the_mean_over_draws():
    rng = np.random.default_rng(0)
    for mean, deviation, best in [(0.0, 1.0, 0.5), (1.0, 0.3, 0.4), (-2.0, 0.1, 0.0)]:
        draws = rng.normal(mean, deviation, 400_000)
        expected = np.maximum(best - draws, 0).mean()
        ours = np.exp(log_expected_improvement(np.array([mean]), np.array([deviation**2]), best))
        assert ours[0] == pytest.approx(expected, rel=0.05, abs=1e-5)


def test_far_candidates_stay_in_order():
    means = np.linspace(0, 60, 200)
    scores = log_expected_improvement(means, np.ones(200), 0.0)
    assert np.isfinite(scores).all()
    assert (np.diff(scores) < 0).all()
    # by the asymptotic series phi(z) / z^2
    assert scores[-1] == pytest.approx(-0.5 * 60**2 - 0.919 - 2 * np.log(60), abs=0.8)


def test_climbing_ends_where_no_neighbour_is_better():
    space = Space([Integer("a", 0, 15), Integer("b", 0, 15)], ["a + b != 13"])

    def score(codes):
        return -((codes[:, 0] - 11) ** 2) - (codes[:, 1] - 4) ** 2

    codes, scores = local_search(space, score, np.array([[0.0, 0.0]]), most=4)
    best = codes[scores.argmax()]
    assert best.tolist() == [11, 4]
    assert space.contains(codes).all()
