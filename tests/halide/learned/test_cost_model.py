"""The learned cost model: what is fitted is what is stored, and what is wrong is refused."""

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.halide.schedulers.learned import cost_model
from tilewright.halide.schedulers.learned.cost_model import LearnedModel, fitted, from_json, shipped
from tilewright.halide.schedulers.learned.evaluation import CHANGE_NAMES
from tilewright.halide.schedulers.learned.part_features import NAMES

rng = np.random.default_rng(0)
ROWS = rng.normal(size=(300, 4))
GROUPS = [f"pipeline{i % 10}" for i in range(300)]
# Every pipeline has an offset of its own, which no feature explains.
OFFSETS = np.array([float(i % 10) for i in range(300)])
TARGETS = 0.5 * (ROWS[:, 0] > 0) + 0.3 * ROWS[:, 1] + OFFSETS


@pytest.fixture(scope="module")
def model():
    return fitted(ROWS, TARGETS, GROUPS, list("abcd"), members=3)


def test_it_learns_what_differs_within_pipelines(model):
    found = model.correction(ROWS)
    assert np.corrcoef(found.mean, TARGETS - OFFSETS)[0, 1] > 0.9
    assert found.spread.shape == (300,)
    assert (found.spread >= 0).all()


def test_targets_that_are_relative_already_are_fitted_as_they_are():
    shifted = fitted(ROWS, TARGETS - OFFSETS + 3.0, GROUPS, list("abcd"), members=3, centred=False)
    assert shifted.correction(ROWS).mean.mean() == pytest.approx(
        (TARGETS - OFFSETS).mean() + 3, abs=0.1
    )
    centred = fitted(ROWS, TARGETS - OFFSETS + 3.0, GROUPS, list("abcd"), members=3)
    assert centred.correction(ROWS).mean.mean() == pytest.approx(0.0, abs=0.1)


def test_trees_are_those_of_scikit_learn():
    from sklearn.tree import DecisionTreeRegressor

    trees = [
        DecisionTreeRegressor(max_depth=3, random_state=i).fit(ROWS, ROWS[:, i] ** 2)
        for i in range(3)
    ]
    ours = cost_model.BoostedTrees.of(trees, 0.5, 3)
    expected = 0.5 * sum(tree.predict(ROWS) for tree in trees)
    np.testing.assert_allclose(ours(ROWS), expected)


def test_a_leaf_above_the_last_level_is_kept():
    from sklearn.tree import DecisionTreeRegressor

    tree = DecisionTreeRegressor(max_depth=1).fit(ROWS, ROWS[:, 0] > 0)
    ours = cost_model.BoostedTrees.of([tree], 1.0, 4)
    np.testing.assert_allclose(ours(ROWS), tree.predict(ROWS))


def test_json_keeps_the_predictions(model):
    whole = from_json(LearnedModel(model, model, 0.25, {"seed": 3}).to_json())
    assert (whole.residual, whole.provenance) == (0.25, {"seed": 3})
    again = whole.sizes
    assert again.names == whole.schedules.names == model.names
    np.testing.assert_allclose(again.correction(ROWS).mean, model.correction(ROWS).mean, atol=2e-3)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": 99}', '{"schema": 1, "names": []}'])
def test_what_is_no_model_is_refused(text):
    with pytest.raises(TilewrightError, match="cost model"):
        from_json(text)


def test_rows_of_another_width_are_refused(model):
    with pytest.raises(ValueError, match="3 features"):
        model.correction(ROWS[:, :3])


def test_the_shipped_model_fits_the_features_and_says_where_it_is_from():
    model = shipped()
    assert isinstance(model, LearnedModel)
    assert model.sizes.names == NAMES
    assert model.schedules.names == CHANGE_NAMES
    assert model.provenance["labels"] > 100
    assert 0.0 < model.residual < 1.0
    assert {"date", "machine", "versions", "seed", "pipelines"} <= model.provenance.keys()
