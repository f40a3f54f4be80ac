"""Type checking: the type of a pattern's result, and its requirements on the sizes.

Types flow from the inputs through the pattern; lengths are polynomials in the program's sizes.
Conditions that hold, or fail, for all sizes are decided here. The others, such as "4 divides N",
become requirements, which are checked when the sizes are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.arith import (
    NotWhole,
    Poly,
    Size,
    at_least_zero,
    below,
    evaluate,
    poly,
    substitute,
)
from tilewright.patterns import nodes as n
from tilewright.patterns import scalar
from tilewright.patterns.errors import PatternTypeError, SizeError
from tilewright.patterns.places import located, nearest_place
from tilewright.patterns.types import (
    UNIT,
    ArrayType,
    DataType,
    ScalarType,
    TupleType,
    boolean,
    i32,
    leaves,
    misfit,
)


@dataclass(frozen=True, slots=True)
class SizeRequirement:
    """A requirement of a pattern on the sizes.

    Args:
        kind: ``whole`` (``value`` is a whole number), ``least`` (``value`` is at least 0),
            ``inside`` (an index function stays below ``value``), ``permutation`` (it also
            takes every value once).
        pattern: the pattern with this requirement.
    """

    kind: str
    value: Poly
    pattern: n.Pattern

    def sizes(self) -> set[str]:
        """Return the names of the sizes that the requirement depends on."""
        of = [self.value]
        if isinstance(self.pattern, n.Gather | n.Scatter):
            of.append(self.pattern.index)
        names = {a.name for p in of for a in p.all_atoms() if isinstance(a, Size)}
        return {name for name in names if not name.startswith("_")}

    def check(self, known: Mapping[str, int]) -> None:
        """Check the requirement for known sizes.

        Raises:
            SizeError: the requirement does not hold.
        """
        if wrong := self.violated(known):
            raise SizeError(
                located(f"{self.pattern} does not fit the sizes: {wrong}", self.pattern)
            )

    def violated(self, known: Mapping[str, int]) -> str:
        """Return why the requirement fails for known sizes; an empty text if it holds."""
        try:
            return self._wrong(evaluate(self.value, known), known)
        except NotWhole as error:
            return f"{error}, not a whole number"

    def _wrong(self, value: int, known: Mapping[str, int]) -> str:
        if self.kind == "least":
            return f"{self.value} is {value}, below 0" if value < 0 else ""
        if self.kind in ("inside", "permutation"):
            assert isinstance(self.pattern, n.Gather | n.Scatter)
            each = np.arange(value)
            found = evaluate(self.pattern.index, {**known, "_i": each, "_n": value})
            found = np.broadcast_to(found, each.shape)
            outside = np.flatnonzero((found < 0) | (found >= value))
            if outside.size:
                i = int(outside[0])
                return f"index {i} leads to {found[i]}, outside of [0, {value})"
            if self.kind == "permutation" and np.unique(found).size != value:
                return f"it is not a permutation of {value} elements: some index occurs twice"
        return ""


Result = tuple[DataType, frozenset[SizeRequirement]]
NONE: frozenset[SizeRequirement] = frozenset()


class Mismatch(Exception):
    """A pattern does not accept its input; becomes a `PatternTypeError` with the place."""

    def __init__(self, pattern: n.Pattern, expected: str, found: str) -> None:
        self.trail, self.expected, self.found = [pattern], expected, found


def type_of(p: n.Pattern, given: DataType = UNIT) -> DataType:
    """Return the type of a pattern's result.

    Args:
        p: the pattern.
        given: the type of its input; a program has none.

    Raises:
        PatternTypeError: a pattern gets an input of the wrong type. The message has both types, the
            pattern and its source line.
    """
    return _checked(p, given)[0]


def requirements(p: n.Pattern, given: DataType = UNIT) -> tuple[SizeRequirement, ...]:
    """Return a pattern's requirements on the sizes, in a fixed order; raises like `type_of`."""
    found = _checked(p, given)[1]
    return tuple(sorted(found, key=lambda r: (r.kind, str(r.value), str(r.pattern))))


def _checked(p: n.Pattern, given: DataType) -> Result:
    try:
        return infer(p, given)
    except Mismatch as error:
        raise PatternTypeError(_message(error, p)) from None


