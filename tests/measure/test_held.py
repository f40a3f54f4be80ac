import time
from dataclasses import replace
from pathlib import Path

from tilewright.measure import Candidate, Held, RunLimits, Timing, Workers

SPECIMENS = Path(__file__).with_name("specimens.py")
VISIT = Timing(warmup=0, min_samples=1, max_samples=1, seconds=0.1, sample_seconds=0.0)
LIMITS = RunLimits(build_seconds=300.0, run_seconds=100.0, memory_bytes=400 << 20)


def held(workers, name, payload=None, limits=LIMITS, **settings):
    return Held(Candidate(f"{SPECIMENS}:{name}", payload), workers, limits, VISIT, **settings)


def test_it_is_timed_as_often_as_asked_by_one_worker():
    with Workers(jobs=1) as workers, held(workers, "Sleep", 0.02) as anchor:
        first = anchor.sample(VISIT)
        # The only place to build is free again: another one is measured meanwhile.
        with held(workers, "Sleep", 0.002) as other:
            assert other.sample(VISIT) < 0.02
        assert first >= 0.02
        assert anchor.sample(VISIT) >= 0.02


def test_one_that_fails_has_no_time():
    with Workers(jobs=1) as workers:
        for name in ("BuildFails", "Segfault"):
            with held(workers, name) as anchor:
                assert anchor.sample(VISIT) is None
                assert anchor.sample(VISIT) is None
        hasty = replace(LIMITS, run_seconds=1.0)
        with held(workers, "SpinWhileTimed", limits=hasty) as anchor:
            # The fourth run does not end.
            assert [anchor.sample(VISIT) is None for _ in range(5)] == [False] * 3 + [True] * 2


def test_one_that_is_closed_or_late_has_no_time():
    with Workers(jobs=1) as workers:
        with held(workers, "Sleep", 0.002) as anchor:
            assert anchor.sample(VISIT) is not None
        assert anchor.sample(VISIT) is None
        with held(workers, "Sleep", 0.002, deadline=time.monotonic()) as late:
            assert late.sample(VISIT) is None
