"""Canonical form of definitions, in which the published features count operations.

The schedulers of Halide count operations after its simplifier and common subexpression elimination.
This module has the rules of the simplifier that change counts often: constants are folded and moved
to the right, differences with a constant become sums, quotients by a literal float become products,
and shifts by a literal become products and quotients. It is not the whole simplifier.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction

from tilewright.halide.ir.algorithm import Call, Const, Expr, Op, Type, Variable, walk

Value = int | float
# Operations without their own subexpression if an operand is a literal.
_CHEAP = ("add", "sub", "mul", "div")
_SWAPPED = ("add", "mul", "min", "max")
_FOLDED: dict[str, Callable[[Value, Value], Value]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "min": min,
    "max": max,
}
_FLIPPED = {"gt": "lt", "ge": "le"}


class Canonical:
    """Rewrites expressions to the canonical form; equal results are one object."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[object, ...], Expr] = {}
        self._done: dict[int, tuple[Expr, Expr]] = {}

    def __call__(self, expr: Expr) -> Expr:
        """Return the canonical form of an expression."""
        for node in walk(expr):
            if id(node) not in self._done:
                self._done[id(node)] = (node, self._rewrite(node))
        return self._done[id(expr)][1]

    def _rewrite(self, e: Expr) -> Expr:
        if isinstance(e, Const):
            return self._const(e.value, e.type)
        if isinstance(e, Variable):
            return self._nodes.setdefault(("variable", e.name, e.kind), e)
        args = tuple(self._done[id(arg)][1] for arg in e.args)
        if isinstance(e, Call):
            return self._call(e, args)
        return self._op(e.name, args, e.type)

    def _const(self, value: int | float | str, kind: Type) -> Expr:
        return self._nodes.setdefault(("const", repr(value), kind), Const(value, kind))

    def _call(self, e: Call, args: tuple[Expr, ...]) -> Expr:
        if e.kind == "intrinsic" and e.name in ("shift_left", "shift_right") and len(args) == 2:
            by = _number(args[1])
            if isinstance(by, int) and 0 <= by < 31:
                name = "mul" if e.name == "shift_left" else "div"
                return self._op(name, (args[0], self._const(1 << by, e.type)), e.type)
        key = ("call", e.name, e.kind, e.value_index, e.type, *map(id, args))
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Call(e.name, e.kind, args, e.type, e.value_index)
        return found

    def _op(self, name: str, args: tuple[Expr, ...], kind: Type) -> Expr:
        if name in _FLIPPED:
            name, args = _FLIPPED[name], args[::-1]
        if name in _SWAPPED and isinstance(args[0], Const) and not isinstance(args[1], Const):
            args = args[::-1]
        if name == "cast":
            return self._cast(args[0], kind)
        if name == "select" and isinstance(args[0], Const):
            return args[1] if args[0].value else args[2]
        if len(args) == 2:
            found = self._binary(name, args[0], args[1], kind)
            if found is not None:
                return found
        return self._node(name, args, kind)

    def _node(self, name: str, args: tuple[Expr, ...], kind: Type) -> Expr:
        key = ("op", name, kind, *map(id, args))
        return self._nodes.setdefault(key, Op(name, args, kind))

    def _cast(self, e: Expr, kind: Type) -> Expr:
        if e.type == kind:
            return e
        value = _number(e)
        if value is not None and kind.code in ("int", "uint", "float"):
            return self._const(_converted(value, kind), kind)
        if isinstance(e, Op) and e.name == "cast" and _keeps(e.args[0].type, e.type):
            return self._cast(e.args[0], kind)
        return self._node("cast", (e,), kind)

    def _binary(self, name: str, a: Expr, b: Expr, kind: Type) -> Expr | None:
        """Return a simpler form of a binary operation; None if no rule applies."""
        right = _number(b)
        if right is None:
            return self._const(0, kind) if name == "sub" and a is b and _is_int(kind) else None
        left = _number(a)
        if left is not None and name in _FOLDED:
            return self._const(_converted(_FOLDED[name](left, right), kind), kind)
        if name == "sub" and kind.code != "uint":
            return self._op("add", (a, self._const(-right, kind)), kind)
        if (name, right) in (("add", 0), ("sub", 0), ("mul", 1), ("div", 1)):
            return a
        if name == "div" and kind.code == "float" and right:
            return self._op("mul", (a, self._const(1.0 / right, kind)), kind)
        if name == "mul" and right == 0 and _is_int(kind):
            return b
        return self._nested(name, a, right, kind)

    def _nested(self, name: str, a: Expr, right: Value, kind: Type) -> Expr | None:
        """Merge a literal with the literal inside the other operand."""
        if not isinstance(a, Op) or len(a.args) != 2 or a.type != kind:
            return None
        inner = _number(a.args[1])
        if inner is None:
            return None
        if a.name == name and name in ("add", "mul", "min", "max"):
            value = _FOLDED[name](inner, right)
            return self._op(name, (a.args[0], self._const(_converted(value, kind), kind)), kind)
        if a.name == name == "div" and _is_int(kind) and inner > 0 and right > 0:
            return self._op(name, (a.args[0], self._const(inner * right, kind)), kind)
        if name == "mul" and a.name == "add":
            scaled = self._op("mul", (a.args[0], self._const(right, kind)), kind)
            shift = self._const(_converted(inner * right, kind), kind)
            return self._op("add", (scaled, shift), kind)
        return None


