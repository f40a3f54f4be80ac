import time
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from tilewright.measure import Measurement, Timing
from tilewright.measure.timing import Samples
from tilewright.prediction.data.collect import collect
from tilewright.prediction.data.instances import placed
from tilewright.prediction.data.user_kernels import from_callable
from tilewright.prediction.data.work import Idleness, dirty, idleness, other_seconds
from tilewright.prediction.errors import PredictionError
from tilewright.records import Records

QUICK = Timing(warmup=1, min_samples=1, max_samples=1, seconds=0.001, sample_seconds=0.0)


def counting(calls, **how):
    def work(n):
        calls.append(n)
        return n

    return from_callable(work, {"n": (1, 1000)}, "n", name="work", **how)


def test_an_interrupted_collection_goes_on_where_it_was(tmp_path):
    calls: list = []
    kernel = counting(calls)

    class StoppedError(Exception):
        pass

    def stop(progress):
        if progress.done == 3:
            raise StoppedError

    with Records(tmp_path / "r.sqlite") as records:
        with pytest.raises(StoppedError):
            collect(
                kernel,
                "work",
                6,
                0,
                records,
                retime=False,
                rounds=1,
                timing=QUICK,
                verify=False,
                on_progress=stop,
            )
        assert len(records) == 3
        seen = set(calls)
        runs = collect(
            kernel, "work", 6, 0, records, retime=False, rounds=1, timing=QUICK, verify=False
        )
    assert len(runs) == 6
    assert seen <= set(runs.table[:, 0])


def test_an_interruption_can_end_a_collection_as_the_deadline_does():
    def interrupt(progress):
        if progress.done == 3:
            raise KeyboardInterrupt

    how: dict[str, Any] = {"retime": False, "rounds": 1, "timing": QUICK, "verify": False}
    with pytest.raises(KeyboardInterrupt):
        collect(counting([]), "work", 6, on_progress=interrupt, **how)
    runs = collect(counting([]), "work", 6, on_progress=interrupt, keep_interrupted=True, **how)
    assert len(runs) == 3


def test_failures_and_wrong_answers_are_left_out_with_their_reason():
    def work(n):
        if n % 3 == 0:
            raise ValueError("three")
        return n + (n % 3 == 1)

    kernel = from_callable(work, {"n": (1, 1000)}, "n", name="work", reference=lambda n: n)
    runs = collect(kernel, "work", 30, 0, retime=False, rounds=1, timing=QUICK)
    assert set(runs.table[:, 0] % 3) == {2}
    assert len(runs) + len(runs.dropped) == 30
    assert {text.split(": ")[1] for text in runs.dropped} == {"run_failed", "wrong_answer"}


def test_memory_that_ends_after_the_first_run_is_an_outcome():
    calls = []

    def work(n):
        calls.append(n)
        if n % 2 and calls.count(n) > 1:
            raise MemoryError
        return n

    kernel = from_callable(work, {"n": (1, 1000)}, "n", name="work", reference=lambda n: n)
    runs = collect(kernel, "work", 12, 0, retime=False, rounds=1, timing=QUICK)
    assert runs.dropped
    assert {text.split(": ")[1] for text in runs.dropped} == {"out_of_memory"}


def test_a_reference_that_leaves_is_an_error():
    def leave(n):
        raise SystemExit(3)

    def work(n):
        return n

    kernel = from_callable(work, {"n": (1, 9)}, "n", name="work", reference=leave)
    with pytest.raises(PredictionError, match=r"reference of work failed: SystemExit: 3"):
        collect(kernel, "work", 2, 0, timing=QUICK)


def test_nothing_measured_is_an_error_with_the_reason():
    def work(n):
        raise ValueError("never")

    with pytest.raises(PredictionError, match="never"):
        collect(from_callable(work, {"n": (1, 9)}, "n"), "work", 2, 0, timing=QUICK)


def test_wall_time_far_above_cpu_time_is_dirty():
    assert dirty(Measurement("ok", (2.0,), (1.0,)))
    assert not dirty(Measurement("ok", (1.0,), (1.0,)))


def test_a_process_that_waits_is_not_disturbed():
    before = Idleness(10, 1.0)
    for after, waited in (
        (Idleness(11, 1.0), True),  # it slept
        (Idleness(10, 1.0), False),  # it never gave its processor away
        (Idleness(11, 1.5), False),  # it was woken, and another process had the processor
    ):
        assert after.waited(before, 2.0) == waited


def test_sleeping_is_seen():
    before = idleness()
    time.sleep(0.001)
    assert idleness().yields > before.yields
    assert idleness().queued >= before.queued


