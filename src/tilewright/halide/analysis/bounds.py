"""Region inference: the box of every producer that a box of its consumers needs.

A bound is a float64 scalar or an array of shape (N,), one number per candidate tiling. float64
holds every 32-bit coordinate exactly, and infinity for no bound. Affine index expressions over
boxes are bounded exactly. Clamps, selects, divisions and data-dependent indices are bounded by
interval arithmetic, which may exceed the region touched but always covers it.

Notation: an interval [lo, hi] includes both ends, so its extent is hi - lo + 1. `env` maps every
loop variable to its interval. A linear form is const + sum over terms of (coefficient x atom).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.linear_forms import Linear as Linear
from tilewright.halide.analysis.linear_forms import Linearizer as Linearizer
from tilewright.halide.analysis.linear_forms import atom_key
from tilewright.halide.ir.algorithm import (
    Call,
    Const,
    Expr,
    Func,
    Op,
    Span,
    Stage,
    Type,
    Variable,
)

Bound = float | npt.NDArray[np.float64]


class Interval(NamedTuple):
    """A range of integers with both ends included; each end is a scalar or has shape (N,)."""

    lo: Bound
    hi: Bound

    @property
    def extent(self) -> Bound:
        """The number of integers in the interval."""
        return self.hi - self.lo + 1.0


Box = tuple[Interval, ...]
Env = Mapping[str, Interval]

EVERYTHING = Interval(-math.inf, math.inf)
# The prefix of the operations inside Halide 21's ``strict_float``.
STRICT = "strict_"
_ROUNDING = ("floor", "ceil", "round", "trunc")
_BITWISE = frozenset(["shift_right", "shift_left", "bitwise_and"])


def union(a: Interval, b: Interval) -> Interval:
    """Return the smallest interval that covers both."""
    return Interval(least(a.lo, b.lo), most(a.hi, b.hi))


def union_boxes(a: Box | None, b: Box) -> Box:
    """Return the smallest box that covers both; `a` may be None for the empty box."""
    return b if a is None else tuple(union(p, q) for p, q in zip(a, b, strict=True))


def span_box(spans: Iterable[Span]) -> Box:
    """Return a box with the given ranges."""
    return tuple(Interval(float(s.min), float(s.max)) for s in spans)


def least(a: Bound, b: Bound) -> Bound:
    """Return the smaller one, element by element."""
    if isinstance(a, float) and isinstance(b, float):
        return a if a <= b else b
    return np.minimum(a, b)


def most(a: Bound, b: Bound) -> Bound:
    """Return the larger one, element by element."""
    if isinstance(a, float) and isinstance(b, float):
        return a if a >= b else b
    return np.maximum(a, b)


def unbounded(b: Bound) -> bool:
    """Return whether a bound, or any element of it, is infinite."""
    return math.isinf(b) if isinstance(b, float) else bool(np.isinf(b).any())


def type_range(t: Type) -> Interval:
    """Return the range of a type; signed integers of 32 bits and more count as unbounded.

    Overflow of these integers is undefined in Halide, so their type does not bound a value.
    """
    if t.code == "uint" and t.bits <= 32:
        return Interval(0.0, float(2**t.bits - 1))
    if t.code == "int" and t.bits < 32:
        return Interval(-float(2 ** (t.bits - 1)), float(2 ** (t.bits - 1) - 1))
    if t.code == "uint":
        return Interval(0.0, math.inf)
    return EVERYTHING


# --- interval arithmetic ------------------------------------------------------------------


@dataclass
class Bounder:
    """Bound expressions over boxes of their loop variables.

    `values` has the range of the values of Funcs and images, for data-dependent indices. Its keys
    are names; those of the second and later values of a Tuple are ``NAME.POSITION``.
    """

    linear: Linearizer
    values: Mapping[str, Interval] = field(default_factory=dict)
    # The ranges of atoms that depend on no variable.
    _ranges: dict[int, tuple[Expr, Interval]] = field(default_factory=dict)

    def bound(self, expr: Expr, env: Env, memo: dict[int, Interval]) -> Interval:
        """Return the interval of `expr` when each variable ranges over `env`."""
        return self.of_linear(self.linear(expr), env, memo)

    def of_linear(self, form: Linear, env: Env, memo: dict[int, Interval]) -> Interval:
        """Return the interval of a linear form; exact if its atoms are independent variables."""
        lo: Bound = form.const
        hi: Bound = form.const
        for atom, c in form.terms:
            if isinstance(atom, Variable):
                inside = env.get(atom.name, EVERYTHING)
            else:
                found = memo.get(id(atom))
                if found is None:
                    found = memo[id(atom)] = self._atom(atom, env, memo)
                inside = found
            if c == 1.0:
                lo, hi = lo + inside.lo, hi + inside.hi
            elif c > 0:
                lo, hi = lo + c * inside.lo, hi + c * inside.hi
            else:
                lo, hi = lo + c * inside.hi, hi + c * inside.lo
        return Interval(lo, hi)

    def _atom(self, e: Expr, env: Env, memo: dict[int, Interval]) -> Interval:
        known = self._ranges.get(id(e))
        if known is None:
            found = self._of_atom(e, env, memo)
            if self.linear.constant(e):
                self._ranges[id(e)] = (e, found)
            return found
        return known[1]

    def _of_atom(self, e: Expr, env: Env, memo: dict[int, Interval]) -> Interval:
        if isinstance(e, Call):
            return self._of_call(e, env, memo)
        if not isinstance(e, Op):
            return EVERYTHING
        args = [
            self.bound(a, env, memo)
            for a in e.args
            if not isinstance(a, Const) or not isinstance(a.value, str)
        ]
        rule = _RULES.get(e.name)
        if rule is None:
            return type_range(e.type)
        result = rule(e, args)
        if e.type.code == "float":
            return _rounded(result) if e.type.bits == 32 else result
        return _within(result, type_range(e.type), e)

    def _of_call(self, e: Call, env: Env, memo: dict[int, Interval]) -> Interval:
        if e.kind in ("func", "image"):
            key = f"{e.name}.{e.value_index}" if e.value_index else e.name
            return self.values.get(key, type_range(e.type))
        args = [self.bound(a, env, memo) for a in e.args]
        if e.kind == "intrinsic" and e.name.startswith(STRICT):
            return self._of_strict(e, args)
        if e.name == "abs" and len(args) == 1:
            a = args[0]
            both = most(-a.lo, a.hi)
            return Interval(most(0.0, most(a.lo, -a.hi)), both)
        if e.name.startswith(_ROUNDING) and len(args) == 1:
            return _rounded_to_whole(e.name, args[0])
        if e.name == "lerp" and len(args) == 3:
            return union(args[0], args[1])
        if e.name in ("if_then_else", "select") and len(args) == 3:
            return union(args[1], args[2])
        if e.name.startswith(("sin_", "cos_")):
            return Interval(-1.0, 1.0)
        if e.name in _BITWISE and _is_point(args[1]):
            return _of_bits(e, args[0], args[1])
        return type_range(e.type)

    def _of_strict(self, e: Call, args: list[Interval]) -> Interval:
        """Bound a strict operation (``strict_mul``) as its operator."""
        name = e.name.removeprefix(STRICT)
        if name == "fma" and len(args) == 3:
            product = _rule_mul(e, args[:2])
            result = Interval(product.lo + args[2].lo, product.hi + args[2].hi)
        else:
            rule = _RULES.get(name)
            if rule is None:
                return type_range(e.type)
            result = rule(e, args)
        if e.type.code == "float":
            return _rounded(result) if e.type.bits == 32 else result
        limits = type_range(e.type)
        inside = np.all(result.lo >= limits.lo) and np.all(result.hi <= limits.hi)
        return result if inside else limits


def _rounded(a: Interval) -> Interval:
    """Round both ends to 32-bit floats, in which 1 / 0.1 is exactly 10, for example."""
    return Interval(_single(a.lo), _single(a.hi))


def _single(a: Bound) -> Bound:
    return _plain(np.asarray(a).astype(np.float32).astype(np.float64))


def _rounded_to_whole(name: str, a: Interval) -> Interval:
    """Return the interval after floor, ceil, round or trunc; the last two may round up or down."""
    if name.startswith(("round", "trunc")):
        return Interval(np.floor(a.lo), np.ceil(a.hi))
    step = np.ceil if name.startswith("ceil") else np.floor
    return Interval(step(a.lo), step(a.hi))


def _of_bits(e: Call, a: Interval, by: Interval) -> Interval:
    """Bound a shift by one known number, or a ``bitwise_and`` with a non-negative one."""
    scale = 2.0 ** float(np.max(by.lo))
    if e.name == "shift_right":
        return Interval(np.floor(a.lo / scale), np.floor(a.hi / scale))
    if e.name == "shift_left":
        return Interval(a.lo * scale, a.hi * scale)
    return Interval(0.0, by.hi) if float(np.min(by.lo)) >= 0 else type_range(e.type)


def _is_point(a: Interval) -> bool:
    return bool(np.all(a.lo == a.hi)) and bool(np.all(np.isfinite(a.lo)))


def _within(a: Interval, limits: Interval, e: Expr) -> Interval:
    """Return an integer's interval: the whole range of a narrow type if the value may wrap."""
    if e.type.code == "int" and e.type.bits >= 32:
        return a
    fits = (a.lo >= limits.lo) & (a.hi <= limits.hi)
    if np.all(fits):
        return a
    if e.type.code == "uint" and e.type.bits >= 32 and isinstance(e, Op) and e.name != "cast":
        return Interval(most(a.lo, limits.lo), a.hi)
    return Interval(np.where(fits, a.lo, limits.lo), np.where(fits, a.hi, limits.hi))


