"""``tilewright predict``: models of run time, and decisions based on them."""

from __future__ import annotations

import argparse
from typing import Any

from tilewright.cli.predict import adapt, collect, evaluate, export, fit, select, train

_COMMANDS = (fit, adapt, evaluate, select, export, collect, train)


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of the command line."""

    def show_help(args: argparse.Namespace) -> int:
        parser.print_help()
        return 0

    parser = commands.add_parser(
        "predict",
        example="tilewright predict collect matmul --count 50 -o runs.csv",
        help="predict run times, and choose the fastest variant",
        description="Fit a model of run time to past runs, evaluate it, choose variants and "
        "schedules with it, and export it as source code.",
        run=show_help,
    )
    inner = parser.add_subparsers(title="commands", metavar="COMMAND", dest="predict_command")
    for module in _COMMANDS:
        module.add_parser(inner)
