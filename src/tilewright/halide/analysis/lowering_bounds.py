"""Bound expressions as Halide's lowering does, where that is not the tightest bound.

Halide 21 (``Bounds.cpp``) computes bounds symbolically. Two rules differ from interval arithmetic
on the numeric values of the symbols:

- The remainder of a value that varies is bounded by 0 and the divisor - 1, even if all values lie
  in one period. The reason is that the two ends of a loop are two symbols. Halide computes the
  remainder only if all variables are fixed (see `loop_ranges`).
- A ``select`` is bounded by one branch if the ends of the compared ranges decide its condition, and
  by both branches otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from tilewright.halide.analysis.bounds import (
    Access,
    Bound,
    Bounder,
    Box,
    Env,
    Interval,
    Linear,
    touched,
    union,
)
from tilewright.halide.analysis.loop_ranges import floor, larger, smaller, where
from tilewright.halide.ir.algorithm import Call, Const, Expr, Op, Variable

_PLAIN_BITS = 32  # Halide assumes that signed integers of at least this width do not overflow
# Increasing functions of one argument, by the part of the name before the type.
_MONOTONIC: dict[str, Callable[[Bound], Bound]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round": np.round,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
}


@dataclass
class LoweringBounder(Bounder):
    """A `Bounder` that follows Halide's lowering.

    `still` names the variables that are fixed where the expression is evaluated. These are loops
    around the evaluated point, not loops inside it. `apart` selects the wider bounds of
    `touched_at_most` for accesses.
    """

    still: frozenset[str] = frozenset()
    apart: bool = False
    _variables: dict[int, tuple[Expr, frozenset[str] | None]] = field(default_factory=dict)

    def standing(self, still: frozenset[str]) -> LoweringBounder:
        """Return the same bounder with the variables in `still` fixed."""
        return self if still == self.still else replace(self, still=still)

    def _of_atom(self, e: Expr, env: Env, memo: dict[int, Interval]) -> Interval:
        if isinstance(e, Op):
            rule = _RULES.get(e.name)
            if rule is not None and e.type.code != "float":
                return rule(self, e, [self.bound(a, env, memo) for a in e.args])
            if e.name == "select":
                condition, *branches = (self.bound(a, env, memo) for a in e.args)
                return _select(condition, branches[0], branches[1])
        return super()._of_atom(e, env, memo)

    def _of_call(self, e: Call, env: Env, memo: dict[int, Interval]) -> Interval:
        if e.name == "if_then_else" and len(e.args) == 3:
            condition, *branches = (self.bound(a, env, memo) for a in e.args)
            return _select(condition, branches[0], branches[1])
        if e.name == "shift_left" and e.type.code == "int" and e.type.bits >= _PLAIN_BITS:
            return self._shifted(e, env, memo)
        rule = _MONOTONIC.get(e.name.partition("_")[0])
        if rule is not None and e.kind != "func" and e.kind != "image" and len(e.args) == 1:
            low, high = self.bound(e.args[0], env, memo)
            if np.all(np.isfinite(low)) and np.all(np.isfinite(high)):
                with np.errstate(all="ignore"):
                    return Interval(_single(rule(low), e), _single(rule(high), e))
        return super()._of_call(e, env, memo)

    def _shifted(self, e: Call, env: Env, memo: dict[int, Interval]) -> Interval:
        """Bound ``a << b``; there is a bound only if Halide proves that `b` is always in range."""
        a, b = (self.bound(part, env, memo) for part in e.args)
        always = self.bound(e.args[1], {}, {})
        least = bool(np.all(always.lo >= 0.0))
        most = least and bool(np.all(always.hi < e.type.bits))
        low: Bound = -math.inf
        if most:
            low = a.lo * 2.0**b.lo
        elif np.all(a.lo >= 0.0):
            low = 0.0
        return Interval(low, a.hi * 2.0**b.hi if most else math.inf)

    def varies(self, e: Expr) -> bool:
        """Return whether a value may change while the variables in `still` are fixed."""
        names = self._names(e)
        return names is None or not names <= self.still

    def _names(self, e: Expr) -> frozenset[str] | None:
        """Return the loop variables of an expression; None if it reads Funcs or images."""
        known = self._variables.get(id(e))
        if known is None:
            known = self._variables[id(e)] = (e, self._found(e))
        return known[1]

    def _found(self, e: Expr) -> frozenset[str] | None:
        if isinstance(e, Const):
            return frozenset()
        if isinstance(e, Variable):
            return frozenset() if e.kind == "param" else frozenset([e.name])
        if isinstance(e, Call) and e.kind in ("func", "image"):
            return None
        found: frozenset[str] = frozenset()
        for part in e.args:
            names = self._names(part)
            if names is None:
                return None
            found |= names
        return found


def _single(value: Bound, e: Expr) -> Bound:
    """Return a value rounded to the float type of `e`."""
    array = np.asarray(value)
    if e.type.bits == 32:
        array = array.astype(np.float32).astype(np.float64)
    return float(array) if array.ndim == 0 else array


def _select(condition: Interval, yes: Interval, no: Interval) -> Interval:
    """Return the union of the branches selected at both ends of the condition's interval."""
    taken = [
        Interval(where(c != 0.0, yes.lo, no.lo), where(c != 0.0, yes.hi, no.hi)) for c in condition
    ]
    return union(taken[0], taken[1])


