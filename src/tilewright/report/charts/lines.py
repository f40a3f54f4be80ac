"""Lines with bands around them, such as best-so-far curves over many seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.report import units
from tilewright.report.charts.scale import Scale, bottom_axis, left_axis, scale
from tilewright.report.charts.svg import WIDTH, colour, legend, picture
from tilewright.report.pages.html import Html, points, tag


@dataclass(frozen=True, slots=True)
class Line:
    """A line through (x, y), with a band from `low` to `high` where these are given.

    A y that is not finite interrupts the line. `steps` keeps a value until the next x, as a
    best-so-far does.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    steps: bool = False


def line_chart(
    lines: Sequence[Line],
    *,
    label: str,
    x_label: str = "",
    y_label: str = "",
    log_x: bool = False,
    log_y: bool = False,
    zero: bool = False,
    x_text: Callable[[float], str] = units.digits,
    y_text: Callable[[float], str] = units.digits,
    width: float = WIDTH,
    height: float = 320.0,
) -> Html:
    """Return lines over common axes, with a legend above if there are several.

    `x_text` and `y_text` write the values at the ticks; `zero` lets the vertical axis start
    at zero. On a logarithmic axis values that are not positive are left out.
    """
    left, right, bottom = 72.0, width - 16, height - 46
    marks, used = legend([line.label for line in lines] if len(lines) > 1 else [], left, 0, right)
    top = used + 24
    xs = scale([v for line in lines for v in line.x], left, right, log=log_x, margin=0.02)
    values = [v for line in lines for part in (line.y, line.low, line.high) for v in part]
    ys = scale(values, bottom, top, log=log_y, zero=zero)
    drawn = [_draw(line, i, xs, ys) for i, line in enumerate(lines)]
    return picture(
        width,
        height,
        label,
        marks,
        bottom_axis(xs, top, bottom, x_label, x_text),
        left_axis(ys, left, right, y_label, [y_text(v) for v in ys.ticks()]),
        *drawn,
    )


def _draw(line: Line, index: int, xs: Scale, ys: Scale) -> Html:
    parts = []
    if line.low and line.high:
        upper = _runs(line.x, line.high, xs, ys, line.steps)
        lower = _runs(line.x, line.low, xs, ys, line.steps)
        parts += [
            tag("polygon", class_=f"{colour(index)} fill band", points=points(*up, *reversed(low)))
            for up, low in zip(upper, lower, strict=False)
        ]
    for run in _runs(line.x, line.y, xs, ys, line.steps):
        if len(run) == 1:
            parts.append(
                tag("circle", class_=f"{colour(index)} fill", cx=run[0][0], cy=run[0][1], r=3)
            )
        else:
            parts.append(
                tag("polyline", class_=f"{colour(index)} stroke curve", points=points(*run))
            )
    return tag("g", tag("title", line.label), *parts)


def _runs(
    x: Sequence[float], y: Sequence[float], xs: Scale, ys: Scale, steps: bool
) -> list[list[tuple[float, float]]]:
    """Return stretches of points that can be drawn."""
    runs: list[list[tuple[float, float]]] = [[]]
    for a, b in zip(x, y, strict=True):
        drawable = (
            math.isfinite(a)
            and math.isfinite(b)
            and (a > 0 or not xs.log)
            and (b > 0 or not ys.log)
        )
        if not drawable:
            if runs[-1]:
                runs.append([])
            continue
        here = (xs(a), ys(b))
        if steps and runs[-1]:
            runs[-1].append((here[0], runs[-1][-1][1]))
        runs[-1].append(here)
    return [run for run in runs if run]
