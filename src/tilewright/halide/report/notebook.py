"""HTML of results and comparisons for notebooks."""

from __future__ import annotations

from tilewright.report import ScheduleReport
from tilewright.report.pages import fragment, schedule_pictures
from tilewright.report.standing import against_best_other, against_naive
from tilewright.report.table import Column
from tilewright.report.units import seconds as duration

_GROUPS = [
    Column("loops of"),
    Column("tile"),
    Column("predicted", "right"),
    Column("measured", "right"),
]
_OTHERS = [Column("schedule"), Column("time", "right"), Column("outcome")]


def report_html(report: ScheduleReport) -> str:
    """Return HTML with the main parts of the schedule's page.

    These are name, time and speedups, a row per group of Funcs or per compared schedule, the notes,
    and the chart, graph and loop nest.
    """
    state = {None: "not run", True: "verified", False: "wrong or failed"}[report.verified]
    title = f"{report.pipeline} for {report.target}: {state}"
    if report.seconds is not None:
        title += f", {duration(report.seconds)}"
    elif report.predicted is not None:
        title += f", {duration(report.predicted)} predicted"
    standings = [s.words for s in (against_naive(report), against_best_other(report)) if s]
    notes = [*([f"It is {', '.join(standings)}."] if standings else []), *report.notes]
    pictures = schedule_pictures(report)
    if report.comparison:
        bars = [(bar.label, _time(bar.value), bar.status) for bar in report.comparison]
        return fragment(title, _OTHERS, bars, notes, pictures)
    known = report.predicted_unit == "s"
    rows = [
        (
            group.name,
            " x ".join(str(size) for _, size in group.tile),
            _time(group.predicted if known else None),
            _time(group.measured),
        )
        for group in report.groups
    ]
    return fragment(title, _GROUPS, rows, notes, pictures)


def _time(value: float | None) -> str:
    return "" if value is None else duration(value)