def _rule_mul(e: Op | Call, args: list[Interval]) -> Interval:
    a, b = args
    with np.errstate(invalid="ignore"):
        products = [a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi]
    products = [np.where(np.isnan(p), 0.0, p) for p in products]
    low, high = products[0], products[0]
    for p in products[1:]:
        low, high = np.minimum(low, p), np.maximum(high, p)
    return Interval(_plain(low), _plain(high))


def _rule_div(e: Op | Call, args: list[Interval]) -> Interval:
    a, b = args
    if isinstance(b.lo, float) and b.lo == b.hi and b.lo > 0:
        if e.type.code == "float":
            return Interval(a.lo / b.lo, a.hi / b.lo)
        return Interval(_floor(a.lo / b.lo), _floor(a.hi / b.lo))
    if np.any((np.asarray(b.lo) <= 0) & (np.asarray(b.hi) >= 0)):
        # Halide defines integer x/0 as 0; a float divided by a value near 0 has no bound.
        if e.type.code == "float":
            return EVERYTHING
        both = most(np.abs(a.lo), np.abs(a.hi))
        return Interval(-both, both)
    with np.errstate(invalid="ignore"):
        quotients = [a.lo / b.lo, a.lo / b.hi, a.hi / b.lo, a.hi / b.hi]
    quotients = [np.where(np.isnan(q), 0.0, q) for q in quotients]
    low, high = quotients[0], quotients[0]
    for q in quotients[1:]:
        low, high = np.minimum(low, q), np.maximum(high, q)
    if e.type.code != "float":
        low, high = np.floor(low), np.floor(high)
    return Interval(_plain(low), _plain(high))


