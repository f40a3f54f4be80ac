"""A schedule's explanation as plain text."""

from __future__ import annotations

from tilewright.report import units
from tilewright.report.model import ScheduleReport
from tilewright.report.standing import against_best_other, against_naive
from tilewright.report.table import comparison_table, group_table, size_table, to_text


def headline(report: ScheduleReport) -> str:
    """Return one line: pipeline, target, time, speedups, and whether the schedule was verified."""
    parts = [f"{report.pipeline} for {report.target}"]
    if report.machine:
        parts[0] += f" on {report.machine}"
    if report.seconds is not None:
        parts.append(units.seconds(report.seconds))
    elif report.predicted is not None:
        parts.append(f"predicted {units.seconds(report.predicted)}")
    if (naive := against_naive(report)) is not None:
        parts.append(f"{naive.words} ({units.seconds(report.naive_seconds)})")
    if (best := against_best_other(report)) is not None:
        parts.append(best.words)
    parts.append(verification(report))
    return ", ".join(part for part in parts if part)


def verification(report: ScheduleReport) -> str:
    """Return whether the schedule's answers were checked."""
    if report.verified is None:
        return "unverified: not compiled yet"
    return "verified" if report.verified else report.failure.upper()


def explain(report: ScheduleReport) -> str:
    """Return the headline, the group table, the comparison if there is one, and the notes."""
    parts = [headline(report)]
    if report.groups:
        parts.append(to_text(group_table(report)))
    if report.predicted_unit != "s" and any(g.predicted is not None for g in report.groups):
        parts.append("Predicted: each group's share of the model's cost.")
    if report.sizes:
        parts.append(to_text(size_table(report)))
    if report.comparison:
        parts.append(to_text(comparison_table(report)))
    if report.notes:
        parts.append("\n".join(f"- {note}" for note in report.notes))
    return "\n\n".join(parts)
