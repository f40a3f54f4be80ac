"""Parallel coordinates: each configuration is a line through one axis per parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.report import units
from tilewright.report.charts.scale import scale
from tilewright.report.charts.svg import WIDTH, picture, shorten, text_width
from tilewright.report.pages.html import Html, points, tag

MOST_STRANDS = 1500
_FEW = 10  # up to this many different numbers are all written at the axis
_TOP = 34.0  # pixels above vertical axes, for their names
_END = 26.0  # below them, and above and below horizontal axes
_SIDE = 60.0  # left and right of vertical axes
_LEAST_GAP = 72.0  # between vertical axes; closer ones are drawn horizontally, one below the other
_LYING_GAP = 58.0
_LYING_SIDE = 12.0
_LYING_MARK = 14  # characters


@dataclass(frozen=True, slots=True)
class Axis:
    """One parameter: its values, one per configuration.

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
    """Return one line per configuration; the lower its objective, the stronger it is drawn.

    Configurations without a finite objective are failures, drawn thin in the colour of errors.
    Of more than `MOST_STRANDS` the best ones and every n-th of the rest are drawn; of a narrow
    picture a third as many. Axes that would be too close for their names are drawn horizontally,
    one below the other, and the picture is as high as they need.
    """
    gap = (width - 2 * _SIDE) / max(1, len(axes) - 1)
    lying = gap < _LEAST_GAP
    if lying:
        start, stop, gap = _LYING_SIDE, width - _LYING_SIDE, _LYING_GAP
        height = 2 * _END + gap * (len(axes) - 1)
    else:
        start, stop = height - _END, _TOP
    places = [_places(axis, start, stop) for axis in axes]
    ways = [
        [
            (place[i], _END + k * gap) if lying else (_SIDE + k * gap, place[i])
            for k, (place, _) in enumerate(places)
        ]
        for i in range(len(objective))
    ]
    most = MOST_STRANDS if width >= WIDTH else MOST_STRANDS // 3
    frames = []
    for k, (axis, (_, marks)) in enumerate(zip(axes, places, strict=True)):
        if lying:
            frames.append(_lying_frame(axis, _END + k * gap, start, stop, marks))
        else:
            free = gap if k < len(axes) - 1 else _SIDE
            frames.append(_frame(axis, _SIDE + k * gap, stop, start, free, marks))
    return picture(width, height, label, *_drawn_strands(ways, objective, most), *frames)


def _drawn_strands(
    ways: Sequence[Sequence[tuple[float, float]]], objective: Sequence[float | None], most: int
) -> list[Html]:
    """Return lines in the order in which they are drawn: the best last, on top of the others."""
    order = _strands(objective, most)
    ranks = {i: rank for rank, i in enumerate(i for i in order if _finite(objective[i]))}
    strands = []
    for i in reversed(order):
        if i in ranks:
            share = ranks[i] / max(1, len(ranks) - 1)
            strands.append(
                tag(
                    "polyline",
                    class_="strand c0 stroke",
                    points=points(*ways[i]),
                    stroke_opacity=round(0.9 * (1 - share) ** 8 + 0.05, 3),
                    stroke_width=2.2 if ranks[i] == 0 else None,
                )
            )
        else:
            way = points(*ways[i])
            strands.append(
                tag("polyline", class_="strand c3 stroke", points=way, stroke_opacity=0.15)
            )
    return strands


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _strands(objective: Sequence[float | None], most: int) -> list[int]:
    """Return configurations to draw, about `most`, best first, failures last."""
    order = sorted(
        range(len(objective)),
        key=lambda i: (not _finite(objective[i]), objective[i] if _finite(objective[i]) else 0.0),
    )
    if len(order) <= most:
        return order
    best, rest = order[: most // 3], order[most // 3 :]
    return best + rest[:: -(-len(rest) * 3 // (2 * most))]


def _places(axis: Axis, start: float, stop: float) -> tuple[list[float], list[tuple[float, str]]]:
    """Return where each value lies between the axis's ends, and the axis's marks."""
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in axis.values)
    if numbers and not axis.choices:
        log = axis.log and all(v > 0 for v in axis.values)
        s = scale(list(map(float, axis.values)), start, stop, log=log, margin=0.0)
        distinct = sorted(set(map(float, axis.values)))
        shown = distinct if len(distinct) <= _FEW else s.ticks(5)
        ticks = [(s(v), units.digits(v)) for v in shown]
        return [s(float(v)) for v in axis.values], ticks
    choices = list(axis.choices) or list(dict.fromkeys(axis.values))
    step = (stop - start) / max(1, len(choices) - 1)
    at = {choice: start + i * step for i, choice in enumerate(choices)}
    if len(choices) == 1:
        at = {choices[0]: (start + stop) / 2}
    every = -(-len(choices) // 24)
    marks = [(y, str(c)) for i, (c, y) in enumerate(at.items()) if i % every == 0]
    return [at[v] for v in axis.values], marks


def _frame(
    axis: Axis, x: float, top: float, bottom: float, free: float, marks: list[tuple[float, str]]
) -> Html:
    """Return a vertical axis with its name above it and its marks in `free` pixels to the right."""
    # Names have at least the space between axes; those of the outer axes end at the picture's edge.
    room = int(min(max(free, _LEAST_GAP), 2 * _SIDE) / text_width("x"))
    parts = [
        tag("line", class_="base", x1=x, x2=x, y1=top, y2=bottom),
        tag(
            "text",
            tag("title", axis.name),
            shorten(axis.name, room),
            class_="groupname",
            x=x,
            y=top - 16,
            text_anchor="middle",
        ),
    ]
    most = int((free - 5) / text_width("x"))
    parts += [
        tag("text", shorten(words, most), class_="tick halo", x=x + 5, y=y + 4)
        for y, words in marks
    ]
    return tag("g", *parts)


def _lying_frame(
    axis: Axis, y: float, left: float, right: float, marks: list[tuple[float, str]]
) -> Html:
    """Return a horizontal axis with its name above it, and below it the marks that fit."""
    room = int((right - left) / text_width("x"))
    name = (tag("title", axis.name), shorten(axis.name, room))
    parts = [
        tag("line", class_="base", x1=left, x2=right, y1=y, y2=y),
        tag("text", *name, class_="groupname halo", x=left, y=y - 10),
    ]
    taken = -math.inf
    for x, mark in sorted(marks):
        words = shorten(mark, _LYING_MARK)
        half = text_width(words) / 2
        # Not beyond the ends of the axis.
        middle = min(max(x, left + half), right - half)
        if middle - half >= taken + 4:
            parts.append(
                tag("text", words, class_="tick halo", x=middle, y=y + 16, text_anchor="middle")
            )
            taken = middle + half
    return tag("g", *parts)
