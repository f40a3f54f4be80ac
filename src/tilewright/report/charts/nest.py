"""Draw a loop nest, with the memory in which each Func is stored."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.report import units
from tilewright.report.model import NestLine
from tilewright.report.pages.html import Html, join, tag


def nest_html(lines: Sequence[NestLine]) -> Html:
    """Draw the nest: one line per loop, allocation or computation, in the group's colour."""
    rows = []
    for line in lines:
        style = f"margin-left: {2 * line.depth}ch"
        if line.group is not None:
            style += f"; border-left-color: var(--c{line.group % 10})"
        rows.append(tag("div", _line(line), style=style))
    return tag("div", *rows, class_="nest")


def _line(line: NestLine) -> Html:
    if line.kind == "for":
        extent = None if line.extent is None else tag("span", f" in {line.extent}", class_="word")
        mapping = line.mapping.replace("_", " ")
        shown = None if mapping in ("", "serial") else tag("span", mapping, class_="tag")
        return join(tag("span", "for ", class_="word"), line.name, extent, shown)
    if line.kind == "allocate":
        size = None if line.bytes is None else tag("span", units.size(line.bytes), class_="tag")
        memory = line.memory.replace("_", " ")
        shown = tag("span", memory, class_="tag memory") if memory else None
        return join(tag("span", "allocate ", class_="word"), line.name, shown, size)
    if line.kind == "compute":
        return join(line.name, tag("span", " = …", class_="word"), _note(line.mapping))
    return join(
        tag("span", f"{line.kind} ", class_="word"), tag("b", line.name), _note(line.mapping)
    )


def _note(words: str) -> Html | None:
    return tag("span", words, class_="tag") if words else None
