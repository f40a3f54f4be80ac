"""``tilewright patterns``: kernels derived from programs made of patterns."""

from __future__ import annotations

import argparse
from typing import Any

from tilewright.cli.patterns import compile, derive, rank, tune

_COMMANDS = (derive, rank, tune, compile)


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of the command line."""

    def show_help(args: argparse.Namespace) -> int:
        parser.print_help()
        return 0

    parser = commands.add_parser(
        "patterns",
        example="tilewright patterns rank --example jacobi5 --sizes N=1024,M=1024",
        help="derive, rank, tune and compile kernels of programs made of patterns",
        description="Rewrite a program made of patterns (map, reduce, slide, ...) into others with "
        "the same meaning, rank their kernels before any is run, measure the best, and compile "
        "them.",
        run=show_help,
    )
    inner = parser.add_subparsers(title="commands", metavar="COMMAND", dest="patterns_command")
    for module in _COMMANDS:
        module.add_parser(inner)