def _rule_mod(e: Op | Call, args: list[Interval]) -> Interval:
    a, b = args
    if e.type.code == "float":
        return EVERYTHING
    if _is_point(b) and float(np.max(b.lo)) > 0:
        m = float(np.max(b.lo))
        # Within one period, the modulus only subtracts a constant.
        same = np.floor(a.lo / m) == np.floor(a.hi / m)
        if np.all(same) and np.all(np.isfinite(a.lo)):
            base = np.floor(a.lo / m) * m
            return Interval(_plain(a.lo - base), _plain(a.hi - base))
        return Interval(0.0, m - 1.0)
    return Interval(0.0, most(0.0, most(np.abs(b.lo), np.abs(b.hi)) - 1.0))


def _rule_cast(e: Op | Call, args: list[Interval]) -> Interval:
    a = args[0]
    if e.type.code in ("int", "uint") and e.args[0].type.code == "float":
        return Interval(np.trunc(a.lo), np.trunc(a.hi))
    return a


def _rule_select(e: Op | Call, args: list[Interval]) -> Interval:
    return union(args[1], args[2])


def _floor(a: Bound) -> Bound:
    if isinstance(a, float):
        return float(math.floor(a)) if math.isfinite(a) else a
    return np.floor(a)


def _plain(a: Bound) -> Bound:
    return float(a) if np.ndim(a) == 0 else a


