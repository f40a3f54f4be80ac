"""Division with remainder in mixed radix: indices of split, joined and padded arrays simplified.

An index is a sum such as ``32*y + x`` with ``0 <= x < 32``. Dividing it by 32 parts its terms
into multiples of 32 and a rest that is proved to lie in ``[0, 32)``. All rules hold for floor
division by a positive divisor; tests check each result against evaluation.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import gcd

from tilewright.arith.bounds import CACHED, at_least_zero, below, bounds
from tilewright.arith.polynomial import (
    BOUNDARIES,
    ONE,
    ZERO,
    Atom,
    Boundary,
    Div,
    Mod,
    Monomial,
    Number,
    Poly,
    Size,
    power,
)


def divided(x: Poly, d: Poly) -> Poly:
    """The exact quotient ``x / d``.

    Raises:
        ValueError: ``d`` is zero, or is a sum that does not divide ``x``.
    """
    if not d.terms:
        raise ValueError(f"{x} / 0")
    if len(d.terms) == 1 and all(isinstance(a, Size) for a in d.atoms):
        return x * power(d, -1)
    quotient, rest = _long_division(x, d)
    if rest.terms:
        raise ValueError(f"{x} / {d} has no closed form: divide by a number or a single size")
    return quotient


def floor_divide(x: Poly, d: Poly) -> Poly:
    """The floor of ``x / d`` for a positive ``d``, in normal form."""
    return divide_with_rest(x, d)[0]


def modulo(x: Poly, d: Poly) -> Poly:
    """``x - d * floor(x / d)`` for a positive ``d``, in normal form."""
    return divide_with_rest(x, d)[1]


@lru_cache(CACHED)
def divide_with_rest(x: Poly, d: Poly) -> tuple[Poly, Poly]:
    """Floor quotient and remainder of ``x`` by a positive ``d``."""
    if d == ONE:
        return x, ZERO
    if isinstance(x.value, int) and isinstance(d.value, int):
        return Poly.constant(x.value // d.value), Poly.constant(x.value % d.value)
    if not _whole(x) or not _whole(d):
        return Poly.of(Div(x, d)), Poly.of(Mod(x, d))
    quotient, rest = _long_division(x, d)
    if not rest.terms or below(rest, d):
        return quotient, rest
    inner, left = _open_division(rest, d)
    return quotient + inner, left


def _whole(p: Poly) -> bool:
    """Whether every coefficient is whole and no power negative, so that terms are whole."""
    return all(isinstance(c, int) and all(q > 0 for _, q in m) for m, c in p.terms)


def _long_division(x: Poly, d: Poly) -> tuple[Poly, Poly]:
    """Multiples of ``d`` taken out of ``x``, leading term by leading term of ``d``."""
    (lead, k), *_ = d.terms
    quotient: dict[Monomial, Number] = {}
    rest = x
    passed: set[Monomial] = set()
    while True:
        found = next((t for t in rest.terms if t[0] not in passed), None)
        if found is None:
            return Poly.make(quotient), rest
        monomial, c = found
        passed.add(monomial)
        factor = _over(monomial, lead)
        times = Fraction(c) / k
        if factor is None:
            continue
        if times.denominator != 1:
            # 6*i over 4 leaves 2*i; a constant is brought into [0, k).
            times = Fraction(times.__floor__()) if not monomial or times > 1 else Fraction(0)
        if not times:
            continue
        whole = times.numerator
        step = Poly.make({factor: whole})
        quotient[factor] = quotient.get(factor, 0) + whole
        rest = rest - step * d


def _over(monomial: Monomial, lead: Monomial) -> Monomial | None:
    """``monomial / lead``, or None if a power would become negative."""
    powers = dict(monomial)
    for atom, q in lead:
        if powers.get(atom, 0) < q:
            return None
        powers[atom] -= q
    return tuple((a, powers[a]) for a, _ in monomial if powers[a])


def _open_division(x: Poly, d: Poly) -> tuple[Poly, Poly]:
    """Quotient and rest where the terms do not part cleanly: common factors, nested atoms."""
    k = d.value
    if isinstance(k, int):
        for g in sorted({abs(c) for _, c in x.terms if isinstance(c, int)}, reverse=True):
            if not isinstance(g, int) or g < 2 or k % g:
                continue
            coarse = Poly.make({m: c for m, c in x.terms if isinstance(c, int) and c % g == 0})
            fine = x - coarse
            if below(fine, Poly.constant(g)):
                tiles, left = divide_with_rest(coarse / g, Poly.constant(k // g))
                return tiles, left * g + fine
    common = _common(x, d)
    if common != ONE:
        tiles, left = divide_with_rest(x / common, d / common)
        return tiles, left * common
    if len(x.terms) == 1 and x.terms[0][1] == 1 and len(x.terms[0][0]) == 1:
        (atom, q), *_ = x.terms[0][0]
        if isinstance(atom, Div) and q == 1 and d.value is not None and atom.d.value is not None:
            return floor_divide(atom.x, atom.d * d), Poly.of(Mod(x, d))
        if isinstance(atom, Mod) and q == 1 and isinstance(k, int):
            inner = atom.d.value
            if isinstance(inner, int) and inner % k == 0:
                return Poly.of(Div(x, d)), modulo(atom.x, d)
    return Poly.of(Div(x, d)), Poly.of(Mod(x, d))


def _common(x: Poly, d: Poly) -> Poly:
    """The greatest monomial of sizes, with its coefficient, that divides all terms of both."""
    terms = [*x.terms, *d.terms]
    factor = gcd(*(int(c) for _, c in terms))
    shared: dict[Atom, int] = {a: q for a, q in terms[0][0] if isinstance(a, Size)}
    for m, _ in terms[1:]:
        powers = dict(m)
        shared = {a: min(q, powers.get(a, 0)) for a, q in shared.items()}
    monomial = tuple((a, shared[a]) for a, _ in terms[0][0] if shared.get(a))
    return Poly.make({monomial: factor})


def boundary(kind: str, x: Poly, n: Poly) -> Poly:
    """``x`` led back into ``[0, n)``; ``x`` itself where it is proved to lie there.

    Raises:
        ValueError: ``kind`` is not one of `BOUNDARIES`.
    """
    if kind not in BOUNDARIES:
        raise ValueError(f"boundary {kind!r}; known are {', '.join(BOUNDARIES)}")
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
