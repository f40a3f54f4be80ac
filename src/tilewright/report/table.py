"""The columns of a schedule's group table, and tables of any kind as plain text."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tilewright.report import units
from tilewright.report.model import Bar, GroupRow, ScheduleReport
from tilewright.report.standing import our_bar, relative

Align = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading, the alignment of its cells, and whether their text may be wrapped."""

    heading: str
    align: Align = "left"
    wrap: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text; every row has one per column."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


def columns(headings: str) -> tuple[Column, ...]:
    """Return columns by their headings, which are separated by ``|``.

    ``>`` before a heading aligns the column to the right, ``~`` lets its text wrap.

    >>> columns("name | >time")[1]
    Column(heading='time', align='right', wrap=False)
    """
    return tuple(
        Column(text.lstrip(">~"), "right" if text.startswith(">") else "left", text.startswith("~"))
        for text in map(str.strip, headings.split("|"))
    )


def table(heads: Iterable[Column] | str, rows: Iterable[Sequence[str]]) -> Table:
    """Return a table without empty columns; `heads` are columns, or what `columns` takes.

    >>> print(to_text(table("name | >time | note", [("a", "1 s", ""), ("b", "12 s", "")])))
    name  time
    ----  ----
    a      1 s
    b     12 s
    """
    found = columns(heads) if isinstance(heads, str) else tuple(heads)
    cells = [tuple(row) for row in rows]
    kept = [
        i
        for i in range(len(found))
        if i == 0 or any(row[i] not in ("", units.NONE) for row in cells)
    ]
    return Table(tuple(found[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in cells))


def group_table(report: ScheduleReport) -> Table:
    """Return a table of groups: Funcs, tile, mapping, memory, occupancy and times."""
    total = sum(g.predicted for g in report.groups if g.predicted is not None)

    def predicted(group: GroupRow) -> str:
        if group.predicted is None:
            return units.NONE
        if report.predicted_unit == "s":
            return units.seconds(group.predicted)
        return units.percent(group.predicted / total) if total > 0 else units.NONE

    rows = [
        (
            group.name,
            funcs(group),
            tile(group),
            units.extents(group.blocks),
            units.extents(group.threads),
            units.count(group.parallel),
            units.count(group.vector),
            units.size(group.shared_bytes),
            units.count(group.registers),
            occupancy(group),
            predicted(group),
            group.limit,
            units.seconds(group.measured),
            group.note,
        )
        for group in report.groups
    ]
    heads = (
        "group | ~Funcs | tile | >blocks | >threads | >tasks | >vector | >memory | >registers | "
        ">occupancy | >predicted | limited by | >measured | ~note"
    )
    return table(heads, rows)


def occupancy(group: GroupRow) -> str:
    """Return the group's occupancy and what limits it, e.g. ``50% (registers)``."""
    limit = f" ({group.occupancy_limit})" if group.occupancy_limit else ""
    return units.percent(group.occupancy) + limit


def fact_table(facts: Mapping[str, str]) -> Table:
    """Return a table of facts by name."""
    return Table(columns("fact | ~value"), tuple(facts.items()))


def funcs(group: GroupRow, most: int = 6) -> str:
    """Return the group's Funcs, the first few by name."""
    names = list(group.funcs[:most])
    if len(group.funcs) > most:
        names.append(f"and {len(group.funcs) - most} more")
    return ", ".join(names)


def tile(group: GroupRow) -> str:
    """Return the group's tile, e.g. ``x 32, y 8``."""
    return ", ".join(f"{loop} {size}".strip() for loop, size in group.tile) or units.NONE


def attempt_table(report: ScheduleReport) -> Table:
    """Return a row per candidate that was tried; the chosen one is marked."""
    return table(
        "candidate | ~differs from the first by | status | >predicted | >time | taken | ~note",
        [
            (
                f"{a.label} (chosen)" if a.chosen else a.label,
                a.differs,
                "cut short" if a.cut_short else a.status,
                units.seconds(a.predicted),
                units.seconds(a.measured),
                a.source,
                a.note,
            )
            for a in report.attempts
        ],
    )


def size_table(report: ScheduleReport) -> Table:
    """Return a row per size for which the schedule has separate loops."""
    rows = [
        (row.size, row.condition, units.seconds(row.predicted), units.seconds(row.measured))
        for row in report.sizes
    ]
    return table("size | ~runs where | >predicted | >measured", rows)


def comparison_table(report: ScheduleReport) -> Table:
    """Return a row per schedule of `compare`: time and time over ours, with their intervals."""
    ours = our_bar(report)

    def over_ours(bar: Bar) -> str:
        if ours is None or not bar.ok:
            return units.NONE
        ratio = units.ratio(relative(bar, ours))
        if bar.slower is None:
            return ratio
        low, high = (units.digits(end) for end in bar.slower[1:])
        return f"{ratio} ({low} to {high})"

    rows = [
        (
            bar.label,
            units.seconds(bar.value) if bar.ok else bar.status.replace("_", " "),
            interval(bar.low, bar.high) if bar.ok else units.NONE,
            over_ours(bar),
            bar.message,
        )
        for bar in report.comparison
    ]
    return table("schedule | >time | >interval | >time / ours | ~note", rows)


def interval(low: float | None, high: float | None) -> str:
    """Return two times as an interval."""
    if low is None or high is None:
        return units.NONE
    return f"{units.seconds(low)} to {units.seconds(high)}"


def to_text(tbl: Table, indent: str = "") -> str:
    """Return the table with its columns padded, for terminals and logs."""
    cells = [tuple(c.heading for c in tbl.columns), *tbl.rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(tbl.columns))]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if column.align == "right" else cell.ljust(width)
            for cell, width, column in zip(row, widths, tbl.columns, strict=True)
        )
        return (indent + "  ".join(padded)).rstrip()

    rule = indent + "  ".join("-" * width for width in widths)
    return "\n".join([line(cells[0]), rule, *(line(row) for row in tbl.rows)])


def to_csv(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return lines of CSV; cells that are None are empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([headings, *rows])
    return text.getvalue()


def cell(seconds: float | None) -> str:
    """Return a time for CSV, empty if unknown; six digits are far finer than a time repeats."""
    return "" if seconds is None or math.isnan(seconds) else f"{seconds:.6g}"