_RULES: dict[str, Callable[[Op | Call, list[Interval]], Interval]] = {
    "mul": _rule_mul,
    "div": _rule_div,
    "mod": _rule_mod,
    "min": lambda e, a: Interval(least(a[0].lo, a[1].lo), least(a[0].hi, a[1].hi)),
    "max": lambda e, a: Interval(most(a[0].lo, a[1].lo), most(a[0].hi, a[1].hi)),
    "select": _rule_select,
    "cast": _rule_cast,
    "add": lambda e, a: Interval(a[0].lo + a[1].lo, a[0].hi + a[1].hi),
    "sub": lambda e, a: Interval(a[0].lo - a[1].hi, a[0].hi - a[1].lo),
}
for _comparison in ("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not"):
    _RULES[_comparison] = lambda e, a: Interval(0.0, 1.0)


# --- accesses of a stage ------------------------------------------------------------------


@dataclass(frozen=True)
class Access:
    """All accesses of one stage to one Func or image, dimension by dimension.

    Index expressions with the same linear terms are merged: `forms[d]` has each distinct form of
    dimension `d` once, with the smallest and the largest constant. `count` is the number of
    distinct accesses.
    """

    callee: str
    kind: str
    forms: tuple[tuple[tuple[Linear, float, float], ...], ...]
    count: int

    @property
    def affine(self) -> bool:
        """Whether every index is affine in loop variables."""
        return all(form.affine for dim in self.forms for form, _, _ in dim)


def accesses_of(calls: Iterable[Call], linear: Linearizer) -> tuple[Access, ...]:
    """Return the accesses to Funcs and images among `calls`, merged by callee."""
    by_callee: dict[tuple[str, str], list[Call]] = {}
    for call in calls:
        if call.kind in ("func", "image"):
            by_callee.setdefault((call.name, call.kind), []).append(call)
    result = []
    for (callee, kind), group in by_callee.items():
        dims = []
        for d in range(len(group[0].args)):
            merged: dict[tuple[tuple[object, float], ...], tuple[Linear, float, float]] = {}
            for call in group:
                form = linear(call.args[d])
                terms = [(atom_key(a), c) for a, c in form.terms]
                key = tuple(sorted(terms, key=repr) if len(terms) > 1 else terms)
                known = merged.get(key)
                if known is None:
                    merged[key] = (form, form.const, form.const)
                else:
                    merged[key] = (known[0], min(known[1], form.const), max(known[2], form.const))
            dims.append(tuple(merged.values()))
        points = {tuple(id(a) for a in call.args) for call in group}
        result.append(Access(callee, kind, tuple(dims), len(points)))
    return tuple(result)


def touched(access: Access, env: Env, bounder: Bounder, memo: dict[int, Interval]) -> Box:
    """Return the box that `access` touches while the loops range over `env`."""
    box = []
    for dim in access.forms:
        total: Interval | None = None
        for form, low, high in dim:
            part = bounder.of_linear(form, env, memo)
            if low != form.const or high != form.const:
                part = Interval(part.lo + (low - form.const), part.hi + (high - form.const))
            total = part if total is None else union(total, part)
        assert total is not None
        box.append(total)
    return tuple(box)


def stage_env(func: Func, stage: Stage, box: Box, bounder: Bounder) -> dict[str, Interval]:
    """Return the range of each loop of `stage` that produces the region `box` of `func`."""
    env = dict(zip(func.args, box, strict=True)) if stage.index == 0 else {}
    memo: dict[int, Interval] = {}
    if stage.index > 0:
        for arg, interval in zip(stage.args, box, strict=True):
            if isinstance(arg, Variable) and arg.kind == "var":
                env[arg.name] = interval
    for rvar in stage.rvars:
        low = bounder.bound(rvar.min, {}, memo)
        size = bounder.bound(rvar.extent, {}, memo)
        env[rvar.name] = Interval(low.lo, low.hi + size.hi - 1.0)
    return env
