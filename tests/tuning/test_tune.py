import importlib
import itertools
import math
import threading
import time
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from tilewright.measure import Measurement
from tilewright.records import Records, RecordsError
from tilewright.tuning import (
    FailedError,
    Integer,
    Permutation,
    SettingsError,
    Space,
    WarmStart,
    tune,
)
from tilewright.tuning.journal import RecordsJournal, problem_key

tune_module = importlib.import_module("tilewright.tuning.tune")  # its name is a function too
SPACE = Space([Integer("x", 0, 15), Integer("y", 0, 15), Permutation("p", 2)], ["x + y <= 25"])


def cost(c):
    return 1.0 + abs(c["x"] - 11) + abs(c["y"] - 4) + c["p"][0]


def test_failures_of_every_kind_are_distinguished():
    def objective(c):
        kinds = {
            0: lambda: math.nan,
            1: lambda: None,
            2: lambda: 1 / 0,
            3: lambda: Measurement("timeout", message="too slow"),
            4: lambda: {"status": "wrong_answer"},
        }
        if c["x"] in kinds:
            return kinds[c["x"]]()
        if c["x"] == 5:
            raise FailedError("build_failed", "no such flag")
        if c["x"] == 6:
            raise MemoryError
        if c["x"] == 7:
            return Measurement("ok", times=(3.0, 1.0, 2.0))
        return cost(c)

    queue = [{"x": x, "y": 0, "p": (0, 1)} for x in range(8)]
    found = tune(objective, SPACE, budget=12, queue=queue)
    assert [t.status for t in found.trials[:8]] == [
        "run_failed",
        "run_failed",
        "run_failed",
        "timeout",
        "wrong_answer",
        "build_failed",
        "out_of_memory",
        "ok",
    ]
    assert "ZeroDivisionError" in found.trials[2].message
    assert found.trials[7].value == 2.0
    assert found.best is not None


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_several_are_evaluated_at_once_on_any_executor(kind):
    with kind(4) as executor:
        found = tune(cost, SPACE, budget=40, executor=executor, jobs=4)
    assert len(found.trials) == 40
    assert found.best.value <= 2.0
    assert sorted(t.suggestion.index for t in found.trials) == list(range(40))


def test_jobs_alone_take_threads_and_overlap():
    running, most = [], []
    lock = threading.Lock()
    pair = threading.Barrier(2, timeout=300)

    def objective(c):
        with lock:
            running.append(1)
            most.append(len(running))
        pair.wait()  # passes only while another runs too
        with lock:
            running.pop()
        return cost(c)

    found = tune(objective, SPACE, budget=16, jobs=4)
    assert all(trial.ok for trial in found.trials)
    assert 2 <= max(most) <= 4


class AtOnce(ThreadPoolExecutor):
    """An executor of which every evaluation has ended before `submit` returns."""

    def submit(self, fn, /, *args, **kwargs):
        future: Future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_what_ended_during_a_decision_counts_in_the_next():
    waiting = []
    with AtOnce() as executor:
        found = tune(
            cost,
            SPACE,
            budget=20,
            executor=executor,
            jobs=4,
            on_trial=lambda trial, tuner: waiting.append(len(tuner.pending)),
        )
    assert waiting == [0] * 20
    alone = tune(cost, SPACE, budget=20)
    assert [t.configuration for t in found.trials] == [t.configuration for t in alone.trials]


class LosingExecutor(ThreadPoolExecutor):
    """An executor that loses every third worker."""

    def __init__(self):
        super().__init__(1)
        self.count = 0

    def submit(self, fn, /, *args, **kwargs):
        self.count += 1
        if self.count % 3 == 0:
            future: Future = Future()
            future.set_exception(OSError("node 7 went away"))
            return future
        return super().submit(fn, *args, **kwargs)


def test_a_lost_worker_is_a_crash_of_its_configuration():
    with LosingExecutor() as executor:
        found = tune(cost, SPACE, budget=9, executor=executor, jobs=2)
    crashed = [t for t in found.trials if t.status == "crashed"]
    assert len(crashed) == 3
    assert "node 7" in crashed[0].message


def test_ctrl_c_ends_with_the_best_so_far():
    calls = itertools.count(1)

    def objective(c):
        if next(calls) == 8:
            raise KeyboardInterrupt
        return cost(c)

    found = tune(objective, SPACE, budget=30)
    assert found.stopped == "interrupted"
    assert len(found.trials) == 7
    assert found.best is not None


