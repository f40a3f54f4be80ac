"""A plan: which task runs where and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.report import units
from tilewright.report.charts.scale import Scale, bottom_axis
from tilewright.report.charts.svg import WIDTH, colour, picture, shorten, text_width
from tilewright.report.pages.html import Html, tag

_ROW = 34.0
_LABEL = 24  # characters
_SHORT_LABEL = 12  # of a narrow chart


@dataclass(frozen=True, slots=True)
class GanttTask:
    """A task on a device from `start` to `end`; tasks of one `kind` share a colour."""

    name: str
    device: str
    start: float
    end: float
    kind: int = 0


def gantt_chart(
    tasks: Sequence[GanttTask],
    devices: Sequence[str],
    *,
    label: str,
    x_label: str = "time",
    text: Callable[[float], str] = units.seconds,
    width: float = WIDTH,
) -> Html:
    """Return a row per device, a box per task; names are written where there is room."""
    most = _LABEL if width >= WIDTH else _SHORT_LABEL
    left = 14 + max([text_width(shorten(d, most)) for d in devices], default=0.0)
    right, top = width - 20, 6.0
    bottom = top + _ROW * len(devices)
    xs = Scale(0.0, max([t.end for t in tasks], default=1.0) or 1.0, left, right)
    parts = []
    for i, device in enumerate(devices):
        y = top + i * _ROW
        name = (tag("title", device), shorten(device, most))
        parts.append(tag("text", *name, x=left - 8, y=y + _ROW / 2 + 4, text_anchor="end"))
    for task in tasks:
        y = top + devices.index(task.device) * _ROW
        x, end = xs(task.start), xs(task.end)
        hint = f"{task.name}: {text(task.start)} to {text(task.end)}"
        parts.append(
            tag(
                "rect",
                tag("title", hint),
                class_=f"{colour(task.kind)} tint",
                x=x,
                y=y + 4,
                width=max(1.0, end - x),
                height=_ROW - 8,
                rx=2,
            )
        )
        if text_width(task.name) + 6 <= end - x:
            parts.append(
                tag("text", task.name, x=(x + end) / 2, y=y + _ROW / 2 + 4, text_anchor="middle")
            )
    axis = bottom_axis(xs, top, bottom, x_label, text)
    return picture(width, bottom + 44, label, axis, *parts)
