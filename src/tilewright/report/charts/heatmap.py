"""A matrix as cells of deeper and deeper colour."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.report import units
from tilewright.report.charts.svg import WIDTH, picture, shorten, text_width
from tilewright.report.pages.html import Html, tag

_ROW = 26.0
_LABEL = 24  # characters


def heat_map(
    values: Sequence[Sequence[float | None]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    label: str,
    text: Callable[[float], str] = units.digits,
    log: bool = False,
    width: float = WIDTH,
) -> Html:
    """One cell a value: pale for the least, deep for the most; None and not-a-number are empty.

    `text` writes a value into its cell where there is room; hovering always shows it.
    """
    known = [v for line in values for v in line if v is not None and _drawable(v, log)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    left = 12 + max([text_width(shorten(r, _LABEL)) for r in rows], default=0.0)
    cell = min(64.0, (width - left) / max(1, len(columns)))
    deepest = max([len(shorten(c, _LABEL)) for c in columns], default=0)
    upright = deepest * 6.7 + 6 <= cell
    top = 22.0 if upright else 14 + deepest * 5.2

    parts = [
        _column_name(name, left + (j + 0.5) * cell, top - 6, upright)
        for j, name in enumerate(columns)
    ]
    for i, (name, line) in enumerate(zip(rows, values, strict=True)):
        y = top + i * _ROW
        parts.append(
            tag("text", shorten(name, _LABEL), x=left - 8, y=y + _ROW / 2 + 4, text_anchor="end")
        )
        for j, value in enumerate(line):
            if value is not None and _drawable(value, log):
                words, share = text(value), _share(value, low, high, log)
                hover = f"{name}, {columns[j]}: {words}"
                parts += _cell(left + j * cell, y, cell, words, hover, share)
    lean = 0.0 if upright else deepest * 4.4
    drawn = min(width, left + cell * len(columns) + lean)
    return picture(drawn, top + _ROW * len(rows) + 4, label, *parts)


def _drawable(value: float, log: bool) -> bool:
    """Whether a value has a colour."""
    return math.isfinite(value) and (value > 0 or not log)


def _column_name(name: str, x: float, y: float, upright: bool) -> Html:
    """A column's heading: above the middle of its cells, or slanted where it is too long."""
    turn = None if upright else f"rotate(-50 {x:.1f} {y:.1f})"
    anchor = "middle" if upright else "start"
    return tag("text", shorten(name, _LABEL), x=x, y=y, text_anchor=anchor, transform=turn)


def _cell(x: float, y: float, width: float, words: str, hover: str, share: float) -> list[Html]:
    """A cell with its upper left corner at (x, y), and its words where they fit in."""
    box = tag(
        "rect",
        tag("title", hover),
        class_="heat",
        fill_opacity=0.06 + 0.74 * share,
        x=x + 1,
        y=y + 1,
        width=max(1.0, width - 2),
        height=_ROW - 2,
        rx=2,
    )
    if text_width(words) + 4 > width:
        return [box]
    return [box, tag("text", words, x=x + width / 2, y=y + _ROW / 2 + 4, text_anchor="middle")]


def _share(value: float, low: float, high: float, log: bool) -> float:
    if low == high:
        return 0.5
    if log:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)
