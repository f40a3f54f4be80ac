"""Derivatives of coordinates by loops, and the kinds of access that they define.

A *Jacobian* of an access has one row per coordinate of the accessed Func and one column per loop of
the accessing stage: the change of the coordinate per iteration. An entry is an exact fraction, or
None if it is not constant: ``f(2 * x + 1, y / 2, g(x))`` in a stage with the loops x and y has
``((2, 0), (0, 1/2), (None, 0))``.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tilewright.halide.ir.algorithm import Call, Const, Expr, Variable, walk

Entry = Fraction | None
Jacobian = tuple[tuple[Entry, ...], ...]
ZERO, ONE = Fraction(0), Fraction(1)


def jacobian(args: Sequence[Expr], loops: Sequence[str], lossy: bool = False) -> Jacobian:
    """Return the Jacobian of an access with coordinates `args` by `loops`.

    With `lossy`, sums are those of `lossy_sum`.
    """
    known: dict[tuple[int, str], Entry] = {}
    return tuple(tuple(_derivative(arg, loop, known, lossy) for loop in loops) for arg in args)


def lossy_sum(a: Entry, b: Entry) -> Entry:
    """Return the sum as the released Anderson2021 has it.

    It takes the sum for unknown if the denominators have no binary digit in common: 1/2 + 1.
    """
    if a is None or b is None or not a.denominator & b.denominator:
        return None
    return a + b


def _derivative(e: Expr, loop: str, known: dict[tuple[int, str], Entry], lossy: bool) -> Entry:
    key = id(e), loop
    if key not in known:
        known[key] = _differentiate(e, loop, known, lossy)
    return known[key]


def _differentiate(e: Expr, loop: str, known: dict[tuple[int, str], Entry], lossy: bool) -> Entry:
    if isinstance(e, Const):
        return ZERO
    if isinstance(e, Variable):
        return ONE if e.name == loop and e.kind != "param" else ZERO
    if not _uses(e, loop):
        return ZERO
    if isinstance(e, Call):
        return _derivative(e.args[0], loop, known, lossy) if e.name == "likely" else None
    if e.name in ("add", "sub"):
        a, b = (_derivative(arg, loop, known, lossy) for arg in e.args)
        b = b if b is None or e.name == "add" else -b
        if lossy:
            return lossy_sum(a, b)
        return None if a is None or b is None else a + b
    if e.name in ("mul", "div"):
        return _scaled(_derivative(e.args[0], loop, known, lossy), e.name, e.args[1])
    return None


def _scaled(a: Entry, name: str, by: Expr) -> Entry:
    if a is None or not isinstance(by, Const) or not isinstance(by.value, int):
        return None
    if name == "mul":
        return a * by.value
    return a / by.value if by.value else None


def _uses(e: Expr, loop: str) -> bool:
    return any(
        isinstance(node, Variable) and node.kind != "param" and node.name == loop
        for node in walk(e)
    )


def through(outer: Jacobian, inner: Jacobian, lossy: bool = False) -> Jacobian:
    """Return the Jacobian of an access `outer` in a Func that is inlined where `inner` reads it."""
    columns = len(inner[0]) if inner else 0
    return tuple(
        tuple(_dot(row, [line[j] for line in inner], lossy) for j in range(columns))
        for row in outer
    )


def _dot(row: Sequence[Entry], column: Sequence[Entry], lossy: bool) -> Entry:
    total: Entry = ZERO
    for a, b in zip(row, column, strict=False):
        if lossy:
            total = _lossy_step(total, a, b)
            continue
        if a == 0 or b == 0 or total is None:
            continue
        total = None if a is None or b is None else total + a * b
    return total


def _lossy_step(total: Entry, a: Entry, b: Entry) -> Entry:
    """Return total + a * b as in `lossy_sum`, where the product is not a reduced fraction."""
    # Most entries are these two objects; fractions are slow to compare, multiply and add.
    if a is ZERO or b is ZERO:
        return total if total is None or total.denominator & 1 else None
    if total is ZERO and (a is ONE or b is ONE):
        other = b if a is ONE else a
        return other if other is None or other.denominator & 1 else None
    if a == 0 or b == 0:
        return lossy_sum(total, ZERO)
    if total is None or a is None or b is None:
        return None
    if not total.denominator & (a.denominator * b.denominator):
        return None
    return total + a * b


def entry(matrix: Jacobian, coordinate: int, loop: int) -> Entry:
    """Return one entry; 0 where the accessed Func or the accessing stage has no dimensions."""
    if coordinate >= len(matrix) or loop >= len(matrix[coordinate]):
        return ZERO
    return matrix[coordinate][loop]


def access_kinds(matrix: Jacobian, loops: int) -> tuple[bool, bool, bool, bool]:
    """Return whether an access is pointwise, a transpose, a broadcast, a slice; several may hold.

    Pointwise is the identity: ``f(x - 2, y + 8)``. A transpose permutes the loops: ``f(y, x)``. A
    broadcast uses each loop at most once and no constant: ``f(y)``. A slice uses each loop exactly
    once, other coordinates are constant: ``f(y, x, 4)``.
    """
    square = len(matrix) == loops
    pointwise = square and all(
        value == (1 if i == j else 0) for i, row in enumerate(matrix) for j, value in enumerate(row)
    )
    ones, blank = _lines(matrix, loops)
    columns = [[row[j] for row in matrix] for j in range(loops)]
    column_ones, column_blank = _lines(columns, len(matrix))
    some = [a or b for a, b in zip(column_ones, column_blank, strict=True)]
    transpose = square and all(ones) and all(some)
    # The released code asks the columns of a broadcast to have a single one, and those of the
    # transposes to have at most one; its comments say the reverse.
    broadcast = all(ones) and all(column_ones)
    sliced = all(a or b for a, b in zip(ones, blank, strict=True)) and all(column_ones)
    return pointwise, transpose, broadcast, sliced


def _lines(lines: Sequence[Sequence[Entry]], length: int) -> tuple[list[bool], list[bool]]:
    """Return, for each line of a matrix, whether it has a single 1, and whether it is all 0."""
    ones = [sum(v == 1 for v in line) for line in lines]
    zeros = [sum(v == 0 for v in line) for line in lines]
    single = [a == 1 and b == length - 1 for a, b in zip(ones, zeros, strict=True)]
    return single, [b == length for b in zeros]
