"""Axes: from values to coordinates, and which values get a tick."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from tilewright.report.charts.svg import text_width
from tilewright.report.pages.html import Html, join, tag

_TINY = 1e-290  # below this, floating-point arithmetic loses its digits
_TICKS = 6
_APART = 6.0  # pixels between texts at an axis


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps [low, high] onto [start, stop], in logarithms where `log`."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value; values outside the range are clamped to it."""
        value = min(max(value, self.low), self.high)
        if self.log:
            share = _decades(self.low, value) / _decades(self.low, self.high)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    def ticks(self, about: int = _TICKS) -> list[float]:
        """Return about `about` round values within the range."""
        return _log_ticks(self, about) if self.log else _linear_ticks(self, about)


def scale(
    values: Iterable[float],
    start: float,
    stop: float,
    *,
    log: bool = False,
    zero: bool = False,
    margin: float = 0.04,
) -> Scale:
    """Return a scale that holds all finite values with a margin; from zero if `zero` is True.

    On a logarithmic scale values that are not positive are left out.
    """
    kept = [v for v in values if math.isfinite(v) and (v > _TINY or not log)]
    low, high = (min(kept), max(kept)) if kept else (1.0, 10.0)
    if log:
        if high - low <= 1e-9 * high:
            low, high = low / 2, high * 2
        stretch = 10 ** (margin * _decades(low, high))
        return Scale(low / stretch, high * stretch, start, stop, True)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    # A range that is negligible relative to the values themselves, or underflows, counts as empty.
    if high - low <= max(1e-9 * max(abs(low), abs(high)), _TINY):
        around = max(abs(low), abs(high))
        around = 1.0 if around <= _TINY else around
        low, high = low - around / 2, high + around / 2
    stretch = (high - low) * margin
    return Scale(
        low if zero and low == 0 else low - stretch,
        high if zero and high == 0 else high + stretch,
        start,
        stop,
    )


def _decades(low: float, high: float) -> float:
    """Return the logarithm of their ratio, as the ratio itself may overflow."""
    return math.log10(high) - math.log10(low)


def _linear_ticks(s: Scale, about: int) -> list[float]:
    raw = (s.high - s.low) / max(1, about)
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw * 0.999)
    first = math.ceil(s.low / step - 1e-9)
    last = math.floor(s.high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _log_ticks(s: Scale, about: int) -> list[float]:
    decades = _decades(s.low, s.high)
    if decades > about:
        steps: tuple[int, ...] = (1,)
        every = math.ceil(decades / about)
    else:
        steps, every = ((1,) if decades >= about / 2 else (1, 2, 5)), 1
    first = math.floor(math.log10(s.low))
    last = math.ceil(math.log10(s.high))
    ticks = [m * 10.0**e for e in range(first, last + 1) if (e - first) % every == 0 for m in steps]
    found = [t for t in ticks if s.low * (1 - 1e-9) <= t <= s.high * (1 + 1e-9)]
    # A range too short for round values at these steps is close to linear.
    return found if len(found) >= 2 else _linear_ticks(s, max(2, about // 2))


def bottom_axis(
    s: Scale, top: float, bottom: float, label: str, text: Callable[[float], str]
) -> Html:
    """Return ticks, their texts and grid lines below a plot that reaches from `top` to `bottom`.

    There are fewer ticks where their texts would touch.
    """
    parts = []
    for value, words in readable_ticks(s, text):
        x = s(value)
        parts.append(tag("line", class_="grid", x1=x, x2=x, y1=top, y2=bottom))
        parts.append(tag("text", words, class_="tick", x=x, y=bottom + 16, text_anchor="middle"))
    middle = (s.start + s.stop) / 2
    parts.append(tag("text", label, class_="axis", x=middle, y=bottom + 36, text_anchor="middle"))
    return join(*parts)


def readable_ticks(
    s: Scale, text: Callable[[float], str], about: int = _TICKS
) -> list[tuple[float, str]]:
    """At most about `about` round values with their texts, which are apart on a horizontal axis."""
    for number in range(about, 1, -1):
        ticks = [(value, text(value)) for value in s.ticks(number)]
        if all(
            s(b) - s(a) >= (text_width(before) + text_width(after)) / 2 + _APART
            for (a, before), (b, after) in pairwise(ticks)
        ):
            break
    return ticks


def left_axis(s: Scale, left: float, right: float, label: str, text: list[str]) -> Html:
    """Return ticks, their texts and grid lines of a vertical axis at `left`."""
    parts = []
    for value, words in zip(s.ticks(), text, strict=True):
        y = s(value)
        parts.append(tag("line", class_="grid", x1=left, x2=right, y1=y, y2=y))
        parts.append(tag("text", words, class_="tick", x=left - 7, y=y + 4, text_anchor="end"))
    top = min(s.start, s.stop)
    parts.append(tag("text", label, class_="axis", x=4.0, y=top - 12))
    return join(*parts)
