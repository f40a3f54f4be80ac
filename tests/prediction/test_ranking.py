"""Candidates by predicted time, and the best of them measured."""

import numpy as np
import pytest

from tilewright.measure import Measurement
from tilewright.prediction import LRC, Augmented, PredictionError
from tilewright.prediction.data.kernel import Kernel, KernelVariant
from tilewright.prediction.decisions.ranking import (
    rank,
    rank_schedules,
    verify_schedules,
    verify_variants,
)
from tilewright.prediction.decisions.selector import Choice
from tilewright.prediction.kernels import schedules


@pytest.fixture(scope="module")
def model():
    """The fewer the factor s, the slower; runs of sizes 64 to 256."""
    rng = np.random.default_rng(0)
    n = rng.choice([64.0, 128.0, 256.0], 60)
    s = rng.choice([2.0, 4.0, 8.0, 16.0], 60)
    return Augmented(features=("n", "s")).fit(np.stack([n, s], axis=1), 1e-9 * n**2 / s)


@pytest.fixture(scope="module")
def family():
    def draw(rng, n):
        return {"n": n, "s": int(2 ** rng.integers(1, 5)), "spare": int(rng.integers(0, 100))}

    features = {"n": "pixels", "s": "1", "spare": "1"}
    return schedules.ScheduleFamily("thing", features, "n**2", (64,), None, None, draw)


def test_candidates_come_in_the_order_of_their_predicted_times(model):
    rows = [{"n": 64, "s": 2}, {"n": 64, "s": 16}, {"n": 64, "s": 4096}, {"n": 64, "s": 8}]
    found = rank(model, rows)
    assert [r.index for r in found] == [1, 3, 0, 2]  # the last is a guess
    assert [r.seconds for r in found] == model.predict(rows)[[1, 3, 0, 2]].tolist()
    assert all(r.low <= r.seconds * (1 + 1e-9) and r.seconds <= r.high * (1 + 1e-9) for r in found)
    assert [r.outside for r in found] == [False, False, False, True]
    assert [r.index for r in rank(model, rows, most=2)] == [1, 3]
    assert rank(model, np.zeros((0, 2))) == []
    plain = LRC(features=("n", "s"), complexity="n", folds=0).fit([[1, 2], [3, 4]], [1, 2])
    assert rank(plain, rows)[0].low is None


def test_schedules_keep_the_factors_that_the_model_does_not_use(model, family):
    found = rank_schedules(model, family, 64, count=50, seed=3)
    assert len(found) == 50
    assert found[0].features["s"] == 16
    assert set(found[0].features) == {"n", "s", "spare"}
    assert len({tuple(r.features.values()) for r in found}) == 50
    other = LRC(features=("n", "z"), complexity="n", folds=0).fit([[1, 2], [3, 4]], [1, 2])
    with pytest.raises(PredictionError, match="'z' is none of thing"):
        rank_schedules(other, family, 64)


def test_verified_schedules_come_by_measured_time_and_failures_last(model, family, monkeypatch):
    ranked = rank_schedules(model, family, 64, count=30)
    times = {ranked[i].features["spare"]: t for i, t in ((0, 3.0), (2, 1.0), (4, 2.0))}
    asked = []

    def measure(family, size, candidates, records=None):
        for factors in candidates:
            asked.append(factors)
            t = times.get(factors["spare"])
            failed = Measurement("build_failed", message="no")
            yield schedules.TriedFactors(
                factors, failed if t is None else Measurement("ok", (t,), (t,), 1)
            )

    monkeypatch.setattr(schedules, "measure_candidates", measure)
    told = []
    found = verify_schedules(family, 64, ranked, 3, on_progress=lambda *step: told.append(step))
    assert [r.measured for r in found] == [1.0, 2.0, 3.0, None, None]
    assert [r.index for r in found[:3]] == [ranked[i].index for i in (2, 4, 0)]
    assert told[-1] == (3, 3)
    times.clear()
    asked.clear()
    assert all(r.measured is None for r in verify_schedules(family, 64, ranked, 2))
    assert len(asked) == 10  # and then it gives up


def collected(monkeypatch, family, seconds, **how):
    """The runs, and how often each spare was started, where a start takes what `seconds` says."""
    starts = []

    def measure(family, size, candidates, records=None, *, repeat, verify, deadline):
        for factors in candidates:
            spare = factors["spare"]
            starts.append(spare)
            t = seconds(spare, repeat)
            measurement = (
                Measurement("timeout", message="late")
                if t is None
                else Measurement("ok", (t, t, 9 * t), (t, t, 9 * t), 3)
            )
            yield schedules.TriedFactors(factors, measurement, repeat)

    monkeypatch.setattr(schedules, "measure_candidates", measure)
    own = [{"n": 64, "s": 2, "spare": spare} for spare in range(4)]
    runs, complete = schedules.collect_schedules(family, (64,), 4, also=lambda n: own, **how)
    return runs, complete, {spare: starts.count(spare) for spare in range(4)}


def test_further_rounds_are_for_quick_schedules_and_the_median_start_counts(monkeypatch, family):
    times = {0: [1.0, 1.0, 5.0, 1.2, 1.1, 1.0], 1: [1.9] * 6, 2: [2.5, 2.5]}
    runs, complete, starts = collected(
        monkeypatch,
        family,
        lambda spare, repeat: times[spare][repeat] if spare in times else None,
        rounds=3,
    )
    assert complete
    assert starts == {0: 6, 1: 6, 2: 2, 3: 2}
    assert runs.times.tolist() == [1.1, 1.9, 2.5]  # starts 0, 2 and 4
    assert runs.retimes.tolist() == [1.0, 1.9, 2.5]
    assert runs.facts["noise"]["measurements"] == 16
    assert runs.dropped == ("n=64 s=2 spare=3: timeout: late",)


def test_a_second_measurement_that_fails_is_missing(monkeypatch, family):
    runs, complete, _ = collected(
        monkeypatch, family, lambda spare, repeat: None if (spare, repeat) == (1, 1) else 1.0
    )
    assert complete
    assert runs.times.tolist() == [1.0] * 4
    assert np.isnan(runs.retimes).tolist() == [False, True, False, False]


def test_without_a_second_measurement_rounds_are_the_first_s(monkeypatch, family):
    runs, _, starts = collected(
        monkeypatch, family, lambda spare, repeat: 1.0 + repeat, retime=False, rounds=3
    )
    assert starts == dict.fromkeys(range(4), 3)
    assert runs.times.tolist() == [2.0] * 4
    assert runs.retimes is None


def test_variants_are_measured_on_operands_made_for_the_query():
    made = []

    def make(instance, rng):
        made.append(instance)
        return {"a": np.ones(instance["n"])}

    kernel = Kernel(
        "thing",
        {"n": "1"},
        "n",
        lambda rng: {"n": 1},
        make,
        lambda operands: operands["a"] * 2,
        lambda operands: {"n": len(operands["a"])},
        {
            "right": KernelVariant("right", lambda operands, _: lambda: operands["a"] * 2),
            "wrong": KernelVariant("wrong", lambda operands, _: lambda: operands["a"] * 3),
        },
    )
    choices = [Choice("wrong", {}, 1e-6), Choice("right", {}, 2e-6)]
    found = verify_variants(kernel, {"n": 5.0}, choices)
    assert [m.status for _, m in found] == ["wrong_answer", "ok"]
    assert made == [{"n": 5}] * 2
    with pytest.raises(PredictionError, match="gives no 'n'"):
        verify_variants(kernel, {"m": 5.0}, choices)
