"""The command line: ``tilewright COMMAND``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tilewright import __version__
from tilewright.cli import (
    compare,
    completion,
    machine,
    new,
    patterns,
    predict,
    records,
    schedule,
    train,
    tune,
)
from tilewright.cli import map as map_graph
from tilewright.cli.parsing import CommandParser
from tilewright.cli.provenance import load
from tilewright.cli.signals import Interruption, interruptions
from tilewright.cli.streams import tolerant_streams
from tilewright.errors import TilewrightError

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130

_COMMANDS = (
    new,
    schedule,
    compare,
    train,
    tune,
    predict,
    map_graph,
    patterns,
    records,
    machine,
    completion,
)


EXIT_CODES = """exit codes:
  0    done
  1    no result, such as when no schedule gave right answers
  2    a wrong command line, a file that cannot be read or written, lost output
  129  ended by SIGHUP, 130 by Ctrl-C, 143 by SIGTERM; the best so far has been printed"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; each command's module adds its own."""
    top = CommandParser(
        prog="tilewright",
        description="Finds fast schedules for array programs: verified, measured, explained.",
        example="tilewright new harris && tilewright schedule harris.py --mode top",
        exit_codes=EXIT_CODES,
    )
    top.add_argument("--version", action="version", version=f"tilewright {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for module in _COMMANDS:
        module.add_parser(commands)
    top.set_defaults(top=top)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the process's exit code.

    The exit code is 0 for success; 1 if nothing was found; 2 for a wrong command line, an error
    that the user can correct, or lost output; 128 plus the signal's number after Ctrl-C, SIGTERM
    or SIGHUP (130, 143, 129). Errors go to standard error. A reader that closes the pipe early
    (``head``) is not an error.
    """
    with tolerant_streams() as out:
        code = _command(argv)
        if out is not None:
            out.flush()
        if out is not None and out.lost:
            print(f"tilewright: output was lost: {out.lost}", file=sys.stderr)
            code = code or EXIT_ERROR
    # After an interruption inside code that was compiled from text, such as that of dataclasses,
    # Python would exit as if by Ctrl-C, whatever the exit code; running such code again resets
    # that.
    exec("")
    return code


def _command(argv: Sequence[str] | None) -> int:
    top = parser()
    try:
        args = top.parse_args(argv)
        args.words = sys.argv[1:] if argv is None else list(argv)
        args.load_before = load()  # the load of other work, before this command adds its own
    except SystemExit as stop:  # argparse has printed help, the version or an error
        return stop.code if isinstance(stop.code, int) else EXIT_ERROR
    if args.command is None:
        top.print_help()
        return 0
    # Outside this block, a signal ends the process at once.
    came = Interruption()
    try:
        with interruptions(came):
            code: int = args.run(args)
    except TilewrightError as error:
        print(f"tilewright: {error}", file=sys.stderr)
        return came.exit_code or EXIT_ERROR
    except KeyboardInterrupt:
        print("tilewright: interrupted", file=sys.stderr)
        return came.exit_code or EXIT_INTERRUPTED
    return came.exit_code or code
