"""Deliberate faults are where they should be, and one at a time."""

import ast

from support.mutants import mutants

SOURCE = '''
"""A docstring with 1 + 2."""
LIMIT = 7

class Rates:
    l2: float = constant(32.0, "1 + 2")

class Search:
    effort: int = 100

def cost(a, b=3):
    if a <= b:
        return max(a, é(b)) + a[0] * b
    return f"{a + b}"
'''


def test_faults_of_a_module():
    found = list(mutants("module.py", SOURCE, frozenset(["Search"])))
    changes = {(m.place, m.kind, m.before, m.after) for m in found}
    assert changes == {
        ("Rates.l2", "scaled constant", "32.0", str(32.0 * f)) for f in (0.01, 0.5, 2.0, 100.0)
    } | {
        ("cost", "swapped comparison", "a <= b", "a >= b"),
        ("cost", "exchanged min and max", "max", "min"),
        ("cost", "swapped operator", "max(a, é(b)) + a[0] * b", "max(a, é(b)) - a[0] * b"),
        ("cost", "dropped term", "max(a, é(b)) + a[0] * b", "max(a, é(b))"),
        ("cost", "dropped term", "max(a, é(b)) + a[0] * b", "a[0] * b"),
        ("cost", "swapped operator", "a[0] * b", "a[0] / b"),
        ("cost", "dropped factor", "a[0] * b", "a[0]"),
    }
    for fault in found:
        tree = ast.parse(fault.text)  # it is Python still
        assert ast.unparse(tree) != ast.unparse(ast.parse(SOURCE))
        changed = [a for a, b in zip(fault.text.splitlines(), SOURCE.splitlines(), strict=True)
                   if a != b]  # fmt: skip
        assert len(changed) == 1
    assert len({fault.key for fault in found}) == len(found)