def counted(root: Expr) -> Iterator[tuple[Expr, int]]:
    """Yield every subexpression with the number of times it is evaluated.

    Common subexpressions are evaluated once, except sums, differences, products and quotients with
    a literal, which are repeated. Nodes that are evaluated once and used several times are yielded
    as a variable of their type, once per use, and once as ``let`` of the type of the root.
    """
    uses: Counter[int] = Counter()
    nodes: dict[int, Expr] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Const | Variable):
            yield node, 1
            continue
        if _extracted(node):
            uses[id(node)] += 1
            nodes[id(node)] = node
            if uses[id(node)] > 1:
                continue
        yield node, 1
        stack.extend(node.args)
    for key, count in uses.items():
        if count > 1:
            yield Variable("", "var", nodes[key].type), count
            yield Op("let", (), root.type), 1


def counted_uses(root: Expr) -> dict[int, int]:
    """Return the uses of the subexpressions that get a name, by identity of the node."""
    uses: Counter[int] = Counter()
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Const | Variable):
            continue
        if _extracted(node):
            uses[id(node)] += 1
            if uses[id(node)] > 1:
                continue
        stack.extend(node.args)
    return {key: count for key, count in uses.items() if count > 1}


def _extracted(e: Op | Call) -> bool:
    """Return whether a subexpression that occurs several times gets a name."""
    if isinstance(e, Op):
        if e.name in ("cast", "reinterpret", "broadcast"):
            inner = e.args[0]
            return not isinstance(inner, Const | Variable) and _extracted(inner)
        if e.name in _CHEAP:
            return not any(isinstance(arg, Const) for arg in e.args)
    return True


def calls_of(roots: tuple[Expr, ...]) -> Counter[str]:
    """Return, by callee, how many distinct calls of Funcs each of the expressions has, summed."""
    return Counter(
        node.name
        for root in roots
        for node in walk(root)
        if isinstance(node, Call) and node.kind == "func"
    )


def _number(e: Expr) -> Value | None:
    return e.value if isinstance(e, Const) and not isinstance(e.value, str) else None


def _is_int(kind: Type) -> bool:
    return kind.code in ("int", "uint")


def _keeps(source: Type, to: Type) -> bool:
    """Return whether a cast keeps every value of an integer type."""
    if not (_is_int(source) and _is_int(to)):
        return False
    if source.code == to.code:
        return source.bits <= to.bits
    return source.code == "uint" and source.bits < to.bits


def _converted(value: Value, kind: Type) -> Value:
    if kind.code == "float":
        return float(value)
    whole = int(Fraction(value)) if value == value and abs(value) != float("inf") else 0
    if kind.code == "uint" or kind.bits < 32:
        whole &= (1 << kind.bits) - 1
        if kind.code == "int" and whole >> (kind.bits - 1):
            whole -= 1 << kind.bits
    return whole
