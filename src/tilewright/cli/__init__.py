"""The command line: ``tilewright COMMAND``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tilewright import __version__
from tilewright.cli import compare, machine, predict, records, schedule, tune
from tilewright.errors import TilewrightError

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130

_COMMANDS = (schedule, compare, tune, predict, records, machine)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; each command's module adds its own."""
    top = argparse.ArgumentParser(
        prog="tilewright",
        description="Finds fast schedules for array programs: verified, measured, explained.",
    )
    top.add_argument("--version", action="version", version=f"tilewright {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for module in _COMMANDS:
        module.add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the process's exit code.

    0 for success, 2 for a wrong command line or an error the user can put right, 130 after
    Ctrl-C. Errors go to standard error.
    """
    top = parser()
    try:
        args = top.parse_args(argv)
    except SystemExit as stop:  # argparse has printed help, the version or an error
        return stop.code if isinstance(stop.code, int) else EXIT_ERROR
    if args.command is None:
        top.print_help()
        return 0
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except TilewrightError as error:
        print(f"tilewright: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("tilewright: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, less) has seen enough. Nothing more can be printed,
        # not even by the interpreter when it flushes at exit.
        sys.stdout = None
        return 0
