"""Sizes and indices as polynomials: one normal form, so that equal means identical.

A `Poly` is a sum of monomials with rational coefficients over *atoms*: sizes of the program
(`Size`), loop variables (`Loop`), and what does not expand (`Div`, `Mod`, `Boundary`). Sizes may
have negative powers: ``N / 4`` and ``N / v`` are exact divisions, and ``(N / 4) * 4`` is ``N``.
Whoever makes such a division sees to it that its value is a whole number.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Any

Number = int | Fraction


class NotWhole(ValueError):
    """A size that comes out as no whole number, for instance ``N / 4`` where ``N`` is 6."""


@dataclass(frozen=True, eq=False)
class Atom:
    """What a polynomial is made of. Atoms of the same ``key`` are the same."""

    key: str = field(init=False, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.key

    def parts(self) -> tuple[Poly, ...]:
        """The polynomials inside it."""
        return ()

    def rebuilt(self, parts: tuple[Poly, ...]) -> Poly:
        """The same operation on other parts, simplified."""
        return Poly.of(self)


@dataclass(frozen=True, eq=False)
class Size(Atom):
    """A whole number that is unknown, at least 1: a length that the program leaves open."""

    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.name)


@dataclass(frozen=True, eq=False)
class Loop(Atom):
    """A loop variable: a whole number from 0 to ``extent - 1``."""

    name: str
    extent: Poly

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.name}<{self.extent}>")

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Div(Atom):
    """The floor of ``x / d`` for a positive ``d``; make it with `index.floor_divide`."""

    x: Poly
    d: Poly

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"({_key(self.x)} // {_key(self.d)})")

    def __str__(self) -> str:
        return f"{_wrapped(self.x)} // {_wrapped(self.d)}"

    def parts(self) -> tuple[Poly, ...]:
        """The dividend and the divisor."""
        return self.x, self.d

    def rebuilt(self, parts: tuple[Poly, ...]) -> Poly:
        """The floor division of other parts."""
        from tilewright.arith.index import floor_divide

        return floor_divide(*parts)


@dataclass(frozen=True, eq=False)
class Mod(Atom):
    """``x - d * floor(x / d)`` for a positive ``d``; make it with `index.modulo`."""

    x: Poly
    d: Poly

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"({_key(self.x)} % {_key(self.d)})")

    def __str__(self) -> str:
        return f"{_wrapped(self.x)} % {_wrapped(self.d)}"

    def parts(self) -> tuple[Poly, ...]:
        """The dividend and the divisor."""
        return self.x, self.d

    def rebuilt(self, parts: tuple[Poly, ...]) -> Poly:
        """The remainder of other parts."""
        from tilewright.arith.index import modulo

        return modulo(*parts)


BOUNDARIES = ("clamp", "wrap", "mirror")


@dataclass(frozen=True, eq=False)
class Boundary(Atom):
    """``x`` led back into ``[0, n)``: ``clamp``, ``wrap`` or ``mirror`` (Lift's ``pad``)."""

    kind: str
    x: Poly
    n: Poly

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.kind}({_key(self.x)}, {_key(self.n)})")

    def __str__(self) -> str:
        return f"{self.kind}({self.x}, {self.n})"

    def parts(self) -> tuple[Poly, ...]:
        """The index and the length."""
        return self.x, self.n

    def rebuilt(self, parts: tuple[Poly, ...]) -> Poly:
        """The same boundary of another index and length."""
        from tilewright.arith.index import boundary

        return boundary(self.kind, *parts)


Monomial = tuple[tuple[Atom, int], ...]
"""Atoms with their powers, sorted by key; the empty one stands for 1."""


def _sort_key(monomial: Monomial) -> tuple[int, tuple[tuple[str, int], ...]]:
    return -sum(p for _, p in monomial), tuple((a.key, p) for a, p in monomial)


