"""Parallel coordinates: configurations as strands through one axis a parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.report import units
from tilewright.report.charts.scale import scale
from tilewright.report.charts.svg import WIDTH, picture, shorten
from tilewright.report.pages.html import Html, points, tag

MOST_STRANDS = 1500
_FEW = 10  # up to this many different numbers are all written at the axis


@dataclass(frozen=True, slots=True)
class Axis:
    """One parameter: its values, one a configuration.

    Numbers are placed along the axis (by their logarithm where `log`), anything else at evenly
    spaced places in the order of `choices`, or of first appearance.
    """

    name: str
    values: Sequence[Any]
    log: bool = False
    choices: Sequence[Any] = ()


def parallel_coordinates(
    axes: Sequence[Axis],
    objective: Sequence[float | None],
    *,
    label: str,
    width: float = WIDTH,
    height: float = 340.0,
) -> Html:
    """A strand a configuration; the lower its objective, the stronger it is drawn.

    Configurations without a finite objective are failures, drawn thin in the colour of errors.
    Of more than `MOST_STRANDS` the best ones and every n-th of the rest are drawn.
    """
    top, bottom = 34.0, height - 26
    gap = (width - 120) / max(1, len(axes) - 1)
    places = [_places(axis, bottom, top) for axis in axes]
    order = _strands(objective)
    ranks = {i: rank for rank, i in enumerate(i for i in order if _finite(objective[i]))}
    strands = []
    # The best are drawn last, on top of the others.
    for i in reversed(order):
        way = [(60 + k * gap, place[i]) for k, (place, _) in enumerate(places)]
        if i in ranks:
            share = ranks[i] / max(1, len(ranks) - 1)
            strands.append(
                tag(
                    "polyline",
                    class_="strand c0 stroke",
                    points=points(*way),
                    stroke_opacity=round(0.9 * (1 - share) ** 8 + 0.05, 3),
                    stroke_width=2.2 if ranks[i] == 0 else None,
                )
            )
        else:
            strands.append(
                tag("polyline", class_="strand c3 stroke", points=points(*way), stroke_opacity=0.15)
            )
    frames = [
        _frame(axis, 60 + k * gap, top, bottom, gap, marks)
        for k, (axis, (_, marks)) in enumerate(zip(axes, places, strict=True))
    ]
    return picture(width, height, label, *strands, *frames)


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _strands(objective: Sequence[float | None]) -> list[int]:
    """Configurations to draw, best first, failures last."""
    order = sorted(
        range(len(objective)),
        key=lambda i: (not _finite(objective[i]), objective[i] if _finite(objective[i]) else 0.0),
    )
    if len(order) <= MOST_STRANDS:
        return order
    best, rest = order[: MOST_STRANDS // 3], order[MOST_STRANDS // 3 :]
    return best + rest[:: -(-len(rest) * 3 // (2 * MOST_STRANDS))]


def _places(axis: Axis, bottom: float, top: float) -> tuple[list[float], list[tuple[float, str]]]:
    """Where each value lies, and the axis's marks."""
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in axis.values)
    if numbers and not axis.choices:
        log = axis.log and all(v > 0 for v in axis.values)
        s = scale(list(map(float, axis.values)), bottom, top, log=log, margin=0.0)
        distinct = sorted(set(map(float, axis.values)))
        shown = distinct if len(distinct) <= _FEW else s.ticks(5)
        ticks = [(s(v), units.digits(v)) for v in shown]
        return [s(float(v)) for v in axis.values], ticks
    choices = list(axis.choices) or list(dict.fromkeys(axis.values))
    step = (bottom - top) / max(1, len(choices) - 1)
    at = {choice: bottom - i * step for i, choice in enumerate(choices)}
    if len(choices) == 1:
        at = {choices[0]: (bottom + top) / 2}
    every = -(-len(choices) // 24)
    marks = [(y, str(c)) for i, (c, y) in enumerate(at.items()) if i % every == 0]
    return [at[v] for v in axis.values], marks


def _frame(
    axis: Axis, x: float, top: float, bottom: float, gap: float, marks: list[tuple[float, str]]
) -> Html:
    room = max(3, int(gap / 7.2))
    parts = [
        tag("line", class_="base", x1=x, x2=x, y1=top, y2=bottom),
        tag(
            "text",
            tag("title", axis.name),
            shorten(axis.name, max(room, 6)),
            class_="groupname",
            x=x,
            y=top - 16,
            text_anchor="middle",
        ),
    ]
    parts += [
        tag("text", shorten(words, max(room - 2, 3)), class_="tick halo", x=x + 5, y=y + 4)
        for y, words in marks
    ]
    return tag("g", *parts)
