"""Numbers of the analytic schedulers' models have names, units and sources in `constants`."""

import ast
from pathlib import Path

import tilewright.halide.schedulers.analytic as analytic

# Neutral elements, halves, doubles, and bits in a byte.
PLAIN = {0, 1, 2, -1, 0.5, 8}
# Not of a model: lengths of dates, bits of types, the number of a cache's level, rules to relax,
# points per thread of a variation.
ELSEWHERE = {
    "families.py": {10},
    "calibrated.py": {10},
    "capability.py": {16, 64},
    "machine_model.py": {3},
    "grouping_search.py": {4},
    "scheduler.py": {4},
}


def unnamed(source):
    """Return the lines and values of numbers inside functions, defaults and decorators aside."""
    found = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            for node in (n for statement in function.body for n in ast.walk(statement)):
                if isinstance(node, ast.Constant) and type(node.value) in (int, float):
                    found.add((node.lineno, node.value))
    return sorted(pair for pair in found if pair[1] not in PLAIN)


def test_no_function_of_the_models_has_a_number_without_a_name():
    files = sorted(Path(analytic.__path__[0]).rglob("*.py"))
    assert len(files) > 40
    found = [
        (path.name, line, value)
        for path in files
        for line, value in unnamed(path.read_text())
        if value not in ELSEWHERE.get(path.name, ())
    ]
    assert found == []


def test_a_number_without_a_name_is_found():
    assert unnamed("def f(x, y=7):\n    return 3.5 * x + 1") == [(2, 3.5)]
