"""The table of exit codes holds what the code does."""

import ast
import re

from documents import ROOT

from tilewright.cli import EXIT_CODES, parser, signals

PAGE = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
COMMANDS = ROOT / "src" / "tilewright" / "cli"


def rows():
    """The commands that the table names by exit code."""
    found = re.findall(r"^\| (\d+) \|.*\| ([^|]+) \|$", PAGE, re.MULTILINE)
    return {int(code): set(re.findall(r"`(\w+)`", who)) or who for code, who in found}


def constants(node):
    """The whole numbers of an expression, conditions left out."""
    if isinstance(node, ast.IfExp):
        return constants(node.body) | constants(node.orelse)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return {node.value}
    return set()


def returned():
    """The numbers that each command's functions give as exit codes."""
    found: dict = {}
    for path in COMMANDS.rglob("*.py"):
        name = path.relative_to(COMMANDS).parts[0].removesuffix(".py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            # The functions that run a command, and those that they hand over to.
            if isinstance(function, ast.FunctionDef) and re.match(r"_?(run|serve)", function.name):
                for node in ast.walk(function):
                    if isinstance(node, ast.Return) and node.value is not None:
                        found.setdefault(name, set()).update(constants(node.value))
    return found


def test_the_table_has_the_codes_of_the_code():
    signalled = {signals._SHELL_BASE + number for number in signals._SIGNALS}
    assert set(rows()) == {0, 1, 2} | signalled
    commands = next(a for a in parser()._actions if a.dest == "command").choices
    codes = returned()
    assert set(codes) == set(commands)
    assert {name for name, found in codes.items() if 1 in found} == rows()[1]
    assert set().union(*codes.values()) - signalled == {0, 1}
    assert all(who == "all" for code, who in rows().items() if code != 1)


def test_the_help_has_the_same_codes():
    assert set(map(int, re.findall(r"\b\d+\b", EXIT_CODES))) == set(rows())