def test_a_command_of_ours_is_not_another_process(monkeypatch):
    """What it has used is known when it has ended."""
    monkeypatch.setattr("tilewright.prediction.data.work.cpu_seconds", lambda: 0.0)
    everything = other_seconds()
    assert everything > 0.0
    monkeypatch.setattr("tilewright.prediction.data.work.cpu_seconds", lambda: everything + 1e6)
    assert other_seconds() < 0.0


@pytest.mark.parametrize("waits", [True, False])
def test_an_instance_that_waits_is_not_measured_again(monkeypatch, waits):
    """Wall time far above CPU time is a disturbance only where the process did not wait."""
    monkeypatch.setattr("tilewright.prediction.data.work.other_seconds", lambda: 0.0)
    monkeypatch.setattr(Idleness, "waited", lambda *of: waits)
    monkeypatch.setattr(
        "tilewright.prediction.data.work.time_runs",
        lambda run, timing: Samples((1.0,), (0.1,), 1, False),
    )
    runs = collect(counting([]), "work", 1, 0, rounds=1, retime=False, verify=False, timing=QUICK)
    assert runs.facts["noise"]["still_dirty"] == int(not waits)


def test_a_second_measurement_gives_a_noise_floor():
    runs = collect(counting([]), "work", 5, 0, rounds=1, timing=QUICK, verify=False)
    assert np.isfinite(runs.retimes).all()
    assert runs.floor == pytest.approx(np.median(abs(runs.times - runs.retimes) / runs.times))
    assert runs.facts["noise"]["measurements"] == 10


def scripted(monkeypatch, seconds):
    """Have the next timings take these seconds, on a machine that does nothing else."""
    left = iter(seconds)
    monkeypatch.setattr("tilewright.prediction.data.work.other_seconds", lambda: 0.0)
    monkeypatch.setattr(
        "tilewright.prediction.data.work.time_runs",
        lambda run, timing: Samples(tuple(next(left)), (9.0, 9.0), 2, False),
    )
    return left


def test_the_quickest_sample_of_all_rounds_counts(monkeypatch):
    kernel = counting([])
    rounds = [(2.0, 1.9), (1.2, 1.0), (1.005, 1.3)]
    left = scripted(monkeypatch, rounds)
    told: list = []
    runs = collect(
        kernel, "work", 1, 0, retime=False, verify=False, timing=QUICK, on_progress=told.append
    )
    assert list(runs.times) == [1.0]  # the second and the third round agree
    assert next(left, None) is None
    assert told[-1].done == told[-1].total == 6
    scripted(monkeypatch, rounds)
    runs = collect(kernel, "work", 1, 0, rounds=1, verify=False, timing=QUICK)
    assert (list(runs.times), list(runs.retimes)) == ([1.9], [1.0])
    with pytest.raises(PredictionError, match="at least 1"):
        collect(kernel, "work", 4, 0, rounds=0)


def test_both_measurements_have_rounds_of_their_own(monkeypatch):
    scripted(monkeypatch, [(3.0,), (4.0,), (1.0,), (4.0,), (1.0,)])
    runs = collect(counting([]), "work", 1, 0, verify=False, timing=QUICK)
    assert (list(runs.times), list(runs.retimes)) == ([1.0], [4.0])


def test_instances_that_fail_in_a_round_are_left_out_and_not_tried_again():
    tried = []

    def work(n):
        tried.append(n)
        if n % 2:
            raise ValueError("odd")
        return n

    kernel = from_callable(work, {"n": (1, 1000)}, "n", name="work")
    runs = collect(kernel, "work", 12, 0, rounds=3, retime=False, timing=QUICK, verify=False)
    odd = [n for n in tried if n % 2]
    assert odd
    assert len(odd) == len(runs.dropped)
    assert len(runs) == 12 - len(odd)


@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (33, 5), (100, 1000)])
def test_dense_operands_begin_with_a_cache_line_and_are_the_same(shape):
    array = np.random.default_rng(0).random(shape)
    own = placed(array)
    assert own.shape == shape
    assert np.array_equal(own, array)
    assert not array.size or own.ctypes.data % 64 == 0
    assert not np.shares_memory(own, array)


@pytest.mark.parametrize(
    "thing", [3, "s", None, np.ones((4, 6)).T, np.array([{}]), csr_array((2, 3)), np.matrix("1 2")]
)
def test_operands_that_are_no_plain_dense_arrays_stay_as_they_are(thing):
    assert placed(thing) is thing