@dataclass(frozen=True, eq=False)
class Poly:
    """A sum of monomials in normal form; equal polynomials compare and hash equal.

    Args:
        terms: monomials with coefficients that are not zero, in normal order.
    """

    terms: tuple[tuple[Monomial, Number], ...]

    @staticmethod
    def make(terms: Mapping[Monomial, Number]) -> Poly:
        """The polynomial with these coefficients, brought into normal form."""
        kept = {m: _plain(c) for m, c in terms.items() if c}
        if any(isinstance(a, Mod) for m in kept for a, _ in m):
            _recombine(kept)
        return Poly(tuple(sorted(kept.items(), key=lambda term: _sort_key(term[0]))))

    @staticmethod
    def constant(value: Number) -> Poly:
        """A number."""
        return Poly((((), _plain(value)),)) if value else ZERO

    @staticmethod
    def of(atom: Atom) -> Poly:
        """An atom."""
        return Poly(((((atom, 1),), 1),))

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.value == other
        return isinstance(other, Poly) and self.terms == other.terms

    @cached_property
    def value(self) -> Number | None:
        """The number that it is, or None if it depends on anything."""
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
                product = _product(m, n)
                sums[product] = sums.get(product, 0) + c * k
        return Poly.make(sums)

    __rmul__ = __mul__

    def __truediv__(self, other: Poly | int) -> Poly:
        """The exact quotient; the divisor is a single monomial of sizes, or divides evenly.

        Raises:
            ValueError: it is neither.
        """
        from tilewright.arith.index import divided

        return divided(self, poly(other))

    def __floordiv__(self, other: Poly | int) -> Poly:
        from tilewright.arith.index import floor_divide

        return floor_divide(self, poly(other))

    def __mod__(self, other: Poly | int) -> Poly:
        from tilewright.arith.index import modulo

        return modulo(self, poly(other))

    def __rfloordiv__(self, other: int) -> Poly:
        return poly(other) // self

    def __rmod__(self, other: int) -> Poly:
        return poly(other) % self

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        """The atoms of its monomials (not those inside other atoms)."""
        return frozenset(a for m, _ in self.terms for a, _ in m)

    def all_atoms(self) -> Iterator[Atom]:
        """All atoms, inner ones before those that contain them; may repeat."""
        for m, _ in self.terms:
            for atom, _ in m:
                for part in atom.parts():
                    yield from part.all_atoms()
                yield atom

    @cached_property
    def fraction(self) -> tuple[Poly, Poly]:
        """Numerator with integer coefficients and no negative powers, and denominator."""
        den = lcm(*(Fraction(c).denominator for _, c in self.terms))
        powers: dict[Atom, int] = {}
        for m, _ in self.terms:
            for atom, p in m:
                powers[atom] = min(powers.get(atom, 0), p)
        low = tuple(sorted(((a, -p) for a, p in powers.items() if p < 0), key=lambda t: t[0].key))
        scale = Poly.make({low: den})
        return (self * scale, scale) if scale.terms != ONE.terms else (self, ONE)

    def replaced(self, change: Callable[[Atom], Poly | None]) -> Poly:
        """With atoms replaced by what ``change`` returns for them (None: looked into)."""
        total = ZERO
        for m, c in self.terms:
            product = Poly.constant(c)
            for atom, p in m:
                new = change(atom)
                if new is None:
                    parts = atom.parts()
                    done = tuple(part.replaced(change) for part in parts)
                    new = atom.rebuilt(done) if done != parts else Poly.of(atom)
                product = product * power(new, p)
            total = total + product
        return total

    def evaluate(self, known: Mapping[str, Any]) -> Any:
        """Its value for numbers or integer arrays by name of size and loop variable.

        Raises:
            NotWhole: an exact division is not exact.
            KeyError: a name is not in ``known``.
        """
        top, bottom = self.fraction
        if bottom is ONE:
            return _sum(top, known)
        value, divisor = _sum(top, known), _sum(bottom, known)
        wrong = value % divisor != 0
        if wrong if isinstance(wrong, bool) else wrong.any():
            raise NotWhole(f"{self} is {value}/{divisor}")
        return value // divisor

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    @cached_property
    def _text(self) -> str:
        top, bottom = self.fraction
        if bottom is ONE:
            return _sum_text(top)
        return f"{_wrapped(top)} / {_wrapped(bottom)}"


def power(base: Poly, exponent: int) -> Poly:
    """A polynomial to a power; a negative one needs a base of one monomial."""
    if exponent < 0:
        ((m, c),) = base.terms
        base, exponent = Poly.make({tuple((a, -p) for a, p in m): Fraction(1) / c}), -exponent
    result = ONE
    for _ in range(exponent):
        result = result * base
    return result