def test_limits_of_time_convergence_and_the_space():
    def slow(c):
        time.sleep(0.05)
        return 1.0

    assert tune(slow, SPACE, budget=99, time_limit=0.2).stopped == "time"
    small = Space([Integer("x", 0, 4)])
    assert tune(lambda c: 1.0, small, budget=99).stopped == "exhausted"
    wide = Space([Integer("x", 0, 300)])
    found = tune(lambda c: 1.0 + (c["x"] - 40) ** 2 / 100, wide, budget=99, converge=0.01)
    assert found.stopped == "converged"
    assert found.best.value < 1.1


def test_leaders_are_measured_again_before_one_is_declared_best():
    seen: Counter = Counter()

    def lucky_once(c):
        key = (c["x"], c["y"], c["p"])
        seen[key] += 1
        return cost(c) - (100.0 if seen[key] == 1 and c["x"] == 0 else 0.0)

    queue = [{"x": 0, "y": 0, "p": (0, 1)}]
    once = tune(lucky_once, SPACE, budget=12, queue=queue)
    assert once.best.configuration["x"] == 0
    seen.clear()
    again = tune(lucky_once, SPACE, budget=12, queue=queue, confirm=3)
    assert again.best.configuration["x"] != 0
    assert {t.suggestion.origin for t in again.trials[12:]} == {"confirm"}
    assert again.tuner.measured(again.best) == 4


def test_a_run_is_taken_up_from_its_records(tmp_path):
    key = problem_key("toy", SPACE)
    with Records(tmp_path / "a.sqlite") as records:
        whole = tune(cost, SPACE, budget=20, seed=4, journal=RecordsJournal(records, key, 4))
    with Records(tmp_path / "b.sqlite") as records:
        tune(cost, SPACE, budget=11, seed=4, journal=RecordsJournal(records, key, 4))
    with Records(tmp_path / "b.sqlite") as records:
        other = tune(cost, SPACE, budget=3, seed=5, journal=RecordsJournal(records, key, 5))
        assert len(other.trials) == 3
        rest = tune(cost, SPACE, budget=20, seed=4, journal=RecordsJournal(records, key, 4))
        assert len(records) == 20 + 3
    assert [t.suggestion for t in rest.trials] == [t.suggestion for t in whole.trials]
    assert [t.values for t in rest.trials] == [t.values for t in whole.trials]


def test_problems_differ_by_space_and_objective():
    other = Space([Integer("x", 0, 15)])
    keys = {
        problem_key("a", SPACE),
        problem_key("a", other),
        problem_key("b", SPACE),
        problem_key("a", SPACE, {"command": ["x"]}),
        problem_key("a", Space([Integer("x", 0, 15)], [(lambda x: x > 1, ("x",))])),
    }
    assert len(keys) == 5


def test_records_that_cannot_be_written_end_the_run_before_the_next_decision(tmp_path):
    asked = []

    def objective(c):
        asked.append(c)
        return cost(c)

    with Records(tmp_path / "a.sqlite") as records:
        journal = RecordsJournal(records, "toy", 0)
        with Records(tmp_path / "a.sqlite") as others:
            with pytest.raises(RecordsError, match="works on the same problem"):
                RecordsJournal(others, "toy", 0)
            RecordsJournal(others, "toy", 1)
        records.close()
        with pytest.raises(RecordsError):
            tune(objective, SPACE, budget=5, journal=journal)
    assert asked == []


class Losing(ThreadPoolExecutor):
    """Never begins the first `lost` evaluations of x = 3."""

    def __init__(self, lost):
        super().__init__(2)
        self.lost = lost

    def submit(self, fn, /, *args, **kwargs):
        _, configuration, *_ = args
        if configuration["x"] == 3 and self.lost:
            self.lost -= 1
            return Future()
        return super().submit(fn, *args, **kwargs)


def lossy(lost, monkeypatch, **options):
    monkeypatch.setattr(tune_module, "_LOST", (1.5, 0.0))  # far more than these evaluations take
    monkeypatch.setattr(tune_module, "_LOST_AT_THE_END", (0.1, 0.0))
    space = Space([Integer("x", 0, 7)])
    queue = [{"x": 2}, {"x": 3}, {"x": 4}]
    with Losing(lost) as executor:
        return tune(
            lambda c: 1.0 + c["x"], space, budget=8, queue=queue, executor=executor, **options
        )


@pytest.mark.parametrize("jobs", [1, 3])
def test_work_that_an_executor_loses_is_asked_again(jobs, monkeypatch):
    found = lossy(1, monkeypatch, jobs=jobs)
    assert [t.status for t in found.trials] == ["ok"] * 8
    assert found.stopped == "budget"


