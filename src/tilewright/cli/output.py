"""Tables and files: how results are printed."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.files import write_text

if TYPE_CHECKING:
    from tilewright.report import ScheduleReport
    from tilewright.report.table import Table


def print_report(report: ScheduleReport, quiet: bool = False) -> None:
    """Print an explanation: with rich's tables on a terminal, else as plain text.

    Args:
        report: what is explained.
        quiet: omit the notes.
    """
    from tilewright.report import text

    if quiet:
        report = replace(report, notes=())
    if not sys.stdout.isatty():
        print(text.explain(report))
        return
    from rich.console import Console

    from tilewright.report.table import comparison_table, group_table

    console = Console()
    style = "bold red" if report.verified is False else "bold"
    console.print(text.headline(report), style=style, highlight=False, markup=False)
    if report.groups:
        console.print(_rich_table(group_table(report)))
    if report.comparison:
        console.print(_rich_table(comparison_table(report)))
    for note in report.notes:
        console.print(f"- {note}", highlight=False, markup=False)


def print_table(tbl: Table) -> None:
    """Print a table: with rich on a terminal, else as plain text."""
    if not sys.stdout.isatty():
        from tilewright.report.table import to_text

        print(to_text(tbl))
        return
    from rich.console import Console

    Console().print(_rich_table(tbl))


def _rich_table(tbl: Table) -> object:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD)
    for column in tbl.columns:
        shown.add_column(column.heading, justify=column.align)
    for row in tbl.rows:
        # Names may hold square brackets, which are not rich's markup.
        shown.add_row(*(Text(cell) for cell in row))
    return shown


def write_file(path: str, text: str) -> None:
    """Write a file as `tilewright.files.write_text` does; ``-`` is standard output."""
    if path == "-":
        print(text)
        return
    write_text(path, text)
