"""Find Funcs whose required region Halide may narrow because they are read under conditions.

If a Func is read only where a condition on loop variables holds (``select(x < 5, f(x), 0)``, or a
reduction domain with ``RDom.where``), Halide requires only the coordinates that meet the condition.
How many these are may depend on loops further out. Region inference here ignores conditions, so a
split that fits in the region it infers may still reach beyond the one that Halide requires.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable

from tilewright.halide.ir.algorithm import Algorithm, Call, Expr, Op, Stage, walk
from tilewright.halide.ir.expressions import same, uses

_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq"})


@functools.lru_cache(maxsize=8)
def narrowed(algorithm: Algorithm) -> frozenset[int]:
    """Return the positions of the Funcs whose region a condition may narrow.

    These are Funcs that are read under a condition, unless the same stage also reads the same
    coordinates without it, and all that such Funcs read.
    """
    found: set[str] = set()
    for func in reversed(algorithm.funcs):
        for stage in func.stages:
            if func.name in found:
                found |= {call.name for call in stage.calls if call.name != func.name}
            else:
                found |= {name for name in _under_conditions(stage) if name != func.name}
    return frozenset(algorithm.order[name] for name in found if name in algorithm.order)


def _under_conditions(stage: Stage) -> set[str]:
    """Return the Funcs and images that a stage reads somewhere only if a condition holds."""
    loops = frozenset(loop.name for loop in stage.loops)
    if any(_narrows(predicate, loops) for predicate in stage.predicates):
        return {call.name for call in stage.calls}
    choices = {
        id(e)
        for e in walk(*stage.values)
        if isinstance(e, Op | Call)
        and e.name in ("select", "if_then_else")
        and _narrows(e.args[0], loops)
    }
    if not choices:
        return set()
    always = _read_always((*stage.values, *stage.args), choices)
    return {call.name for call in stage.calls if not _among(call, always)}


def _read_always(roots: Iterable[Expr], choices: Container[int]) -> list[Call]:
    """Return the calls that do not depend on a choice, and those in both of its branches."""
    found: list[Call] = []
    seen: set[int] = set()
    pending = list(roots)
    while pending:
        e = pending.pop()
        if id(e) in seen or not isinstance(e, Op | Call):
            continue
        seen.add(id(e))
        if id(e) in choices:
            condition, *branches = e.args
            pending.append(condition)
            one, other = (_read_always([branch], choices) for branch in branches)
            found += [call for call in one if _among(call, other)]
            continue
        if isinstance(e, Call):
            found.append(e)
        pending.extend(e.args)
    return found


def _among(call: Call, others: Iterable[Call]) -> bool:
    return any(other.name == call.name and same(call, other) for other in others)


def _narrows(condition: Expr, loops: frozenset[str]) -> bool:
    """Return whether Halide may solve a condition for a loop variable.

    It does not do so for alternatives, nor for equal remainders, which select the pixels of a Bayer
    pattern.
    """
    if isinstance(condition, Op) and condition.name == "and":
        return any(_narrows(arg, loops) for arg in condition.args)
    if not isinstance(condition, Op) or condition.name not in _COMPARISONS:
        return False
    remainders = condition.name != "eq"
    return any(uses(arg, loops, reads=False, remainders=remainders) for arg in condition.args)
