import math

import numpy as np
import optuna
import pytest

from tilewright.tuning.interop.optuna import TilewrightSampler

optuna.logging.set_verbosity(optuna.logging.ERROR)


def suggest(trial):
    return {
        "tile": trial.suggest_int("tile", 1, 64, log=True),
        "unroll": trial.suggest_int("unroll", 2, 16, step=2),
        "rate": trial.suggest_float("rate", 0.01, 10.0, log=True),
        "mode": trial.suggest_categorical("mode", ["a", "b", None]),
    }


def cost(c):
    value = (math.log2(c["tile"]) - 4) ** 2 + abs(c["unroll"] - 6) + math.log(c["rate"]) ** 2
    return 1 + value + {"a": 0, "b": 1, None: 2}[c["mode"]]


def test_it_beats_random_search():
    def run(sampler):
        study = optuna.create_study(sampler=sampler)
        study.optimize(lambda trial: cost(suggest(trial)), n_trials=35)
        return study.best_value

    ours = [run(TilewrightSampler(seed=s)) for s in range(3)]
    random = [run(optuna.samplers.RandomSampler(seed=s)) for s in range(3)]
    assert np.median(ours) < np.median(random)
    assert np.median(ours) < 1.6


def test_directions_failures_and_constraints_are_kept():
    study = optuna.create_study(
        direction="maximize", sampler=TilewrightSampler(seed=0, constraints=["tile >= unroll"])
    )

    def objective(trial):
        c = suggest(trial)
        if c["tile"] > 40:
            raise optuna.TrialPruned
        if c["mode"] == "b":
            return math.nan
        return -cost(c)

    study.optimize(objective, n_trials=30)
    late = study.trials[2:]
    assert all(t.params["tile"] >= t.params["unroll"] for t in late)
    assert study.best_value > -4
    states = {t.state for t in study.trials}
    assert optuna.trial.TrialState.COMPLETE in states


def test_pending_trials_are_not_asked_again():
    study = optuna.create_study(sampler=TilewrightSampler(seed=0))
    study.optimize(lambda t: t.suggest_int("x", 0, 30) + 1.0, n_trials=4)
    running = [study.ask() for _ in range(6)]
    asked = [t.suggest_int("x", 0, 30) for t in running]
    assert len(set(asked)) == 6


def test_two_objectives():
    study = optuna.create_study(
        directions=["minimize", "maximize"], sampler=TilewrightSampler(seed=0)
    )

    def objective(trial):
        x, y = trial.suggest_int("x", 0, 20), trial.suggest_int("y", 0, 20)
        return x + y, x - 2 * y

    study.optimize(objective, n_trials=25)
    assert min(t.params["y"] for t in study.best_trials) == pytest.approx(0, abs=1)
