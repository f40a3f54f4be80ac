"""Inequalities that hold whatever the sizes are: sizes are at least 1, loops stay in range."""

from __future__ import annotations

from functools import lru_cache
from math import comb

from tilewright.arith.polynomial import (
    ONE,
    ZERO,
    Atom,
    Boundary,
    Div,
    Loop,
    Mod,
    Number,
    Poly,
    Size,
    power,
)

CACHED = 100_000  # results kept, each a few hundred bytes


@lru_cache(CACHED)
def bounds(p: Poly) -> tuple[Poly, Poly] | None:
    """Least and greatest value over all loop variables, as polynomials in the sizes.

    They need not be reached, nor be whole numbers. Returns None where none is found: a product
    of loop variables, one possibly negative.
    """
    low, high = ZERO, ZERO
    for monomial, c in p.terms:
        scale = Poly.make({tuple((a, q) for a, q in monomial if isinstance(a, Size)): c})
        inner = [(a, q) for a, q in monomial if not isinstance(a, Size)]
        least, most = ONE, ONE
        for atom, q in inner:
            found = _atom_bounds(atom)
            if found is None or q < 0:
                return None
            if (len(inner) > 1 or q > 1) and not at_least_zero(found[0]):
                return None
            least, most = least * power(found[0], q), most * power(found[1], q)
        if c < 0:
            least, most = most, least
        low, high = low + scale * least, high + scale * most
    return low, high


def _atom_bounds(atom: Atom) -> tuple[Poly, Poly] | None:
    """Bounds of an atom that is not a size, free of loop variables."""
    if isinstance(atom, Loop):
        return ZERO, atom.extent - 1
    if isinstance(atom, Boundary):
        found = bounds(atom.n)
        return None if found is None else (ZERO, found[1] - 1)
    if isinstance(atom, Mod):
        found = bounds(atom.d)
        return None if found is None else (ZERO, found[1] - 1)
    assert isinstance(atom, Div)
    found = bounds(atom.x)
    if found is None or not at_least_zero(found[0]):
        return None
    d, most = atom.d, found[1].value
    if isinstance(most, int) and isinstance(d.value, int):
        return ZERO, Poly.constant(most // d.value)
    if len(d.terms) == 1 and all(isinstance(a, Size) for a in d.atoms):
        return ZERO, found[1] / d
    return ZERO, found[1]


@lru_cache(CACHED)
def at_least_zero(p: Poly) -> bool:
    """Whether ``p >= 0`` is proved for all sizes >= 1 and all values of loop variables."""
    if p.value is not None:
        return p.value >= 0
    if any(not isinstance(a, Size) for a in p.atoms):
        found = bounds(p)
        if found is None or any(not isinstance(a, Size) for a in found[0].atoms):
            return False
        return at_least_zero(found[0])
    return all(c >= 0 for c in _shifted(p.fraction[0]).values())


def _shifted(p: Poly) -> dict[tuple[tuple[Atom, int], ...], Number]:
    """The coefficients after every size ``s`` is written as ``1 + t`` with ``t >= 0``."""
    sums: dict[tuple[tuple[Atom, int], ...], Number] = {}
    for monomial, c in p.terms:
        expanded: list[tuple[tuple[tuple[Atom, int], ...], Number]] = [((), c)]
        for atom, q in monomial:
            expanded = [
                ((*m, (atom, k)) if k else m, value * comb(q, k))
                for m, value in expanded
                for k in range(q + 1)
            ]
        for m, value in expanded:
            sums[m] = sums.get(m, 0) + value
    return sums


def below(x: Poly, limit: Poly) -> bool:
    """Whether ``0 <= x < limit`` is proved."""
    found = bounds(x)
    if found is None:
        return False
    least = bounds(limit)
    return least is not None and at_least_zero(found[0]) and at_least_zero(least[0] - 1 - found[1])
