"""Models without a limit on their numbers: weights, many inputs, many instances."""

import json
import subprocess

import numpy as np
import pytest

from tilewright.prediction import (
    Augmented,
    Auto,
    Boosted,
    Estimator,
    GaussianProcess,
    PredictionError,
    compile_single,
    export_c,
)
from tilewright.prediction.models.gaussian_process import _unlikelihood
from tilewright.prediction.models.intervals import thresholded


def bumps(count, seed=0):
    """Times that wave in both sizes, which 75 numbers cannot follow, and a switch."""
    random = np.random.default_rng(seed)
    X = np.exp(random.uniform(0, 6, (count, 2)))
    switch = random.integers(0, 2, count).astype(float)
    waves = 0.5 * np.sin(3 * np.log(X[:, 0])) * np.cos(2.5 * np.log(X[:, 1]))
    steps = 0.6 * (np.floor(1.5 * np.log(X[:, 1])) % 2) + switch * (X[:, 0] > 40)
    seconds = 1e-6 * X[:, 0] * np.exp(waves + steps)
    return np.column_stack([X, switch]), seconds * np.exp(0.02 * random.normal(size=count))


@pytest.fixture(scope="module")
def fitted():
    X, y = bumps(240)
    small = Augmented(max_parameters=30).fit(X, y)
    return small, Auto().fit_around(small, X, y)


def test_the_weighted_models_beat_the_small_one_and_cover(fitted):
    small, auto = fitted
    X, y = bumps(300, 1)
    errors = [thresholded(model.predict(X), y) for model in fitted]
    assert errors[1] < 0.85 * errors[0]
    assert len(auto.models_) > 1
    assert sum(auto.weights_) == pytest.approx(1.0)
    low, high = auto.predict_interval(X)
    assert 0.75 < np.mean((low <= y) & (y <= high)) <= 1
    assert auto.calibration_.error < small.calibration_.error


def test_weighted_models_are_stored_and_exported(fitted, tmp_path):
    auto = fitted[1]
    X, _ = bumps(40, 2)
    again = Estimator.from_dict(json.loads(json.dumps(auto.to_dict())))
    np.testing.assert_array_equal(again.predict_interval(X), auto.predict_interval(X))
    single = compile_single(auto)
    assert np.allclose([single(*row) for row in X.tolist()], auto.predict(X), rtol=1e-9)
    calls = "".join(
        f"unsure = predict_seconds_interval({', '.join(map(repr, row))}, &low, &high);\n"
        'printf("%.17g %.17g %d\\n", low, high, unsure);\n'
        for row in X.tolist()
    )
    (tmp_path / "model.h").write_text(export_c(auto))
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "model.h"\nint main(void) {\n'
        f"double low, high; int unsure;\n{calls}return 0; }}\n"
    )
    command = ["cc", "-std=c99", "-O1", "-Wall", "-Werror", "main.c", "-lm", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    ran = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    found = np.array([line.split() for line in ran.stdout.splitlines()], dtype=float)
    assert np.allclose(found[:, :2].T, auto.predict_interval(X), rtol=1e-7)
    assert found[:, 2].astype(bool).tolist() == auto.unsure(X).tolist()


def test_weights_need_a_model_that_was_just_fitted(fitted):
    X, y = bumps(240)
    stored = Estimator.from_dict(fitted[0].to_dict())
    with pytest.raises(PredictionError, match="not fitted here"):
        Auto().fit_around(stored, X, y)
    data = fitted[1].to_dict()
    data["state"]["weights"].pop()
    with pytest.raises(PredictionError, match="weights"):
        Estimator.from_dict(data)


def test_the_process_of_the_teacher_is_used_again(monkeypatch):
    X, y = bumps(120)
    small = Augmented(max_parameters=20, max_seconds=None).fit(X, y)
    alone = GaussianProcess(features=small.names_, seed=small.seed, folds=0).fit(X, y)
    np.testing.assert_allclose(small.process_.predict(X), alone.predict(X), rtol=0.05)
    place = np.arange(len(X)) % 5
    own, other = (each.left_out(place, np.log(y)) for each in (small.process_, alone))
    np.testing.assert_allclose(own, other, atol=0.05)
    monkeypatch.delattr(GaussianProcess, "_fit")
    Auto().fit_around(small, X, y)


def test_a_process_predicts_what_it_left_out_as_one_without_it_would():
    X, y = bumps(60)
    process = GaussianProcess(folds=0, steps=5).fit(X, y)
    place = np.arange(60) % 4
    found = process.left_out(place, np.log(y))
    own = np.isin(process._rows, np.flatnonzero(place == 0))
    # The covariance without the fold, from the inverse of the whole one.
    gram = np.linalg.inv(process._inverse)
    rest = gram[np.ix_(~own, ~own)]
    targets = gram @ process._alpha
    expected = gram[np.ix_(own, ~own)] @ np.linalg.solve(rest, targets[~own])
    middle = np.log(y)[process._rows] - targets
    assert np.allclose(found[process._rows[own]], expected + middle[own])


def test_the_gradient_of_the_likelihood_is_that_of_differences():
    random = np.random.default_rng(0)
    points, targets = random.normal(size=(12, 3)), random.normal(size=12)
    doubt, at = random.uniform(1, 3, 12), np.array([0.3, 1.0, -0.2, -0.4, 0.1, -1.0])
    _, gradient = _unlikelihood(at, points, targets, doubt)
    for i, step in enumerate(1e-5 * np.eye(len(at))):
        ends = [_unlikelihood(at + sign * step, points, targets, doubt)[0] for sign in (1, -1)]
        assert gradient[i] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-6)


