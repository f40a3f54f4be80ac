"""Splitting of loops into three parts: the lower border, the interior and the upper border.

In the interior, indices need no boundary function and writes need no guard, so that compilers can
vectorise it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.arith import Boundary, LoopVariable, Poly, Size, at_least_zero, bounds
from tilewright.patterns.codegen.code import (
    ForLoop,
    Inside,
    Statement,
    Store,
    all_values,
    indices_of,
    statements,
    values_of,
)

LEAST_ITERATIONS = 8  # fewest iterations of a split loop: one 256-bit vector of f32

Pair = tuple[Poly, Poly]


@dataclass(frozen=True, slots=True)
class InnerRange:
    """The iterations of a loop for which all tests of its borders hold.

    Args:
        tests: pairs (x, n) for which ``0 <= x < n`` holds in the range.
        starts: the range begins at the maximum of these and 0.
        ends: the range ends before the minimum of these and the loop's extent.
    """

    tests: frozenset[Pair]
    starts: tuple[Poly, ...]
    ends: tuple[Poly, ...]


def inner_range(loop: ForLoop) -> InnerRange | None:
    """Return the interior of a loop; None if it has no border tests, or an inner loop is split."""
    inside = list(statements(loop.body))
    v, extent = loop.variable, loop.variable.extent
    if not at_least_zero(extent - LEAST_ITERATIONS) and extent.value is not None:
        return None
    loops = [s for s in inside if isinstance(s, ForLoop)]
    if any(map(inner_range, loops)):
        return None
    moving = {s.variable for s in loops}
    starts: dict[Poly, None] = {}
    ends: dict[Poly, None] = {}
    tests: set[Pair] = set()
    for x, n in (pair for s in inside for pair in _tests(s)):
        rest = _bounds(x - Poly.of(v), v, moving)
        if v not in x.all_atoms() or rest is None or moving & set(n.all_atoms()):
            continue
        tests.add((x, n))
        if not at_least_zero(rest[0]):
            starts[-rest[0]] = None
        if not at_least_zero(n - rest[1] - extent):
            ends[n - rest[1]] = None
    return InnerRange(frozenset(tests), tuple(starts), tuple(ends)) if starts or ends else None


def _bounds(p: Poly, v: LoopVariable, moving: set[LoopVariable]) -> tuple[Poly, Poly] | None:
    """Return the minimum and maximum over the moving variables; None if unknown, or p has v."""
    changing = Poly(tuple(t for t in p.terms if moving & set(Poly((t,)).all_atoms())))
    simple = all(isinstance(a, Size) or a in moving for a in changing.all_atoms())
    found = bounds(changing) if simple and p.fraction[1] == 1 else None
    if found is None or v in p.all_atoms():
        return None
    return p - changing + found[0], p - changing + found[1]


def _tests(s: Statement) -> Iterator[Pair]:
    """Yield the border tests of a statement: pairs (x, n) for ``0 <= x < n``."""
    for index in indices_of(s):
        yield from ((a.x, a.n) for a in index.all_atoms() if isinstance(a, Boundary))
    if isinstance(s, Store):
        yield from s.guards
    for value in values_of(s):
        for part in all_values(value):
            if isinstance(part, Inside):
                yield part.index, part.length
