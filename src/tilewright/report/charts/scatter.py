"""Points over two axes, such as predicted against measured times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.report import units
from tilewright.report.charts.scale import Scale, bottom_axis, left_axis, scale
from tilewright.report.charts.svg import WIDTH, colour, legend, picture
from tilewright.report.pages.html import Html, tag

MOST_POINTS = 4000


@dataclass(frozen=True, slots=True)
class Points:
    """Points of one kind; `texts` are shown on hovering, one per point."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    texts: Sequence[str] = ()


def scatter_plot(
    kinds: Sequence[Points],
    *,
    label: str,
    x_label: str = "",
    y_label: str = "",
    log_x: bool = False,
    log_y: bool = False,
    diagonal: bool = False,
    level: float | None = None,
    x_text: Callable[[float], str] = units.digits,
    y_text: Callable[[float], str] = units.digits,
    width: float = WIDTH,
    height: float = 400.0,
) -> Html:
    """Return points over common axes, with a legend above if there are several kinds.

    `diagonal` gives both axes one range and draws where they are equal; `level` draws a
    horizontal line. Of more than `MOST_POINTS` points of a kind every n-th is drawn, of a narrow
    picture a quarter as many.
    """
    left, right, bottom = 72.0, width - 16, height - 46
    marks, used = legend([k.label for k in kinds] if len(kinds) > 1 else [], left, 0, right)
    top = used + 24
    most = MOST_POINTS if width >= WIDTH else MOST_POINTS // 4
    kept = [_drawable(kind, log_x, log_y, most) for kind in kinds]
    all_x = [x for kind in kept for x, _, _ in kind]
    all_y = [y for kind in kept for _, y, _ in kind] + ([] if level is None else [level])
    if diagonal:
        all_x = all_y = all_x + all_y
    xs = scale(all_x, left, right, log=log_x)
    ys = scale(all_y, bottom, top, log=log_y)
    return picture(
        width,
        height,
        label,
        marks,
        bottom_axis(xs, top, bottom, x_label, x_text),
        left_axis(ys, left, right, y_label, [y_text(v) for v in ys.ticks()]),
        *_guides(xs, ys, diagonal, level),
        *(_dots(kind, xs, ys, i) for i, kind in enumerate(kept)),
    )


def _guides(xs: Scale, ys: Scale, diagonal: bool, level: float | None) -> list[Html]:
    """Return the line on which both axes are equal, and the horizontal line at `level`."""
    lines = []
    if diagonal:
        lines.append((xs(xs.low), xs(xs.high), ys(ys.low), ys(ys.high)))
    if level is not None:
        lines.append((xs.start, xs.stop, ys(level), ys(level)))
    return [tag("line", class_="guide", x1=a, x2=b, y1=c, y2=d) for a, b, c, d in lines]


def _dots(kind: Sequence[tuple[float, float, str]], xs: Scale, ys: Scale, number: int) -> Html:
    """Return the points of one kind, in the colour of its number."""
    circles = (
        tag("circle", tag("title", text) if text else None, cx=xs(x), cy=ys(y), r=3)
        for x, y, text in kind
    )
    return tag("g", *circles, class_=f"{colour(number)} fill", fill_opacity=0.65)


def _drawable(kind: Points, log_x: bool, log_y: bool, most: int) -> list[tuple[float, float, str]]:
    """Return the points that can be drawn, at most `most`, with their texts."""
    texts = kind.texts or [""] * len(kind.x)
    kept = [
        (x, y, text)
        for x, y, text in zip(kind.x, kind.y, texts, strict=True)
        if math.isfinite(x) and math.isfinite(y) and (x > 0 or not log_x) and (y > 0 or not log_y)
    ]
    return kept[:: max(1, -(-len(kept) // most))]
