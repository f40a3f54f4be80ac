"""Files and functions of the package stay small; those that are not may only shrink."""

import ast
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import house

SOURCE = Path(__file__).resolve().parents[1] / "src"
KNOWN = house.modules()
FILE_LINES = 500
FUNCTION_LINES = 60
COMPLEXITY = 20
# Lines of the functions that are longer. Nothing is added: a function that is shortened takes its
# number down with it, or leaves.
LONGER = {
    "add_parser": 66,
    "compare": 62,
}


def functions():
    """Every function of the package as file and name, with its lines of code."""
    for module in KNOWN.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield module.path.relative_to(SOURCE), node.name, code_lines(node)


def code_lines(node):
    """Lines of a function's definition, its docstring left out."""
    lines = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def excess(found, allowed):
    """What is longer than it may be; of functions of one name, each may be as long."""
    return [
        f"{path}: {name} has {lines} lines, at most {allowed.get(name, FUNCTION_LINES)}"
        for path, name, lines in found
        if lines > allowed.get(name, FUNCTION_LINES)
    ]


def test_no_file_is_longer_than_it_may_be():
    lengths = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in SOURCE.rglob("*.py")}
    assert len(lengths) > 200
    assert {str(p): n for p, n in lengths.items() if n > FILE_LINES} == {}


def test_no_function_is_longer_than_it_may_be():
    assert excess(functions(), LONGER) == []


def test_no_function_branches_more_than_it_may():
    found = {name: branches for name, _, branches in house.functions(KNOWN)}
    assert {name: n for name, n in found.items() if n > COMPLEXITY} == {}


def test_what_is_too_long_is_found():
    found = [("a.py", "long", 61), ("b.py", "known", 70), ("c.py", "known", 71)]
    assert excess(found, {"known": 70}) == [
        "a.py: long has 61 lines, at most 60",
        "c.py: known has 71 lines, at most 70",
    ]
