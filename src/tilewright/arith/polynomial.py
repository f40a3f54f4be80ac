"""Represent sizes and indices as polynomials in a normal form: equal ones have equal terms.

A `Poly` is a sum of monomials with rational coefficients over atoms (`atoms`). Sizes may have
negative powers: ``N / 4`` and ``N / v`` are exact divisions, and ``(N / 4) * 4`` is ``N``. The
caller of an exact division ensures that its value is a whole number.

An index is a sum such as ``32*y + x`` with ``0 <= x < 32``. Floor division by 32 separates its
terms into multiples of 32 and a remainder that is proved to lie in ``[0, 32)``. The proofs
(`bounds`, `at_least_zero`, `below`) hold for all sizes that are at least 1 and all loop variables
in range. The operators ``//`` and ``%`` need the proofs, so both are in this file. All rules
require positive divisors. Tests compare each result with evaluation.

| symbol | meaning |
|---|---|
| N, M, v | sizes: whole numbers of at least 1 |
| x, y | loop variables: from 0 to an extent, exclusive |
| atom | a size, a loop variable, or a quotient, remainder or boundary without a simpler form |
| monomial | product of powers of atoms |
| term | monomial with a rational coefficient that is not 0 |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import comb, gcd, lcm

from tilewright.arith.atoms import (
    Atom,
    Boundary,
    Div,
    LoopVariable,
    Mod,
    Monomial,
    Number,
    Size,
    over,
    plain,
    product,
    sort_key,
    sum_text,
    wrapped,
)

CACHED = 100_000  # maximum number of cached results per function, each a few hundred bytes


@dataclass(frozen=True, eq=False)
class Poly:
    """A sum of monomials in normal form; equal polynomials compare and hash equal.

    Args:
        terms: Monomials with coefficients that are not zero, in normal order.
    """

    terms: tuple[tuple[Monomial, Number], ...]

    @staticmethod
    def make(terms: Mapping[Monomial, Number]) -> Poly:
        """Return the polynomial with these coefficients, in normal form."""
        kept = {m: plain(c) for m, c in terms.items() if c}
        if any(isinstance(a, Mod) for m in kept for a, _ in m):
            _recombine(kept)
        return Poly(tuple(sorted(kept.items(), key=lambda term: sort_key(term[0]))))

    @staticmethod
    def constant(value: Number) -> Poly:
        """Return a number as a polynomial."""
        return Poly((((), plain(value)),)) if value else ZERO

    @staticmethod
    def of(atom: Atom) -> Poly:
        """Return an atom as a polynomial."""
        return Poly(((((atom, 1),), 1),))

    @cached_property
    def _hash(self) -> int:
        # A constant equals the number, and so must its hash.
        return hash(self.terms if self.value is None else self.value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.value == other
        return isinstance(other, Poly) and self.terms == other.terms

    @cached_property
    def value(self) -> Number | None:
        """The value of a constant polynomial; None for any other."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    def __add__(self, other: Poly | int) -> Poly:
        sums = dict(self.terms)
        for monomial, c in poly(other).terms:
            sums[monomial] = sums.get(monomial, 0) + c
        return Poly.make(sums)

    __radd__ = __add__

    def __neg__(self) -> Poly:
        return Poly(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Poly | int) -> Poly:
        return self + -poly(other)

    def __rsub__(self, other: Poly | int) -> Poly:
        return poly(other) - self

    def __mul__(self, other: Poly | int) -> Poly:
        sums: dict[Monomial, Number] = {}
        for m, c in self.terms:
            for n, k in poly(other).terms:
                joint = product(m, n)
                sums[joint] = sums.get(joint, 0) + c * k
        return Poly.make(sums)

    __rmul__ = __mul__

    def __truediv__(self, other: Poly | int) -> Poly:
        """Return the exact quotient; the divisor must be one monomial of sizes, or divide evenly.

        Raises:
            ValueError: The divisor is neither.
        """
        return divided(self, poly(other))

    def __floordiv__(self, other: Poly | int) -> Poly:
        return floor_divide(self, poly(other))

    def __mod__(self, other: Poly | int) -> Poly:
        return modulo(self, poly(other))

    def __rfloordiv__(self, other: int) -> Poly:
        return poly(other) // self

    def __rmod__(self, other: int) -> Poly:
        return poly(other) % self

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        """The atoms of the monomials, without those inside other atoms."""
        return frozenset(a for m, _ in self.terms for a, _ in m)

    def all_atoms(self) -> Iterator[Atom]:
        """Yield all atoms, inner ones before those that contain them, possibly repeatedly."""
        for m, _ in self.terms:
            for atom, _ in m:
                for part in atom.parts():
                    yield from part.all_atoms()
                yield atom

    @cached_property
    def fraction(self) -> tuple[Poly, Poly]:
        """The numerator, with integer coefficients and no negative powers, and the denominator."""
        den = lcm(*(Fraction(c).denominator for _, c in self.terms))
        powers: dict[Atom, int] = {}
        for m, _ in self.terms:
            for atom, p in m:
                powers[atom] = min(powers.get(atom, 0), p)
        low = tuple(sorted(((a, -p) for a, p in powers.items() if p < 0), key=lambda t: t[0].key))
        scale = Poly.make({low: den})
        return (self * scale, scale) if scale.terms != ONE.terms else (self, ONE)

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    @cached_property
    def _text(self) -> str:
        top, bottom = self.fraction
        if bottom is ONE:
            return sum_text(top)
        return f"{wrapped(top)} / {wrapped(bottom)}"


