"""Models adapted to another machine: what a few runs there are worth."""

import json

import numpy as np
import pytest

from tilewright.cli import main
from tilewright.prediction import Adapted, Augmented, Boosted, Estimator, PredictionError

NAMES = ("block", "tile", "unroll")


def configurations(count, seed):
    random = np.random.default_rng(seed)
    return np.column_stack(
        [
            2.0 ** random.integers(4, 10, count),
            random.integers(1, 9, count),
            random.integers(0, 2, count),
        ]
    )


def seconds(X, machine):
    """A kernel whose best block and tile differ a little from machine to machine."""
    block, tile, unroll = X.T
    lanes, width, gain, scale = {"old": (96, 3, 0.8, 3e-3), "new": (128, 4, 0.7, 1e-3)}[machine]
    lost = (np.log2(block / lanes) / 3) ** 2 + ((tile - width) / 4) ** 2 + np.sin(3 * tile) / 5
    return scale * np.exp(lost) * np.where(unroll == 1, gain, 1.0)


@pytest.fixture(scope="module")
def source():
    X = configurations(400, 1)
    return Boosted(features=NAMES, folds=0).fit(X, seconds(X, "old"))


@pytest.fixture(scope="module")
def adapted(source):
    few = configurations(20, 2)
    return Adapted(features=NAMES, sources=[source]).fit(few, seconds(few, "new"))


def error(model, machine="new"):
    X = configurations(300, 3)
    return float(np.mean(np.abs(model.predict(X) / seconds(X, machine) - 1)))


def test_twenty_runs_and_another_machines_model_beat_twenty_runs_alone(adapted, source):
    few = configurations(20, 2)
    alone = Augmented(features=NAMES).fit(few, seconds(few, "new"))
    assert error(adapted) < 0.6 * error(alone)
    # The machine is three times as fast: the source itself is of no use.
    assert error(source) > 1


def test_intervals_hold(adapted):
    X = configurations(300, 3)
    low, high = adapted.predict_interval(X)
    y = seconds(X, "new")
    assert np.mean((low <= y) & (y <= high)) > 0.8
    wide = np.log(high / low)
    # Between its own runs an adapted model is surer than far from all of them.
    far = X * [64, 16, 1]
    low, high = adapted.predict_interval(far)
    assert np.median(np.log(high / low)) > np.median(wide)


def test_a_source_that_misleads_is_not_trusted(source):
    few = configurations(40, 4)
    misled = Augmented(features=NAMES, folds=0).fit(few, 1 / seconds(few, "new"))
    model = Adapted(features=NAMES, sources=[misled]).fit(few, seconds(few, "new"))
    alone = Augmented(features=NAMES).fit(few, seconds(few, "new"))
    assert error(model) < 1.25 * error(alone)
    both = Adapted(features=NAMES, sources=[misled, source]).fit(few, seconds(few, "new"))
    assert error(both) < error(alone)


def test_an_adapted_model_survives_storage(adapted, tmp_path):
    adapted.save(tmp_path / "model.json")
    again = Estimator.load(tmp_path / "model.json")
    X = configurations(50, 5)
    np.testing.assert_allclose(again.predict(X), adapted.predict(X), rtol=1e-9)
    for one, other in zip(again.predict_interval(X), adapted.predict_interval(X), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_errors_name_the_cause(source):
    few = configurations(20, 2)
    with pytest.raises(PredictionError, match="there is no source"):
        Adapted().fit(few, seconds(few, "new"))
    with pytest.raises(PredictionError, match="no column tile, which a source needs"):
        Adapted(features=("block",), sources=[source]).fit(few[:, :1], seconds(few, "new"))
    many = configurations(1001, 2)
    with pytest.raises(PredictionError, match="fit a model to these runs alone"):
        Adapted(features=NAMES, sources=[source]).fit(many, seconds(many, "new"))


def test_the_command_adapts_and_its_model_is_evaluated(source, tmp_path, capsys):
    def write(name, X):
        rows = np.column_stack([X, seconds(X, "new")])
        text = "\n".join(",".join(f"{value:.9g}" for value in row) for row in rows)
        (tmp_path / name).write_text(",".join([*NAMES, "time_s"]) + "\n" + text + "\n")
        return str(tmp_path / name)

    source.save(tmp_path / "old.json")
    few, many = write("few.csv", configurations(20, 2)), write("many.csv", configurations(200, 3))
    made = str(tmp_path / "new.json")
    old = str(tmp_path / "old.json")
    assert main(["predict", "adapt", old, few, "-o", made]) == 0
    assert "adapted" in capsys.readouterr().out
    assert main(["predict", "evaluate", made, many, "--json"]) == 0
    mape = json.loads(capsys.readouterr().out)["mape"]
    assert mape < 0.2


@pytest.mark.parametrize("surely", [False, True])
def test_a_model_of_the_runs_alone_has_to_be_surely_better(monkeypatch, source, surely):
    few = configurations(20, 2)
    y = seconds(few, "new")
    adapted = Adapted(features=NAMES, sources=[source]).fit(few, y)
    errors = np.abs(adapted._held_out(few, y)[0] / y - 1)
    # Half the error of every run, or a little less on average with other runs the worst.
    less = errors / 2 if surely else 0.99 * np.roll(errors, 1)

    class Alone(Augmented):
        def fit(self, X, y):
            super().fit(X, y)
            self.held_out_ = np.arange(20), np.log(y * (1 + less))
            return self

    monkeypatch.setattr("tilewright.prediction.models.adapted.Augmented", Alone)
    model = Adapted(features=NAMES, sources=[source]).fit(few, y)
    assert model.chosen_["errors"]["alone"] < model.chosen_["errors"]["adapted"]
    assert (model.alone_ is not None) is surely
