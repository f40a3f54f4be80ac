import json
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.model_selection import cross_val_score

from tilewright.prediction import (
    LRC,
    NLRC,
    NN,
    NNC,
    Augmented,
    Auto,
    Boosted,
    C,
    Estimator,
    Forest,
    GaussianProcess,
    PredictionError,
    load,
)
from tilewright.prediction.models import levenberg_marquardt, model_selection
from tilewright.prediction.models.intervals import thresholded
from tilewright.prediction.models.network import count_parameters

FEATURES = ("m", "n", "k", "threads")
KINDS = (NN, NNC, C, LRC, NLRC, Augmented, Boosted, GaussianProcess)
SMALL = {
    "NN": {"epochs": 300, "restarts": 2},
    "NNC": {"epochs": 300, "restarts": 2},
    "NLRC": {"trees": 10},
    "Boosted": {"trees": 30},
}


def products(count=250, seed=0, noise=0.01, outliers=0.0):
    random = np.random.default_rng(seed)
    m, n, k = random.integers(1, 1025, (3, count)).astype(float)
    threads = random.integers(1, 5, count).astype(float)
    seconds = 3e-6 + m * n * k * 2e-11 / threads + (m * k + k * n) * 1e-9 + threads * 1e-6
    seconds *= np.where(m * k > 2e5, 1.3, 1.0)  # a cache is left
    seconds *= np.exp(noise * random.normal(size=count))
    seconds *= np.where(random.random(count) < outliers, random.uniform(2, 8, count), 1.0)
    return np.stack([m, n, k, threads], axis=1), seconds


def make(kind, **more):
    arguments = {"folds": 0, **SMALL.get(kind.__name__, {}), **more}
    return kind(features=FEATURES, complexity="m*n*k", **arguments)


@pytest.fixture(scope="module")
def fitted():
    X, y = products()
    return {kind: make(kind).fit(X, y) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_models_keep_the_conventions_and_survive_storage(kind, fitted, tmp_path):
    model, (X, _) = fitted[kind], products(40, seed=1)
    assert is_regressor(model)
    other = clone(model)
    assert other.get_params() == model.get_params()
    assert not hasattr(other, "ranges_")
    expected = model.predict(X)
    assert expected.shape == (40,)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), expected)
    model.save(tmp_path / "model.json")
    stored = load(tmp_path / "model.json")
    assert type(stored) is kind
    assert np.allclose(stored.predict(X), expected, rtol=1e-12)
    assert np.array_equal(stored.outside(X), model.outside(X))
    assert stored.parameter_count_ == model.parameter_count_
    rows = [dict(zip(reversed(FEATURES), row[::-1], strict=True)) for row in X.tolist()]
    assert np.array_equal(model.predict(rows), expected)


def test_the_file_says_what_it_holds(fitted, tmp_path):
    model = fitted[Augmented]
    model.set_params(units={"m": "rows"})
    data = model.to_dict()
    assert data["version"] == 1
    assert data["features"][0]["name"] == "m"
    assert data["features"][0]["unit"] == "rows"
    assert data["features"][3]["max"] == 4
    assert data["complexity"] == "m*n*k"
    assert data["target"]["unit"] == "s"
    later = {**data, "version": 2}
    (tmp_path / "later.json").write_text(json.dumps(later))
    with pytest.raises(PredictionError, match="schema version 2"):
        load(tmp_path / "later.json")
    (tmp_path / "damaged.json").write_text(json.dumps({**data, "state": {}}))
    with pytest.raises(PredictionError, match="damaged"):
        load(tmp_path / "damaged.json")
    (tmp_path / "text.json").write_text("hello")
    with pytest.raises(PredictionError, match="cannot read"):
        load(tmp_path / "text.json")
    with pytest.raises(PredictionError, match="is not a NNC"):
        NNC.from_dict(data)


def test_ours_beats_the_papers_network_and_the_baselines(fitted):
    X, y = products(seed=5)
    errors = {kind: thresholded(model.predict(X), y) for kind, model in fitted.items()}
    assert errors[Augmented] < 0.03  # of which the noise is 0.008 and a step in time the rest
    assert all(errors[Augmented] < 0.5 * errors[kind] for kind in (NN, NNC, C, LRC, NLRC))
    assert fitted[Augmented].parameter_count_ <= 75


def test_the_choice_is_reported_and_repeats():
    X, y = products(120)
    one, two = (make(Augmented).fit(X, y) for _ in range(2))
    assert one.chosen_ == two.chosen_
    assert np.array_equal(one.predict(X), two.predict(X))
    assert "log(m)" in one.chosen_["inputs"]
    assert one.chosen_["parameters"] == one.parameter_count_
    assert len(one.chosen_["tried"]) >= 3


def test_outliers_do_not_bend_ours():
    X, y = products(outliers=0.08)
    clean_X, clean_y = products(seed=9, noise=0.0)
    assert thresholded(make(Augmented).fit(X, y).predict(clean_X), clean_y) < 0.04


