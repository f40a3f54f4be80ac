"""How good predictions are said to be."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from tilewright.prediction import LRC, Augmented, PredictionError, cross_validate, evaluate
from tilewright.prediction.models.evaluation import Evaluation


def linear(count, seed=0, noise=0.05):
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 1000, count).astype(float)
    return n[:, None], 1e-6 * n * np.exp(noise * rng.normal(size=count))


def test_the_figures_are_those_of_their_definitions():
    measured = np.array([1.0, 2.0, 3.0, 4.0, 10.0])
    predicted = np.array([2.0, 1.0, 3.3, 4.0, 5.0])
    found = Evaluation(
        measured,
        predicted,
        np.array([False, True, False, False, False]),
        low=predicted * 0.9,
        high=predicted * 1.1,
    )
    assert found.mape == pytest.approx((1 + 0.5 + 0.1 + 0 + 0.5) / 5)
    assert found.mape_long == pytest.approx((0.1 + 0 + 0.5) / 3)  # 30% are below 2.2 s
    assert found.median_error == pytest.approx(0.5)
    assert found.spearman == pytest.approx(spearmanr(measured, predicted).statistic)
    assert found.coverage == pytest.approx(2 / 5)
    assert found.width == pytest.approx(11 / 9)
    assert found.to_dict()["outside_training_range"] == 1
    tied = np.array([2.0, 1.0, 2.0, 2.0, 7.0])
    found = Evaluation(measured, tied, np.zeros(5, bool))
    assert found.spearman == pytest.approx(spearmanr(measured, tied).statistic)
    flat = Evaluation(measured, np.ones(5), np.zeros(5, bool))
    assert flat.spearman is None
    assert flat.coverage is None


def test_evaluate_uses_the_models_intervals_and_range():
    X, y = linear(120)
    model = Augmented().fit(X[:80], y[:80])
    test_X = np.concatenate([X[80:], [[5000.0]]])
    test_y = np.concatenate([y[80:], [5e-3]])
    found = evaluate(model, test_X, test_y, coverage=0.8, retimes=1.02 * test_y)
    low, high = model.predict_interval(test_X, 0.8)
    assert found.coverage == np.mean((low <= test_y) & (test_y <= high))
    assert found.coverages is not None
    assert found.coverages[0.8] == found.coverage
    assert found.coverages[0.5] <= found.coverages[0.95]
    assert found.outside.sum() == 1
    assert found.floor == pytest.approx(0.02)
    plain = evaluate(LRC(complexity="x0", folds=0).fit(X, y), X, y)
    assert plain.coverage is None
    with pytest.raises(PredictionError, match="no runs to evaluate"):
        evaluate(model, X[:0], y[:0])


def test_cross_validation_predicts_every_row_by_a_model_that_has_not_seen_it():
    class Memory(LRC):
        """Knows the rows that it was fitted to by heart."""

        kind = "memory"

        def _fit(self, data, seconds):
            super()._fit(data, seconds)
            self.seen = dict(zip(data[:, 0].tolist(), seconds.tolist(), strict=True))

        def _predict(self, data):
            return np.array([self.seen.get(n, 1.0) for n in data[:, 0].tolist()])

    X, y = np.arange(1.0, 24.0)[:, None], np.arange(1.0, 24.0) * 1e-3
    model = Memory(complexity="x0", folds=0)
    told = []
    found = cross_validate(model, X, y, on_progress=lambda *step: told.append(step))
    assert np.array_equal(found.predicted, np.ones(23))
    assert np.array_equal(found.measured, y)
    assert told == [(i, 5) for i in range(6)]
    assert not hasattr(model, "ranges_")
    assert found.outside[[0, -1]].all()
    assert not found.outside[8:-8].any()
    with pytest.raises(PredictionError, match="at least 4"):
        cross_validate(model, X[:3], y[:3])


@pytest.mark.parametrize("rows", [4, 5, 6])
def test_few_rows_are_cross_validated_with_intervals_or_without(rows):
    X, y = linear(rows)
    found = cross_validate(LRC(complexity="x0"), X, y)
    assert len(found) == rows
    assert (found.low is None) == (found.coverages is None)
    assert found.mape < 1


def test_held_out_intervals_cover_what_they_promise():
    X, y = linear(150)
    found = cross_validate(LRC(complexity="x0"), X, y)
    assert 0.8 <= found.coverage <= 1
    assert found.coverages is not None
    assert found.coverages[0.9] == pytest.approx(found.coverage)
