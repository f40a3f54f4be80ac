"""Recognise updates that combine values by one associative operator, in any order."""

from __future__ import annotations

from tilewright.halide.ir.algorithm import Call, Expr, Op, Stage, Variable, walk
from tilewright.halide.ir.expressions import operands_of
from tilewright.halide.ir.terms import sum_of

# The operators with which Halide 21 reduces a vector to one value; products are done one by one.
OPERATORS = frozenset({"add", "min", "max"})


def is_reorderable(stage: Stage) -> bool:
    """Return whether a stage is ``f(x) = f(x) + ...``, or the same with a minimum or maximum.

    Each value of a Tuple must have this form. The other operands must not read ``f``, and
    conditions of the update must hold for all iterations of its innermost reduction loop, or for
    none. Updates of strict floats are not reorderable.
    """
    if not stage.rvars:
        return False
    if any(_reads_itself(stage, arg) for arg in (*stage.args, *stage.predicates)):
        return False
    run = next(loop.name for loop in stage.loops if loop.kind != "pure")
    if any(isinstance(node, Variable) and node.name == run for node in walk(*stage.predicates)):
        return False
    return all(_combines(value, place, stage) for place, value in enumerate(stage.values))


def _combines(value: Expr, place: int, stage: Stage) -> bool:
    """Return whether value number `place` of the Tuple combines its old value with others."""
    if not isinstance(value, Op) or value.name not in OPERATORS:
        return False
    operands = list(operands_of(value, value.name))
    others = [operand for operand in operands if not _is_self(operand, place, stage)]
    if len(operands) != len(others) + 1 or any(_reads_itself(stage, e) for e in others):
        return False
    if value.name != "add":
        return True
    parts = sum_of(*others)
    return parts is not None and not parts.negates and not parts.has_constant


def _is_self(e: Expr, place: int, stage: Stage) -> bool:
    """Return whether an expression is the old value of the element that a stage stores to."""
    if not isinstance(e, Call) or e.kind != "func" or e.name != stage.func:
        return False
    places = [arg.name for arg in stage.args if isinstance(arg, Variable)]
    read = [arg.name for arg in e.args if isinstance(arg, Variable)]
    whole = len(places) == len(stage.args) == len(e.args)
    return whole and places == read and e.value_index == place


def _reads_itself(stage: Stage, e: Expr) -> bool:
    return any(isinstance(node, Call) and node.name == stage.func for node in walk(e))