def test_densities_of_a_sparse_product():
    random = np.random.default_rng(3)
    m, n, k = random.integers(16, 1025, (3, 400)).astype(float)
    d, e = 2.0 ** -random.integers(1, 14, (2, 400))
    inner = k * d * e
    seconds = 5e-6 + 2e-9 * m * n * k * d * e + 3e-9 * m * n * inner / (1 + inner) + 1e-9 * m
    X = np.stack([m, n, k, d, e], axis=1)
    model = Augmented(features=("m", "n", "k", "d1", "d2"), complexity="m*n*k")
    model.fit(X[:250], seconds[:250])
    assert thresholded(model.predict(X[250:]), seconds[250:]) < 0.05


def test_densities_are_dropped_where_they_do_not_matter():
    X, y = products()
    densities = 2.0 ** -np.random.default_rng(4).integers(0, 9, (len(X), 2))
    names = (*FEATURES, "d1", "d2")
    model = Augmented(features=names, complexity="m*n*k").fit(np.hstack([X, densities]), y)
    assert not any("d1" in text or "d2" in text for text in model.chosen_["inputs"])


@pytest.mark.parametrize("kind", [Augmented, LRC])
def test_intervals_cover_what_they_promise(kind):
    X, y = products(noise=0.05)
    model = make(kind, folds=5).fit(X, y)
    test_X, test_y = products(1000, seed=7, noise=0.05)
    widths = []
    for coverage in (0.5, 0.9):
        low, high = model.predict_interval(test_X, coverage)
        assert np.mean((low <= test_y) & (test_y <= high)) == pytest.approx(coverage, abs=0.08)
        widths.append((high / low).mean())
    assert widths[0] < widths[1]
    with pytest.raises(PredictionError, match="between 0 and 1"):
        model.predict_interval(test_X, 90)
    with pytest.raises(PredictionError, match="folds=5"):
        make(LRC).fit(X, y).predict_interval(X)


def test_queries_outside_the_training_range_are_flagged(fitted):
    queries = np.array([[100, 100, 100, 2], [2000, 100, 100, 2], [100, 100, 100, 16]])
    assert fitted[Augmented].outside(queries).tolist() == [False, True, True]
    assert np.isfinite(fitted[Augmented].predict(np.array([[0, 5, 5, 1], [1e9, 1e9, 1e9, 1]]))[0])


def test_the_papers_networks_and_their_limit():
    # The sizes of the facts' table: inputs-hidden-1 with weights and biases.
    assert count_parameters(7, (7,)) == 64
    assert count_parameters(5, (7,)) == 50
    assert count_parameters(6, (9,)) == 73
    assert count_parameters(6, (5, 5)) == 71
    X, y = products(60)
    with pytest.raises(PredictionError, match="more than 75"):
        make(NNC, hidden=(20,)).fit(X, y)
    with pytest.raises(PredictionError, match="one or two layers"):
        make(NNC, hidden=(3, 3, 3)).fit(X, y)
    big = make(NNC, max_parameters=None, epochs=30).fit(X, y)
    assert big.parameter_count_ == count_parameters(5, (16, 16))


def test_the_papers_network_learns_what_it_can():
    random = np.random.default_rng(0)
    X = random.uniform(0, 1, (200, 2))
    y = 1.0 + np.maximum(X[:, 0] - 0.5, 0) + 0.5 * X[:, 1]
    model = NN(features=("a", "b"), folds=0, epochs=3000).fit(X, y)
    assert thresholded(model.predict(X), y) < 0.01


def test_auto_weighs_the_best_by_cross_validation(tmp_path):
    X, y = products(90)
    model = make(Auto, folds=2).fit(X, y)
    errors, weights = model.chosen_["errors"], model.chosen_["weights"]
    assert set(errors) == {"augmented", "boosted", "gp"}
    assert sum(weights.values()) == pytest.approx(1.0)
    assert model.calibration_.error <= min(errors.values()) + 1e-9
    model.save(tmp_path / "auto.json")
    assert np.allclose(Estimator.load(tmp_path / "auto.json").predict(X), model.predict(X))


def test_scikit_learn_can_validate_it():
    X, y = products(60)
    scores = cross_val_score(make(LRC), X, y, cv=3)
    assert scores.shape == (3,)


@pytest.mark.parametrize(
    "model",
    [
        Forest(trees=20, folds=0),
        pytest.param(Augmented(max_seconds=0.0), marks=pytest.mark.thorough),
        pytest.param(Boosted(folds=0), marks=pytest.mark.thorough),
        pytest.param(GaussianProcess(folds=0), marks=pytest.mark.thorough),
        pytest.param(Auto(), marks=pytest.mark.thorough),
    ],
    ids=lambda model: type(model).__name__,
)
def test_scikit_learns_own_checks_pass(model):
    """Each of the checks that scikit-learn has for any regressor."""
    from sklearn.utils.estimator_checks import check_estimator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(model, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in found if r["status"] == "failed"}
    assert not failed
    assert sum(r["status"] == "passed" for r in found) > 40


