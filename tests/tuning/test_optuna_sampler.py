import math
import pickle
import threading
import warnings

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from tilewright.tuning.interop.optuna import TilewrightSampler, _outcome
from tilewright.tuning.trial import Suggestion

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


@pytest.mark.thorough
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


def test_trials_of_several_threads_are_not_asked_twice():
    barrier = threading.Barrier(4, timeout=60)
    asked = []

    def objective(trial):
        if trial.number >= 4:
            barrier.wait()  # four have been asked before any of them suggests
        asked.append(trial.suggest_int("x", 0, 40))
        return float(asked[-1])

    study = optuna.create_study(sampler=TilewrightSampler(seed=0))
    study.optimize(objective, n_trials=4)
    study.optimize(objective, n_trials=24, n_jobs=4)
    assert len(set(asked[4:])) == 24


def test_processes_that_ask_at_the_same_moment_get_different_trials(tmp_path):
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path / 'study.db'}")
    study = optuna.create_study(storage=storage, sampler=TilewrightSampler(seed=0))
    study.optimize(lambda t: t.suggest_int("x", 0, 30) + 1.0, n_trials=4)
    first, second = (pickle.loads(pickle.dumps(TilewrightSampler(seed=0))) for _ in range(2))
    trial, other = (storage.create_new_trial(study._study_id) for _ in range(2))
    space = first.infer_relative_search_space(study, storage.get_trial(trial))
    one = first.sample_relative(study, storage.get_trial(trial), space)
    assert second.sample_relative(study, storage.get_trial(other), space) != one


def conditional(trial):
    """The best: method b, level 7."""
    method = trial.suggest_categorical("method", ["a", "b", "c"])
    if method == "a":
        return 5 + trial.suggest_float("width", 0.0, 1.0)
    if method == "b":
        return 0.1 * abs(trial.suggest_int("level", 0, 100) - 7)
    return 20.0


def test_conditional_parameters_are_searched_where_they_occur():
    def run(sampler):
        study = optuna.create_study(sampler=sampler)
        study.optimize(conditional, n_trials=40)
        return study.best_value

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = [run(TilewrightSampler(seed=s)) for s in range(3)]
    random = [run(optuna.samplers.RandomSampler(seed=s)) for s in range(3)]
    assert max(ours) < min(random)
    assert max(ours) <= 0.1


def test_a_range_that_changes_is_drawn_at_random_with_a_warning():
    study = optuna.create_study(sampler=TilewrightSampler(seed=0))
    with pytest.warns(UserWarning, match="'x' is drawn at random") as warned:
        study.optimize(lambda t: t.suggest_int("x", 0, 10 + t.number) + 0.0, n_trials=6)
    assert len(warned) == 1


def maximum(seed, **options):
    """The largest of the first 25 values of at most 60: higher ones are better, and rejected."""
    sampler = TilewrightSampler(seed, **options)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(lambda t: t.suggest_int("x", 0, 1000) + 0.0, n_trials=25)
    return max(t.params["x"] for t in study.trials if t.params["x"] <= 600), study.trials


def test_constraints_func_says_which_results_may_not_be_used():
    rejecting = {"constraints_func": lambda trial: (trial.params["x"] - 600.0,)}
    aware = [maximum(seed, **rejecting) for seed in range(3)]
    unaware = [maximum(seed) for seed in range(3)]
    assert np.mean([best for best, _ in aware]) > np.mean([best for best, _ in unaware])
    for _, trials in aware:
        stored = [t.system_attrs["constraints"] for t in trials]
        assert stored == [(t.params["x"] - 600.0,) for t in trials]


def test_names_that_are_not_identifiers_are_searched():
    study = optuna.create_study(sampler=TilewrightSampler(seed=0))
    study.optimize(
        lambda t: t.suggest_int("net.width", 0, 30) + t.suggest_float("lambda", 0, 1), n_trials=6
    )
    assert study.trials[-1].system_attrs["tilewright:asked"].keys() == {"net_width", "p_lambda"}


def test_a_pruned_trial_is_a_bound_where_it_has_reported():
    study = optuna.create_study(direction="maximize", sampler=TilewrightSampler(seed=0))
    space = {"x": optuna.distributions.IntDistribution(0, 10)}
    pruned = {"params": {"x": 3}, "distributions": space, "state": TrialState.PRUNED}
    reported = optuna.create_trial(**pruned, intermediate_values={0: 1.0, 4: 2.0})
    silent = optuna.create_trial(**pruned)
    asked = Suggestion(0, {"x": 3}, "optuna")
    bound = _outcome(asked, reported, study.directions)
    assert (bound.status, bound.values, bound.lower_bound) == ("ok", (-2.0,), True)
    assert _outcome(asked, silent, study.directions).status == "run_failed"


def test_samplers_without_a_seed_begin_differently():
    firsts = set()
    for _ in range(3):
        study = optuna.create_study(sampler=TilewrightSampler())
        firsts.add(study.ask({"x": optuna.distributions.FloatDistribution(0, 1)}).params["x"])
    assert len(firsts) == 3
