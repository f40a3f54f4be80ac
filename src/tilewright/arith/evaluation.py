"""Evaluate polynomials for known sizes and loop variables, given as numbers or integer arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arith.atoms import Atom, Boundary, Div, LoopVariable, Mod, Size
from tilewright.arith.polynomial import ONE, Poly


class NotWhole(ValueError):
    """A size is not a whole number, for example ``N / 4`` if ``N`` is 6."""


def evaluate(p: Poly, known: Mapping[str, Any]) -> Any:
    """Return the value of a polynomial.

    Args:
        p: The polynomial.
        known: Numbers or integer arrays by name of size and loop variable.

    Raises:
        NotWhole: An exact division has a remainder.
        KeyError: A name is not in ``known``.
    """
    top, bottom = p.fraction
    if bottom is ONE:
        return _sum(top, known)
    value, divisor = _sum(top, known), _sum(bottom, known)
    wrong = value % divisor != 0
    if wrong if isinstance(wrong, bool) else wrong.any():
        raise NotWhole(f"{p} is {value}/{divisor}")
    return value // divisor


def _sum(p: Poly, known: Mapping[str, Any]) -> Any:
    total: Any = 0
    for m, c in p.terms:
        product: Any = c
        for atom, exponent in m:
            product = product * _atom_value(atom, known) ** exponent
        total = total + product
    return total


def _atom_value(atom: Atom, known: Mapping[str, Any]) -> Any:
    if isinstance(atom, Size | LoopVariable):
        return known[atom.name]
    first, second = (evaluate(part, known) for part in atom.parts())
    if isinstance(atom, Div):
        return first // second
    if isinstance(atom, Mod):
        return first % second
    assert isinstance(atom, Boundary)
    return boundary_value(atom.kind, first, second)


def boundary_value(kind: str, i: Any, n: Any) -> Any:
    """Return the value of a `Boundary` of kind `kind` for numbers or integer arrays."""
    if kind == "clamp":
        if isinstance(i, int):
            return min(max(i, 0), n - 1)
        return i.clip(0, n - 1)
    if kind == "wrap":
        return i % n
    j = i % (2 * n)
    return j + (2 * n - 1 - 2 * j) * (j >= n)
