"""Parts that all pictures share: the frame, colours by number, legends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.report.pages.html import Html, join, tag

WIDTH = 880.0
# The width between the page's margins on a telephone of 400 pixels.
NARROW = 356.0
COLOURS = 10

# Text is 12 pixels high; a character of the interface font has at most about this width.
CHARACTER = 6.7


def picture(width: float, height: float, label: str, *children: Any) -> Html:
    """Return an SVG that keeps its size where there is room and shrinks where there is not.

    `label` is what a screen reader says.
    """
    return tag(
        "svg",
        tag("title", label),
        *children,
        class_="picture",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        role="img",
        aria_label=label,
        xmlns="http://www.w3.org/2000/svg",
    )


def reflowing(draw: Callable[[float], Html]) -> Html:
    """Draw a picture twice, for wide and narrow screens, so that its letters keep their size.

    The style sheet shows the one that suits; `draw` takes a width in pixels.
    """
    wide = tag("div", draw(WIDTH), class_="wide")
    narrow = tag("div", draw(NARROW), class_="narrow")
    return join(wide, narrow)


def colour(index: int) -> str:
    """Return the CSS class of a colour by number; numbers beyond the palette start over."""
    return f"c{index % COLOURS}"


def shorten(text: str, most: int) -> str:
    """Shorten a text to at most `most` characters by leaving out its middle.

    >>> shorten("a_rather_long_name", 9)
    'a_ra…name'
    """
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


def text_width(text: str) -> float:
    """Return the approximate width of a text in pixels."""
    return CHARACTER * len(text)


def legend(labels: Sequence[str], left: float, top: float, right: float) -> tuple[Html, float]:
    """Coloured marks with labels in rows from `left` to `right`; and how high they are."""
    parts, x, y = [], left, top
    for i, label in enumerate(labels):
        width = 22 + text_width(label)
        if x + width > right and x > left:
            x, y = left, y + 20
        parts.append(tag("rect", class_=f"{colour(i)} fill", x=x, y=y, width=12, height=12, rx=2))
        parts.append(tag("text", label, class_="legend", x=x + 17, y=y + 10))
        x += width + 14
    return join(*parts), (y + 20 - top if labels else 0.0)
