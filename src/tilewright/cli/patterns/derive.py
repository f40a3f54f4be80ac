"""``tilewright patterns derive``: programs with the same meaning, and their derivations."""

from __future__ import annotations

import argparse
from typing import Any

from tilewright.cli import arguments, options
from tilewright.cli.output import present
from tilewright.cli.patterns import shared
from tilewright.errors import TilewrightError


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright patterns``."""
    commands.add_parser(
        "derive",
        example="tilewright patterns derive --example jacobi5 --sizes N=1024,M=1024",
        help="rewrite a program into others with the same meaning",
        description="Rewrite a program made of patterns into others with the same meaning: tiled, "
        "split, fused, with loops given to threads or cores and tiles in local memory. Without "
        "--sizes, tiles become requirements on the sizes.",
        options={
            **shared.PROGRAM,
            "--target gpu|c = gpu": "a grid of threads, or the cores and vectors of a CPU",
            **shared.EXPLORATION,
            "--number N": "show only this derived program, with its derivation step by step",
            **options.RESULT,
        },
        run=run,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 if no program can be derived for the target."""
    arguments.check_outputs(args)
    program = shared.load_program(args)
    from tilewright.patterns import type_of, with_sizes
    from tilewright.patterns.rewriting import explore
    from tilewright.report import units
    from tilewright.report.table import table

    fixed = with_sizes(program, dict(args.sizes or {}))
    found = explore(fixed, shared.settings(args, args.target))
    if args.number is not None and args.number > len(found):
        raise TilewrightError(
            f"--number {args.number}: there are {units.plural(len(found), 'derived program')}"
        )
    first = args.number or 1
    last = args.number or args.top
    shown = list(enumerate(found, 1))[first - 1 : last]
    entries = [shared.entry(number, derivation) for number, derivation in shown]
    result = {**shared.document(args, args.target, entries), "count": len(found)}
    head = [] if args.quiet else [f"{units.plural(len(found), 'program')} of type {type_of(fixed)}"]
    if not found:
        present(args, result, "no program can be derived: give another --target, or more --tiles")
        return 1
    if args.number is not None:
        present(args, result, *head, str(shown[0][1]))
        return 0
    rows = [(str(e["number"]), ", ".join(e["steps"])) for e in entries]
    present(args, result, *head, table(">number | ~steps", rows))
    return 0
