"""Which updates add to one value: their terms may be added in any order."""

from __future__ import annotations

from tilewright.halide.ir.algorithm import Call, Expr, Op, Stage, Variable, walk


def is_sum(stage: Stage) -> bool:
    """Return whether a stage is ``f(x) = f(x) + ...``, the rest without ``f`` and unconditional.

    Sums of strict floats are not, because their order counts.
    """
    if len(stage.values) != 1 or stage.predicates or not stage.rvars:
        return False
    terms = list(_terms(stage.values[0]))
    own = [term for term in terms if _is_self(term, stage)]
    others = [term for term in terms if not _is_self(term, stage)]
    nodes = walk(*others, *stage.args)
    return (
        len(own) == 1
        and bool(others)
        and not any(isinstance(node, Call) and node.name == stage.func for node in nodes)
    )


def _terms(e: Expr) -> list[Expr]:
    """Return the terms of a sum; one term for what is no sum."""
    if isinstance(e, Op) and e.name == "add":
        return [term for arg in e.args for term in _terms(arg)]
    return [e]


def _is_self(e: Expr, stage: Stage) -> bool:
    """Return whether an expression is the value that a stage stores to, before it does."""
    if not isinstance(e, Call) or e.kind != "func" or e.name != stage.func:
        return False
    places = [arg.name for arg in stage.args if isinstance(arg, Variable)]
    read = [arg.name for arg in e.args if isinstance(arg, Variable)]
    return len(places) == len(stage.args) == len(e.args) and places == read
