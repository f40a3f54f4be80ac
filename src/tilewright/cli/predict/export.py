"""``tilewright predict export``: writes a model as Python or C source."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tilewright.cli import arguments
from tilewright.cli.predict import shared
from tilewright.errors import TilewrightError


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright predict``."""
    parser = commands.add_parser(
        "export",
        example="tilewright predict export model.json -o model.h",
        help="write a model as Python or C",
        description="Write a model as a Python module that imports math only, or as a C header. "
        "Both define NAME(feature, ...), which returns seconds, and NAME_outside(feature, ...).",
    )
    parser.add_argument("model", metavar="MODEL.json", help="written by tilewright predict fit")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="a .py or .h file")
    parser.add_argument(
        "--name",
        default="predict_seconds",
        help="the function's name (default: %(default)s)",
    )
    arguments.add_quiet(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    suffix = Path(args.output).suffix
    if suffix not in (".py", ".h"):
        raise TilewrightError(
            f"cannot tell from {args.output!r} how to write the model: name a .py or .h file"
        )
    arguments.check_outputs(args)
    from tilewright.cli.output import write_file
    from tilewright.prediction import export_c, export_python

    model = shared.load_model(args.model)
    text = (export_python if suffix == ".py" else export_c)(model, args.name)
    write_file(args.output, text)
    features = ", ".join(model.names_)
    if not args.quiet:
        print(f"wrote {args.output}: {args.name}({features}), seconds")
    return 0
