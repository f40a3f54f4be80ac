"""How results are printed, as text or JSON, and files written."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilewright.files import write_text

if TYPE_CHECKING:
    from tilewright.report import ScheduleReport
    from tilewright.report.table import Table


def prints_text(args: argparse.Namespace) -> bool:
    """Return whether the result is printed as text: standard output takes no document."""
    return not args.json and "-" not in (args.output, vars(args).get("report"))


def show(args: argparse.Namespace, result: Any, *text: str | Table | ScheduleReport) -> None:
    """Print a result, unless standard output takes a document.

    It is printed before files are written, so that an error while writing them loses no result.

    Args:
        args: the arguments of a command that has ``--json`` and ``--output``.
        result: JSON data, which ``--json`` prints.
        text: lines, tables and explanations, which are printed otherwise.
    """
    from tilewright.report.table import Table

    if args.json:
        print(json.dumps(result, indent=2))
    elif prints_text(args):
        for part in text:
            if isinstance(part, str):
                print(part)
            elif isinstance(part, Table):
                print_table(part)
            else:
                print_report(part, args.quiet)


def present(args: argparse.Namespace, result: Any, *text: str | Table | ScheduleReport) -> None:
    """Print a result as `show` does, and write it as JSON to the file of ``--output``, if given."""
    show(args, result, *text)
    if args.output:
        write_file(args.output, json.dumps(result, indent=2) + "\n")


def warn(text: str) -> None:
    """Print a line on standard error."""
    print(f"tilewright: {text}", file=sys.stderr)


def print_report(report: ScheduleReport, quiet: bool = False) -> None:
    """Print an explanation: with rich's tables on a terminal, else as plain text.

    Args:
        report: the report to explain.
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
        print(text, end="" if not text or text.endswith("\n") else "\n")
        return
    write_text(path, text)
