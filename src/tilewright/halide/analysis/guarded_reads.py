"""Reads of Funcs that happen only if a condition on loop variables holds.

Halide solves such a condition (``select(x < 5, f(x), 0)``, or a reduction domain with
``RDom.where``) for the variables, and requires only the coordinates of ``f`` that meet it.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping

from tilewright.halide.analysis.bounds import EVERYTHING, Interval, least, most
from tilewright.halide.analysis.linear_forms import Linearizer, combine
from tilewright.halide.ir.algorithm import Call, Expr, Op, Stage, Variable, walk
from tilewright.halide.ir.expressions import operands_of, same, uses

# A condition, and whether it must hold or must not hold.
Condition = tuple[Expr, bool]
# The range of each loop variable where conditions hold.
Limits = Mapping[str, Interval]

NOTHING = Interval(math.inf, -math.inf)  # the empty interval; covered by every other one

_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}


def narrowing_predicates(stage: Stage) -> tuple[Condition, ...]:
    """Return the predicates of a stage for which Halide may narrow its loops."""
    loops = _loops(stage)
    return tuple((p, True) for p in stage.predicates if _narrows(p, loops))


def guarded_reads(stage: Stage) -> tuple[tuple[Call, tuple[Condition, ...]], ...]:
    """Return the calls that a stage makes only under conditions, each with some of these.

    A call in both branches of a choice does not depend on it. Where a call is made under different
    conditions, only those of one place are given. Predicates of reduction domains are not included.
    """
    key = "guarded reads"
    found = stage.derived.get(key)
    if found is None:
        found = stage.derived[key] = tuple(_guarded_reads(stage))
    assert isinstance(found, tuple)
    return found


def _guarded_reads(stage: Stage) -> Iterable[tuple[Call, tuple[Condition, ...]]]:
    loops = _loops(stage)
    choices = {
        id(e)
        for e in walk(*stage.values)
        if isinstance(e, Op | Call)
        and e.name in ("select", "if_then_else")
        and _narrows(e.args[0], loops)
    }
    if not choices:
        return
    always = _read_always((*stage.values, *stage.args), choices)
    seen: set[int] = set()
    pending: list[tuple[Expr, tuple[Condition, ...]]] = [
        (root, ()) for root in (*stage.values, *stage.args)
    ]
    while pending:
        e, conditions = pending.pop()
        if id(e) in seen or not isinstance(e, Op | Call):
            continue
        seen.add(id(e))
        if isinstance(e, Call) and conditions and not _among(e, always):
            yield e, conditions
        if id(e) in choices:
            condition, yes, no = e.args
            pending.append((condition, conditions))
            pending.append((yes, (*conditions, (condition, True))))
            pending.append((no, (*conditions, (condition, False))))
        else:
            pending.extend((arg, conditions) for arg in e.args)


def limits_of(conditions: Iterable[Condition], stage: Stage, linear: Linearizer) -> Limits:
    """Return the ranges to which conditions narrow the loop variables of a stage.

    The range is `NOTHING` for a variable whose range is not known: in a comparison of two loop
    variables, for example, it depends on the other one.
    """
    loops = _loops(stage)
    found: dict[str, Interval] = {}
    for condition, holds in conditions:
        parts = operands_of(condition, "and") if holds else iter([condition])
        for part in parts:
            if not _narrows(part, loops):
                continue
            limit = _limit(part, holds, linear)
            for name in (name for name in loops if uses(part, {name}, reads=False)):
                known = found.get(name, EVERYTHING)
                found[name] = Interval(most(known.lo, limit.lo), least(known.hi, limit.hi))
    return found


def _limit(condition: Expr, holds: bool, linear: Linearizer) -> Interval:
    """Return the range of a loop variable compared with a constant; `NOTHING` for the rest."""
    assert isinstance(condition, Op | Call)
    name: str | None = condition.name
    if not holds:
        name = _OPPOSITE.get(condition.name)
    if name not in _MIRRORED:
        return NOTHING
    left, right = condition.args
    form = combine(linear(left), linear(right), -1.0)
    if len(form.terms) != 1 or not isinstance(form.terms[0][0], Variable):
        return NOTHING
    factor = form.terms[0][1]
    bound = -form.const / factor
    if factor < 0:
        name = _MIRRORED[name]
    if name == "lt":
        return Interval(-math.inf, math.ceil(bound) - 1.0)
    if name == "le":
        return Interval(-math.inf, float(math.floor(bound)))
    if name == "gt":
        return Interval(math.floor(bound) + 1.0, math.inf)
    if name == "ge":
        return Interval(float(math.ceil(bound)), math.inf)
    return Interval(float(math.ceil(bound)), float(math.floor(bound)))


def _loops(stage: Stage) -> frozenset[str]:
    return frozenset(loop.name for loop in stage.loops)


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
    if not isinstance(condition, Op) or condition.name not in _MIRRORED:
        return False
    remainders = condition.name != "eq"
    return any(uses(arg, loops, reads=False, remainders=remainders) for arg in condition.args)