def test_work_that_is_lost_twice_is_a_time_out(monkeypatch):
    found = lossy(2, monkeypatch, jobs=2)
    (lost,) = [t for t in found.trials if not t.ok]
    assert (lost.configuration, lost.status) == ({"x": 3}, "timeout")
    assert "returned nothing" in lost.message
    assert len(found.trials) == 8


def test_lost_work_does_not_hold_a_run_past_its_time_limit(monkeypatch):
    monkeypatch.setattr(tune_module, "_LOST", (600.0, 20.0))
    space = Space([Integer("x", 3, 3)])
    monkeypatch.setattr(tune_module, "_LOST_AT_THE_END", (0.1, 0.0))
    with Losing(1) as executor:
        found = tune(lambda c: 1.0, space, budget=1, executor=executor, time_limit=0.3)
    assert [t.status for t in found.trials] == ["timeout"]
    assert found.stopped == "time"


class _Wordless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def _without_dimensions(_configuration):
    return np.array(2.0)


def _wordless(_configuration):
    raise _Wordless


@pytest.mark.parametrize(
    ("outcome", "named"),
    [
        ({"value": 1.0, "details": [1, 2]}, "list; give a dictionary"),
        ({"value": 1.0, "details": {(1, 2): 3}}, "JSON"),
        ({"value": 1.0, "details": {"times": 3}}, "'times'"),
        ({"value": 1.0, "details": {"times": [-1.0]}}, "'times'"),
        ({"value": 1.0, "seconds": "abc"}, "'abc', which is not a number"),
        ({"value": 1.0, "seconds": [1.0, 2.0]}, "several"),
    ],
)
def test_an_unusable_outcome_is_a_failed_evaluation(outcome, named, tmp_path):
    space = Space([Integer("n", 0, 9)])
    journal = RecordsJournal(Records(tmp_path / "records"), problem_key("p", space), 0)
    found = tune(lambda _: outcome, space, budget=2, journal=journal)
    assert [trial.status for trial in found.trials] == ["run_failed"] * 2
    assert named in found.trials[0].message


def test_other_outcomes_are_taken_as_what_they_are():
    space = Space([Integer("n", 0, 9)])
    (trial,) = tune(lambda _: {"status": "run_failed", "message": 5}, space, budget=1).trials
    assert trial.message == "5"
    (trial,) = tune(_without_dimensions, space, budget=1).trials
    assert trial.value == 2.0
    (trial,) = tune(_wordless, space, budget=1).trials
    assert (trial.status, trial.message) == ("run_failed", "_Wordless")


@pytest.mark.parametrize(
    ("arguments", "cure"),
    [
        ((3, SPACE), "give a function of a configuration"),
        ((SPACE, cost), "give a function of a configuration"),
        ((cost, [Integer("x", 0, 3)]), r"give Space\(parameters, constraints\)"),
        ((cost, 3), r"give Space\(parameters, constraints\)"),
    ],
)
def test_arguments_of_another_kind_are_refused_with_the_cure(arguments, cure):
    with pytest.raises(SettingsError, match=cure):
        tune(*arguments)


@pytest.mark.parametrize("name", ["time_limit", "converge", "cutoff"])
@pytest.mark.parametrize("value", [-1, math.nan, "1", True])
def test_limits_are_numbers_from_zero(name, value):
    with pytest.raises(SettingsError, match=f"{name} is .*; give a number from 0"):
        tune(cost, SPACE, **{name: value})


def test_trials_are_no_warm_start_until_they_are_made_one():
    found = tune(cost, SPACE, budget=3)
    for given in (found.trials, found, 3):
        with pytest.raises(SettingsError, match=r"give WarmStart\.of\(trials\)"):
            tune(cost, SPACE, budget=3, warm=given)
    assert tune(cost, SPACE, budget=3, warm=WarmStart.of(found.trials)).best is not None


def test_a_maximised_rate_is_searched_as_the_time_it_stands_for():
    # powers of two, whose reciprocals and logarithms are exact up to a sign
    def time(c):
        return 2.0 ** abs(c["x"] - 11) * 2.0 ** abs(c["y"] - 4) * 2.0 ** c["p"][0]

    runs = [tune(f, SPACE, budget=30) for f in (time, lambda c: -1.0 / time(c))]
    tried = [[t.configuration for t in run.trials] for run in runs]
    assert tried[0] == tried[1]
    gains = [run.tuner.remaining_gain() for run in runs]
    assert gains[0] is not None
    assert gains[0] == pytest.approx(gains[1])
