"""Reference semantics of patterns on NumPy arrays, against which generated kernels are verified.

All elements of enclosing maps are computed at once: a value inside k maps is an array with k
leading batch axes. An array of tuples is a tuple of arrays, so that zip and unzip copy nothing.
Windows, elements and repetitions are views, because copies of all neighbourhoods need too much
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arith import boundary_value, evaluate
from tilewright.patterns import nodes as n
from tilewright.patterns import scalar
from tilewright.patterns.binding import bind, conforming
from tilewright.patterns.check import infer, requirements, scalars, type_of
from tilewright.patterns.places import about
from tilewright.patterns.types import UNIT, ArrayType, DataType, ScalarType, TupleType

Value = Any
"""An array, or a tuple of values."""


@dataclass(frozen=True, slots=True)
class _World:
    """The constants of one run of a program: sizes and inputs."""

    sizes: Mapping[str, int]
    inputs: Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class _Scope:
    """The position of a pattern in the program: the lengths of the enclosing maps."""

    world: _World
    batch: tuple[int, ...]

    def inside(self, length: int) -> _Scope:
        return _Scope(self.world, (*self.batch, length))

    @property
    def axis(self) -> int:
        return len(self.batch)


def interpret(program: n.Pattern, *arrays: Any, sizes: Mapping[str, int] | None = None) -> Value:
    """Run a program on NumPy arrays, or values that NumPy converts to them.

    Args:
        program: a pattern that starts at its inputs.
        arrays: one array per input, in the order of `nodes.inputs(program)`.
        sizes: values of sizes that no input's shape determines, by name.

    Raises:
        PatternTypeError: the program is not well typed.
        SizeError: arrays or sizes do not fit the program.
    """
    type_of(program)
    with about(program):
        named = conforming(n.inputs(program), arrays)
        known = bind(n.inputs(program), named, sizes or {})
        for requirement in requirements(program):
            requirement.check(known)
    return _each(_run(program, (), UNIT, _Scope(_World(known, named), ())), np.array)


def _run(p: n.Pattern, value: Value, given: DataType, scope: _Scope) -> Value:
    return _RULES[type(p)](p, value, given, scope)


def _each(value: Value, f: Callable[[np.ndarray[Any, Any]], Any]) -> Value:
    """Apply ``f`` to an array, or to every array of a tuple of arrays."""
    return tuple(_each(item, f) for item in value) if isinstance(value, tuple) else f(value)


def _each2(a: Value, b: Value, f: Callable[[Any, Any], Any]) -> Value:
    if isinstance(a, tuple):
        return tuple(_each2(x, y, f) for x, y in zip(a, b, strict=True))
    return f(a, b)


def _take(value: Value, index: Any, axis: int) -> Value:
    return _each(value, lambda a: np.take(a, index, axis))


def _part(value: Value, index: int | slice, axis: int) -> Value:
    """Return a view of one element of an axis, or of some of its elements."""
    return _each(value, lambda a: a[(slice(None),) * axis + (index,)])


def _length(given: DataType, scope: _Scope) -> int:
    assert isinstance(given, ArrayType)
    length: int = evaluate(given.length, scope.world.sizes)
    return length


def _pipe(p: n.Pipe, value: Value, given: DataType, scope: _Scope) -> Value:
    for stage in p.stages:
        value = _run(stage, value, given, scope)
        given = infer(stage, given)[0]
    return value


def _map(p: n.Map, value: Value, given: DataType, scope: _Scope) -> Value:
    assert isinstance(given, ArrayType)
    return _run(p.f, value, given.item, scope.inside(_length(given, scope)))


def _reduce(p: n.Reduce, value: Value, given: DataType, scope: _Scope) -> Value:
    assert isinstance(given, ArrayType)
    kind = infer(p, given)[0]
    if isinstance(p.init, n.Literal) and isinstance(kind, ScalarType):
        acc: Value = np.full(scope.batch, p.init.value, kind.dtype)
    else:
        acc = _run(p.init, (), UNIT, scope)
    pair = TupleType((kind, given.item))
    for i in range(_length(given, scope)):
        acc = _run(p.f, (acc, _part(value, i, scope.axis)), pair, scope)
    return acc


def _split(p: n.SplitPattern, value: Value, given: DataType, scope: _Scope) -> Value:
    length: int = evaluate(p.length, scope.world.sizes)
    k = scope.axis
    return _each(value, lambda a: a.reshape(*a.shape[:k], -1, length, *a.shape[k + 1 :]))


def _join(p: n.Join, value: Value, given: DataType, scope: _Scope) -> Value:
    k = scope.axis
    return _each(value, lambda a: a.reshape(*a.shape[:k], -1, *a.shape[k + 2 :]))


def _slide(p: n.Slide | n.SlideSeq, value: Value, given: DataType, scope: _Scope) -> Value:
    size, step = (evaluate(x, scope.world.sizes) for x in (p.size, p.step))
    k = scope.axis

    def windows(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.moveaxis(np.lib.stride_tricks.sliding_window_view(a, size, k), -1, k + 1)

    return _part(_each(value, windows), slice(None, None, step), k)


def _pad(p: n.Pad, value: Value, given: DataType, scope: _Scope) -> Value:
    left, right = (evaluate(x, scope.world.sizes) for x in (p.left, p.right))
    length = _length(given, scope)
    index = boundary_value(p.boundary, np.arange(-left, length + right), length)
    return _take(value, index, scope.axis)


def _pad_value(p: n.PadValue, value: Value, given: DataType, scope: _Scope) -> Value:
    sides = tuple(evaluate(x, scope.world.sizes) for x in (p.left, p.right))

    def padded(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        widths = [(0, 0)] * a.ndim
        widths[scope.axis] = sides
        return np.pad(a, widths, constant_values=p.value)

    return _each(value, padded)


def _crop(p: n.Crop, value: Value, given: DataType, scope: _Scope) -> Value:
    return _part(value, slice(evaluate(p.length, scope.world.sizes)), scope.axis)


def _transpose(p: n.Transpose, value: Value, given: DataType, scope: _Scope) -> Value:
    return _each(value, lambda a: np.swapaxes(a, scope.axis, scope.axis + 1))


def _permutation(p: n.Gather | n.Scatter, given: DataType, scope: _Scope) -> Any:
    length = _length(given, scope)
    each = np.arange(length)
    known = {**scope.world.sizes, "_i": each, "_n": length}
    return np.broadcast_to(evaluate(p.index, known), each.shape)


def _gather(p: n.Gather, value: Value, given: DataType, scope: _Scope) -> Value:
    return _take(value, _permutation(p, given, scope), scope.axis)


def _scatter(p: n.Scatter, value: Value, given: DataType, scope: _Scope) -> Value:
    return _take(value, np.argsort(_permutation(p, given, scope)), scope.axis)


def _iterate(p: n.Iterate, value: Value, given: DataType, scope: _Scope) -> Value:
    for _ in range(p.count):
        value = _run(p.f, value, given, scope)
    return value


def _at(p: n.At, value: Value, given: DataType, scope: _Scope) -> Value:
    return _part(value, evaluate(p.index, scope.world.sizes), scope.axis)


def _fork(p: n.Fork, value: Value, given: DataType, scope: _Scope) -> Value:
    return tuple(_run(item, value, given, scope) for item in p.items)


def _par(p: n.Par, value: Value, given: DataType, scope: _Scope) -> Value:
    assert isinstance(given, TupleType)
    parts = zip(p.items, value, given.items, strict=True)
    return tuple(_run(item, part, kind, scope) for item, part, kind in parts)


def _repeat(p: n.Repeat, value: Value, given: DataType, scope: _Scope) -> Value:
    length, k = evaluate(p.length, scope.world.sizes), scope.axis

    def repeated(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.broadcast_to(np.expand_dims(a, k), (*a.shape[:k], length, *a.shape[k:]))

    return _each(value, repeated)


def _spread(array: np.ndarray[Any, Any], scope: _Scope) -> np.ndarray[Any, Any]:
    """Return the same array for every element of the enclosing maps."""
    return np.broadcast_to(array, (*scope.batch, *array.shape))


def _indices(p: n.Indices, value: Value, given: DataType, scope: _Scope) -> Value:
    return _spread(np.arange(evaluate(p.length, scope.world.sizes), dtype=np.int32), scope)


def _literal(p: n.Literal, value: Value, given: DataType, scope: _Scope) -> Value:
    assert p.type is not None
    return _spread(np.asarray(p.value, p.type.dtype), scope)


def _table(p: n.TablePattern, value: Value, given: DataType, scope: _Scope) -> Value:
    return _spread(np.asarray(p.values, p.type.dtype), scope)


def _input(p: n.Input, value: Value, given: DataType, scope: _Scope) -> Value:
    return _spread(scope.world.inputs[p.name], scope)


def _user(p: n.UserFun, value: Value, given: DataType, scope: _Scope) -> Value:
    kinds = scalars(given)
    assert kinds is not None
    flat: list[Any] = []
    _each(value, flat.append)
    result_type = infer(p, given)[0]
    assert isinstance(result_type, ScalarType)
    with np.errstate(all="ignore"):  # as in C: a division by zero gives infinity
        result = scalar_value(p.body, flat, kinds, result_type)
    return np.broadcast_to(np.asarray(result, result_type.dtype), scope.batch)


def scalar_value(
    e: scalar.Expr, args: list[Any], types: tuple[ScalarType, ...], wanted: ScalarType
) -> Any:
    """Evaluate an expression on arrays; each operation has the precision of its type."""
    if isinstance(e, scalar.Arg):
        return args[e.index]
    if isinstance(e, scalar.ScalarConst):
        return wanted.dtype.type(e.value)
    if isinstance(e, scalar.Cast):
        inner = scalar.type_of(e.x, types) or e.type
        return np.asarray(scalar_value(e.x, args, types, inner)).astype(e.type.dtype)
    assert isinstance(e, scalar.ScalarOp)
    found = [scalar.type_of(x, types) for x in e.args]
    operands = found[1:] if e.name == "where" else found
    kind = next((t for t in operands if t is not None), wanted)
    kinds = [t or kind for t in found]
    values = [scalar_value(x, args, types, t) for x, t in zip(e.args, kinds, strict=True)]
    return _OPERATIONS[e.name](*values)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "min": lambda x, y: np.where(y < x, y, x),
    "max": lambda x, y: np.where(x < y, y, x),
    "abs": np.abs,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "where": np.where,
}

_RULES: dict[type[n.Pattern], Callable[..., Value]] = {
    n.Pipe: _pipe,
    n.Map: _map,
    n.Reduce: _reduce,
    n.Zip: lambda p, value, given, scope: value,
    n.Unzip: lambda p, value, given, scope: value,
    n.SplitPattern: _split,
    n.Join: _join,
    n.Slide: _slide,
    n.SlideSeq: _slide,
    n.Pad: _pad,
    n.PadValue: _pad_value,
    n.Crop: _crop,
    n.Transpose: _transpose,
    n.Gather: _gather,
    n.Scatter: _scatter,
    n.Iterate: _iterate,
    n.At: _at,
    n.Get: lambda p, value, given, scope: value[p.index],
    n.Fork: _fork,
    n.Par: _par,
    n.Repeat: _repeat,
    n.Indices: _indices,
    n.Literal: _literal,
    n.TablePattern: _table,
    n.Input: _input,
    n.UserFun: _user,
    n.To: lambda p, value, given, scope: _run(p.f, value, given, scope),
}
