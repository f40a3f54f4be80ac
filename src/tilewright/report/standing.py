"""How a schedule compares with others: a factor, a tie, or a factor that is uncertain."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.report import units
from tilewright.report.model import Bar, ScheduleReport

NAIVE = "naive"  # the label of the naive schedule's bar
# Up to this factor, an interval that contains 1 is a tie. Beyond it, such an interval shows that
# the times were disturbed, not that the schedules are equal. Chosen as the spread of times on busy
# machines.
MOST_OF_A_TIE = 1.25


@dataclass(frozen=True, slots=True)
class Standing:
    """A schedule compared with another: `ratio` is the other's time over ours, None for a tie.

    `uncertain` is the interval of a ratio beyond `MOST_OF_A_TIE` if it contains 1, otherwise None.
    """

    other: str
    ratio: float | None
    uncertain: tuple[float, float] | None = None

    @property
    def factor(self) -> str:
        """The ratio in words, to be followed by "as fast as"; empty for a tie."""
        return "" if self.ratio is None else units.ratio(self.ratio)

    @property
    def words(self) -> str:
        """The comparison in words."""
        return f"{self.factor} as fast as {self.other}{self.doubt}".strip()

    @property
    def doubt(self) -> str:
        """The interval of an uncertain ratio in words, otherwise empty."""
        if self.uncertain is None:
            return ""
        low, high = map(units.ratio, self.uncertain)
        return f" (uncertain: {low} to {high})"

    @property
    def tone(self) -> str:
        """``good`` for the faster one, ``bad`` for the slower one, otherwise empty."""
        if self.ratio is None or self.uncertain is not None:
            return ""
        return "good" if self.ratio >= 1 else "bad"


def relative(bar: Bar, ours: Bar) -> float | None:
    """Return the bar's time over ours, from pairs of the same round where they are known."""
    if bar.slower is not None:
        return bar.slower[0]
    return bar.value / ours.value if bar.value is not None and ours.value else None


def our_bar(report: ScheduleReport) -> Bar | None:
    """Return the bar of the schedule that the report is about, None if it has no time."""
    return next((b for b in report.comparison if b.ours and b.ok and b.value), None)


def against_naive(report: ScheduleReport) -> Standing | None:
    """Compare with the naive schedule; None if either is not measured.

    It may be a tie if the interval of the speedup is known and contains 1.
    """
    if report.speedup is None:
        return None
    ours = our_bar(report)
    bar = next((b for b in report.comparison if b.label == NAIVE and b.ok), None)
    ratio, interval = report.speedup, report.speedup_interval
    if ours is not None and bar is not None and bar.slower is not None:
        ratio, *ends = bar.slower
        interval = (ends[0], ends[1])
    return standing("the naive schedule", ratio, interval)


def against_best_other(report: ScheduleReport) -> Standing | None:
    """Compare with the fastest other schedule, the naive one not counted; None without one."""
    ours = our_bar(report)
    others = [b for b in report.comparison if not b.ours and b.ok and b.label != NAIVE]
    best = min(others, key=lambda b: b.value or 0.0, default=None)
    if ours is None or best is None:
        return None
    return standing(f"{best.label} (the best other)", relative(best, ours), _interval(best, ours))


def standing(other: str, ratio: float | None, interval: tuple[float, float] | None) -> Standing:
    """Return a factor, a tie, or a factor that is uncertain.

    Args:
        other: the name of the other schedule.
        ratio: its time over ours; None if unknown.
        interval: the ratio's confidence interval, None if unknown.

    >>> standing("the naive schedule", 3.0, (2.5, 3.5)).words
    '3× as fast as the naive schedule'
    >>> standing("the naive schedule", 1.1, (0.9, 1.2)).words
    'as fast as the naive schedule'
    >>> standing("the naive schedule", 3.0, (0.9, 9.0)).words
    '3× as fast as the naive schedule (uncertain: 0.9× to 9×)'
    """
    if ratio is None or interval is None or not interval[0] <= 1 <= interval[1]:
        return Standing(other, ratio)
    if 1 / MOST_OF_A_TIE <= ratio <= MOST_OF_A_TIE:
        return Standing(other, None)
    return Standing(other, ratio, interval)


def _interval(other: Bar, ours: Bar) -> tuple[float, float] | None:
    """Return the interval of the other's time over ours, from pairs of rounds if known."""
    if other.slower is not None:
        return other.slower[1], other.slower[2]
    if not (ours.low and ours.high and other.low and other.high):
        return None
    return other.low / ours.high, other.high / ours.low
