"""Constraints as expressions: parsed from Python's syntax tree, never evaluated as code.

An expression is compiled to closures over NumPy columns, one row per configuration. Whole
numbers are computed exactly: where a product might not fit 64 bits, Python's own integers
take over. As in Python, ``and`` and ``or`` evaluate their right side only where the left does not
decide. A row with a value that cannot be computed (a division by zero, the logarithm of a number
that is not positive) does not satisfy the constraint.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tilewright.arith import ExpressionError, Grammar, parse_expression
from tilewright.tuning.errors import ConstraintError

Column: TypeAlias = np.ndarray[Any, Any]
Operand: TypeAlias = Any
_LIMIT = 2**62
_MOST_BITS = 1 << 20  # in the result of a power: 128 KB per row
_MOST_LEVELS = 200  # of a syntax tree: recursion over it takes about three calls per level, of 1000
_FUNCTIONS = ("min", "max", "abs", "log2")


@dataclass
class Rows:
    """Columns of values of ``count`` configurations and which rows could not be computed.

    A permutation's column has shape (count, n): element ``i`` of a row is the ``i``-th
    element of its value.
    """

    columns: Mapping[str, Column]
    count: int
    bad: Column = field(init=False)

    def __post_init__(self) -> None:
        self.bad = np.zeros(self.count, dtype=bool)

    def where(self, mask: Column) -> Rows:
        """Return the rows that ``mask`` keeps."""
        return Rows({name: c[mask] for name, c in self.columns.items()}, int(mask.sum()))

    def present(self, names: Iterable[str]) -> Column:
        """Return the rows in which none of these parameters is absent."""
        result = np.ones(self.count, dtype=bool)
        for name in names:
            result &= self.columns.get(f"?{name}", True)
        return result


Node: TypeAlias = Callable[[Rows], Operand]


@dataclass(frozen=True)
class Constraint:
    """A known constraint: its text, the parameters it names, and a test of many rows.

    ``elements`` are the elements of permutations that it reads, as (name, index).
    """

    text: str
    names: tuple[str, ...]
    test: Callable[[Rows], Column] = field(compare=False, repr=False)
    elements: frozenset[tuple[str, int]] = frozenset()

    def __call__(self, columns: Mapping[str, Column], count: int) -> Column:
        """Return which of the ``count`` rows satisfy the constraint: booleans of shape (count,)."""
        return self.test(Rows(columns, count))


def parse(text: str, known: Mapping[str, tuple[Any, ...] | None]) -> list[Constraint]:
    """Return the constraints of ``text``, a conjunction split at its outermost ``and``.

    ``known`` maps each parameter that may be named to the items of a permutation, or to None.

    Raises:
        ConstraintError: a syntax error, an unknown name, or something not allowed.
    """
    try:
        tree = parse_expression(text)
    except ExpressionError as error:
        raise ConstraintError(f"constraint {text!r} {error}") from None
    if (levels := _levels(tree)) > _MOST_LEVELS:
        raise ConstraintError(
            f"constraint {text!r} is nested {levels} levels deep, and at most {_MOST_LEVELS} can "
            "be read; group long sums by parentheses, or give it as a function"
        )
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    return [_constraint(part, text, known) for part in parts]


def _levels(tree: ast.AST) -> int:
    """Return the depth of a syntax tree."""
    levels, level = 0, [tree]
    while level:
        levels += 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return levels


def from_callable(function: Callable[..., Any], names: tuple[str, ...]) -> Constraint:
    """Return a constraint that calls ``function`` with the values of the parameters ``names``.

    It is called once for each distinct combination of those values; an arithmetic error
    (division by zero) counts as not satisfied.
    """
    label = getattr(function, "__name__", repr(function))

    def test(rows: Rows) -> Column:
        result = np.empty(rows.count, dtype=bool)
        lists = [rows.columns[name].tolist() for name in names]
        for i, values in enumerate(zip(*lists, strict=True)):
            plain = [tuple(v) if isinstance(v, list) else v for v in values]
            try:
                result[i] = bool(function(*plain))
            except ArithmeticError:
                result[i] = False
        return result

    return Constraint(f"{label}({', '.join(names)})", tuple(names), test)


def _constraint(
    tree: ast.expr, text: str, known: Mapping[str, tuple[Any, ...] | None]
) -> Constraint:
    compiler = _Compiler(text, known)
    node = compiler.compile(tree)

    def test(rows: Rows) -> Column:
        try:
            result = _truth(node(rows), rows.count)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise compiler.fail(
                f"{ast.unparse(tree)!r} cannot be computed ({error})",
                "compute with numbers, and compare words by == and != alone",
            ) from None
        return result & ~rows.bad

    elements = frozenset(compiler.elements)
    return Constraint(ast.unparse(tree), tuple(sorted(compiler.names)), test, elements)


def _truth(value: Operand, count: int) -> Column:
    result = np.asarray(value)
    if result.dtype != bool:
        result = result.astype(bool)
    return np.broadcast_to(result, (count,))


class _Compiler:
    """Turns a syntax tree into closures, collecting the parameter names it meets."""

    def __init__(self, text: str, known: Mapping[str, tuple[Any, ...] | None]) -> None:
        self.text = text
        self.known = known
        self.grammar = Grammar(tuple(known), _FUNCTIONS, "parameters", words=True)
        self.names: set[str] = set()
        self.elements: set[tuple[str, int]] = set()

    def fail(self, what: str, cure: str) -> ConstraintError:
        return ConstraintError(f"constraint {self.text!r}: {what}; {cure}")

    def check(self, tree: ast.expr) -> None:
        """Raise `ConstraintError` where the grammar does not allow a node."""
        mistake = self.grammar.mistake_at(tree)
        if mistake is not None:
            raise self.fail(mistake.what, mistake.cure)

    def compile(self, tree: ast.expr) -> Node:
        method = getattr(self, f"_{type(tree).__name__.lower()}", None)
        if method is None:
            raise self.fail(
                f"{ast.unparse(tree)!r} is not allowed",
                "use arithmetic, comparisons, and/or/not, min, max, abs, log2",
            )
        node: Node = method(tree)
        return node

    def _constant(self, tree: ast.Constant) -> Node:
        self.check(tree)
        value = tree.value
        return lambda rows: value

    def _name(self, tree: ast.Name) -> Node:
        self.check(tree)
        name = tree.id
        if self.known[name] is not None:
            raise self.fail(
                f"the permutation {name!r} is used as a number",
                f"use {name}[i] or {name}.index(item)",
            )
        self.names.add(name)
        return lambda rows: rows.columns[name]

    def _boolop(self, tree: ast.BoolOp) -> Node:
        parts = [self.compile(part) for part in tree.values]
        decides = isinstance(tree.op, ast.Or)

        def node(rows: Rows) -> Column:
            result = _truth(parts[0](rows), rows.count).copy()
            for part in parts[1:]:
                open_rows = result != decides
                if not open_rows.any():
                    break
                below = rows.where(open_rows)
                result[open_rows] = _truth(part(below), below.count)
                rows.bad[open_rows] |= below.bad
            return result

        return node

    def _unaryop(self, tree: ast.UnaryOp) -> Node:
        inner = self.compile(tree.operand)
        if isinstance(tree.op, ast.Not):
            return lambda rows: ~_truth(inner(rows), rows.count)
        self.check(tree)
        if isinstance(tree.op, ast.USub):
            return lambda rows: _subtract(rows, 0, inner(rows))
        return inner

    def _binop(self, tree: ast.BinOp) -> Node:
        self.check(tree)
        function = _BINARY[type(tree.op)]
        left, right = self.compile(tree.left), self.compile(tree.right)
        return lambda rows: function(rows, _numeric(left(rows)), _numeric(right(rows)))

    def _compare(self, tree: ast.Compare) -> Node:
        steps: list[tuple[Callable[[Any, Any], Any], Node, Node]] = []
        left = tree.left
        for op, right in zip(tree.ops, tree.comparators, strict=True):
            if isinstance(op, ast.In | ast.NotIn):
                steps.append((operator.ne, self._member(left, right, op), lambda rows: False))
            elif type(op) in _COMPARE:
                steps.append((_COMPARE[type(op)], self.compile(left), self.compile(right)))
            else:
                raise self.fail(f"the comparison in {ast.unparse(tree)!r} is not allowed", "use ==")
            left = right

        def node(rows: Rows) -> Column:
            result = np.ones(rows.count, dtype=bool)
            for compare, a, b in steps:
                result &= _truth(compare(a(rows), b(rows)), rows.count)
            return result

        return node

    def _member(self, left: ast.expr, right: ast.expr, op: ast.cmpop) -> Node:
        if not isinstance(right, ast.Tuple | ast.List | ast.Set):
            raise self.fail(f"{ast.unparse(right)!r} is not a list", "write x in (1, 2, 4)")
        needle = self.compile(left)
        items = [self.compile(item) for item in right.elts]
        absent = isinstance(op, ast.NotIn)

        def node(rows: Rows) -> Column:
            value = needle(rows)
            found = np.zeros(rows.count, dtype=bool)
            for item in items:
                found |= _truth(value == item(rows), rows.count)
            return found ^ absent

        return node

    def _ifexp(self, tree: ast.IfExp) -> Node:
        test, yes, no = (self.compile(t) for t in (tree.test, tree.body, tree.orelse))

        def node(rows: Rows) -> Operand:
            chosen = _truth(test(rows), rows.count)
            result: Column = np.zeros(rows.count, dtype=object)
            for mask, branch in ((chosen, yes), (~chosen, no)):
                below = rows.where(mask)
                result[mask] = branch(below)
                rows.bad[mask] |= below.bad
            return result

        return node

    def _call(self, tree: ast.Call) -> Node:
        if isinstance(tree.func, ast.Attribute):
            return self._index(tree)
        self.check(tree)
        name = ast.unparse(tree.func)
        arguments = [self.compile(arg) for arg in tree.args]
        if name in ("min", "max"):
            pick = np.minimum if name == "min" else np.maximum
            return lambda rows: _reduce(pick, [a(rows) for a in arguments])
        inner = arguments[0]
        if name == "abs":
            return lambda rows: np.abs(np.asarray(inner(rows)))
        return lambda rows: _log2(rows, inner(rows))

    def _permutation(self, tree: ast.expr) -> tuple[str, tuple[Any, ...]]:
        if not isinstance(tree, ast.Name):
            raise self.fail(f"{ast.unparse(tree)!r} is not a permutation", "name one")
        self.check(tree)
        items = self.known[tree.id]
        if items is None:
            raise self.fail(f"{tree.id!r} is not a permutation", "only permutations have elements")
        self.names.add(tree.id)
        return tree.id, items

    def _subscript(self, tree: ast.Subscript) -> Node:
        name, items = self._permutation(tree.value)
        place = tree.slice
        if isinstance(place, ast.UnaryOp) and isinstance(place.op, ast.USub):
            place = ast.Constant(-getattr(place.operand, "value", 0.5))
        if (
            not isinstance(place, ast.Constant)
            or not isinstance(place.value, int)
            or not -len(items) <= place.value < len(items)
        ):
            raise self.fail(
                f"{ast.unparse(tree)!r} is not an element",
                f"use a whole number from 0 to {len(items) - 1}",
            )
        index = place.value
        self.elements.add((name, index % len(items)))
        return lambda rows: rows.columns[name][:, index]

    def _index(self, tree: ast.Call) -> Node:
        assert isinstance(tree.func, ast.Attribute)
        if tree.func.attr != "index" or len(tree.args) != 1 or tree.keywords:
            raise self.fail(f"{ast.unparse(tree)!r} is not allowed", "only .index(item) is")
        name, items = self._permutation(tree.func.value)
        wanted = tree.args[0]
        if not isinstance(wanted, ast.Constant) or wanted.value not in items:
            raise self.fail(
                f"{ast.unparse(wanted)!r} is not an item of {name}",
                f"its items are {', '.join(map(repr, items))}",
            )
        item = wanted.value
        self.elements.update((name, i) for i in range(len(items)))
        return lambda rows: (rows.columns[name] == item).argmax(axis=1)


def _numeric(value: Operand) -> Operand:
    """Return the operand. Raises TypeError for text, which Python would repeat."""
    array = np.asarray(value)
    if array.dtype.kind not in "biufO":
        raise TypeError("words are not numbers")
    if array.dtype.kind == "O" and any(isinstance(v, str | tuple) for v in array.flat):
        raise TypeError("words are not numbers")
    return value


def _whole(value: Operand) -> bool:
    return np.asarray(value).dtype.kind in "iub"


def _size(value: Operand) -> int:
    array = np.asarray(value)
    if array.size == 0:
        return 0
    return max(abs(int(array.max())), abs(int(array.min())))


def _wide(a: Operand, b: Operand, bound: Callable[[int, int], int]) -> tuple[Operand, Operand]:
    """Return the operands, as Python integers if the result might not fit 64 bits."""
    if _whole(a) and _whole(b):
        if bound(_size(a), _size(b)) >= _LIMIT:
            return np.asarray(a).astype(object), np.asarray(b).astype(object)
        return _number(a), _number(b)
    return a, b


def _number(value: Operand) -> Operand:
    array = np.asarray(value)
    return array.astype(np.int64) if array.dtype.kind in "bu" else value


def _add(rows: Rows, a: Operand, b: Operand) -> Operand:
    a, b = _wide(a, b, operator.add)
    return a + b


def _subtract(rows: Rows, a: Operand, b: Operand) -> Operand:
    a, b = _wide(a, b, operator.add)
    return a - b


def _multiply(rows: Rows, a: Operand, b: Operand) -> Operand:
    a, b = _wide(a, b, operator.mul)
    return a * b


def _nonzero(rows: Rows, b: Operand) -> Operand:
    """Return the divisor with ones for zeros, the rows of the zeros marked as not computable."""
    divisor = np.asarray(_number(b))
    zero = divisor == 0
    if zero.any():
        rows.bad |= np.broadcast_to(zero, (rows.count,))
        divisor = np.where(zero, 1, divisor)
    return divisor


def _divide(rows: Rows, a: Operand, b: Operand) -> Operand:
    return _number(a) / _nonzero(rows, b)


def _floor_divide(rows: Rows, a: Operand, b: Operand) -> Operand:
    return _number(a) // _nonzero(rows, b)


def _modulo(rows: Rows, a: Operand, b: Operand) -> Operand:
    return _number(a) % _nonzero(rows, b)


def _power(rows: Rows, a: Operand, b: Operand) -> Operand:
    base, exponent = np.asarray(a), np.asarray(b)
    if _whole(a) and _whole(b) and exponent.size and exponent.min() >= 0:
        if _size(b) > 4096:
            rows.bad |= np.broadcast_to(exponent > 4096, (rows.count,))
            exponent = np.minimum(exponent, 4096)
        if _size(a).bit_length() * _size(exponent) > _MOST_BITS:
            raise OverflowError("a power is too large")
        return base.astype(object) ** exponent.astype(object)
    with np.errstate(all="ignore"):
        result = base.astype(float) ** exponent.astype(float)
    wrong = ~np.isfinite(result)
    if wrong.any():
        rows.bad |= np.broadcast_to(wrong, (rows.count,))
    return result


def _log2(rows: Rows, a: Operand) -> Operand:
    value = np.asarray(a).astype(float)
    wrong = ~(value > 0)
    if wrong.any():
        rows.bad |= np.broadcast_to(wrong, (rows.count,))
    return np.log2(np.where(wrong, 1.0, value))


def _reduce(pick: Callable[[Any, Any], Any], values: list[Operand]) -> Operand:
    result = values[0]
    for value in values[1:]:
        result = pick(result, value)
    return result


_BINARY: dict[type[ast.operator], Callable[[Rows, Operand, Operand], Operand]] = {
    ast.Add: _add,
    ast.Sub: _subtract,
    ast.Mult: _multiply,
    ast.Div: _divide,
    ast.FloorDiv: _floor_divide,
    ast.Mod: _modulo,
    ast.Pow: _power,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
