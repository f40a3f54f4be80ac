"""A matrix as cells of deeper and deeper colour."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.report import units
from tilewright.report.charts.svg import WIDTH, picture, shorten, text_width
from tilewright.report.pages.html import Html, tag

_ROW = 26.0
_LABEL = 24  # characters
_SHORT_LABEL = 12  # of a narrow map
_CELL = 64.0  # pixels, the most
_LEAST_CELL = 40.0  # of a narrow map, with room for most values
_GAP = 14.0  # between the parts of a narrow map


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
    """Draw one cell per value: pale for the least, deep for the most; None and NaN are empty.

    `text` writes a value into its cell where there is room; hovering always shows it. A narrow
    map has its columns in parts, one below the other.
    """
    known = [v for line in values for v in line if v is not None and _drawable(v, log)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    most = _LABEL if width >= WIDTH else _SHORT_LABEL
    left = 12 + max([text_width(shorten(r, most)) for r in rows], default=0.0)
    least = 0.0 if width >= WIDTH else _LEAST_CELL
    fitting = int((width - left) / least) if least else len(columns)
    count = max(1, min(len(columns), fitting))
    cell = min(_CELL, (width - left) / count)

    parts: list[Html] = []
    top, drawn = 0.0, left
    for first in range(0, max(1, len(columns)), count):
        names = [shorten(name, most) for name in columns[first : first + count]]
        deepest = max(map(len, names), default=0)
        upright = text_width("x" * deepest) + 6 <= cell
        top += 22.0 if upright else 14 + deepest * 5.2
        parts += [
            _column_name(name, left + (j + 0.5) * cell, top - 6, upright)
            for j, name in enumerate(names)
        ]
        for name, line in zip(rows, values, strict=True):
            middle = top + _ROW / 2 + 4
            parts.append(tag("text", shorten(name, most), x=left - 8, y=middle, text_anchor="end"))
            for j, value in enumerate(line[first : first + count]):
                if value is not None and _drawable(value, log):
                    words, share = text(value), _share(value, low, high, log)
                    hover = f"{name}, {columns[first + j]}: {words}"
                    parts += _cell(left + j * cell, top, cell, words, hover, share)
            top += _ROW
        lean = 0.0 if upright else deepest * 4.4
        drawn = max(drawn, left + cell * len(names) + lean)
        top += _GAP
    return picture(min(width, drawn), top - _GAP + 4, label, *parts)


def _drawable(value: float, log: bool) -> bool:
    """Return whether a value has a colour."""
    return math.isfinite(value) and (value > 0 or not log)


def _column_name(name: str, x: float, y: float, upright: bool) -> Html:
    """Return a column's heading: above the middle of its cells, or slanted where it is too long."""
    turn = None if upright else f"rotate(-50 {x:.1f} {y:.1f})"
    anchor = "middle" if upright else "start"
    return tag("text", name, x=x, y=y, text_anchor=anchor, transform=turn)


def _cell(x: float, y: float, width: float, words: str, hover: str, share: float) -> list[Html]:
    """Return a cell with its upper left corner at (x, y), and its words where they fit in."""
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
