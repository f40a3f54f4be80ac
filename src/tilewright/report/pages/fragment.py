"""A small HTML table for notebooks, which have no style sheet of ours."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.report.pages.html import tag
from tilewright.report.pages.page import html_table
from tilewright.report.table import Column, table


def fragment(
    title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()
) -> str:
    """Return HTML of a heading, a table, and notes below it, each a paragraph."""
    parts = [tag("strong", title)]
    if rows:
        parts.append(html_table(table(columns, rows)))
    return str(tag("div", *parts, *(tag("p", note) for note in notes)))
