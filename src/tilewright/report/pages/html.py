"""HTML and SVG as text; anything that is not marked as markup is escaped."""

from __future__ import annotations

import html
import math
from typing import Any


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


_VOID = frozenset({"br", "hr", "img", "meta", "link", "input"})


def escape(value: Any) -> Html:
    """Return markup unchanged, anything else as escaped text.

    >>> escape("a < b")
    'a &lt; b'
    """
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def join(*parts: Any) -> Html:
    """Return several pieces one after another; None is nothing."""
    return Html("".join(escape(part) for part in parts if part is not None))


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """Return an element.

    An attribute's trailing underscore is dropped and its other underscores are hyphens; one that
    is None is left out. Numbers are written with two decimals at most.

    >>> tag("text", "a & b", class_="label", x=1.0, font_size=None)
    '<text class="label" x="1">a &amp; b</text>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def _attribute(value: Any) -> str:
    return number(value) if isinstance(value, float) else escape(value)


def number(value: float) -> str:
    """Return a coordinate in few characters.

    >>> number(3.14159), number(2.0)
    ('3.14', '2')
    """
    if not math.isfinite(value):
        raise ValueError(f"{value} cannot be drawn")
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def points(*xy: tuple[float, float]) -> str:
    """Return coordinates of a polyline."""
    return " ".join(f"{number(x)},{number(y)}" for x, y in xy)
