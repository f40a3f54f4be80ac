"""Ranking: the paper's model against its definition, and measures of quality by hand."""

import itertools
import json
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright.patterns as tp
from tilewright.patterns.features import TABLE_1
from tilewright.patterns.ranking import (
    FEATURES,
    FromRunTimes,
    MeasuredProgram,
    NearestNeighbours,
    RandomisedTrees,
    TrendAndTrees,
    leave_one_program_out,
    quality,
    read_measured,
    redundancy,
    summary,
    write_measured,
)
from tilewright.patterns.ranking.evaluation import runs_until

COUNT = len(FEATURES)


def measured(name, seed, points=60, noise=0.02, sizes=None):
    """Times that three features decide, on a scale of each program's own."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(1, 50, (points, COUNT))
    features[:, FEATURES.index("barriers")] = 0  # the same everywhere
    loads = FEATURES.index("global_loads")
    features[:, TABLE_1:] = 2 * features[:, loads : loads + 1]  # arithmetic follows the loads
    cost = features[:, 0] + 3 * features[:, 5] + 10 * features[:, 8]
    seconds = (seed + 1) * 1e-6 * cost * np.exp(noise * rng.normal(size=points))
    return MeasuredProgram(name, sizes or {"N": 512}, features, seconds)


def by_definition(training, performance, queries, k=5, variance=0.95):
    """Standardise, project on the eigenvectors of the covariance, average the k nearest."""
    mean, deviation = training.mean(axis=0), training.std(axis=0)
    varying = deviation > 0
    a, b = ((x - mean)[:, varying] / deviation[varying] for x in (training, queries))
    values, vectors = np.linalg.eigh(np.cov(a.T, bias=True))
    order = np.argsort(values)[::-1]
    shares = np.cumsum(values[order]) / values.sum()
    kept = vectors[:, order[: 1 + np.flatnonzero(shares >= variance - 1e-12)[0]]]
    found = []
    for q in b @ kept:
        distances = ((a @ kept - q) ** 2).sum(axis=1)
        found.append(performance[np.argsort(distances)[:k]].mean())
    return kept.shape[1], np.array(found)


@pytest.mark.parametrize(("k", "variance"), [(5, 0.95), (1, 0.5), (3, 1.0)])
def test_neighbours_are_those_of_the_definition(k, variance):
    rng = np.random.default_rng(1)
    mixed = rng.normal(size=(80, 4)) @ rng.normal(size=(4, 6)) + 0.1 * rng.normal(size=(80, 6))
    training = np.column_stack([mixed * [1, 1e6, 1e-3, 1, 5, 1], np.full(80, 7.0)])
    performance, queries = rng.random(80), training[:20] + 0.01
    model = NearestNeighbours(k, variance).fit(training, performance)
    components, expected = by_definition(training, performance, queries, k, variance)
    assert model.axes_.shape[1] == components
    assert np.allclose(model.predict(queries), expected)


def test_queries_in_many_blocks_are_predicted_as_in_one(monkeypatch):
    p, q = measured("a", 0), measured("b", 1)
    model = NearestNeighbours().fit(p.features, p.performance)
    whole = model.predict(q.features)
    monkeypatch.setattr("tilewright.patterns.ranking.nearest.MOST_DISTANCES", 100)
    assert np.array_equal(model.predict(q.features), whole)


def test_logarithms_make_far_points_near():
    training = np.array([[0.0], [10.0], [1e6]])
    model = NearestNeighbours(1).fit(training, np.array([0.1, 0.2, 1.0]))
    assert model.predict([[1e5]]) == [0.2]
    below = NearestNeighbours(1, logarithms=True).fit(-training, np.array([0.1, 0.2, 1.0]))
    assert below.predict([[-1e5]]) == [1.0]
    logs = NearestNeighbours(1, logarithms=True).fit(training, np.array([0.1, 0.2, 1.0]))
    assert logs.predict([[1e5]]) == [1.0]


def test_points_that_do_not_vary_are_predicted_by_their_mean():
    model = NearestNeighbours().fit(np.ones((8, 3)), np.arange(8.0))
    assert model.predict(np.zeros((2, 3))).tolist() == [3.5, 3.5]
    few = NearestNeighbours().fit(np.eye(2), np.array([0.5, 1.0]))
    assert few.predict(np.eye(2)).tolist() == [0.75, 0.75]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: NearestNeighbours(0).fit(np.eye(2), [1, 1]), "neighbours is 0"),
        (lambda: NearestNeighbours(variance=0).fit(np.eye(2), [1, 1]), "variance 0"),
        (lambda: NearestNeighbours().fit(np.eye(2), [1]), r"shape \(1,\)"),
        (lambda: NearestNeighbours().fit([[np.nan]], [1]), "not a finite number"),
        (lambda: NearestNeighbours().fit([[1.0]], [np.inf]), "leave failed points out"),
        (lambda: NearestNeighbours().fit([1.0], [1]), "one row for each point"),
        (lambda: NearestNeighbours().fit(np.eye(3), [1, 1, 1]).predict(np.eye(2)), "2 features"),
        (lambda: MeasuredProgram("a", {}, np.eye(2), [1, 1]), "18 features"),
        (lambda: MeasuredProgram("a", {}, np.ones((1, COUNT)), [0.0]), "not above 0"),
        (lambda: quality(measured("a", 0), np.full(60, np.nan)), "is not finite"),
        (lambda: leave_one_program_out([measured("a", 0)] * 2, NearestNeighbours), "called a"),
    ],
)
def test_what_cannot_be_used_is_refused(make, said):
    with pytest.raises(tp.PatternError, match=said):
        make()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6).filter(
        lambda points: any(good for _, good in points)
    )
)
@settings(max_examples=60)
def test_runs_are_the_mean_over_all_orders_of_equal_predictions(points):
    predicted, good = (np.array(column) for column in zip(*points, strict=True))
    counts = []
    for order in itertools.permutations(range(len(points))):
        ranked = sorted(order, key=lambda i: -predicted[i])  # stable: keeps the random order
        counts.append(1 + next(place for place, i in enumerate(ranked) if good[i]))
    assert np.isclose(runs_until(predicted, good), np.mean(counts))


def test_a_perfect_ranking_needs_one_run_and_a_constant_one_is_random():
    p = measured("a", 0)
    best = quality(p, p.performance)
    assert (best.runs, best.points) == (1, 60)
    assert np.isclose(best.correlation, 1)
    assert best.random_runs == 61 / ((p.performance >= 0.9).sum() + 1)
    constant = quality(p, np.ones(60))
    assert (constant.runs, constant.correlation) == (best.random_runs, 0)
    # The worst order runs every bad point first.
    assert quality(p, -p.performance).runs == 60 - (p.performance >= 0.9).sum() + 1


class Recorder:
    """Remembers what it learns from; predicts the first feature."""

    fitted: list

    def __init__(self, log):
        self.log = log

    def fit(self, features, performance):
        self.log.append((features, performance))

    def predict(self, features):
        return features[:, 0]


def test_a_program_is_ranked_by_others_only():
    programs = [
        measured("a", 0, sizes={"N": 1}),
        measured("b", 1),
        measured("a", 2, sizes={"N": 2}),
        measured("c", 3),
    ]
    log: list = []
    found = leave_one_program_out(programs, lambda: Recorder(log))
    assert [(q.program, q.sizes) for q in found] == [(p.program, p.sizes) for p in programs]
    assert len(log) == 3
    features, performance = log[0]
    assert np.array_equal(features, np.concatenate([programs[1].features, programs[3].features]))
    expected = [programs[i].seconds.min() / programs[i].seconds for i in (1, 3)]
    assert np.array_equal(performance, np.concatenate(expected))


def models():
    from tilewright.prediction import GaussianProcess

    return {
        "knn": NearestNeighbours,
        "boosted": TrendAndTrees,
        "forest": RandomisedTrees,
        "gp": lambda: FromRunTimes(GaussianProcess(folds=0, largest=60, most=120, steps=5)),
    }


@pytest.mark.parametrize("name", ["knn", "boosted", "forest", "gp"])
def test_models_rank_programs_that_they_have_not_seen(name):
    # Random order has correlation 0 and needs as many runs as random order.
    programs = [measured(letter, seed) for seed, letter in enumerate("ab")]
    figures = summary(leave_one_program_out(programs, models()[name]))
    assert figures["correlation_median"] > 0.5
    assert figures["fewer_runs_than_random"] > 2


def test_a_trend_extends_beyond_what_was_seen():
    # Trees alone predict the same for all points beyond the training points.
    seen, beyond = np.arange(1.0, 41)[:, None], np.array([[100.0], [1000.0], [10000.0]])
    predicted = TrendAndTrees().fit(seen, 1 / seen[:, 0]).predict(beyond)
    assert np.all(np.abs(np.log(predicted * beyond[:, 0])) < np.log(3))


@pytest.mark.parametrize("model", [TrendAndTrees, RandomisedTrees])
def test_performance_that_trees_learn_from_is_positive(model):
    with pytest.raises(tp.PatternError, match="a performance is 0; give positive"):
        model().fit(np.eye(2), [1.0, 0.0])


@pytest.mark.parametrize("model", [TrendAndTrees, RandomisedTrees])
def test_trees_without_scikit_learn_say_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(tp.PatternError, match=r"tilewright\[prediction\].*NearestNeighbours"):
        model().fit(np.eye(2), [1.0, 0.5])


def test_the_summary_is_over_programs():
    p = measured("a", 0)
    found = [quality(p, p.performance), quality(p, np.ones(60)), quality(p, p.performance)]
    worst = found[1].runs
    assert summary(found)["runs_to_90_median"] == 1
    assert summary(found)["runs_to_90_worst"] == worst
    assert np.isclose(summary(found)["fewer_runs_than_random"], 3 * worst / (2 + worst))


def test_redundancy_is_half_where_a_feature_decides_and_none_where_it_is_constant():
    rng = np.random.default_rng(0)
    seconds = rng.permutation(np.arange(1.0, 1001))
    features = rng.random((1000, COUNT))
    features[:, 2] = np.sqrt(seconds)  # another scale changes no bin
    features[:, 3] = 4.0
    found = redundancy([MeasuredProgram("a", {}, features, seconds)])
    assert np.isclose(found[FEATURES[2]], 0.5)
    assert found[FEATURES[3]] == 0
    assert 0 < found[FEATURES[0]] < 0.1


def test_measured_programs_are_kept_in_files(tmp_path):
    path = tmp_path / "measured.json"
    programs = [measured("a", 0), measured("b", 1)]
    write_measured(path, programs)
    for p, q in zip(programs, read_measured(path), strict=True):
        assert (p.program, p.sizes) == (q.program, q.sizes)
        assert np.array_equal(p.features, q.features)
        assert np.array_equal(p.seconds, q.seconds)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "other"}, "has no measured programs"),
        ({"version": 2}, "of version 2"),
        ({"features": ["a"]}, "measure again"),
        ({"features": 3}, "measure again"),
        ({"programs": 3}, "a program cannot be read"),
        ({"programs": [{"program": "a"}]}, "'sizes' is missing"),
        ({"programs": [{"program": "a", "sizes": 3}]}, "a program cannot be read"),
        ({"programs": [{"program": "a", "sizes": {}, "features": [[1]], "seconds": [1]}]}, "18"),
    ],
)
def test_other_files_are_refused(tmp_path, change, said):
    path = tmp_path / "measured.json"
    write_measured(path, [measured("a", 0)])
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(tp.PatternError, match=said):
        read_measured(path)


def test_rows_have_one_entry_for_each_model_and_program():
    one = tp.ranking.RankingQuality("scal", {"N": 8}, 40, 0.5, 3.0, 9.5)
    found = tp.ranking.rows({"paper": [one], "trend": [one]})
    assert [row["model"] for row in found] == ["paper", "trend"]
    assert found[0] == {
        "program": "scal",
        "model": "paper",
        "points": 40,
        "correlation": 0.5,
        "runs_to_90": 3.0,
        "random_runs": 9.5,
    }


def test_points_in_one_place_count_equally_whatever_the_rounding():
    """Twelve points lie in one place: none of them is among the five nearest by chance."""
    rng = np.random.default_rng(0)
    places = np.repeat(rng.normal(size=(20, 3)) * (1.0, 30.0, 1000.0), 12, axis=0)
    performance = rng.random(len(places))
    queries = places[::12]
    expected = performance.reshape(20, 12).mean(axis=1)
    for _ in range(5):
        order = rng.permutation(len(places))
        rounded = places[order] * (1.0 + rng.normal(size=(len(places), 1)) * 1e-15)
        model = NearestNeighbours().fit(rounded, performance[order])
        assert model.predict(queries) == pytest.approx(expected, rel=1e-9)


def test_points_nearer_than_those_that_tie_count_in_full():
    model = NearestNeighbours(neighbours=3, variance=1.0)
    model.fit([[0.0], [1.0], [-1.0], [1.0], [-1.0], [9.0]], [0.2, 0.4, 0.6, 0.8, 0.2, 0.0])
    # two places are left for the four at the same distance, whose mean is 0.5
    assert model.predict([[0.0]])[0] == pytest.approx((0.2 + 2 * 0.5) / 3)
