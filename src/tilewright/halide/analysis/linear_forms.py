"""Linear forms of integer expressions.

A linear form is const + sum over terms of (coefficient x atom). An atom is a variable or a
nonlinear subexpression.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tilewright.halide.ir.algorithm import Call, Const, Expr, Op, Variable

_TRANSPARENT = frozenset(
    [
        "likely",
        "likely_if_innermost",
        "promise_clamped",
        "unsafe_promise_clamped",
        "strict_float",
        "return_second",
    ]
)


class Linear(NamedTuple):
    """A constant plus integer multiples of atoms (variables or nonlinear subexpressions)."""

    terms: tuple[tuple[Expr, float], ...]
    const: float

    @property
    def affine(self) -> bool:
        """Whether every atom is a loop variable."""
        return all(isinstance(atom, Variable) for atom, _ in self.terms)


class Linearizer:
    """Convert integer expressions to linear forms, with known scalar parameters substituted.

    Variables with the same name are one atom. Results are cached per expression node.
    """

    def __init__(self, scalars: Mapping[str, float]) -> None:
        self._scalars = scalars
        self._known: dict[int, tuple[Expr, Linear]] = {}
        self._constant: dict[int, tuple[Expr, bool]] = {}

    def values(self, symbols: Iterable[str]) -> tuple[float | None, ...]:
        """Return the substituted value of each of these scalar parameters; None if unknown."""
        return tuple(map(self._scalars.get, symbols))

    def __call__(self, expr: Expr) -> Linear:
        """Return the linear form of `expr`."""
        found = self._known.get(id(expr))
        if found is None:
            found = (expr, self._compute(expr))
            self._known[id(expr)] = found
        return found[1]

    def constant(self, e: Expr) -> bool:
        """Return whether the range of an expression depends on no variable.

        The range of the values of a Func or image does not depend on where it is read.
        """
        known = self._constant.get(id(e))
        if known is None:
            if isinstance(e, Call) and e.kind in ("func", "image"):
                found = True
            elif isinstance(e, Variable):
                found = False
            else:
                found = isinstance(e, Const) or all(self.constant(arg) for arg in e.args)
            known = self._constant[id(e)] = (e, found)
        return known[1]

    def _compute(self, e: Expr) -> Linear:
        if isinstance(e, Const):
            return Linear((), float(e.value)) if not isinstance(e.value, str) else _atom(e)
        if isinstance(e, Variable):
            value = self._scalars.get(e.name) if e.kind == "param" else None
            return _atom(e) if value is None else Linear((), float(value))
        if isinstance(e, Call):
            if e.kind == "intrinsic" and e.name in _TRANSPARENT:
                return self(e.args[-1] if e.name == "return_second" else e.args[0])
            return _atom(e)
        return self._of_operator(e)

    def _of_operator(self, e: Op) -> Linear:
        """Convert sums, products with a constant and widening casts; others become atoms."""
        if e.name in ("add", "sub"):
            sign = 1.0 if e.name == "add" else -1.0
            return combine(self(e.args[0]), self(e.args[1]), sign)
        if e.name == "mul":
            a, b = self(e.args[0]), self(e.args[1])
            if not a.terms:
                a, b = b, a
            if not b.terms:
                terms = tuple((atom, c * b.const) for atom, c in a.terms if c * b.const != 0)
                return Linear(terms, a.const * b.const)
        if e.name == "cast" and e.type.code == "int" and e.type.bits >= 32:
            source = e.args[0].type
            if source.code == "int" and source.bits <= e.type.bits:
                return self(e.args[0])
        return _atom(e)


def _atom(e: Expr) -> Linear:
    return Linear(((e, 1.0),), 0.0)


def atom_key(atom: Expr) -> object:
    """Return what is equal for two occurrences of one atom."""
    return atom.name if isinstance(atom, Variable) else id(atom)


def combine(a: Linear, b: Linear, sign: float) -> Linear:
    """Return ``a + sign * b``."""
    terms = {atom_key(atom): (atom, c) for atom, c in a.terms}
    for atom, c in b.terms:
        key = atom_key(atom)
        before = terms[key][1] if key in terms else 0.0
        terms[key] = (atom, before + sign * c)
    kept = tuple((atom, c) for atom, c in terms.values() if c != 0)
    return Linear(kept, a.const + sign * b.const)
