from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deadlines import DeadlineAfter

from tilewright.measure import (
    Candidate,
    RunLimits,
    Timing,
    bootstrap_interval,
    finalists,
    ratio_interval,
)

SPECIMENS = Path(__file__).with_name("specimens.py")
VISIT = Timing(warmup=0, min_samples=1, max_samples=1, seconds=0.1, sample_seconds=0.0)
LIMITS = RunLimits(build_seconds=300.0, run_seconds=100.0, memory_bytes=400 << 20)
HASTY = replace(LIMITS, run_seconds=1.0)


def specimen(name, payload=None, key=None):
    return Candidate(f"{SPECIMENS}:{name}", payload, key=key or name)


def test_candidates_are_timed_in_turn_forwards_and_backwards():
    turns = []

    def note(event):
        if event.name == "sampled":
            turns.append(event.candidate.key)

    candidates = [specimen("Sleep", 0.2, "slow"), specimen("Sleep", 0.002, "fast")]
    finals = finalists(candidates, 4, visit=VISIT, limits=LIMITS, on_event=note)
    assert turns == ["slow", "fast", "fast", "slow"] * 2
    assert [len(m.times) for m in finals.measurements] == [4, 4]
    assert all(m.ok and m.verified for m in finals.measurements)
    assert finals.best == 1
    ratio = finals.ratio_interval("slow", "fast")
    assert 1 < ratio.low <= ratio.estimate <= ratio.high
    assert finals.ratio_interval(1, 0).high < 1
    assert finals.interval("slow").low >= 0.2


def test_a_slow_candidate_may_take_part_in_the_first_rounds_alone():
    candidates = [specimen("Sleep", 0.05, "slow"), specimen("Sleep", 0.002, "fast")]
    finals = finalists(candidates, 5, visit=VISIT, limits=LIMITS, brief=["slow"])
    assert [len(m.times) for m in finals.measurements] == [2, 5]
    assert finals.ratio_interval("slow", "fast").low > 1


def test_a_finalist_that_fails_is_left_out():
    candidates = [
        specimen("Sleep"),
        specimen("Segfault"),
        specimen("BuildFails"),
        specimen("SpinWhileTimed"),
    ]
    finals = finalists(candidates, 5, visit=VISIT, limits=HASTY)
    statuses = [m.status for m in finals.measurements]
    assert statuses == ["ok", "crashed", "build_failed", "timeout"]
    assert len(finals.measurement("Sleep").times) == 5
    with pytest.raises(ValueError, match="Segfault"):
        finals.ratio_interval("Sleep", "Segfault")
    with pytest.raises(KeyError):
        finals.measurement("nobody")


def test_a_time_limit_ends_the_rounds_early():
    finals = finalists([specimen("Sleep", 0.05)], 1000, seconds=0.2, visit=VISIT, limits=LIMITS)
    assert 2 <= len(finals.measurements[0].times) < 100


def test_no_candidates_no_finals():
    assert finalists([], 3).best is None


def test_paired_ratios_cancel_what_slows_both():
    slow_rounds = [1.0, 5.0, 2.0, 1.0, 9.0, 3.0]
    ratio = ratio_interval([2 * t for t in slow_rounds], slow_rounds)
    assert (ratio.low, ratio.estimate, ratio.high) == pytest.approx((2, 2, 2))
    with pytest.raises(ValueError, match="pairs"):
        ratio_interval([1.0], [1.0, 2.0])


def test_bootstrap_interval_covers_the_median_about_as_often_as_it_says():
    import numpy as np

    rng = np.random.default_rng(1)
    hits = 0
    for trial in range(200):
        interval = bootstrap_interval(rng.normal(3, 1, 40), seed=trial, resamples=300)
        hits += interval.low <= 3 <= interval.high
    assert 175 <= hits <= 200
    with pytest.raises(ValueError, match="no samples"):
        bootstrap_interval([])


def test_the_deadline_keeps_the_samples_there_are():
    candidates = [specimen("Sleep", 0.01), specimen("SpinInBuild")]
    seen = []
    how: dict[str, Any] = {
        "visit": VISIT,
        "limits": LIMITS,
        "on_event": lambda event: seen.append(event.name),
    }
    deadline: Any = DeadlineAfter(lambda: "ready" in seen)
    finals = finalists(candidates, 3, deadline=deadline, **how)
    assert [m.status for m in finals.measurements] == ["timeout", "timeout"]
    deadline = DeadlineAfter(lambda: seen.count("sampled") >= 3)
    finals = finalists([specimen("Sleep", 0.02)], 10**6, deadline=deadline, **how)
    assert finals.measurements[0].ok
    assert len(finals.measurements[0].times) == 3
