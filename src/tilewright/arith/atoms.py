"""Define atoms and the monomials made of them, and print both.

Atoms are sizes of the program (`Size`), loop variables (`LoopVariable`), and operations that cannot
be expanded (`Div`, `Mod`, `Boundary`). `polynomial` adds monomials. This module does not compute
with the polynomials inside an atom.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.arith.polynomial import Poly

Number = int | Fraction


@dataclass(frozen=True, eq=False)
class Atom:
    """An indivisible part of a polynomial. Atoms with the same ``key`` are equal."""

    key: str = field(init=False, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.key

    def parts(self) -> tuple[Poly, ...]:
        """Return the polynomials inside the atom."""
        return ()


@dataclass(frozen=True, eq=False)
class Size(Atom):
    """An unknown whole number that is at least 1: a length that the program does not fix."""

    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.name)


@dataclass(frozen=True, eq=False)
class LoopVariable(Atom):
    """A loop variable: a whole number from 0 to ``extent - 1``."""

    name: str
    extent: Poly

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.name}<{self.extent}>")

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Div(Atom):
    """The floor of ``x / d`` for a positive ``d``; make it with `polynomial.floor_divide`."""

    x: Poly
    d: Poly

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"({key(self.x)} // {key(self.d)})")

    def __str__(self) -> str:
        return f"{wrapped(self.x)} // {wrapped(self.d)}"

    def parts(self) -> tuple[Poly, ...]:
        """Return the dividend and the divisor."""
        return self.x, self.d


@dataclass(frozen=True, eq=False)
class Mod(Atom):
    """``x - d * floor(x / d)`` for a positive ``d``; make it with `polynomial.modulo`."""

    x: Poly
    d: Poly

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"({key(self.x)} % {key(self.d)})")

    def __str__(self) -> str:
        return f"{wrapped(self.x)} % {wrapped(self.d)}"

    def parts(self) -> tuple[Poly, ...]:
        """Return the dividend and the divisor."""
        return self.x, self.d


BOUNDARIES = ("clamp", "wrap", "mirror")


@dataclass(frozen=True, eq=False)
class Boundary(Atom):
    """``x`` mapped into ``[0, n)`` by ``clamp``, ``wrap`` or ``mirror`` (Lift's ``pad``)."""

    kind: str
    x: Poly
    n: Poly

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.kind}({key(self.x)}, {key(self.n)})")

    def __str__(self) -> str:
        return f"{self.kind}({self.x}, {self.n})"

    def parts(self) -> tuple[Poly, ...]:
        """Return the index and the length."""
        return self.x, self.n


Monomial = tuple[tuple[Atom, int], ...]
"""Atoms with their powers, sorted by key; the empty monomial is 1."""


def sort_key(monomial: Monomial) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Return the sort key of the normal order: by descending degree, then by key."""
    return -sum(p for _, p in monomial), tuple((a.key, p) for a, p in monomial)


def plain(c: Number) -> Number:
    """Return a coefficient, as an integer if it is whole."""
    return c.numerator if isinstance(c, Fraction) and c.denominator == 1 else c


def product(m: Monomial, n: Monomial) -> Monomial:
    """Return the product of two monomials, sorted by key."""
    if not m or not n:
        return m or n
    powers = dict(m)
    for atom, p in n:
        powers[atom] = powers.get(atom, 0) + p
    return tuple(sorted(((a, p) for a, p in powers.items() if p), key=lambda t: t[0].key))


def over(monomial: Monomial, lead: Monomial) -> Monomial | None:
    """Return ``monomial / lead``, or None if a power would become negative."""
    powers = dict(monomial)
    for atom, q in lead:
        if powers.get(atom, 0) < q:
            return None
        powers[atom] -= q
    return tuple((a, powers[a]) for a, _ in monomial if powers[a])


def wrapped(p: Poly) -> str:
    """Return the text of a polynomial as an operand, in parentheses unless it is one factor."""
    simple = len(p.terms) <= 1 and (p.value is not None or p.terms[0][1] == 1)
    single = simple and sum(q for m, _ in p.terms for _, q in m) <= 1
    inner = any(isinstance(a, Div | Mod) for a in p.atoms)
    return str(p) if single and not inner else f"({p})"


def key(p: Poly) -> str:
    """Return a text that identifies a polynomial; unlike `str`, it has the loops' extents."""
    return "+".join(
        f"{c}" + "".join(f"*{atom.key}^{exponent}" for atom, exponent in m) for m, c in p.terms
    )


def sum_text(p: Poly) -> str:
    """Return the text of a polynomial that has no denominator."""
    text = ""
    for m, c in p.terms:
        factors = [f"({a})" if isinstance(a, Div | Mod) else str(a) for a, q in m for _ in range(q)]
        size = abs(c)
        if size != 1 or not factors:
            factors.insert(0, str(size))
        sign = (" - " if c < 0 else " + ") if text else ("-" if c < 0 else "")
        text += sign + "*".join(factors)
    return text or "0"
