"""Runs that failed or were stopped: how files say so, and what models make of them."""

import json

import numpy as np
import pytest

from tilewright.cli import main
from tilewright.prediction import (
    Augmented,
    PredictionError,
    Unfinished,
    cross_validate,
    csv_text,
    fit_censored,
    read_csv,
)

NAMES = ("n", "variant")


def written(tmp_path, text):
    path = tmp_path / "runs.csv"
    path.write_text(text)
    return path


def test_a_time_that_is_longer_than_a_limit_marks_a_stopped_run(tmp_path):
    runs = read_csv(written(tmp_path, "n,time [ms]\n1,5\n2,>120\n3,>= 7\n"), None)
    assert runs.times.tolist() == pytest.approx([0.005, 0.12, 0.007])
    assert runs.censored.tolist() == [False, True, True]
    assert runs.ended().times.tolist() == [0.005]


def test_named_texts_are_failures_and_stopped_runs(tmp_path):
    path = written(tmp_path, "n,time\n1,5\n2,timeout\n3,crash\n4,6\n")
    runs = read_csv(path, None, unfinished=Unfinished(["crash"], {"timeout": 60}))
    assert runs.table[:, 0].tolist() == [1, 2, 4]
    assert runs.censored.tolist() == [False, True, False]
    assert runs.times[1] == 60
    assert runs.dropped == ("line 4: crash",)


def test_another_column_says_how_runs_ended(tmp_path):
    path = written(tmp_path, "n,how,time\n1,ok,5\n2,late,9\n3,bad,4\n4,late,\n")
    with_limit = Unfinished(["bad"], {"late": 60.0}, "how")
    runs = read_csv(path, None, unfinished=with_limit)
    assert runs.names == ("n",)  # how a run ended is not known beforehand
    assert runs.times.tolist() == [5, 9, 60]
    assert runs.censored.tolist() == [False, True, True]
    with pytest.raises(PredictionError, match="line 5: 'late' has no time limit"):
        read_csv(path, None, unfinished=Unfinished(["bad"], {"late": None}, "how"))
    with pytest.raises(PredictionError, match="column 'ends' for how a run ended is missing"):
        read_csv(path, None, unfinished=Unfinished(status="ends"))


def test_a_text_that_is_not_named_is_refused_with_the_cure(tmp_path):
    with pytest.raises(PredictionError, match="--timed-out"):
        read_csv(written(tmp_path, "n,time\n1,5\n2,timeout\n"), None)


def test_stopped_runs_are_written_so_that_they_are_read_again(tmp_path):
    runs = read_csv(written(tmp_path, "n,time\n1,5\n2,>12\n"), None)
    again = read_csv(written(tmp_path, csv_text(runs)), None)
    assert again.censored.tolist() == [False, True]
    assert again.times.tolist() == runs.times.tolist()


def test_a_repeated_run_is_stopped_if_a_repetition_is(tmp_path):
    runs = read_csv(written(tmp_path, "n,a,b\n1,5,6\n2,7,>8\n"), ["a", "b"])
    assert runs.censored.tolist() == [False, True]


def measured(count, seed, noise=0.2):
    """Two variants, of which the second takes four times as long and hides behind the limit."""
    random = np.random.default_rng(seed)
    n = np.exp(random.uniform(np.log(64), np.log(2048), count)).round()
    variant = random.integers(0, 2, count)
    truth = 1e-8 * n**2 * np.where(variant == 1, 4.0, 1.0)
    return np.column_stack([n, variant]), truth, truth * np.exp(noise * random.normal(size=count))


def small():
    return Augmented(features=NAMES, max_seconds=None, max_parameters=20)


@pytest.fixture(scope="module")
def models():
    X, _, seconds = measured(200, 0)
    stopped = seconds > 0.01
    seen = np.minimum(seconds, 0.01)
    return {
        "completed": fit_censored(small(), X, seen, stopped),
        "as they are": small().fit(X, seen),
        "left out": small().fit(X[~stopped], seen[~stopped]),
    }


def test_completed_times_are_nearer_to_the_truth_than_what_was_seen(models):
    X, truth, _ = measured(400, 1)
    beyond = truth > 0.01
    errors = {
        name: float(np.mean(np.abs(np.log(model.predict(X[beyond]) / truth[beyond]))))
        for name, model in models.items()
    }
    assert errors["completed"] < 0.5 * errors["as they are"]
    assert errors["completed"] < errors["left out"]


def test_intervals_beyond_the_limit_hold_most_times(models):
    X, truth, seconds = measured(400, 2)
    beyond = truth > 0.01
    low, high = models["completed"].predict_interval(X[beyond])
    assert np.mean((low <= seconds[beyond]) & (seconds[beyond] <= high)) > 0.7


def test_too_few_runs_that_ended_are_refused():
    X, _, seconds = measured(20, 0)
    with pytest.raises(PredictionError, match="5 runs ended, 15 were stopped"):
        fit_censored(small(), X, seconds, np.arange(20) >= 5)


def test_cross_validation_predicts_only_runs_that_ended():
    X, _, seconds = measured(60, 0)
    stopped = seconds > np.quantile(seconds, 0.8)
    model = Augmented(features=NAMES, max_parameters=9)
    found = cross_validate(model, X, seconds, folds=2, censored=stopped)
    assert len(found) == (~stopped).sum()
    np.testing.assert_array_equal(found.measured, seconds[~stopped])


def test_the_command_completes_and_says_so(tmp_path, capsys):
    X, _, seconds = measured(80, 3)
    late = seconds > 0.01
    rows = [
        f"{n:.0f},{v:.0f},{'timeout' if s else t}"
        for (n, v), t, s in zip(X, seconds, late, strict=True)
    ]
    path = written(tmp_path, "\n".join(["n,variant,time", *rows, "64,0,crash"]))
    model = str(tmp_path / "model.json")
    how = ["--timed-out", "timeout=0.01", "--failed", "crash"]
    assert main(["predict", "fit", str(path), *how, "-o", model, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["stopped"], found["rows"]) == (int(late.sum()), 80)
    assert found["dropped"] == ["line 82: crash"]
    assert main(["predict", "evaluate", model, str(path), *how]) == 0
    assert f"{int(late.sum())} more were stopped" in capsys.readouterr().out
    assert main(["predict", "fit", str(path), "--timed-out", "timeout=soon"]) != 0
    assert "is not TEXT=LIMIT" in capsys.readouterr().err
