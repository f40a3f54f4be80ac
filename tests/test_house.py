"""Files and functions of the package stay small; those that are not may only shrink."""

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
FILE_LINES = 600
FUNCTION_LINES = 60
# Lines of the functions that are longer. Nothing is added: a function that is shortened takes its
# number down with it, or leaves.
LONGER = {
    "schedule": 164,
    "stage_nest": 117,
    "read_csv": 104,
    "group_schedules": 102,
    "collect": 88,
    "from_callable": 83,
    "tune": 83,
    "add_parser": 77,
    "compare": 77,
    "finalists": 76,
    "run_worker": 74,
    "collect_schedules": 74,
    "_nest": 73,
    "from_command": 71,
    "dag_picture": 71,
    "train_selector": 67,
    "_row": 66,
    "heat_map": 66,
    "_choose": 65,
    "reference": 64,
    "cross_validate": 64,
    "schedule_cpu": 62,
    "time_runs": 62,
    "read_columns": 62,
    "propose": 62,
    "run": 61,
    "_relaxed": 61,
    "scatter_plot": 61,
}


def functions():
    """Every function of the package as file and name, with its number of lines."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path.relative_to(SOURCE), node.name, node.end_lineno - node.lineno + 1


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


def test_what_is_too_long_is_found():
    found = [("a.py", "long", 61), ("b.py", "known", 70), ("c.py", "known", 71)]
    assert excess(found, {"known": 70}) == [
        "a.py: long has 61 lines, at most 60",
        "c.py: known has 71 lines, at most 70",
    ]
