"""HTML of results for notebooks."""

from __future__ import annotations

from tilewright.report import ScheduleReport
from tilewright.report.pages import fragment, schedule_pictures
from tilewright.report.standing import against_best_other, against_naive
from tilewright.report.table import comparison_table, group_table
from tilewright.report.units import seconds as duration


def report_html(report: ScheduleReport) -> str:
    """Return HTML with the main parts of a schedule's page.

    It contains the name, time and speedups, a table of groups or of compared schedules, the notes,
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
    table = comparison_table(report) if report.comparison else group_table(report)
    return fragment(title, table.columns, table.rows, notes, schedule_pictures(report))
