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
    known = [
        v
        for line in values
        for v in line
        if v is not None and math.isfinite(v) and (v > 0 or not log)
    ]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    left = 12 + max([text_width(shorten(r, _LABEL)) for r in rows], default=0.0)
    cell = min(64.0, (width - left) / max(1, len(columns)))
    deepest = max([len(shorten(c, _LABEL)) for c in columns], default=0)
    upright = deepest * 6.7 + 6 <= cell
    top = 22.0 if upright else 14 + deepest * 5.2

    parts = []
    for j, name in enumerate(columns):
        x = left + (j + 0.5) * cell
        turn = None if upright else f"rotate(-50 {x:.1f} {top - 6:.1f})"
        anchor = "middle" if upright else "start"
        parts.append(
            tag("text", shorten(name, _LABEL), x=x, y=top - 6, text_anchor=anchor, transform=turn)
        )
    for i, (name, line) in enumerate(zip(rows, values, strict=True)):
        y = top + i * _ROW
        parts.append(
            tag("text", shorten(name, _LABEL), x=left - 8, y=y + _ROW / 2 + 4, text_anchor="end")
        )
        for j, value in enumerate(line):
            if value is None or not math.isfinite(value) or (log and value <= 0):
                continue
            words = text(value)
            share = _share(value, low, high, log)
            x = left + j * cell
            parts.append(
                tag(
                    "rect",
                    tag("title", f"{name}, {columns[j]}: {words}"),
                    class_="heat",
                    fill_opacity=0.06 + 0.74 * share,
                    x=x + 1,
                    y=y + 1,
                    width=max(1.0, cell - 2),
                    height=_ROW - 2,
                    rx=2,
                )
            )
            if text_width(words) + 4 <= cell:
                parts.append(
                    tag("text", words, x=x + cell / 2, y=y + _ROW / 2 + 4, text_anchor="middle")
                )
    lean = 0.0 if upright else deepest * 4.4
    drawn = min(width, left + cell * len(columns) + lean)
    return picture(drawn, top + _ROW * len(rows) + 4, label, *parts)


def _share(value: float, low: float, high: float, log: bool) -> float:
    if low == high:
        return 0.5
    if log:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)