def _message(error: Mismatch, whole: n.Pattern) -> str:
    culprit = error.trail[0]
    lines = [f"{culprit} takes {error.expected}, but gets {error.found}"]
    program = str(whole)
    if culprit is not whole:
        lines.append(f"  in {program}")
        at = program.find(str(culprit))
        if at >= 0 and program.count(str(culprit)) == 1:
            lines.append("     " + " " * at + "^" * len(str(culprit)))
    place = nearest_place(error.trail)
    if place is not None:
        lines.append(f"  at {place}")
    return "\n".join(lines)


@lru_cache(200_000)
def infer(p: n.Pattern, given: DataType) -> Result:
    """Return the type and the requirements; raises `Mismatch`."""
    rule = _RULES[type(p)]
    try:
        found = rule(p, given)
    except Mismatch as error:
        if error.trail[-1] is not p:
            error.trail.append(p)
        raise
    result: Result = found if isinstance(found, tuple) else (found, NONE)
    return result


def _array(p: n.Pattern, given: DataType, expected: str = "an array") -> ArrayType:
    if not isinstance(given, ArrayType):
        raise Mismatch(p, expected, _shown(given))
    return given


def _shown(given: DataType) -> str:
    return "nothing (it needs an input)" if given == UNIT else str(given)


def _pipe(p: n.Pipe, given: DataType) -> Result:
    needs = NONE
    for stage in p.stages:
        given, more = infer(stage, given)
        needs |= more
    return given, needs


def _map(p: n.Map, given: DataType) -> Result:
    array = _array(p, given)
    item, needs = infer(p.f, array.item)
    return ArrayType(item, array.length), needs


def _reduce(p: n.Reduce, given: DataType) -> Result:
    array = _array(p, given)
    if isinstance(p.init, n.Literal) and p.init.type is None:
        kinds = list(dict.fromkeys(leaves(array.item)))
        if len(kinds) != 1:
            raise Mismatch(p, "a typed start value, as in f32(0)", f"{p.init.value!r} for {given}")
        acc: DataType = kinds[0]
        needs = NONE
        if kinds[0].kind == "i" and isinstance(p.init.value, float):
            raise Mismatch(p, f"a start value of type {acc}", repr(p.init.value))
        _fits(p, "a start value", p.init.value, kinds[0])
    else:
        acc, needs = infer(p.init, UNIT)
    found, more = infer(p.f, TupleType((acc, array.item)))
    if found != acc:
        raise Mismatch(p, f"a function that returns its accumulator's type {acc}", str(found))
    return acc, needs | more


def _arrays(p: n.Pattern, given: DataType) -> tuple[ArrayType, ...]:
    if not isinstance(given, TupleType) or not given.items:
        raise Mismatch(p, "a tuple of arrays", _shown(given))
    found = tuple(item for item in given.items if isinstance(item, ArrayType))
    if len(found) < len(given.items):
        raise Mismatch(p, "a tuple of arrays", str(given))
    return found


def _zip(p: n.Zip, given: DataType) -> DataType:
    arrays = _arrays(p, given)
    if len({a.length for a in arrays}) > 1:
        raise Mismatch(
            p,
            f"arrays of one length, as of {arrays[0]}",
            " and ".join(f"{a} (length {a.length})" for a in arrays),
        )
    return ArrayType(TupleType(tuple(a.item for a in arrays)), arrays[0].length)


def _unzip(p: n.Unzip, given: DataType) -> DataType:
    array = _array(p, given, "an array of tuples")
    if not isinstance(array.item, TupleType):
        raise Mismatch(p, "an array of tuples", str(given))
    return TupleType(tuple(ArrayType(item, array.length) for item in array.item.items))


def _exact(
    p: n.Pattern, given: DataType, top: Poly, bottom: Poly, what: str
) -> tuple[Poly, set[Any]]:
    """Return ``top / bottom``, and the requirement that it is whole unless that always holds."""
    try:
        quotient = top / bottom
    except ValueError:
        raise Mismatch(p, what, _shown(given)) from None
    if quotient.value is not None and not isinstance(quotient.value, int):
        raise Mismatch(p, what, str(given))
    top_, bottom_ = quotient.fraction
    whole = bottom_ == 1 and top_.terms == quotient.terms
    return quotient, set() if whole else {SizeRequirement("whole", quotient, p)}