def touched_at_most(
    access: Access, env: Env, bounder: LoweringBounder, memo: dict[int, Interval]
) -> Box:
    """Return the box that `access` touches, with each index quotient at its widest.

    Halide rewrites ``(x + k) / d - x / d`` to ``(x % d + k) / d`` and bounds the remainder by
    ``d - 1`` for every `x`.
    """
    box = list(touched(access, env, bounder, memo))
    for d, forms in enumerate(access.forms):
        quotients = [_quotient(form) for form, _, _ in forms]
        divisors = {quotient.divisor for quotient in quotients if quotient is not None}
        if None in quotients or len(divisors) != 1:
            continue
        (divisor,) = divisors
        total: Interval | None = None
        for quotient, (form, low, high) in zip(quotients, forms, strict=True):
            assert quotient is not None
            part = bounder.bound(quotient.dividend, env, memo)
            ends = [low - form.const, high - form.const]
            part = Interval(part.lo + divisor * ends[0], part.hi + divisor * ends[1])
            total = part if total is None else union(total, part)
        assert total is not None
        reach = floor((total.hi - total.lo + divisor - 1.0) / divisor)
        box[d] = Interval(box[d].lo, larger(box[d].hi, box[d].lo + reach))
    return tuple(box)


class _Quotient(NamedTuple):
    """The index ``dividend / divisor + constant`` with a positive constant divisor."""

    dividend: Expr
    divisor: float


def divisor_of(form: Linear) -> float:
    """Return the constant divisor of an index of the form ``x / d + c``; 1 for other indices."""
    quotient = _quotient(form)
    return 1.0 if quotient is None else quotient.divisor


def _quotient(form: Linear) -> _Quotient | None:
    if len(form.terms) != 1 or form.terms[0][1] != 1.0:
        return None
    atom = form.terms[0][0]
    if not (isinstance(atom, Op) and atom.name == "div" and atom.type.code != "float"):
        return None
    divisor = atom.args[1]
    if not (isinstance(divisor, Const) and isinstance(divisor.value, int) and divisor.value > 0):
        return None
    return _Quotient(atom.args[0], float(divisor.value))


def _truth(condition: object) -> Bound:
    """Return a condition as a bound: 0 for false and 1 for true."""
    array = np.asarray(condition, dtype=np.float64)
    return float(array) if array.ndim == 0 else array


def _mod(bounder: LoweringBounder, e: Op, args: list[Interval]) -> Interval:
    a, b = args
    if not bounder.varies(e.args[0]) and not bounder.varies(e.args[1]):
        size = larger(larger(b.lo, -b.lo), 1.0)
        rest = a.lo - floor(a.lo / size) * size
        return Interval(rest, rest)
    return Interval(0.0, larger(larger(b.hi - 1.0, -1.0 - b.lo), 0.0))


def _less(bounder: LoweringBounder, e: Op, args: list[Interval]) -> Interval:
    a, b = args
    return Interval(_truth(a.hi < b.lo), _truth(a.lo < b.hi))


def _less_or_equal(bounder: LoweringBounder, e: Op, args: list[Interval]) -> Interval:
    a, b = args
    return Interval(_truth(a.hi <= b.lo), _truth(a.lo <= b.hi))


def _equal(bounder: LoweringBounder, e: Op, args: list[Interval]) -> Interval:
    a, b = args
    overlap = _truth((np.asarray(a.lo) <= b.hi) & (np.asarray(b.lo) <= a.hi))
    if bounder.varies(e.args[0]) or bounder.varies(e.args[1]):
        return Interval(0.0, overlap)
    return Interval(overlap, overlap)


def _not(bounder: LoweringBounder, e: Op, args: list[Interval]) -> Interval:
    return Interval(1.0 - args[0].hi, 1.0 - args[0].lo)


_Rule = Callable[[LoweringBounder, Op, list[Interval]], Interval]
_RULES: Mapping[str, _Rule] = {
    "mod": _mod,
    "lt": _less,
    "le": _less_or_equal,
    "gt": lambda bounder, e, args: _less(bounder, e, args[::-1]),
    "ge": lambda bounder, e, args: _less_or_equal(bounder, e, args[::-1]),
    "eq": _equal,
    "ne": lambda bounder, e, args: _not(bounder, e, [_equal(bounder, e, args)]),
    "and": lambda bounder, e, args: Interval(
        smaller(args[0].lo, args[1].lo), smaller(args[0].hi, args[1].hi)
    ),
    "or": lambda bounder, e, args: Interval(
        larger(args[0].lo, args[1].lo), larger(args[0].hi, args[1].hi)
    ),
    "not": _not,
}