def _plain(c: Number) -> Number:
    return c.numerator if isinstance(c, Fraction) and c.denominator == 1 else c


def _product(m: Monomial, n: Monomial) -> Monomial:
    if not m or not n:
        return m or n
    powers = dict(m)
    for atom, p in n:
        powers[atom] = powers.get(atom, 0) + p
    return tuple(sorted(((a, p) for a, p in powers.items() if p), key=lambda t: t[0].key))


def _recombine(kept: dict[Monomial, Number]) -> None:
    """Replace ``(x // d) * d + x % d`` by ``x``, also under a common factor."""
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
                    kept[m] = _plain(kept.get(m, 0) + k)
                    if not kept[m]:
                        del kept[m]


def _sum(p: Poly, known: Mapping[str, Any]) -> Any:
    total: Any = 0
    for m, c in p.terms:
        product: Any = c
        for atom, exponent in m:
            product = product * _atom_value(atom, known) ** exponent
        total = total + product
    return total


def _atom_value(atom: Atom, known: Mapping[str, Any]) -> Any:
    if isinstance(atom, Size | Loop):
        return known[atom.name]
    first, second = (part.evaluate(known) for part in atom.parts())
    if isinstance(atom, Div):
        return first // second
    if isinstance(atom, Mod):
        return first % second
    assert isinstance(atom, Boundary)
    return boundary_value(atom.kind, first, second)


def boundary_value(kind: str, i: Any, n: Any) -> Any:
    """`Boundary` on numbers or integer arrays."""
    if kind == "clamp":
        if isinstance(i, int):
            return min(max(i, 0), n - 1)
        return i.clip(0, n - 1)
    if kind == "wrap":
        return i % n
    j = i % (2 * n)
    return j + (2 * n - 1 - 2 * j) * (j >= n)


def _wrapped(p: Poly) -> str:
    simple = len(p.terms) <= 1 and (p.value is not None or p.terms[0][1] == 1)
    single = simple and sum(q for m, _ in p.terms for _, q in m) <= 1
    inner = any(isinstance(a, Div | Mod) for a in p.atoms)
    return str(p) if single and not inner else f"({p})"


def _key(p: Poly) -> str:
    """A text that tells atoms apart: unlike `str`, with the extents of loop variables."""
    return "+".join(
        f"{c}" + "".join(f"*{atom.key}^{exponent}" for atom, exponent in m) for m, c in p.terms
    )


def _sum_text(p: Poly) -> str:
    text = ""
    for m, c in p.terms:
        factors = [f"({a})" if isinstance(a, Div | Mod) else str(a) for a, q in m for _ in range(q)]
        size = abs(c)
        if size != 1 or not factors:
            factors.insert(0, str(size))
        sign = (" - " if c < 0 else " + ") if text else ("-" if c < 0 else "")
        text += sign + "*".join(factors)
    return text or "0"


ZERO = Poly(())
ONE = Poly((((), 1),))


def poly(value: Poly | int) -> Poly:
    """A number or a polynomial as a polynomial."""
    return value if isinstance(value, Poly) else Poly.constant(value)


def sizes(names: str) -> tuple[Poly, ...]:
    """Open sizes by name: ``N, M = sizes("N M")``."""
    return tuple(Poly.of(Size(name)) for name in names.replace(",", " ").split())


def parse(text: str) -> Poly:
    """The polynomial that ``str`` printed; every name is a size.

    Raises:
        ValueError: the text is not of that form.
    """
    try:
        return _parsed(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError) as error:
        raise ValueError(f"{text!r} is not a size or an index: {error}") from None


def _parsed(node: ast.expr) -> Poly:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Poly.constant(node.value)
    if isinstance(node, ast.Name):
        return Poly.of(Size(node.id))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_parsed(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_parsed(node.left), _parsed(node.right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
        from tilewright.arith.index import boundary

        return boundary(node.func.id, _parsed(node.args[0]), _parsed(node.args[1]))
    raise ValueError(f"{ast.unparse(node)!r} is not part of a size or an index")


_OPERATORS: dict[type[ast.operator], Callable[[Poly, Poly], Poly]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
