import numpy as np
import pytest

from tilewright.prediction import Augmented
from tilewright.prediction.models.candidate_inputs import Folds, expressions, gains
from tilewright.prediction.models.complexity import Complexity
from tilewright.prediction.models.intervals import thresholded
from tilewright.prediction.models.model_selection import SelectionProblem, choose, ridge
from tilewright.prediction.models.surface import Shape


def test_expressions_fit_the_features():
    random = np.random.default_rng(0)
    sizes = random.integers(1, 1025, (50, 2))
    table = np.column_stack([sizes, 2.0 ** -random.integers(0, 9, 50), random.integers(1, 5, 50)])
    names = ("m", "n", "d", "threads")
    found = expressions(names, table, ("threads",))
    assert "1 + m * d" in found
    assert "min(threads, 2)" in found
    n = f"max(n, {sizes[:, 1].min()})"  # smaller ones count as the smallest that was measured
    assert f"ceil({n} / (4 * max(threads, 1))) * 4 * max(threads, 1) / {n}" in found
    assert "min(m, n)" in found
    assert len(found) == len(set(found)) <= 60
    queries = np.concatenate([table, np.zeros((1, 4)), -table])
    for text in found:
        assert np.isfinite(Complexity(text, names)(queries)).all()
    assert expressions(("block size", "lambda", "d", "no threads"), table, ("no threads",)) == []
    assert expressions(("r",), np.array([[3.0], [5.0]])) == []


def test_missing_inputs_are_found_without_training():
    random = np.random.default_rng(1)
    n = 200
    x, hidden, noise = random.normal(size=(3, n))
    targets = 0.5 * x + 0.2 * hidden + 0.01 * noise
    scaled = np.vstack([x, np.ones(n)])
    shape = Shape(1, 1, 0)
    folds = Folds([np.array([0.5, 0.0])] * 5, scaled, targets, np.arange(n) % 5, ridge(shape))
    left = gains(shape, folds, np.stack([hidden, random.normal(size=n), np.ones(n)]))
    assert left[0] < 0.2
    assert left[1] > 0.9
    assert left[2] == pytest.approx(1.0, abs=0.02)


def test_padding_to_whole_blocks_is_learnt():
    random = np.random.default_rng(2)
    m, n = random.integers(1, 400, (2, 500)).astype(float)
    seconds = (1e-7 + 1e-10 * np.ceil(m / 32) * 32 * n) * np.exp(0.005 * random.normal(size=500))
    X = np.stack([m, n], axis=1)
    model = Augmented(features=("m", "n"), complexity="m*n", max_seconds=None)
    model.fit(X[:250], seconds[:250])
    assert any("ceil(m" in text for text in model.chosen_["inputs"])
    assert thresholded(model.predict(X[250:]), seconds[250:]) < 0.015


def test_without_time_little_is_tried():
    random = np.random.default_rng(3)
    X = random.integers(1, 400, (120, 2)).astype(float)
    seconds = 1e-7 + 1e-10 * X[:, 0] * X[:, 1]
    hurried = Augmented(features=("m", "n"), max_seconds=0.0).fit(X, seconds)
    patient = Augmented(features=("m", "n"), max_seconds=None).fit(X, seconds)
    assert len(hurried.chosen_["tried"]) < len(patient.chosen_["tried"])
    assert thresholded(hurried.predict(X), seconds) < 0.05


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.thorough
def test_densities_are_kept_where_they_clearly_help(sparse):
    random = np.random.default_rng(5)
    n = 150
    sizes = random.integers(16, 1025, n)
    density = 2.0 ** -random.integers(0, 9, n)
    work = np.log(100 + sizes * (density if sparse else 1))
    noise = 0.02 * random.normal(size=n) * (1 + 5 * (random.random(n) < 0.1))
    targets = work - np.median(work) + noise
    columns = np.column_stack([sizes, density])
    place = random.permutation(np.arange(n) % 5)
    problem = SelectionProblem(columns, ("m", "d"), 2, targets, place, frozenset(), (), 75, 0)
    best = choose(problem)[0]
    assert (1 in best.inputs.columns) == sparse