def test_eighty_inputs_are_screened_before_the_limit():
    random = np.random.default_rng(0)
    X = np.exp(random.normal(size=(200, 80)))
    y = 1e-6 * X[:, 3] ** 2 * X[:, 40]
    model = Augmented(max_seconds=None).fit(X, y)
    assert model.parameter_count_ <= 75
    assert thresholded(model.predict(X), y) < 0.05
    assert {"log(x3)", "log(x40)"} <= set(model.chosen_["inputs"])
    process = GaussianProcess(folds=0, steps=5).fit(X, y)
    assert {3, 40} <= set(process.inputs_.columns)


def test_a_small_limit_is_kept_by_whatever_is_tried():
    X, y = bumps(80)
    for limit in (3, 5, 9):
        model = Augmented(max_parameters=limit, max_seconds=None).fit(X, y)
        assert model.parameter_count_ <= limit


@pytest.mark.parametrize("fine", [True, False])
def test_trees_of_many_instances_are_those_of_scikit_learn(monkeypatch, fine):
    from sklearn.ensemble import HistGradientBoostingRegressor

    made = []
    fit = HistGradientBoostingRegressor.fit

    def kept(model, *arguments):
        made.append(fit(model, *arguments))
        return made[-1]

    monkeypatch.setattr(HistGradientBoostingRegressor, "fit", kept)
    X, y = bumps(1000)
    model = Boosted(trees=10, folds=0, fine=fine).fit(X, y)
    (theirs,) = made
    inputs = model.inputs_(X)
    logs = model.constant_ + inputs @ model.slopes_ + theirs.predict(inputs.astype(np.float32))
    assert np.allclose(model.predict(X), np.exp(logs))


@pytest.mark.thorough
def test_many_instances_of_many_steps_get_larger_trees():
    """What they hold is more than 31 leaves can tell; small sets and noise keep small ones."""
    random = np.random.default_rng(0)
    X = random.integers(1, 9, (6000, 4)).astype(float)
    steps = random.normal(size=(9, 9, 9))
    logs = steps[tuple(X[:, :3].astype(int).T)]
    known = Boosted(trees=40, folds=0).fit(X[:5000], np.exp(logs[:5000]))
    assert (known.fine_, known.leaves_) == (True, 255)
    small = Boosted(trees=40, folds=0, leaves=31).fit(X[:5000], np.exp(logs[:5000]))

    def error(model):
        return np.abs(np.log(model.predict(X[5000:])) - logs[5000:]).mean()

    assert error(known) < 0.7 * error(small)
    assert Boosted(trees=40, folds=0).fit(X[:3000], np.exp(logs[:3000])).leaves_ == 31
    noise = random.normal(size=5000)
    assert Boosted(trees=40, folds=0).fit(X[:5000], np.exp(noise)).leaves_ == 31


@pytest.mark.parametrize(("noise", "fine"), [(0.0, True), (1.0, False)])
def test_trees_follow_every_step_only_of_undisturbed_times(noise, fine):
    random = np.random.default_rng(0)
    X = random.integers(1, 9, (1200, 4)).astype(float)
    steps = random.normal(size=(9, 9))
    logs = steps[X[:, 0].astype(int), X[:, 1].astype(int)] + noise * random.normal(size=len(X))
    model = Boosted(trees=40, folds=0).fit(X, np.exp(logs))
    assert model.fine_ is fine
