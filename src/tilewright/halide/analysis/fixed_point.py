"""Recognise arithmetic on narrow integers that is written with wider ones.

The average of two bytes is written ``u8((u16(a) + u16(b) + 1) / 2)``: widened, added, halved and
narrowed. Halide 21 finds such forms in vectors (``FindIntrinsics.cpp``) and executes one
instruction on bytes, or a few. Divisions and remainders by powers of two become shifts and masks.

| written, with `n` to a type and `w` to twice its bits | operation |
|---|---|
| ``n((w(a) + w(b) + 1) / 2)`` | ``rounding_halving_add`` |
| ``n((w(a) + w(b)) / 2)`` | ``halving_add`` |
| ``n((w(a) * w(b)) >> bits of n)`` | ``mul_shift_right`` |
| ``n(clamp(w(a) + w(b)))``, the clamp to the range of `n` | ``saturating_add`` |
| ``n(clamp(w(a) - w(b)))`` | ``saturating_sub`` |
| ``n(clamp(a))`` | ``saturating_cast`` |
| ``a / 2**k`` | ``shift_right`` |
| ``a % 2**k`` | ``bitwise_and`` |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.halide.ir.algorithm import Call, Const, Expr, Op, Type
from tilewright.halide.ir.expressions import operands_of

# The widest results that these operations are found for: x86 has them for 8 and 16 bits.
MOST_BITS = 16
_AVERAGES = {0: "halving_add", 1: "rounding_halving_add"}
_SATURATING = {"add": "saturating_add", "sub": "saturating_sub"}


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """An operation that replaces a node and those between it and `operands`.

    `operands` are nodes of the expression, `conversions` the number of them that are converted to
    the type of the operation first.
    """

    name: str
    operands: tuple[Expr, ...]
    conversions: int = 0


def fixed_point(nodes: Iterable[Expr]) -> dict[int, FixedPoint]:
    """Return the operations found among nodes, keyed by the `id` of the node that they replace.

    Coordinates are searched too, although Halide computes most of them as scalars.
    """
    found = {}
    for node in nodes:
        if isinstance(node, Op) and (operation := _operation(node)) is not None:
            found[id(node)] = operation
    return found


def _operation(node: Op) -> FixedPoint | None:
    """Return the operation that a node is the root of."""
    if node.name in ("div", "mod") and node.type.code in ("int", "uint"):
        power = _exponent(node.args[1])
        name = "shift_right" if node.name == "div" else "bitwise_and"
        return None if not power else FixedPoint(name, (node.args[0],))
    source = node.args[0]
    kinds = {node.type.code, source.type.code}
    narrows = node.name == "cast" and source.type.bits > node.type.bits > 1
    if not narrows or not kinds <= {"int", "uint"} or node.type.bits > MOST_BITS:
        return None
    if source.type.bits == 2 * node.type.bits:
        found = _halved(source, node.type) or _saturated(source, node.type)
        if found is not None:
            return found
    inner = _unclamped(source, node.type, signed=source.type.code == "int")
    return None if inner is None else FixedPoint("saturating_cast", (inner,))


def _halved(source: Expr, kind: Type) -> FixedPoint | None:
    """Return the average, or the upper half of a product, that is narrowed to `kind`."""
    exponent: int | None
    if isinstance(source, Op) and source.name == "div":
        exponent = _exponent(source.args[1])
    elif isinstance(source, Call) and source.name == "shift_right":
        exponent = _number(source.args[1])
    else:
        return None
    inner = source.args[0]
    if exponent == 1:
        terms = list(operands_of(inner, "add"))
        numbers = [number for term in terms if (number := _number(term)) is not None]
        name = _AVERAGES.get(sum(numbers))
        others = [term for term in terms if _number(term) is None]
        return None if name is None else _narrowed(name, others, kind)
    if exponent == kind.bits == MOST_BITS and isinstance(inner, Op) and inner.name == "mul":
        return _narrowed("mul_shift_right", inner.args, kind)
    return None


def _saturated(source: Expr, kind: Type) -> FixedPoint | None:
    """Return the sum or difference that is limited to the range of `kind`."""
    for name, saturating in _SATURATING.items():
        # A sum of unsigned values is never negative; a difference is never too large.
        unsigned = kind.code == "uint"
        inner = _unclamped(
            source,
            kind,
            signed=not (unsigned and name == "add"),
            above=not (unsigned and name == "sub"),
        )
        if isinstance(inner, Op) and inner.name == name:
            return _narrowed(saturating, inner.args, kind)
    return None


def _unclamped(e: Expr, kind: Type, *, signed: bool, above: bool = True) -> Expr | None:
    """Return what is limited to the range of `kind`; None if a limit that it needs is missing."""
    low, high = _range(kind)
    missing = {"max": low} if signed else {}
    if above:
        missing["min"] = high
    while isinstance(e, Op) and e.name in ("max", "min") and missing:
        first, second = (_number(operand) for operand in e.args)
        limit = first if second is None else second
        if limit != {"max": low, "min": high}[e.name]:
            return None
        missing.pop(e.name, None)
        e = e.args[1 if second is None else 0]
    return None if missing else e


def _narrowed(name: str, operands: Sequence[Expr], kind: Type) -> FixedPoint | None:
    """Return an operation of two operands that are widened from `kind` or a type inside it."""
    found: list[Expr] = []
    conversions = 0
    for operand in operands:
        number = _number(operand)
        if number is not None and _range(kind)[0] <= number <= _range(kind)[1]:
            continue
        if not (isinstance(operand, Op) and operand.name == "cast"):
            return None
        inner = operand.args[0]
        if inner.type != kind:
            fits = inner.type.bits < kind.bits and inner.type.code in ("uint", kind.code)
            if not fits or inner.type.bits == 1:
                return None
            conversions += 1
        found.append(inner)
    return FixedPoint(name, tuple(found), conversions) if len(operands) == 2 else None


def _range(kind: Type) -> tuple[int, int]:
    """Return the least and the largest value of an integer type."""
    if kind.code == "uint":
        return 0, 2**kind.bits - 1
    return -(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1


def _number(e: Expr) -> int | None:
    """Return an integer literal; it may be converted to a type that has its value."""
    if isinstance(e, Op) and e.name == "cast" and e.type.code in ("int", "uint"):
        low, high = _range(e.type)
        number = _number(e.args[0])
        return number if number is not None and low <= number <= high else None
    return e.value if isinstance(e, Const) and isinstance(e.value, int) else None


def _exponent(e: Expr) -> int:
    """Return k of a literal ``2**k``, 0 for all others."""
    number = _number(e) or 0
    return number.bit_length() - 1 if number > 1 and number & (number - 1) == 0 else 0
