"""Limits of sizes on a grid of threads, whose kernels compute indices with 32 bits.

Every array, index, loop and launch has an upper bound that is a polynomial in the program's sizes.
Bounds without sizes are compared with their limits when a kernel is generated, the others when the
sizes are known. The bounds also hold for the intermediate results of printed indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tilewright.arith import (
    Atom,
    Boundary,
    Div,
    LoopVariable,
    Mod,
    Poly,
    Size,
    at_least_zero,
    evaluate,
)
from tilewright.patterns.codegen.code import (
    MOST_ELEMENTS,
    Allocate,
    Buffer,
    Code,
    indices_of,
    statements,
)
from tilewright.patterns.codegen.grid import GridKernel, loop_form, loops
from tilewright.patterns.codegen.printer import scratch

MOST_INDEX = 2**31 - 1
# How the helpers of `words` compute: remainders up to twice, mirrored indices to four times n.
_HELPED = {"clamp": 1, "wrap": 2, "mirror": 4}


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """A value that may not exceed a limit.

    Args:
        what: what has the value, with ``{}`` for it.
        value: the value or an upper bound, in the program's sizes.
        most: the limit.
    """

    what: str
    value: Poly
    most: int

    def number(self, known: Mapping[str, int]) -> int | None:
        """Return the value, rounded down; None if it depends on a size that is not known."""
        atoms = self.value.atoms
        names = {a.name for a in self.value.all_atoms() if isinstance(a, Size)}
        if not names <= set(known):
            return None
        if any(not isinstance(a, Size) for a in atoms):
            top, bottom = self.value.fraction
            return int(evaluate(top, known)) // int(evaluate(bottom, known))
        total = Fraction(0)
        for monomial, c in self.value.terms:
            product = Fraction(c)
            for atom, power in monomial:
                assert isinstance(atom, Size)
                product *= Fraction(known[atom.name]) ** power
            total += product
        return total.numerator // total.denominator


def exceeded(limits: Sequence[SizeLimit], known: Mapping[str, int]) -> str:
    """Return which limit known sizes exceed, with the cure; an empty text if they exceed none."""
    for limit in limits:
        value = limit.number(known)
        if value is not None and value > limit.most:
            return (
                f"{limit.what.format(value)}; kernels for GPUs index with 32 bits, which allows "
                f"up to {limit.most} here: split the program, or compile it for C"
            )
    return ""


def size_limits(code: Code, kernels: Sequence[GridKernel]) -> tuple[SizeLimit, ...]:
    """Return the limits of a program's kernels; one that follows from another is left out."""
    found = [SizeLimit(f"size {name} is {{}}", _size(name), MOST_INDEX) for name in code.sizes]
    inner = [s.buffer for k in kernels for s in statements(k.body) if isinstance(s, Allocate)]
    for item in (*code.inputs, *code.outputs, *scratch(code), *inner):
        if isinstance(item, Buffer):
            what = f"array {item.name} has {{}} elements"
            found.append(SizeLimit(what, item.size, MOST_ELEMENTS))
    for kernel in kernels:
        found += _launched(kernel)
    each = dict.fromkeys(p for k in kernels for s in statements(k.body) for p in indices_of(s))
    reached = dict.fromkeys(bound for p in each for bound in _all_bounds(p))
    found += [SizeLimit("an index may reach {}", bound, MOST_INDEX) for bound in reached]
    kept: list[SizeLimit] = []
    for limit in found:
        if not any(_follows(limit, other) for other in kept):
            kept.append(limit)
    return tuple(kept)


def _size(name: str) -> Poly:
    return Poly.of(Size(name))


def _follows(limit: SizeLimit, other: SizeLimit) -> bool:
    """Return whether each coefficient of a limit is at most that of another one."""
    if limit.most < other.most:
        return False
    mine, its = dict(limit.value.terms), dict(other.value.terms)
    atoms = limit.value.atoms | other.value.atoms
    sizes = all(isinstance(a, Size) for a in atoms)
    return sizes and all(mine.get(m, 0) <= its.get(m, 0) for m in {*mine, *its})


def _launched(kernel: GridKernel) -> Iterator[SizeLimit]:
    """Yield limits of the number of threads, and of loops that stride by it."""
    what = f"{kernel.name} counts its groups and threads up to {{}}"
    for loop in loops(kernel.body):
        kind, dim, extent = loop.level.kind, loop.level.dim, loop.variable.extent
        if kind not in ("glb", "wrg", "lcl"):
            continue
        total = _bounds(kernel.groups[dim])[0] if kind != "lcl" else Poly.constant(1)
        if kind != "wrg":
            total = total * kernel.launch.threads[dim]
        if loop_form(kernel, kind, dim, extent) == "for":
            total = total + _bounds(extent)[0] - 1
        yield SizeLimit(what, total, MOST_INDEX)


@lru_cache(100_000)
def _all_bounds(p: Poly) -> tuple[Poly, ...]:
    """Return upper bounds of the intermediate results of a printed index, up to their sign."""
    top, bottom = p.fraction
    found = [*_bounds(top), *(_bounds(bottom) if bottom != 1 else ())]
    for atom in top.atoms | bottom.atoms:
        for part in atom.parts():
            found += _all_bounds(part)
        if isinstance(atom, Boundary):
            found.append(_bounds(atom.n)[0] * _HELPED[atom.kind] - 1)
        if isinstance(atom, Mod) and not at_least_zero(atom.x):
            found.append(_bounds(atom.d)[0] * 2 - 1)
    return tuple(dict.fromkeys(found))


@lru_cache(100_000)
def _bounds(p: Poly) -> tuple[Poly, Poly]:
    """Return bounds of the sums of the positive and of the negative terms, up to their sign."""
    up, down = Poly.constant(0), Poly.constant(0)
    for monomial, c in p.terms:
        bound, signed = Poly.constant(c if c > 0 else -c), False
        for atom, power in monomial:
            if isinstance(atom, Size):
                bound = bound * Poly.make({((atom, power),): 1})
                continue
            signed |= isinstance(atom, Div) and not at_least_zero(atom.x)
            for _ in range(power):  # a divisor is at least 1
                bound = bound * _atom_bound(atom)
        up = up + bound if c > 0 or signed else up
        down = down + bound if c < 0 or signed else down
    return up, down


def _atom_bound(atom: Atom) -> Poly:
    """Return an upper bound of an atom, up to its sign."""
    if isinstance(atom, LoopVariable):
        return _bounds(atom.extent)[0] - 1
    if isinstance(atom, Mod | Boundary):
        return _bounds(atom.d if isinstance(atom, Mod) else atom.n)[0] - 1
    assert isinstance(atom, Div)
    up, down = _bounds(atom.x)
    most = up if at_least_zero(atom.x) else up + down + _bounds(atom.d)[0]
    one_term = len(atom.d.terms) == 1 and all(isinstance(a, Size) for a in atom.d.atoms)
    return most / atom.d if one_term else most
