"""Bars with intervals; failures are shown in place of a bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.report import units
from tilewright.report.charts.scale import Scale
from tilewright.report.charts.svg import WIDTH, picture, shorten, text_width
from tilewright.report.model import Bar
from tilewright.report.pages.html import Html, join, points, tag

_ROW = 30.0
_LABEL = 30  # characters
_ABOVE = 16.0  # height of a label above its bar, in a narrow chart


def bar_chart(
    bars: Sequence[Bar],
    *,
    label: str,
    text: Callable[[float], str] = units.seconds,
    cut: float | None = 8.0,
    width: float = WIDTH,
) -> Html:
    """Return horizontal bars from zero, one below the other, in the order given.

    `text` writes a value. Bars more than `cut` times as long as the shortest of those that are
    not zero are cut off, with a gap to show it (None: never), so that one slow schedule does not
    flatten the others. A bar whose status is not ``ok`` shows the status and the message.
    """
    above = 0.0 if width >= WIDTH else _ABOVE
    left = 16 + max([text_width(shorten(b.label, _LABEL)) for b in bars], default=0.0)
    right = width - 96
    longest = _longest(bars, cut)
    scale = Scale(0.0, longest or 1.0, 1.0 if above else left, right)
    rows = [_row(bar, i, scale, text, longest, above) for i, bar in enumerate(bars)]
    height = (_ROW + above) * len(bars) + 8
    base = tag("line", class_="base", x1=scale.start, x2=scale.start, y1=2, y2=height - 4)
    return picture(width, height, label, *rows, base)


def _longest(bars: Sequence[Bar], cut: float | None) -> float:
    """Return the value at which the widest bar ends."""
    values = [b.value for b in bars if b.ok and b.value is not None]
    ends = [max(b.value, b.high or 0.0) for b in bars if b.ok and b.value is not None]
    positive = [v for v in values if v > 0]
    if not positive:
        return 0.0
    if cut is None:
        return max(ends)
    limit = cut * min(positive)
    return max(ends) if max(ends) <= limit else limit


def _row(
    bar: Bar, i: int, scale: Scale, text: Callable[[float], str], longest: float, above: float
) -> Html:
    y = 4 + above + i * (_ROW + above)
    middle = y + _ROW / 2 - 3
    weight = "600" if bar.ours else None
    name = tag(
        "text",
        tag("title", bar.label),
        shorten(bar.label, _LABEL),
        x=scale.start if above else scale.start - 10,
        y=y - 2 if above else middle + 4,
        text_anchor=None if above else "end",
        font_weight=weight,
    )
    if not bar.ok or bar.value is None:
        return join(name, _failure(bar, scale, middle))
    end = scale(bar.value)
    body = tag(
        "rect",
        tag("title", f"{bar.label}: {text(bar.value)}"),
        class_="accent" if bar.ours else "muted",
        x=scale.start,
        y=y + 2,
        width=max(1.0, end - scale.start),
        height=_ROW - 12,
        rx=2,
    )
    parts = [name, body]
    if bar.value > longest:
        parts.append(_cut(end - 26, y))
    elif bar.low is not None and bar.high is not None:
        low, high = scale(bar.low), scale(bar.high)
        whisker = f"M{low:.1f} {middle - 4:.1f}v8M{low:.1f} {middle:.1f}H{high:.1f}m0 -4v8"
        parts.append(tag("path", class_="whisker", d=whisker))
        end = max(end, high)
    value = tag(
        "text", text(bar.value), class_="value", x=end + 8, y=middle + 4, font_weight=weight
    )
    return join(*parts, value)


def _failure(bar: Bar, scale: Scale, middle: float) -> Html:
    """Return the status and the message instead of a bar."""
    words = bar.status.replace("_", " ")
    if bar.message:
        words = f"{words}: {bar.message}"
    room = int((scale.stop + 96 - scale.start) / 6.7)
    return tag(
        "text",
        tag("title", words),
        shorten(words, max(12, room)),
        class_="failed",
        x=scale.start + 8,
        y=middle + 4,
    )


def _cut(x: float, y: float) -> Html:
    """Return a slanted gap through a bar."""
    shape = points((x + 4, y), (x + 11, y), (x + 5, y + _ROW - 8), (x - 2, y + _ROW - 8))
    return tag("polygon", class_="cut", points=shape)
