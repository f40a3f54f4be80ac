"""The model that candidates are ranked by."""

import numpy as np
import pytest
from sklearn.base import clone

from tilewright.prediction import Forest, PredictionError, export_c, load
from tilewright.prediction.decisions.ranking import rank
from tilewright.prediction.kernels.halide_blur import family


def schedules(count=300, seed=0):
    """Times with steps: lanes that do not fill a vector, tiles that leave a cache."""
    rng = np.random.default_rng(seed)
    size, lanes, tile = (
        2.0 ** rng.integers(low, high, count) for low, high in ((8, 12), (1, 9), (1, 11))
    )
    seconds = 1e-9 * size**2 * (np.maximum(32 / lanes, 1) + 4 * (tile > 256) + 8 / tile)
    return np.column_stack([size, lanes, tile]), seconds * np.exp(0.05 * rng.normal(size=count))


@pytest.fixture(scope="module")
def model():
    table, seconds = schedules()
    return Forest(features=("n", "s", "t"), complexity="n**2", work=["max(32 / s, 1)"]).fit(
        table, seconds
    )


def test_its_best_candidate_is_nearly_the_best(model):
    table, _ = schedules(400, seed=9)
    table[:, 0] = 1024
    true = np.maximum(32 / table[:, 1], 1) + 4 * (table[:, 2] > 256) + 8 / table[:, 2]
    best = rank(model, table, 1)[0]
    assert true[best.index] < 1.15 * true.min()
    assert best.low < best.seconds < best.high


def test_training_instances_take_what_they_took(model):
    table, seconds = schedules()
    _, first = np.unique(table, axis=0, return_index=True)
    once = [i for i in first if (table == table[i]).all(axis=1).sum() == 1]
    assert len(once) > 10
    np.testing.assert_allclose(model.predict(table)[once], seconds[once], rtol=1e-6)


@pytest.mark.thorough
def test_it_is_stored_and_cloned(model, tmp_path):
    table, _ = schedules(50, seed=3)
    model.save(tmp_path / "m.json")
    np.testing.assert_array_equal(load(tmp_path / "m.json").predict(table), model.predict(table))
    again = clone(model).fit(*schedules())
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    with pytest.raises(PredictionError, match="Forest cannot be exported"):
        export_c(model)


def test_an_expression_without_a_value_is_named():
    with pytest.raises(PredictionError, match="1 / n"):
        Forest(features=("n",), work=["1 / n"], folds=0).fit([[0.0], [1.0]], [1.0, 2.0])


def test_the_family_s_work_is_of_its_features():
    blur = family()
    rows = blur.candidates(1024, 20)
    table = [[row[name] for name in blur.features] for row in rows]
    fitted = Forest(
        features=tuple(blur.features), complexity=blur.complexity, work=blur.work, folds=0
    ).fit(table, np.linspace(1, 2, 20))
    assert len(rank(fitted, rows)) == 20
