"""Command-line parsers with examples in the help and suggestions in errors."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from tilewright.cli.options import add_options
from tilewright.cli.suggestions import meant

_EXAMPLE = "example:"


class _Formatter(argparse.HelpFormatter):
    """Keeps the line breaks of examples, which are commands to copy."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(_EXAMPLE):
            return textwrap.indent(text, indent)
        return super()._fill_text(text, width, indent)


class CommandParser(argparse.ArgumentParser):
    """The parser of a command; parsers of its subcommands have the same class.

    Args:
        example: a command line that works as it stands, shown at the end of the help.
        exit_codes: the meaning of the exit codes, shown after the example.
        options: as `tilewright.cli.options.add_options` takes them.
        run: called with the parsed arguments; returns the exit code.
        more: keyword arguments of `argparse.ArgumentParser`.
    """

    def __init__(
        self,
        *,
        example: str = "",
        exit_codes: str = "",
        options: Mapping[str, str] | None = None,
        run: Callable[[argparse.Namespace], int] | None = None,
        **more: Any,
    ) -> None:
        if example:
            more["epilog"] = "\n\n".join(filter(None, [f"{_EXAMPLE}\n  {example}", exit_codes]))
        super().__init__(**{"formatter_class": _Formatter, **more})
        add_options(self, options or {})
        if run is not None:
            self.set_defaults(run=run)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse; unknown arguments are an error of this command, not of its parent."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            options = [o for o in self._option_string_actions if o.startswith("--")]
            near = meant(rest[0].partition("=")[0], options) if rest[0].startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(rest)}{near}")
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Print a usage of one line, the message and where the options are listed; exit with 2."""
        usage = self._get_formatter()
        usage.add_usage(None, self._get_positional_actions(), (), "")
        words = usage.format_help().split()[self.prog.count(" ") + 1 :]
        self.exit(
            2,
            f"usage: {' '.join([self.prog, '[options]', *words])}\n{self.prog}: error: {message}\n"
            f"{self.prog} --help lists the options.\n",
        )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(
                action,
                f"invalid choice: {value!r}{meant(str(value), known)} (choose from "
                f"{', '.join(known)})",
            )