def _split(p: n.SplitPattern, given: DataType) -> Result:
    array = _array(p, given)
    what = f"an array whose length is a multiple of {p.length}"
    count, needs = _exact(p, given, array.length, p.length, what)
    return ArrayType(ArrayType(array.item, p.length), count), frozenset(needs)


def _join(p: n.Join, given: DataType) -> DataType:
    outer = _array(p, given, "an array of arrays")
    inner = (
        _array(p, outer.item, "an array of arrays") if isinstance(outer.item, ArrayType) else None
    )
    if inner is None:
        raise Mismatch(p, "an array of arrays", str(given))
    return ArrayType(inner.item, outer.length * inner.length)


def _slide(p: n.Slide | n.SlideSeq, given: DataType) -> Result:
    array = _array(p, given)
    over = array.length - p.size
    what = f"an array whose length is {p.size} plus a multiple of {p.step}"
    steps, needs = _exact(p, given, over, p.step, what)
    if over.value is not None and not at_least_zero(over):
        raise Mismatch(p, f"an array of at least {p.size} elements", str(given))
    if not at_least_zero(over):
        needs = needs | {SizeRequirement("least", over, p)}
    return ArrayType(ArrayType(array.item, p.size), steps + 1), frozenset(needs)


def _pad(p: n.Pad | n.PadValue, given: DataType) -> DataType:
    array = _array(p, given)
    if isinstance(p, n.PadValue):
        for kind in leaves(array.item):
            if (kind is boolean) != isinstance(p.value, bool) or (
                kind.kind == "i" and isinstance(p.value, float)
            ):
                raise Mismatch(p, f"an array of values such as {p.value!r}", str(given))
            _fits(p, "padding", p.value, kind)
    return ArrayType(array.item, p.left + array.length + p.right)


def _crop(p: n.Crop, given: DataType) -> Result:
    array = _array(p, given)
    rest = array.length - p.length
    if rest.value is not None and not at_least_zero(rest):
        raise Mismatch(p, f"an array of at least {p.length} elements", str(given))
    needs = NONE if at_least_zero(rest) else frozenset({SizeRequirement("least", rest, p)})
    return ArrayType(array.item, p.length), needs


def _transpose(p: n.Transpose, given: DataType) -> DataType:
    outer = _array(p, given, "an array of arrays")
    inner = outer.item
    if not isinstance(inner, ArrayType):
        raise Mismatch(p, "an array of arrays", str(given))
    return ArrayType(ArrayType(inner.item, outer.length), inner.length)


def at_index(index: Poly, i: Poly, length: Poly) -> Poly:
    """Return an index function of `gather` or `scatter` at an index of an array."""
    return substitute(index, lambda atom: {"_i": i, "_n": length}.get(getattr(atom, "name", "")))


def _gather(p: n.Gather | n.Scatter, given: DataType) -> Result:
    array = _array(p, given)
    if isinstance(p, n.Gather) and below(p.index, n.GATHER_LENGTH):
        return given, NONE
    kind = "permutation" if isinstance(p, n.Scatter) else "inside"
    need = SizeRequirement(kind, array.length, p)
    if need.sizes():
        return given, frozenset({need})
    if wrong := need.violated({}):
        allowed = "a permutation of" if isinstance(p, n.Scatter) else "indices of"
        raise Mismatch(p, f"{allowed} {array.length} elements", f"another function: {wrong}")
    return given, NONE


def _iterate(p: n.Iterate, given: DataType) -> Result:
    found, needs = infer(p.f, given)
    if found != given:
        raise Mismatch(p, f"a pattern that keeps the type {_shown(given)}", f"{p.f} to {found}")
    return given, needs


def _at(p: n.At, given: DataType) -> Result:
    array = _array(p, given)
    rest = array.length - 1 - p.index
    if rest.value is not None and not at_least_zero(rest):
        raise Mismatch(p, f"an array of more than {p.index} elements", str(given))
    needs = NONE if at_least_zero(rest) else frozenset({SizeRequirement("least", rest, p)})
    return array.item, needs


def _get(p: n.Get, given: DataType) -> DataType:
    if not isinstance(given, TupleType) or p.index >= len(given.items):
        raise Mismatch(p, f"a tuple of at least {p.index + 1} components", _shown(given))
    return given.items[p.index]


def _fork(p: n.Fork, given: DataType) -> Result:
    found = [infer(item, given) for item in p.items]
    return TupleType(tuple(t for t, _ in found)), NONE.union(*(needs for _, needs in found))


