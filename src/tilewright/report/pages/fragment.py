"""A small HTML table for notebooks, which lack the pages' style sheet, and pictures in a frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.report.pages.html import Html, tag
from tilewright.report.pages.page import Section, document, html_table, section_html
from tilewright.report.table import Column, table

_FRAME_HEIGHT = 560  # pixels


def fragment(
    title: str,
    heads: Iterable[Column] | str,
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
    pictures: Sequence[Section] = (),
) -> str:
    """Return HTML of a heading, a table, notes, each a paragraph, and sections of a page.

    The columns are given as to `tilewright.report.table.table`. The sections are
    in a frame with the pages' style sheet.
    """
    parts = [tag("strong", title)]
    if rows:
        parts.append(html_table(table(heads, rows)))
    parts += [tag("p", note) for note in notes]
    if pictures:
        parts.append(_frame(title, pictures))
    return str(tag("div", *parts))


def _frame(title: str, sections: Sequence[Section]) -> Html:
    """Return a page within the page, whose style sheet leaves the rest alone."""
    return tag(
        "iframe",
        srcdoc=document(title, *map(section_html, sections)),
        title=title,
        style=f"width: 100%; height: {_FRAME_HEIGHT}px; border: 0",
    )
