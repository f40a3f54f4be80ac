"""How a schedule compares with others: a factor, or a tie where its interval contains 1."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.report import units
from tilewright.report.model import Bar, ScheduleReport

NAIVE = "naive"  # the label of the naive schedule's bar


@dataclass(frozen=True, slots=True)
class Standing:
    """A schedule compared with another: `ratio` is the other's time over ours, None for a tie."""

    other: str
    ratio: float | None

    @property
    def factor(self) -> str:
        """The ratio in words, to be followed by "as fast as"; empty for a tie."""
        return "" if self.ratio is None else units.ratio(self.ratio)

    @property
    def words(self) -> str:
        """The comparison in words."""
        return f"{self.factor} as fast as {self.other}".strip()

    @property
    def tone(self) -> str:
        """``good`` for the faster one, ``bad`` for the slower one, empty for a tie."""
        if self.ratio is None:
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

    It is a tie if the interval of the speedup is known and contains 1.
    """
    if report.speedup is None:
        return None
    ours = our_bar(report)
    bar = next((b for b in report.comparison if b.label == NAIVE and b.ok), None)
    ratio, interval = report.speedup, report.speedup_interval
    if ours is not None and bar is not None and bar.slower is not None:
        ratio, *ends = bar.slower
        interval = (ends[0], ends[1])
    tie = interval is not None and interval[0] <= 1 <= interval[1]
    return Standing("the naive schedule", None if tie else ratio)


def against_best_other(report: ScheduleReport) -> Standing | None:
    """Compare with the fastest other schedule, the naive one not counted; None without one."""
    ours = our_bar(report)
    others = [b for b in report.comparison if not b.ours and b.ok and b.label != NAIVE]
    best = min(others, key=lambda b: b.value or 0.0, default=None)
    if ours is None or best is None:
        return None
    ratio = None if _tie(ours, best) else relative(best, ours)
    return Standing(f"{best.label} (the best other)", ratio)


def _tie(ours: Bar, other: Bar) -> bool:
    """Return whether the ratio's interval contains 1, or without one, the times' overlap."""
    if other.slower is not None:
        _, low, high = other.slower
        return low <= 1 <= high
    if None in (ours.low, ours.high, other.low, other.high):
        return False
    return (ours.low or 0) <= (other.high or 0) and (other.low or 0) <= (ours.high or 0)
