import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.measure import Measurement, Timing
from tilewright.measure import timing as timing_module
from tilewright.measure.candidate import relative_spread
from tilewright.measure.capture import OutputCapture
from tilewright.measure.timing import settled, time_runs


class Clock:
    """Time that passes only as the runs say, so that nothing here depends on the machine."""

    def __init__(self, monkeypatch, durations):
        self.now = 0.0
        self.durations = iter(durations)
        self.last = None
        self.runs = 0
        monkeypatch.setattr(timing_module.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(timing_module, "cpu_seconds", lambda: 2 * self.now)

    def run(self):
        self.last = next(self.durations, self.last)
        self.now += self.last
        self.runs += 1


def test_short_runs_are_repeated_within_a_sample(monkeypatch):
    clock = Clock(monkeypatch, [0.001])
    samples = time_runs(clock.run, Timing(sample_seconds=0.01, min_samples=4, max_samples=9))
    assert samples.times == pytest.approx([0.001] * 4)
    assert samples.cpu_times == pytest.approx([0.002] * 4)
    assert samples.runs == 40
    assert clock.runs == 41


def test_a_slow_first_run_does_not_shorten_the_samples(monkeypatch):
    clock = Clock(monkeypatch, [0.5, 0.001])
    samples = time_runs(clock.run, Timing(sample_seconds=0.01, seconds=9.0))
    assert samples.times == pytest.approx([0.001] * len(samples.times))
    assert samples.runs >= 10 * len(samples.times)


def test_noisy_samples_are_taken_until_the_median_is_known(monkeypatch):
    noise = [0.1 * (1 + 0.1 * math.sin(7 * i)) for i in range(2000)]
    clock = Clock(monkeypatch, noise)
    samples = time_runs(clock.run, Timing(seconds=1e9, max_samples=2000, precision=0.005))
    assert 100 < len(samples.times) < 2000
    assert settled(samples.times, Timing(precision=0.005))
    assert not settled(samples.times[:20], Timing(precision=0.005))


def test_outliers_do_not_prolong_timing(monkeypatch):
    clock = Clock(monkeypatch, [0.1, 0.1, 0.1, 9.0, 0.1, 0.1, 0.1])
    samples = time_runs(clock.run, Timing(seconds=1e9, min_samples=5))
    assert len(samples.times) == 5


def test_the_budget_ends_timing(monkeypatch):
    clock = Clock(monkeypatch, [0.4, 0.3, 0.5] * 100)
    samples = time_runs(clock.run, Timing(seconds=2.0))
    assert clock.now <= 2.5
    assert samples.times


def test_a_run_longer_than_the_budget_is_run_once(monkeypatch):
    clock = Clock(monkeypatch, [30.0])
    samples = time_runs(clock.run, Timing(seconds=2.0))
    assert samples.times == (30.0,)
    assert clock.runs == 1


def test_cutoff_needs_two_slow_samples(monkeypatch):
    clock = Clock(monkeypatch, [0.1, 0.5, 0.1])
    timing = Timing(seconds=9.0, cutoff=0.2, min_samples=5)
    assert not time_runs(clock.run, timing).lower_bound
    clock = Clock(monkeypatch, [0.3])
    cut = time_runs(clock.run, timing)
    assert cut.lower_bound
    assert len(cut.times) == 2


def test_a_run_that_takes_no_measurable_time_is_repeated_but_not_for_ever(monkeypatch):
    clock = Clock(monkeypatch, [0.0])
    samples = time_runs(clock.run, Timing(min_samples=1, max_samples=1, warmup=0))
    assert samples.times


@given(st.lists(st.floats(0.1, 10), min_size=3, max_size=50), st.floats(1e-6, 1e6))
def test_spread_does_not_depend_on_the_unit(samples, unit):
    scaled = [s * unit for s in samples]
    assert relative_spread(scaled) == pytest.approx(relative_spread(samples), abs=1e-9)


def test_failures_have_infinite_times():
    failed = Measurement("crashed")
    assert failed.median == failed.minimum == math.inf
    assert not failed.ok


def test_an_unknown_status_is_refused():
    with pytest.raises(ValueError, match="bored"):
        Measurement.from_json({"status": "bored"})
    damaged: list[dict] = [{"times": ["x"]}, {"times": [True]}, {"message": 3}, {"details": []}]
    for wrong in damaged:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Measurement.from_json({"status": "ok", **wrong})


@given(st.lists(st.binary(max_size=50)), st.integers(2, 60))
def test_capture_keeps_both_ends_within_its_limit(pieces, limit):
    capture = OutputCapture(limit)
    for piece in pieces:
        capture.add(piece)
    whole = b"".join(pieces)
    text = capture.text().encode(errors="replace")
    assert capture.total == len(whole)
    if len(whole) <= limit // 2:
        assert capture.text() == whole.decode(errors="replace")
    elif all(byte < 128 for byte in whole):
        assert text.startswith(whole[: limit // 2])
        assert len(text) <= limit + 40
