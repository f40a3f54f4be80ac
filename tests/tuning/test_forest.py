import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from tilewright.tuning.bayes.forest import _Grower, grow


def region(points):
    return ((points[:, 0] > 0.4) & (points[:, 1] * points[:, 0] < 0.5)).astype(float)


def test_probabilities_are_as_good_as_scikit_learn_s():
    rng = np.random.default_rng(0)
    train, test = rng.random((250, 5)), rng.random((2000, 5))
    ours = grow(train, region(train), rng, trees=64).mean(test)
    model = RandomForestClassifier(64, random_state=0).fit(train, region(train))
    theirs = model.predict_proba(test)[:, 1]
    truth = region(test)
    assert ((ours > 0.5) == truth).mean() > ((theirs > 0.5) == truth).mean() - 0.02
    assert np.mean((ours - truth) ** 2) < np.mean((theirs - truth) ** 2) * 1.15


def test_a_single_tree_on_everything_fits_what_it_saw():
    rng = np.random.default_rng(0)
    points = rng.random((80, 3))
    outputs = np.sin(9 * points[:, 0])
    forest = grow(points, outputs, rng, trees=200, depth=30, share=1.0)
    assert np.abs(forest.mean(points) - outputs).mean() < 0.1
    assert forest.each(points).shape == (200, 80)


def test_split_rule_is_the_largest_fall_of_squared_error():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 1.0], [3.0, 1.0]])
    outputs = np.array([0.0, 0.0, 0.0, 1.0])
    forest = grow(points, outputs, np.random.default_rng(0), trees=200, depth=1, share=1.0)
    whole = forest.threshold[:, 0][forest.feature[:, 0] == 0]
    # bootstrap samples that hold both kinds split feature 0 below the last observation
    assert set(whole.tolist()) <= {0.0, 0.5, 1.5, 2.5}
    assert (whole == 2.5).mean() > 0.3


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_one_kind_of_output_is_predicted_everywhere(value):
    points = np.random.default_rng(0).random((10, 2))
    forest = grow(points, np.full(10, value), np.random.default_rng(1))
    assert (forest.mean(points) == value).all()
    assert forest.depth == 0


def test_constant_features_and_single_observations_are_no_obstacle():
    forest = grow(np.zeros((1, 3)), np.ones(1), np.random.default_rng(0))
    assert forest.mean(np.zeros((2, 3))).tolist() == [1.0, 1.0]


def test_thresholds_are_limited_and_cover_the_whole_range():
    points = np.arange(100.0)[:, None]
    outputs = (points[:, 0] > 60).astype(float)
    forest = grow(points, outputs, np.random.default_rng(0), trees=50, most_cuts=5)
    cuts = np.unique(forest.threshold[forest.children[:, :, 0] != np.arange(forest.value.shape[1])])
    assert set(cuts) <= {0.5, 24.5, 49.5, 73.5, 74.5, 98.5}
    assert ((forest.mean(points) > 0.5) == (outputs > 0.5)).mean() > 0.85
    every = grow(points, outputs, np.random.default_rng(0), trees=50, most_cuts=99)
    plain = grow(points, outputs, np.random.default_rng(0), trees=50)
    assert (every.mean(points) == plain.mean(points)).all()


@pytest.mark.parametrize("leaf", [1, 2])
def test_only_features_that_can_split_a_node_are_drawn(leaf):
    rng = np.random.default_rng(3)
    bins = rng.integers(0, 3, (40, 6))
    bins[:, 4] = 1
    weight = rng.integers(1, 3, 40).astype(float)
    where = np.sort(rng.integers(0, 8, 40))
    where[:8] = np.arange(8)  # every node has an observation
    mass = np.bincount(where, weight)
    grower = _Grower(bins, weight, weight[None], np.zeros((6, 3)), 3, 2, leaf)
    expected = [
        [
            any(
                leaf <= weight[(where == node) & (bins[:, f] <= cut)].sum() <= mass[node] - leaf
                for cut in range(3)
            )
            for f in range(6)
        ]
        for node in range(8)
    ]
    assert grower._able(where, np.arange(40), weight, mass).tolist() == expected