def power(base: Poly, exponent: int) -> Poly:
    """Return a power of a polynomial; with a negative exponent, the base must be one monomial."""
    if exponent < 0:
        ((m, c),) = base.terms
        base, exponent = Poly.make({tuple((a, -p) for a, p in m): Fraction(1) / c}), -exponent
    result = ONE
    for _ in range(exponent):
        result = result * base
    return result


def _recombine(kept: dict[Monomial, Number]) -> None:
    """Replace ``(x // d) * d + x % d`` by ``x`` in place, also if both have a common factor."""
    for monomial, c in list(kept.items()):
        for atom, p in monomial:
            if p != 1 or not isinstance(atom, Mod) or monomial not in kept:
                continue
            rest = Poly.make({tuple(t for t in monomial if t[0] != atom): c})
            quotient = rest * atom.d * Poly.of(Div(atom.x, atom.d))
            if all(m in kept for m, _ in quotient.terms):
                change = rest * atom.x - quotient
                del kept[monomial]
                for m, k in change.terms:
                    kept[m] = plain(kept.get(m, 0) + k)
                    if not kept[m]:
                        del kept[m]


ZERO = Poly(())
ONE = Poly((((), 1),))


def poly(value: Poly | int) -> Poly:
    """Return a number or a polynomial as a polynomial."""
    return value if isinstance(value, Poly) else Poly.constant(value)


