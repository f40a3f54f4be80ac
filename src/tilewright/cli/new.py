"""``tilewright new``: copies an example, to start from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tilewright.cli import examples, options
from tilewright.errors import TilewrightError
from tilewright.files import is_stream


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of the command line."""
    commands.add_parser(
        "new",
        help="copy an example to start from",
        description="Copy one of the programs that come with Tilewright into the current folder, "
        "so that you can change and schedule it. Without a name, list the programs.",
        example="tilewright new harris",
        options={
            "[name EXAMPLE]": "the program to copy (default: list them)",
            "-o --output FILE.py": "the file to write (default: EXAMPLE.py)",
            **options.QUIET,
        },
        run=run,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.name is None:
        width = max(map(len, examples.names()))
        for name in examples.names():
            print(f"{name:{width}}  {examples.summary(name)}")
        return 0
    source = examples.path_of(args.name)
    output = args.output or source.name
    target = Path(output)
    if output != "-" and target.exists() and not is_stream(target):
        raise TilewrightError(f"{target} exists: give another name with -o FILE.py")
    from tilewright.cli.output import write_file

    write_file(output, source.read_text(encoding="utf-8"))
    if not args.quiet and output != "-":
        called = "" if target.stem == args.name else f":{args.name}"
        print(f"wrote {target}: change it, then run  tilewright schedule {target}{called}")
    return 0