def _par(p: n.Par, given: DataType) -> Result:
    if not isinstance(given, TupleType) or len(given.items) != len(p.items):
        raise Mismatch(p, f"a tuple of {len(p.items)} components", _shown(given))
    found = [infer(item, t) for item, t in zip(p.items, given.items, strict=True)]
    return TupleType(tuple(t for t, _ in found)), NONE.union(*(needs for _, needs in found))


def _literal(p: n.Literal, given: DataType) -> DataType:
    if p.type is None:
        raise Mismatch(p, "a type for its number, as in f32(0)", "none")
    _fits(p, "a number", p.value, p.type, truncated=True)
    return p.type


def _table(p: n.TablePattern, given: DataType) -> DataType:
    for value in p.values:
        _fits(p, "numbers", value, p.type, truncated=True)
    return ArrayType(p.type, poly(len(p.values)))


def _fits(
    p: n.Pattern, what: str, value: bool | int | float, kind: ScalarType, truncated: bool = False
) -> None:
    if wrong := misfit(value, kind, truncated):
        raise Mismatch(p, f"{what} of type {kind}", f"{value!r}: {wrong}")


def scalars(given: DataType) -> tuple[ScalarType, ...] | None:
    """Return the scalars of a scalar or of nested tuples of scalars; None for anything else."""
    if isinstance(given, ScalarType):
        return (given,)
    if not isinstance(given, TupleType):
        return None
    parts = [scalars(item) for item in given.items]
    found = [part for part in parts if part is not None]
    return tuple(s for part in found for s in part) if len(found) == len(parts) else None


def _user(p: n.UserFun, given: DataType) -> DataType:
    count = len(p.parameters)
    expected = f"{count} scalars ({', '.join(p.parameters)})" if count > 1 else "a scalar"
    found = scalars(given)
    if found is None or len(found) != count:
        raise Mismatch(p, expected, _shown(given))
    for name, declared, is_type in zip(p.parameters, p.types, found, strict=True):
        if declared not in (None, is_type):
            raise Mismatch(p, f"{declared} as {name}", str(is_type))
    try:
        result = scalar.type_of(p.body, found)
        if result is None:
            scalar.check_result(p.body, found[0])
    except PatternTypeError as error:
        raise Mismatch(p, f"operands that fit ({error})", _shown(given)) from None
    return result if result is not None else found[0]


_RULES: dict[type[n.Pattern], Callable[..., Any]] = {
    n.Pipe: _pipe,
    n.Map: _map,
    n.Reduce: _reduce,
    n.Zip: _zip,
    n.Unzip: _unzip,
    n.SplitPattern: _split,
    n.Join: _join,
    n.Slide: _slide,
    n.SlideSeq: _slide,
    n.Pad: _pad,
    n.PadValue: _pad,
    n.Crop: _crop,
    n.Transpose: _transpose,
    n.Gather: _gather,
    n.Scatter: _gather,
    n.Iterate: _iterate,
    n.At: _at,
    n.Get: _get,
    n.Fork: _fork,
    n.Par: _par,
    n.Repeat: lambda p, given: ArrayType(given, p.length),
    n.Indices: lambda p, given: ArrayType(i32, p.length),
    n.Literal: _literal,
    n.TablePattern: _table,
    n.Input: lambda p, given: p.type,
    n.UserFun: _user,
    n.To: lambda p, given: infer(p.f, given),
}


def child_inputs(p: n.Pattern, given: DataType) -> tuple[DataType, ...]:
    """Return the input type of each of `nodes.children`, for the type of the pattern's input."""
    if isinstance(p, n.Pipe):
        kinds = [given] if p.stages else []
        for stage in p.stages[:-1]:
            kinds.append(infer(stage, kinds[-1])[0])
        return tuple(kinds)
    if isinstance(p, n.Fork):
        return (given,) * len(p.items)
    if isinstance(p, n.Par):
        assert isinstance(given, TupleType)
        return given.items
    if isinstance(p, n.Map):
        assert isinstance(given, ArrayType)
        return (given.item,)
    if isinstance(p, n.Reduce):
        assert isinstance(given, ArrayType)
        return (TupleType((infer(p, given)[0], given.item)), UNIT)
    return (given,) if isinstance(p, n.Iterate | n.To) else ()
