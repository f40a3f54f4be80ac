"""The options that docs/prediction.md names; its examples run in tests/docs."""

import argparse
import re
from pathlib import Path

from tilewright.cli import parser

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "prediction.md").read_text(encoding="utf-8")


def commands():
    def inner(of):
        return next(a.choices for a in of._actions if isinstance(a, argparse._SubParsersAction))

    return inner(inner(parser())["predict"])


def test_the_options_named_are_the_commands():
    table = PAGE[PAGE.index("| command | options |") : PAGE.index("Without `--target`")]
    for name, command in commands().items():
        (row,) = re.findall(rf"^\| `{name}` \|(.*)\|$", table, re.MULTILINE)
        named = set(re.findall(r"--?[a-z][a-z-]*", row))
        known = set(command._option_string_actions) - {"-h", "--help", "-q", "--quiet", "--output"}
        assert named == known, name
