"""The page of one schedule: graph, groups, loop nest, comparison, code."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.report import units
from tilewright.report.charts.bars import bar_chart
from tilewright.report.charts.dag import dag_picture
from tilewright.report.charts.nest import nest_html
from tilewright.report.charts.svg import reflowing
from tilewright.report.model import GroupRow, ScheduleReport
from tilewright.report.pages.html import join, tag
from tilewright.report.pages.page import (
    Figure,
    Section,
    badge,
    folded,
    html_page,
    html_table,
    items,
    source,
    standing_figure,
)
from tilewright.report.standing import against_best_other, against_naive
from tilewright.report.table import (
    Table,
    attempt_table,
    comparison_table,
    group_table,
    size_table,
)

_LONG_NEST = 120  # lines


def schedule_page(
    report: ScheduleReport, links: Mapping[str, str] = MappingProxyType({}), links_key: str = ""
) -> str:
    """Return the complete page as self-contained text. Unknown values are left out.

    Args:
        report: the content.
        links: addresses of other pages by link text.
        links_key: a key with which `with_links` finds the links of the page, to change them.
    """
    subtitle = f"Schedule for {report.target}"
    if report.machine:
        subtitle += f" on {report.machine}"
    return html_page(
        report.pipeline,
        _sections(report),
        subtitle=subtitle,
        figures=_figures(report),
        links=links,
        links_key=links_key,
        facts=report.facts,
    )


def schedule_pictures(report: ScheduleReport) -> list[Section]:
    """Return the sections with pictures: comparison, graph and loop nest."""
    sections = []
    if report.comparison:
        sections.append(_comparison(report))
    if report.dag.nodes or report.nest:
        sections.append(_structure(report))
    return sections


def _sections(report: ScheduleReport) -> list[Section]:
    sections = []
    if report.notes:
        sections.append(Section("Remarks", items(report.notes)))
    if report.comparison:
        sections.append(_comparison(report))
    if report.groups:
        sections.append(_groups(report))
    if report.sizes:
        note = "The rest of this page is about the first of these sizes."
        sections.append(Section("Sizes", html_table(size_table(report)), note))
    if report.dag.nodes or report.nest:
        sections.append(_structure(report))
    if report.attempts:
        sections.append(Section("Candidates", html_table(attempt_table(report))))
    if report.python or report.cpp:
        listings = [
            folded(f"The schedule in {language}", source(text))
            for language, text in (("Python", report.python), ("C++", report.cpp))
            if text
        ]
        sections.append(Section("Code", join(*listings)))
    return sections


def _figures(report: ScheduleReport) -> list[Figure]:
    figures = []
    if report.seconds is not None:
        figures.append(Figure(units.seconds(report.seconds), "per run"))
    if report.predicted is not None:
        figures.append(Figure(units.seconds(report.predicted), "predicted"))
    standings = (against_naive(report), against_best_other(report))
    figures += [standing_figure(standing) for standing in standings if standing is not None]
    if report.groups:
        figures.append(
            Figure(
                str(len(report.groups)),
                f"{'group' if len(report.groups) == 1 else 'groups'} of "
                f"{units.plural(sum(n.kind != 'input' for n in report.dag.nodes), 'Func')}"
                if report.dag.nodes
                else "groups",
            )
        )
    answers = {None: ("not run", ""), True: ("verified", "good"), False: (report.failure, "bad")}
    value, tone = answers[report.verified]
    figures.append(Figure(value, "answers", tone))
    return figures


def _groups(report: ScheduleReport) -> Section:
    table = group_table(report)
    first = [join(badge(i), group.name) for i, group in enumerate(report.groups)]
    note = ""
    if report.predicted_unit != "s" and any(g.predicted is not None for g in report.groups):
        note = "Predicted: the group's share of the model's cost."
    elif any(g.shared_bytes is not None for g in report.groups):
        note = "Memory: storage of the members for one tile."
    return Section("Groups", html_table(_with_all_funcs(table, report.groups), first), note)


def _structure(report: ScheduleReport) -> Section:
    """Return the graph and the loop nest, side by side where there is room."""
    parts, titles, notes = [], [], []
    if report.dag.nodes:
        names = [group.name for group in report.groups]
        parts.append(tag("div", dag_picture(report.dag, names), class_="scroll"))
        titles.append("Pipeline")
        notes.append(
            "Arrows go from producer to consumer. A box holds the Funcs that are computed "
            "together; those with a dashed frame are inlined into what reads them."
        )
    if report.nest:
        nest = nest_html(report.nest)
        if len(report.nest) > _LONG_NEST:
            nest = folded(f"Show all {len(report.nest)} lines of the loop nest", nest)
        parts.append(tag("div", nest, class_="rest"))
        titles.append("loop nest" if titles else "Loop nest")
        notes.append("In the loop nest, the colour at the left is the group's.")
    return Section(" and ".join(titles), tag("div", *parts, class_="beside"), " ".join(notes))


def _with_all_funcs(table: Table, groups: tuple[GroupRow, ...]) -> Table:
    """Return the table with all Funcs named: a page has room for them."""
    at = next((i for i, c in enumerate(table.columns) if c.heading == "Funcs"), None)
    if at is None:
        return table
    rows = tuple(
        (*row[:at], ", ".join(group.funcs), *row[at + 1 :])
        for row, group in zip(table.rows, groups, strict=True)
    )
    return Table(table.columns, rows)


def _comparison(report: ScheduleReport) -> Section:
    chart = reflowing(
        lambda width: bar_chart(
            report.comparison, label="Run times of the schedules compared", width=width
        )
    )
    table = folded("Show the figures", html_table(comparison_table(report)))
    return Section(
        "Comparison",
        join(chart, table),
        "Median run times, measured in one interleaved run; lines are intervals. "
        "A bar with a gap is longer than shown.",
    )
