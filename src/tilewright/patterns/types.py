"""Types of pattern programs: scalars, tuples, and arrays with numeric or symbolic lengths.

``f32[N, M]`` is an array of N rows of M numbers, and prints in the same form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.arith import Poly, poly
from tilewright.patterns.errors import PatternError, PatternTypeError

if TYPE_CHECKING:
    from tilewright.patterns.scalar import Operand


class DataType:
    """A type of a pattern program."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ScalarType(DataType):
    """A type of numbers or truth values; ``f32[N]`` is an array type, ``f32(x)`` a conversion.

    Args:
        name: the name in programs.
        numpy: NumPy's name for it.
        c: its name in C, OpenCL C and CUDA C.
        kind: ``f`` floating point, ``i`` signed integer, ``b`` truth value.
        size: bytes per value.
    """

    name: str
    numpy: str
    c: str
    kind: str
    size: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type."""
        return np.dtype(self.numpy)

    def __getitem__(self, lengths: Poly | int | tuple[Poly | int, ...]) -> ArrayType:
        return array_of(self, *(lengths if isinstance(lengths, tuple) else (lengths,)))

    def __call__(self, x: Operand | float | np.generic) -> Any:
        """Return a literal of this type, or convert a value inside a user function."""
        return converted(x, self)

    def __str__(self) -> str:
        return self.name


@singledispatch
def converted(x: object, type: ScalarType) -> Any:
    """Convert a value to this type; `nodes` registers numbers, `scalar` results of functions.

    Raises:
        PatternTypeError: values of this class cannot be converted.
    """
    raise PatternTypeError(f"{x!r} in a user function: use its parameters and numbers")


f32 = ScalarType("f32", "float32", "float", "f", 4)
f64 = ScalarType("f64", "float64", "double", "f", 8)
i32 = ScalarType("i32", "int32", "int", "i", 4)
i64 = ScalarType("i64", "int64", "long", "i", 8)
boolean = ScalarType("boolean", "bool", "bool", "b", 1)

SCALARS = {scalar.name: scalar for scalar in (f32, f64, i32, i64, boolean)}


def misfit(value: bool | int | float, type: ScalarType, truncated: bool = False) -> str:
    """Return why a type cannot represent a number; an empty text if it can.

    Args:
        value: the number.
        type: the type.
        truncated: whether a conversion drops the fraction, as in C.
    """
    if type is boolean or isinstance(value, bool):
        return ""
    if type.kind == "f":
        info, kind = np.finfo(type.dtype), "finite numbers"
        fits = not isinstance(value, int) and not math.isfinite(value)
        if not fits and abs(value) <= float(np.finfo(np.float64).max):
            with np.errstate(over="ignore"):
                fits = bool(np.isfinite(type.dtype.type(value)))
        low, high = float(info.min), float(info.max)
    else:
        range_, kind = np.iinfo(type.dtype), "whole numbers"
        whole = isinstance(value, int) or (
            math.isfinite(value) and (truncated or value.is_integer())
        )
        if not whole:
            return f"{type} holds whole numbers only"
        low, high = range_.min, range_.max
        fits = low <= int(value) <= high
    if fits:
        return ""
    cure = f"convert to {type.name[0]}64" if type.size == 4 else "give a number in this range"
    return f"{type} holds {kind} from {low} to {high}: {cure}"


@dataclass(frozen=True, slots=True)
class TupleType(DataType):
    """A tuple of values; the empty tuple is the input of a complete program."""

    items: tuple[DataType, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


UNIT = TupleType(())


@dataclass(frozen=True, slots=True)
class ArrayType(DataType):
    """``length`` values of one type."""

    item: DataType
    length: Poly

    def __str__(self) -> str:
        lengths, inner = dimensions(self)
        return f"{inner}[{', '.join(map(str, lengths))}]"


def array_of(item: DataType, *lengths: Poly | int) -> ArrayType:
    """Return a nested array type, first length outermost: ``array_of(f32, N, M)`` has N rows.

    Raises:
        PatternError: no length is given, or a length is not a size or is less than 1.
    """
    if not lengths:
        raise PatternError("an array type needs a length, as in f32[N]")
    result: DataType = item
    for length in reversed(lengths):
        if isinstance(length, bool) or not isinstance(length, Poly | int):
            raise PatternError(f"an array of length {length!r}; give a whole number or a size")
        size = poly(length)
        if size.value is not None and size.value < 1:
            raise PatternError(f"an array of length {size}; give at least 1")
        result = ArrayType(result, size)
    assert isinstance(result, ArrayType)
    return result


def dimensions(type: DataType) -> tuple[tuple[Poly, ...], DataType]:
    """Return the lengths of nested arrays, outermost first, and their element type."""
    lengths: list[Poly] = []
    while isinstance(type, ArrayType):
        lengths.append(type.length)
        type = type.item
    return tuple(lengths), type


def leaves(type: DataType) -> Iterator[ScalarType]:
    """Yield the scalar types inside a type, from left to right."""
    if isinstance(type, ArrayType):
        yield from leaves(type.item)
    elif isinstance(type, TupleType):
        for item in type.items:
            yield from leaves(item)
    else:
        assert isinstance(type, ScalarType)
        yield type