@lru_cache(CACHED)
def bounds(p: Poly) -> tuple[Poly, Poly] | None:
    """Return a lower and an upper bound over all loop variables, as polynomials in the sizes.

    The bounds need not be attained, nor be whole numbers. Return None if no bounds are found, for
    example for a product in which a factor may be negative.
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
    """Return bounds, without loop variables, of an atom that is not a size; None if unknown."""
    if isinstance(atom, LoopVariable):
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
    """Return whether ``p >= 0`` is proved for all sizes >= 1 and all values of loop variables."""
    if p.value is not None:
        return p.value >= 0
    if any(not isinstance(a, Size) for a in p.atoms):
        found = bounds(p)
        if found is None or any(not isinstance(a, Size) for a in found[0].atoms):
            return False
        return at_least_zero(found[0])
    return all(c >= 0 for c in _shifted(p.fraction[0]).values())


def _shifted(p: Poly) -> dict[Monomial, Number]:
    """Return the coefficients after substituting ``1 + t``, ``t >= 0``, for every size ``s``."""
    sums: dict[Monomial, Number] = {}
    for monomial, c in p.terms:
        expanded: list[tuple[Monomial, Number]] = [((), c)]
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
    """Return whether ``0 <= x < limit`` is proved."""
    found = bounds(x)
    if found is None:
        return False
    least = bounds(limit)
    return least is not None and at_least_zero(found[0]) and at_least_zero(least[0] - 1 - found[1])


def divided(x: Poly, d: Poly) -> Poly:
    """Return the exact quotient ``x / d``.

    Raises:
        ValueError: ``d`` is zero, or a sum that does not divide ``x``.
    """
    if not d.terms:
        raise ValueError(f"{x} / 0")
    if len(d.terms) == 1 and all(isinstance(a, Size) for a in d.atoms):
        return x * power(d, -1)
    quotient, rest = _long_division(x, d)
    if rest.terms:
        raise ValueError(f"{x} / {d} has no closed form; divide by a number or a single size")
    return quotient


def floor_divide(x: Poly, d: Poly) -> Poly:
    """Return the floor of ``x / d`` for a positive ``d``, in normal form."""
    return divide_with_rest(x, d)[0]


def modulo(x: Poly, d: Poly) -> Poly:
    """Return ``x - d * floor(x / d)`` for a positive ``d``, in normal form."""
    return divide_with_rest(x, d)[1]


@lru_cache(CACHED)
def divide_with_rest(x: Poly, d: Poly) -> tuple[Poly, Poly]:
    """Return the floor quotient and the remainder of ``x`` by a positive ``d``."""
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
    """Return whether all coefficients are whole and all powers positive, so terms are whole."""
    return all(isinstance(c, int) and all(q > 0 for _, q in m) for m, c in p.terms)


def _long_division(x: Poly, d: Poly) -> tuple[Poly, Poly]:
    """Return quotient and remainder of polynomial long division, by the leading terms."""
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
        factor = over(monomial, lead)
        times = Fraction(c) / k
        if factor is None:
            continue
        if times.denominator != 1:
            # 6*i by 4 has remainder 2*i; the remainder of a constant must be in [0, k).
            times = Fraction(times.__floor__()) if not monomial or times > 1 else Fraction(0)
        if not times:
            continue
        whole = times.numerator
        step = Poly.make({factor: whole})
        quotient[factor] = quotient.get(factor, 0) + whole
        rest = rest - step * d


def _open_division(x: Poly, d: Poly) -> tuple[Poly, Poly]:
    """Divide a remainder of long division not proved to be below `d`.

    Use common factors and quotients of quotients; if neither applies, return new atoms.
    """
    k = d.value
    if isinstance(k, int):
        found = _common_factor(x, k)
        if found is not None:
            return found
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


def _common_factor(x: Poly, k: int) -> tuple[Poly, Poly] | None:
    """Return quotient and remainder by `k` by splitting off the terms with a factor of `k`.

    For a factor g > 1 of `k`, the other terms must be proved to lie in ``[0, g)``. Return None if
    no g has that property.
    """
    for g in sorted({abs(c) for _, c in x.terms if isinstance(c, int)}, reverse=True):
        if g < 2 or k % g:
            continue
        coarse = Poly.make({m: c for m, c in x.terms if isinstance(c, int) and c % g == 0})
        fine = x - coarse
        if below(fine, Poly.constant(g)):
            tiles, left = divide_with_rest(coarse / g, Poly.constant(k // g))
            return tiles, left * g + fine
    return None


def _common(x: Poly, d: Poly) -> Poly:
    """Return the greatest monomial of sizes, with coefficient, that divides all terms of both."""
    terms = [*x.terms, *d.terms]
    factor = gcd(*(int(c) for _, c in terms))
    shared: dict[Atom, int] = {a: q for a, q in terms[0][0] if isinstance(a, Size)}
    for m, _ in terms[1:]:
        powers = dict(m)
        shared = {a: min(q, powers.get(a, 0)) for a, q in shared.items()}
    monomial = tuple((a, shared[a]) for a, _ in terms[0][0] if shared.get(a))
    return Poly.make({monomial: factor})
