"""Changes of the machine's speed during a search, seen by one schedule that is timed again.

Times of a minute ago are not comparable with those of now: other tenants of the machine and its
clock change all of them together, by more than the schedules differ. So one schedule, the anchor,
is timed before and after every other, and their times are given as they would have been when the
anchor was measured first.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.measure import Held, Measurement, Timing

# Of the anchor, each time: the precision wanted, and not more than an eighth of a second.
VISIT = Timing(min_samples=5, max_samples=40, seconds=0.12, sample_seconds=0.004, precision=0.005)
# The detail of a measurement: how many times as long the anchor took then.
SLOWER = "machine slower by"
# The detail of a measurement whose times were divided by that factor; it is not recorded.
AT_FIRST_SPEED = "at first speed"


class Drift:
    """The speed of the machine, by the times of an anchor.

    Args:
        anchor: the anchor. It is built when the first time is noted.
        seconds: its median time in the rounds whose times others are compared with.
    """

    def __init__(self, anchor: Held, seconds: float) -> None:
        self._anchor = anchor
        self._seconds = seconds
        self._before: float | None = None

    def noted(self, measurement: Measurement) -> Measurement:
        """Return a measurement, made since the last call, with the detail `SLOWER`.

        It has none if it failed, or if the anchor can no longer be timed.
        """
        if not measurement.ok:
            return measurement
        before, after = self._before, self._anchor.sample(VISIT)
        self._before = after
        if after is None:
            return measurement
        slower = math.sqrt((before or after) * after) / self._seconds
        return replace(measurement, details={**measurement.details, SLOWER: slower})


def at_first_speed(measurement: Measurement) -> Measurement:
    """Return a measurement with its times at the anchor's first speed, if that is noted."""
    slower = measurement.details.get(SLOWER)
    if not slower:
        return measurement
    return replace(
        measurement,
        times=tuple(t / slower for t in measurement.times),
        cpu_times=tuple(t / slower for t in measurement.cpu_times),
        details={**measurement.details, AT_FIRST_SPEED: True},
    )
