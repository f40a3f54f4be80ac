"""``tilewright predict train``: measures a kernel's variants here, and fits a model of each."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from tilewright.cli import arguments
from tilewright.cli.predict import shared
from tilewright.errors import TilewrightError


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright predict``."""
    parser = commands.add_parser(
        "train",
        example="tilewright predict train matmul --count 50",
        help="measure a kernel's variants and fit a model of each",
        description="Measure a kernel's variants on this machine and fit a model of each, so "
        "that select and dispatch can choose among them. An interrupted training continues where "
        "it stopped.",
    )
    parser.add_argument(
        "kernel", metavar="KERNEL", help="a kernel such as matmul, or your own as file.py:name"
    )
    parser.add_argument(
        "--variants",
        type=shared.names,
        metavar="A,B",
        help="the variants to measure (default: all that can be used here)",
    )
    parser.add_argument(
        "--count",
        type=arguments.positive,
        default=250,
        metavar="N",
        help="instances per variant (default: 250)",
    )
    arguments.add_seed(parser, "the instances")
    parser.add_argument("--time-limit", type=arguments.duration, metavar="TIME", help="such as 10m")
    arguments.add_records(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="SELECTOR.json",
        help="the file to write the models to (default: the file that select --kernel reads)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments.add_quiet(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    arguments.check_outputs(args)
    if args.output == "-":
        raise TilewrightError("the models are kept in a file: name one with -o SELECTOR.json")
    from tilewright.cli.output import print_table
    from tilewright.cli.progress import show_progress
    from tilewright.prediction import CollectionProgress as Collected
    from tilewright.prediction import selector_path, train_selector
    from tilewright.records import Records
    from tilewright.report import Progress, units
    from tilewright.report.table import Column, Table

    deadline = None if args.time_limit is None else time.monotonic() + args.time_limit
    kernel = shared.load_kernel(args.kernel)
    path = args.output or selector_path(kernel.name)
    with Records(args.records) as records, show_progress(args.quiet) as show:

        def on_progress(p: Collected) -> None:
            failed = {"instances": p.failed} if p.failed else {}
            show(Progress(f"measuring {p.kernel} by {p.variant}", p.done, p.total, failed))

        selector = train_selector(
            kernel,
            args.variants,
            count=args.count,
            seed=args.seed,
            records=records,
            path=path,
            deadline=deadline,
            on_progress=on_progress,
        )
    models = {name: modelled.model for name, modelled in selector.models.items()}
    errors = {
        name: None if model.calibration_ is None else model.calibration_.error
        for name, model in models.items()
    }
    if args.json:
        result = {"kernel": kernel.name, "output": str(path), "cross_validated_error": errors}
        print(json.dumps(result, indent=2))
        return 0
    rows = [
        (name, units.percent(errors[name]), str(model.parameter_count_))
        for name, model in models.items()
    ]
    columns = (
        Column("variant"),
        Column("cross-validated error", "right"),
        Column("fitted numbers", "right"),
    )
    print_table(Table(columns, tuple(rows)))
    if not args.quiet:
        print(f"wrote {path}")
    return 0
