"""A self-contained page, made of sections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tilewright.report.pages.html import Html, escape, join, tag
from tilewright.report.pages.style import STYLE
from tilewright.report.standing import Standing
from tilewright.report.table import Column, Table, fact_table

# Columns of a table that fits on a telephone of 400 pixels.
NARROW_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and its content; `note` is a line in small print."""

    title: str
    content: Html
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A key figure; `tone` is ``good``, ``bad`` or empty."""

    value: str
    label: str
    tone: str = ""


def html_page(
    title: str,
    sections: Iterable[Section],
    *,
    subtitle: str = "",
    figures: Sequence[Figure] = (),
    links: Mapping[str, str] = MappingProxyType({}),
    links_key: str = "",
    facts: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the whole page as text, to be written to an ``.html`` file in UTF-8.

    Args:
        title: the heading, and the browser's title.
        sections: the content.
        subtitle: a line below the heading.
        figures: key figures, above the sections.
        links: addresses by link text, shown below the subtitle.
        links_key: a key that marks the place of the links, so that `with_links` can change them.
        facts: how the page was made, by name: the last section.
    """
    header = [tag("h1", title)]
    if subtitle:
        header.append(tag("p", subtitle, class_="soft"))
    header.append(_links(links, links_key) if links_key else _link_lines(links))
    parts = [*sections]
    if facts:
        parts.append(Section("How this was made", html_table(fact_table(facts))))
    return document(title, tag("header", *header), _figures(figures), *map(section_html, parts))


def with_links(page: str, links_key: str, links: Mapping[str, str]) -> str | None:
    """Return a page that `html_page` made with this `links_key`, with other links.

    Args:
        page: the text of the page.
        links_key: the key of the place of the links.
        links: addresses by link text.

    Returns:
        The new page; None if `page` has no such place.
    """
    begin = _links({}, links_key).removesuffix(_LINKS_END)
    before, found, rest = page.partition(begin)
    _, end, after = rest.partition(_LINKS_END)
    return f"{before}{_links(links, links_key)}{after}" if found and end else None


_LINKS_END = "</nav>"


def _links(links: Mapping[str, str], links_key: str) -> Html:
    return tag("nav", _link_lines(links), data_links=links_key)


def _link_lines(links: Mapping[str, str]) -> Html:
    return join(*(tag("p", tag("a", words, href=address)) for words, address in links.items()))


def document(title: str, *content: Html | None) -> str:
    """Return content as a page with the style sheet, as text."""
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content="Tilewright"),
        tag("title", title),
        tag("style", Html(STYLE)),
    )
    html = tag("html", tag("head", head), tag("body", tag("main", *content)), lang="en")
    return f"<!doctype html>\n{html}\n"


def section_html(section: Section) -> Html:
    """Return a section with its heading and its note."""
    note = tag("p", section.note, class_="soft small") if section.note else None
    return tag("section", tag("h2", section.title), section.content, note)


def standing_figure(standing: Standing) -> Figure:
    """Return how a result compares with another as a key figure."""
    if not standing.factor:
        return Figure("as fast", f"as {standing.other}")
    label = f"as fast as {standing.other}{standing.doubt}"
    return Figure(standing.factor, label, standing.tone)


def _figures(figures: Sequence[Figure]) -> Html | None:
    if not figures:
        return None
    boxes = (
        tag("div", tag("b", f.value, class_=f.tone or None), tag("span", f.label), class_="figure")
        for f in figures
    )
    return tag("div", *boxes, class_="figures")


def html_table(table: Table, first: Sequence[Any] = ()) -> Html:
    """Return a table; `first` replaces the cells of the first column by markup of their own.

    On a narrow screen a table of more than `NARROW_COLUMNS` shows each row as a list of its cells
    with their headings.
    """
    lists = len(table.columns) > NARROW_COLUMNS

    def row(name: str, cells: Iterable[Any]) -> Html:
        return tag(
            "tr",
            *(
                tag(
                    name,
                    cell,
                    class_=_classes(column),
                    data_heading=column.heading if lists and name == "td" else None,
                )
                for cell, column in zip(cells, table.columns, strict=True)
            ),
        )

    rows = [
        row("td", (first[i], *cells[1:]) if first else cells) for i, cells in enumerate(table.rows)
    ]
    head = tag("thead", row("th", (column.heading for column in table.columns)))
    body = tag("table", head, tag("tbody", *rows), class_="lists" if lists else None)
    return tag("div", body, class_="scroll")


def _classes(column: Column) -> str | None:
    names = ["right"] * (column.align == "right") + ["wrap"] * column.wrap
    return " ".join(names) or None


def badge(index: int) -> Html:
    """Return a group's number in its colour."""
    return tag("span", index + 1, class_="badge", style=f"background: var(--c{index % 10})")


def folded(summary: str, content: Any) -> Html:
    """Return content that opens with a click."""
    return tag("details", tag("summary", summary), content)


def source(text: str) -> Html:
    """Return a listing."""
    return tag("pre", tag("code", escape(text)))


def items(texts: Iterable[str]) -> Html:
    """Return a list of remarks."""
    return tag("ul", *(tag("li", text) for text in texts))
