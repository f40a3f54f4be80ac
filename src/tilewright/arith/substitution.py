"""Substitute polynomials for atoms, and simplify boundaries."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.arith.atoms import BOUNDARIES, Atom, Boundary, Div, Mod
from tilewright.arith.polynomial import (
    ONE,
    ZERO,
    Poly,
    at_least_zero,
    below,
    bounds,
    floor_divide,
    modulo,
    power,
)


def boundary(kind: str, x: Poly, n: Poly) -> Poly:
    """Return ``x`` mapped into ``[0, n)``, which is ``x`` if it is proved to lie there.

    Raises:
        ValueError: ``kind`` is not one of `BOUNDARIES`.
    """
    if kind not in BOUNDARIES:
        raise ValueError(f"the boundary {kind!r} is unknown; use one of {', '.join(BOUNDARIES)}")
    if below(x, n):
        return x
    if n == ONE:
        return ZERO
    found = bounds(x)
    if kind == "clamp" and found is not None:
        if at_least_zero(-found[1]):
            return ZERO
        least = bounds(n)
        if least is not None and at_least_zero(found[0] - least[1] + 1):
            return n - 1
    return Poly.of(Boundary(kind, x, n))


def substitute(p: Poly, change: Callable[[Atom], Poly | None]) -> Poly:
    """Return the polynomial with atoms replaced, in normal form.

    Args:
        p: The polynomial.
        change: Returns the replacement of an atom, or None to substitute inside it.
    """
    total = ZERO
    for m, c in p.terms:
        product = Poly.constant(c)
        for atom, exponent in m:
            new = change(atom)
            if new is None:
                parts = atom.parts()
                done = tuple(substitute(part, change) for part in parts)
                new = _rebuilt(atom, *done) if done != parts else Poly.of(atom)
            product = product * power(new, exponent)
        total = total + product
    return total


def _rebuilt(atom: Atom, *parts: Poly) -> Poly:
    """Return the operation of an atom on new operands."""
    if isinstance(atom, Div):
        return floor_divide(*parts)
    if isinstance(atom, Mod):
        return modulo(*parts)
    if isinstance(atom, Boundary):
        return boundary(atom.kind, *parts)
    return Poly.of(atom)
