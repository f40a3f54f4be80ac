"""Operators of reductions that Halide proves to be associative, with their identities.

Halide splits a reduction (``Stage.rfactor``) only if it can prove that the operator is associative.
`combiner` accepts part of what Halide 21 accepts: sums, products, minima, maxima, conjunctions and
disjunctions, Tuples of these, and the position of a minimum or a maximum if the Tuple has the value
first and keeps the old position by ``select(old < new, ...)`` or ``select(old > new, ...)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.halide.ir.algorithm import Call, Const, Expr, Op, Stage, Type, walk
from tilewright.halide.ir.expressions import operands_of, same
from tilewright.halide.ir.terms import sum_of


@dataclass(frozen=True, slots=True)
class Combiner:
    """The operator of a reduction.

    `names` has an operator per value of the Tuple: a key of `OPERATORS`, or ``arg`` for the
    position of the extreme in the value before it. `types` are the values' types.
    """

    names: tuple[str, ...]
    types: tuple[Type, ...]

    @property
    def ordered(self) -> bool:
        """Whether the result depends on the order of equal values: it is a position."""
        return "arg" in self.names

    @property
    def identities(self) -> tuple[Expr, ...]:
        """The values that change nothing if they are combined with others."""
        return tuple(_identity(*pair) for pair in zip(self.names, self.types, strict=True))

    def combine(self, old: Sequence[Expr], new: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the expressions that combine two Tuples of values."""
        result: list[Expr] = []
        for i, (name, type) in enumerate(zip(self.names, self.types, strict=True)):
            if name == "arg":
                order = "lt" if self.names[i - 1] == "min" else "gt"
                keeps = Op(order, (old[i - 1], new[i - 1]), Type("uint", 1))
                result.append(Op("select", (keeps, old[i], new[i]), type))
            else:
                result.append(Op(name, (old[i], new[i]), type))
        return tuple(result)


OPERATORS = frozenset({"add", "mul", "min", "max", "and", "or"})
UNPROVABLE = (
    "Halide cannot prove that its operator is associative; it can for sums, products, minima, "
    "maxima, and, or, and for a Tuple of a minimum or maximum and its position, in this order"
)


def combiner(stage: Stage) -> Combiner | str:
    """Return the operator of an update that Halide proves to be associative, or why it does not."""
    types = tuple(value.type for value in stage.values)
    if any(_reads(stage, expr) for expr in (*stage.args, *stage.predicates)):
        return UNPROVABLE
    names: list[str] = []
    for place, value in enumerate(stage.values):
        name = _operator(stage, place, value)
        if not name and names and names[-1] in ("min", "max"):
            name = _position(stage, place, value, names[-1])
        if not name:
            return UNPROVABLE
        names.append(name)
    return Combiner(tuple(names), types)


def _operator(stage: Stage, place: int, value: Expr) -> str:
    """Return the operator that combines the old value of an element with a new one, or ""."""
    if not isinstance(value, Op) or value.name not in OPERATORS:
        return ""
    operands = list(operands_of(value, value.name))
    rest = [operand for operand in operands if not _is_old(stage, place, operand)]
    if len(operands) != len(rest) + 1 or any(_reads(stage, operand) for operand in rest):
        return ""
    # Halide rewrites f + -a to f - a, and f * -a to -(f * a), whose forms it does not recognise.
    sums = [rest] if value.name == "add" else [[operand] for operand in rest]
    if value.name in ("add", "mul") and any(map(_may_negate, sums)):
        return ""
    return value.name


def _position(stage: Stage, place: int, value: Expr, extreme: str) -> str:
    """Return ``arg`` if an element is the position of the minimum or maximum before it, or ""."""
    if not isinstance(value, Op) or value.name != "select" or value.type.code == "float":
        return ""
    condition, old, new = value.args
    if not isinstance(condition, Op) or condition.name not in ("lt", "gt"):
        return ""
    first, second = condition.args
    if condition.name != ("lt" if extreme == "min" else "gt"):
        first, second = second, first
    best = stage.values[place - 1]
    assert isinstance(best, Op)
    new_value = next((e for e in best.args if not _is_old(stage, place - 1, e)), None)
    same_value = new_value is not None and len(best.args) == 2 and same(new_value, second)
    plain = isinstance(second, Call) and not _reads(stage, new)  # Halide rewrites other conditions
    keeps = _is_old(stage, place - 1, first) and _is_old(stage, place, old)
    return "arg" if same_value and plain and keeps else ""


def _may_negate(operands: Sequence[Expr]) -> bool:
    parts = sum_of(*operands)
    return parts is None or parts.negates


def _is_old(stage: Stage, place: int, expr: Expr) -> bool:
    if not isinstance(expr, Call) or expr.kind != "func" or expr.name != stage.func:
        return False
    if expr.value_index != place:
        return False
    return all(same(a, b) for a, b in zip(expr.args, stage.args, strict=True))


def _reads(stage: Stage, expr: Expr) -> bool:
    calls = (node for node in walk(expr) if isinstance(node, Call) and node.kind == "func")
    return any(call.name == stage.func for call in calls)


def _identity(name: str, type: Type) -> Const:
    if name in ("add", "or", "arg"):
        return Const(0, type)
    if name in ("mul", "and"):
        return Const(1, type)
    low = name == "max"
    if type.code in ("float", "bfloat"):
        return Const(float("-inf") if low else float("inf"), type)
    if type.code == "int":
        return Const(-(1 << type.bits - 1) if low else (1 << type.bits - 1) - 1, type)
    return Const(0 if low else (1 << type.bits) - 1, type)
