"""Times of a search are those at the speed of the final rounds, also while the speed changes."""

from contextlib import nullcontext
from types import SimpleNamespace
from zlib import crc32

import pytest
from stand_in_session import StandInSession

from tilewright.halide.ir.json import to_json
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task
from tilewright.halide.search import autotune
from tilewright.halide.search.drift import SLOWER, Drift, at_first_speed
from tilewright.halide.search.top_k import Tried, Watch
from tilewright.measure import Measurement


def anchor(*samples):
    rest = iter(samples)
    return SimpleNamespace(sample=lambda visit: next(rest))


def measured(*times):
    return Measurement("ok", times, times, len(times))


def test_times_are_divided_by_the_mean_of_the_anchor_before_and_after():
    drift = Drift(anchor(2.0, 8.0, 1.0), 1.0)
    assert at_first_speed(drift.noted(measured(4.0))).times == (2.0,)  # nothing before the first
    noted = drift.noted(measured(4.0, 12.0))
    assert noted.times == (4.0, 12.0)  # as measured: what is recorded
    assert noted.details[SLOWER] == 4.0
    assert Tried(None, 0, noted).source == "alone"  # as mode `top` takes it from the records
    found = at_first_speed(noted)
    assert (found.times, found.cpu_times) == ((1.0, 3.0), (1.0, 3.0))
    assert at_first_speed(drift.noted(measured(1.0))).median == pytest.approx(8**-0.5)


def test_failures_and_times_beside_a_lost_anchor_stay_as_they_are():
    drift = Drift(anchor(2.0, None, 2.0), 1.0)
    crashed = Measurement("crashed")
    assert drift.noted(crashed) is crashed  # and the anchor is not timed for it
    assert drift.noted(measured(3.0)).details[SLOWER] == 2.0
    lost = measured(3.0)
    assert drift.noted(lost) is lost
    assert at_first_speed(lost) is lost


class Slowing(StandInSession):
    """A session that becomes a twentieth slower with every schedule; times are drawn."""

    def __init__(self, task):
        super().__init__(task)
        self.slower = 1.0
        self.held = []

    def seconds(self, schedule):
        return 1e-3 * (1 + crc32(to_json(schedule).encode()) % 97 / 97)

    def measurement(self, schedule):
        return measured(*[self.slower * self.seconds(schedule)] * 3)

    def measure(self, variants):
        for variant in variants:
            yield from super().measure([variant])
            self.slower *= 1.05

    def finals(self, *arguments, **more):
        self.slower = 1.0
        return super().finals(*arguments, **more)

    def hold(self, variant):
        self.held.append(variant.schedule)
        seconds = self.seconds(variant.schedule)
        return nullcontext(SimpleNamespace(sample=lambda visit: self.slower * seconds))


@pytest.mark.thorough
def test_tuning_is_told_times_at_the_first_speed():
    task = make_task("examples/harris.py:harris")
    session = Slowing(task)
    planned = plan(task, k=3)
    outcome, _ = autotune.measure_tuned(session, planned, task, watch=Watch(None), evaluations=12)
    tuned = outcome.tried[len(planned) :]
    assert len(tuned) == 12
    assert len(session.held) == 1
    assert session.note is None
    alone = [each for each in tuned if not each.final]
    assert alone
    for each in alone:
        assert each.source == "alone, at the speed of the final rounds"
        # The anchor before it ran at the speed of the schedule before, 1.05 times as fast.
        ratio = each.seconds / session.seconds(each.planned.schedule)
        assert ratio == pytest.approx(1.05**0.5) or each is tuned[0]
