"""Sums taken apart into signed terms: which additions Halide's simplifier turns into others.

Halide simplifies an update before it looks for the form ``f + e``. If all of ``e`` is a negation,
``f - e`` remains, whose operator it does not recognise as associative. A constant in ``e`` moves to
the end, to ``(f + e) + 1``: partial results of it are fine, but Halide no longer recognises a
reduction that it could vectorise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.halide.ir.algorithm import Const, Expr, Op
from tilewright.halide.ir.expressions import same

# Operators that return one of their operands: what these have in common may move out of them.
_CHOICES = frozenset({"min", "max", "select"})
# Terms of a sum, or factors of a product, taken apart at most (chosen: far more than people write;
# expressions share operands, so that there may be exponentially many).
MOST_TERMS = 64


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum: the term number i is `weights[i]` times the product of `products[i]`.

    `constant` is the sum of the constant terms, and `alone` whether one term was given.
    """

    weights: tuple[float, ...]
    products: tuple[tuple[Expr, ...], ...]
    constant: float
    alone: bool

    @property
    def negates(self) -> bool:
        """Whether Halide may turn the addition of this sum into a subtraction."""
        return self.negates_with({})

    def negates_with(self, known: dict[int, bool]) -> bool:
        """Return `negates`; `known` has what is known of parts of the factors, by identity."""
        if not self.products:
            return self.constant <= 0
        if self.constant > 0 or (self.alone and self.weights[0] != -1):
            return any(_hides_a_sign(product, known) for product in self.products)
        positive = (
            weight > 0 and not _hides_a_sign(product, known)
            for weight, product in zip(self.weights, self.products, strict=True)
        )
        return not any(positive)

    @property
    def has_constant(self) -> bool:
        """Whether Halide moves a constant out of this sum, also one inside of an extreme."""
        if self.constant:
            return True
        return any(len(product) == 1 and _hides_a_constant(product[0]) for product in self.products)


def sum_of(*operands: Expr) -> Sum | None:
    """Take the sum of some operands apart, and combine terms that differ only in their weight.

    None if there are more than `MOST_TERMS`, or the negation of a sum, which Halide may keep.
    """
    terms = _terms(operands)
    if terms is None:
        return None
    weights: list[float] = []
    products: list[tuple[Expr, ...]] = []
    constant = 0.0
    for weight, product in terms:
        if not product:
            constant += weight
            continue
        alike = (i for i, other in enumerate(products) if _equal(product, other))
        place = next(alike, None)
        if place is None:
            weights.append(weight)
            products.append(product)
        else:
            weights[place] += weight
    kept = [i for i, weight in enumerate(weights) if weight]
    found = tuple(weights[i] for i in kept), tuple(products[i] for i in kept)
    return Sum(*found, constant, alone=len(terms) == 1)


def _terms(operands: tuple[Expr, ...]) -> list[tuple[float, tuple[Expr, ...]]] | None:
    """Return the weight and the factors of each term; no factors for a constant."""
    found: list[tuple[float, tuple[Expr, ...]]] = []
    pending: list[tuple[float, Expr]] = [(1.0, e) for e in operands]
    while pending:
        weight, node = pending.pop()
        if len(found) == MOST_TERMS:
            return None
        if isinstance(node, Op) and node.name in ("add", "sub"):
            first, second = node.args
            if _negates_a_sum(node):
                return None
            pending += [(-weight if node.name == "sub" else weight, second), (weight, first)]
            continue
        number, factors = _factors(node)
        if len(factors) == 1 and factors[0] is not node:
            pending.append((weight * number, factors[0]))
        else:
            found.append((weight * number, factors))
    return found


def _factors(e: Expr) -> tuple[float, tuple[Expr, ...]]:
    """Return the constant and the other factors of a product, negations taken out."""
    number = 1.0
    found: list[Expr] = []
    pending = [e]
    while pending:
        node = pending.pop()
        if isinstance(node, Op) and node.name == "mul" and len(found) + len(pending) < MOST_TERMS:
            pending.extend(reversed(node.args))
        elif isinstance(node, Const) and isinstance(node.value, int | float):
            number *= float(node.value)
        elif _negates(node) and not _negates_a_sum(node):
            assert isinstance(node, Op)
            number = -number
            pending.append(node.args[1])
        else:
            found.append(node)
    return number, tuple(found)


def _negates(e: Expr) -> bool:
    if not isinstance(e, Op) or e.name != "sub":
        return False
    return isinstance(e.args[0], Const) and e.args[0].value == 0


def _negates_a_sum(e: Expr) -> bool:
    if not isinstance(e, Op) or not _negates(e):
        return False
    return isinstance(e.args[1], Op) and e.args[1].name in ("add", "sub")


def _equal(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    """Return whether two products have the same factors, in any order."""
    left = list(b)
    for factor in a:
        plain = _plain(factor)
        place = next((i for i, e in enumerate(left) if same(plain, _plain(e))), None)
        if place is None:
            return False
        del left[place]
    return not left


def _plain(e: Expr) -> Expr:
    """Return an expression without casts, and without extremes of equal operands."""
    while isinstance(e, Op):
        alike = e.name in ("min", "max") and same(*e.args)
        if e.name != "cast" and not alike:
            break
        e = e.args[0]
    return e


def _hides_a_sign(factors: Iterable[Expr], known: dict[int, bool]) -> bool:
    """Return whether one of the factors of a product may be a negation."""
    return any(_may_negate(_plain(factor), known) for factor in factors)


def _may_negate(e: Expr, known: dict[int, bool]) -> bool:
    """Return whether Halide may turn an expression other than a cast into a negation.

    `known` has the answers for expressions visited before, by identity.
    """
    if isinstance(e, Const):
        return isinstance(e.value, int | float) and e.value < 0
    if not isinstance(e, Op):
        return False
    if id(e) not in known:
        known[id(e)] = True  # until it is known, and if there are too many
        known[id(e)] = len(known) > MOST_TERMS or _is_negative(e, known)
    return known[id(e)]


def _is_negative(e: Op, known: dict[int, bool]) -> bool:
    """Return `_may_negate` of an operator."""
    if e.name in _CHOICES:
        return _hides_a_sign(e.args[1:] if e.name == "select" else e.args, known)
    if e.name not in ("add", "sub", "mul"):
        return False
    parts = sum_of(e)
    if parts is None or parts.negates_with(known):
        return True
    return len(parts.weights) == 1 and parts.weights[0] < 0


def _hides_a_constant(e: Expr) -> bool:
    """Return whether an extreme or ``select`` adds a constant to one of its operands."""
    pending, seen = [e], set()
    while pending:
        node = pending.pop()
        if id(node) in seen or not isinstance(node, Op) or node.name not in _CHOICES:
            continue
        seen.add(id(node))
        operands = node.args[1:] if node.name == "select" else node.args
        for operand in operands:
            parts = sum_of(operand)
            if parts is None or (parts.constant and parts.products):
                return True
        pending.extend(operands)
    return False
