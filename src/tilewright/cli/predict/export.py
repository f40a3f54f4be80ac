"""``tilewright predict export``: writes a model as Python or C source."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tilewright.cli import arguments, options
from tilewright.cli.output import write_file
from tilewright.errors import TilewrightError


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright predict``."""
    commands.add_parser(
        "export",
        example="tilewright predict export model.json -o model.h",
        help="write a model as Python or C",
        description="Write a model as a Python module that imports math only, or as a C header. "
        "Both define NAME(feature, ...), which returns seconds, and NAME_outside(feature, ...).",
        options={
            "model MODEL.json": "the model, written by tilewright predict fit",
            "-o --output FILE required": "the file to write, .py or .h; - prints the source",
            "--language python|c": "the language (default: that of the file's name; Python if the "
            "source is printed)",
            "--name NAME = predict_seconds": "the function's name",
            **options.QUIET,
        },
        run=run,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    language = args.language or _language(args.output)
    arguments.check_outputs(args)
    from tilewright.prediction import export_c, export_python, load

    model = load(args.model)
    write_file(args.output, (export_python if language == "python" else export_c)(model, args.name))
    if not args.quiet and args.output != "-":
        print(f"wrote {args.output}: {args.name}({', '.join(model.names_)}), seconds")
    return 0


def _language(output: str) -> str:
    """Return the language that the name of a file says."""
    if output == "-":
        return "python"
    try:
        return {".py": "python", ".h": "c"}[Path(output).suffix]
    except KeyError:
        raise TilewrightError(
            f"cannot tell from {output!r} how to write the model: name a .py or .h file, or give "
            "--language"
        ) from None