def test_small_and_degenerate_data_are_fitted():
    X = np.array([[4.0, 1.0], [8.0, 1.0], [16.0, 1.0]])
    model = Augmented(features=("n", "flag")).fit(X, [1e-3, 2e-3, 4e-3])
    assert model.predict(X) == pytest.approx([1e-3, 2e-3, 4e-3], rel=0.2)
    constant = Augmented().fit(np.ones((5, 1)), [2e-3] * 5)
    assert constant.predict(np.ones((1, 1))) == pytest.approx([2e-3], rel=0.05)
    zero = np.random.default_rng(0).integers(0, 3, (50, 2)).astype(float)
    flags = Augmented().fit(zero, 1e-3 * (1 + zero[:, 0]))
    assert thresholded(flags.predict(zero), 1e-3 * (1 + zero[:, 0])) < 0.02
    wide = np.random.default_rng(0).uniform(1, 9, (60, 40))
    many = Augmented().fit(wide, wide[:, 0] * 1e-3)
    assert many.parameter_count_ <= 75


def test_a_forest_has_the_leaves_of_scikit_learns():
    from sklearn.ensemble import RandomForestRegressor

    X, y = products(150)
    ours = make(NLRC, trees=20).fit(X, y)
    table = np.column_stack([X, X[:, :3].prod(axis=1)])
    theirs = RandomForestRegressor(n_estimators=20, random_state=0).fit(table, y)
    assert np.allclose(ours.predict(X), theirs.predict(table), rtol=1e-12)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((3, 4)), [1, 2], "3 instances but 2 times"),
        (np.ones((3, 4)), [1, 2, -1], "time of row 2"),
        (np.ones((3, 4)), [1, 2, np.nan], "time of row 2"),
        (np.ones((3, 3)), [1, 2, 3], "needs 4 columns"),
        (np.array([[1, 2, 3, np.nan]] * 3), [1, 2, 3], "'threads' is NaN in row 0"),
        ([{"m": 1, "n": 2, "k": 3}] * 3, [1, 2, 3], "'threads' is missing"),
        ([{"m": 1, "n": "a", "k": 3, "threads": 1}] * 3, [1, 2, 3], "not a number"),
        (np.ones((1, 4)), [1], "at least 2"),
    ],
)
def test_bad_data_are_named(X, y, message):
    with pytest.raises(PredictionError, match=message):
        make(LRC).fit(X, y)


def test_bad_settings_are_named():
    X, y = products(20)
    with pytest.raises(PredictionError, match="needs the kernel's complexity"):
        NNC(features=FEATURES).fit(X, y)
    with pytest.raises(PredictionError, match="'q' is unknown"):
        Augmented(features=FEATURES, complexity="m*q").fit(X, y)
    with pytest.raises(PredictionError, match="not a feature"):
        Augmented(features=FEATURES, threads=("cores",)).fit(X, y)
    with pytest.raises(PredictionError, match="not a feature"):
        Augmented(features=FEATURES, units={"q": "s"}).fit(X, y)
    with pytest.raises(PredictionError, match="is inf in row"):
        LRC(features=FEATURES, complexity="m/(n-n)").fit(X, y)
    with pytest.raises(PredictionError, match="no parameter 'depth'"):
        LRC().set_params(depth=3)
    with pytest.raises(PredictionError, match="not fitted"):
        Augmented(features=FEATURES).predict(X)
    with pytest.raises(PredictionError, match="repeat"):
        LRC(features=("m", "m")).fit(X[:, :2], y)
    with pytest.raises(PredictionError, match="max_parameters"):
        Augmented(features=FEATURES, max_parameters=1).fit(X, y)
    with pytest.raises(PredictionError, match="give a whole number"):
        Augmented(features=FEATURES, max_parameters=None).fit(X, y)


@pytest.mark.parametrize("relative", [False, True])
def test_weights_of_residuals_give_the_gradient_of_the_loss(relative):
    residual = np.array([[-2.0, -0.3, -0.01, 0.01, 0.3, 1.7]])
    scale, ones = np.array([0.2]), np.ones((1, 1))
    step = 1e-6
    slopes = [
        (
            levenberg_marquardt._loss(r + step, ones, scale, relative)
            - levenberg_marquardt._loss(r - step, ones, scale, relative)
        )[0]
        / (2 * step)
        for r in residual.T[:, None]
    ]
    weights = levenberg_marquardt._trust(residual, scale, relative)[0]
    assert weights * residual[0] == pytest.approx(slopes, rel=1e-4)


def test_of_close_fits_the_one_near_the_others_far_away_is_kept(monkeypatch):
    far = np.array([[0.0, 3.0], [0.0, 0.1], [0.1, 0.2]])  # from the committee, in log time
    monkeypatch.setattr(model_selection, "value", lambda shape, theta, asked: theta)
    monkeypatch.setattr(model_selection, "with_ones", lambda columns: columns)
    choice = SimpleNamespace(models=[np.zeros(2)] * 3, shape=None, inputs=lambda probes: probes)

    def chosen(losses):
        return model_selection.steadiest(choice, far, np.array(losses), np.empty((0, 1)))

    assert chosen([1.0, 1.05, 1.05]) == (1, 0.0)
    assert chosen([1.0, 30.0, 30.0]) == (0, 0.5)  # half of the probes are far
    assert chosen([1.0, np.nan, 1.05]) == (2, 0.0)
