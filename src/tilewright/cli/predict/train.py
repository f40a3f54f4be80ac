"""``tilewright predict train``: measures a kernel's variants here, and fits a model of each."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tilewright.cli import arguments, options
from tilewright.cli.output import show, write_file
from tilewright.cli.predict import shared


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright predict``."""
    commands.add_parser(
        "train",
        example="tilewright predict train matmul --count 50",
        help="measure a kernel's variants and fit a model of each",
        description="Measure a kernel's variants on this machine and fit a model of each, so "
        "that select and dispatch can choose among them. An interrupted training continues where "
        "it stopped.",
        options={
            "kernel KERNEL": "a kernel such as matmul, or your own as file.py:name",
            "--variants A,B": "the variants to measure (default: all that can be used here)",
            "--count N = 250": "number of instances per variant",
            "--seed SEED = 0": "seed of the instances",
            **options.TIME_LIMIT,
            **options.records(),
            "-o --output SELECTOR.json": "the file to write the models to; - prints them (default: "
            "the file that select --kernel reads)",
            **options.JSON,
            **options.QUIET,
        },
        run=run,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    arguments.check_outputs(args)
    from tilewright.cli.progress import show_progress
    from tilewright.prediction import CollectionProgress, selector_path, train_selector
    from tilewright.records import Records
    from tilewright.report import units
    from tilewright.report.table import table

    deadline = arguments.deadline(args)
    kernel = shared.load_kernel(args.kernel)
    printed = args.output == "-"
    path = args.output or selector_path(kernel.name)
    with Records(args.records) as records, show_progress(args.quiet) as progress:

        def on_progress(p: CollectionProgress) -> None:
            progress(shared.progress_of(p, f"measuring {p.kernel} by {p.variant}"))

        selector = train_selector(
            kernel,
            args.variants,
            count=args.count,
            seed=args.seed,
            records=records,
            path=path,
            save=not printed,
            deadline=deadline,
            on_progress=on_progress,
        )
    if printed:
        write_file(args.output, json.dumps(selector.to_dict(), indent=1) + "\n")
        return 0
    models = {name: modelled.model for name, modelled in selector.models.items()}
    errors = {name: shared.error_of(model) for name, model in models.items()}
    rows = [
        (name, units.percent(errors[name]), str(model.parameter_count_))
        for name, model in models.items()
    ]
    show(
        args,
        {"kernel": kernel.name, "output": str(path), "cross_validated_error": errors},
        table("variant | >cross-validated error | >fitted numbers", rows),
        *([] if args.quiet else [f"wrote {path}"]),
    )
    return 0
