"""Views: arrays defined by a function from indices to elements (Lift's views).

Layout patterns transform views and emit no code. Indices into memory are polynomials in normal form
(`tilewright.arith`), so that layouts which undo each other cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.arith import Poly, below, boundary
from tilewright.patterns import nodes as n
from tilewright.patterns.check import at_index, child_inputs, infer
from tilewright.patterns.codegen.code import Buffer, BufferLoad, Inside, Number, Value
from tilewright.patterns.errors import LoweringError
from tilewright.patterns.places import located
from tilewright.patterns.types import ArrayType, DataType, ScalarType, TupleType


@dataclass(frozen=True, eq=False, slots=True)
class ArrayView:
    """A value of some type that exists or can be computed."""

    type: DataType


@dataclass(frozen=True, eq=False, slots=True)
class Lazy(ArrayView):
    """An array whose elements are computed on demand."""

    at: Callable[[Poly], ArrayView]


@dataclass(frozen=True, eq=False, slots=True)
class Several(ArrayView):
    """A tuple."""

    items: tuple[ArrayView, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Scalar(ArrayView):
    """A scalar value."""

    value: Value


Store: TypeAlias = "Buffer | tuple[Store, ...]"
"""Buffers for the components of a type."""


@dataclass(frozen=True, eq=False, slots=True)
class Memory(ArrayView):
    """An array stored in row-major order; tuples have one buffer per component.

    A write is dropped if a guard fails; a guard (i, n) means ``i < n``.
    """

    store: Store
    offset: Poly
    guards: tuple[tuple[Poly, Poly], ...] = ()


def element(view: ArrayView, i: Poly) -> ArrayView:
    """Return the element of an array with an index."""
    if isinstance(view, Lazy):
        return view.at(i)
    assert isinstance(view, Memory)
    assert isinstance(view.type, ArrayType)
    offset = view.offset * view.type.length + i
    return Memory(view.type.item, view.store, offset, view.guards)


def component(view: ArrayView, k: int) -> ArrayView:
    """Return component ``k`` of a tuple."""
    if isinstance(view, Several):
        return view.items[k]
    assert isinstance(view, Memory)
    assert isinstance(view.type, TupleType)
    assert isinstance(view.store, tuple)
    return Memory(view.type.items[k], view.store[k], view.offset, view.guards)


def scalar_value(view: ArrayView) -> Value:
    """Return the value of a scalar."""
    if isinstance(view, Scalar):
        return view.value
    assert isinstance(view, Memory)
    assert isinstance(view.store, Buffer)
    return BufferLoad(view.store, view.offset)


def scalar_values(view: ArrayView) -> list[Value]:
    """Return the values of a scalar or of nested tuples of scalars."""
    if isinstance(view.type, TupleType):
        items = [component(view, k) for k in range(len(view.type.items))]
        return [value for item in items for value in scalar_values(item)]
    return [scalar_value(view)]


def array(type: DataType, at: Callable[[Poly], ArrayView]) -> Lazy:
    """Return a lazy array of a type."""
    return Lazy(type, at)


def _item(type: DataType) -> DataType:
    assert isinstance(type, ArrayType)
    return type.item


def _length(type: DataType) -> Poly:
    assert isinstance(type, ArrayType)
    return type.length


def guarded(view: ArrayView, index: Poly, length: Poly, value: bool | int | float) -> ArrayView:
    """Return a view whose scalars are ``value`` if the index is out of range."""
    kind = view.type
    if isinstance(kind, ArrayType):
        return Lazy(kind, lambda i: guarded(element(view, i), index, length, value))
    if isinstance(kind, TupleType):
        items = [component(view, k) for k in range(len(kind.items))]
        return Several(kind, tuple(guarded(item, index, length, value) for item in items))
    assert isinstance(kind, ScalarType)
    return Scalar(kind, Inside(index, length, scalar_value(view), Number(value, kind)))


def read_layout(p: n.Pattern, view: ArrayView) -> ArrayView | None:
    """Return the view of an array after a layout pattern; None for any other pattern."""
    made = infer(p, view.type)[0]
    if isinstance(p, n.SplitPattern):
        k = p.length
        row = _item(made)
        return array(made, lambda c: array(row, lambda e: element(view, c * k + e)))
    if isinstance(p, n.Join):
        m = _length(_item(view.type))
        return array(made, lambda i: element(element(view, i // m), i % m))
    if isinstance(p, n.Slide):
        step, window = p.step, _item(made)
        return array(made, lambda w: array(window, lambda e: element(view, w * step + e)))
    if isinstance(p, n.Pad):
        length, left, kind = _length(view.type), p.left, p.boundary
        return array(made, lambda i: element(view, boundary(kind, i - left, length)))
    if isinstance(p, n.PadValue):
        return _pad_value(p, view, made)
    if isinstance(p, n.Crop):
        return array(made, lambda i: element(view, i))
    if isinstance(p, n.Transpose):
        column = _item(made)
        return array(made, lambda i: array(column, lambda j: element(element(view, j), i)))
    if isinstance(p, n.Gather):
        length, index = _length(view.type), p.index
        return array(made, lambda i: element(view, at_index(index, i, length)))
    if isinstance(p, n.Scatter):
        cure = "use gather with the inverse index, or put it last"
        raise LoweringError(located(f"{p} is read by another pattern: {cure}", p))
    if isinstance(p, n.Zip):
        return array(made, lambda i: _zipped(view, i, _item(made)))
    if isinstance(p, n.Unzip):
        return _unzipped(view, made)
    if isinstance(p, n.At):
        return element(view, p.index)
    if isinstance(p, n.Get):
        return component(view, p.index)
    return array(made, lambda i: view) if isinstance(p, n.Repeat) else None


def _pad_value(p: n.PadValue, view: ArrayView, made: DataType) -> ArrayView:
    length, left, value = _length(view.type), p.left, p.value

    def at(i: Poly) -> ArrayView:
        inner = boundary("clamp", i - left, length)
        found = element(view, inner)
        return found if inner == i - left else guarded(found, i - left, length, value)

    return array(made, at)


def _zipped(view: ArrayView, i: Poly, kind: DataType) -> ArrayView:
    assert isinstance(kind, TupleType)
    return Several(kind, tuple(element(component(view, k), i) for k in range(len(kind.items))))


def _unzipped(view: ArrayView, made: DataType) -> ArrayView:
    assert isinstance(made, TupleType)

    def part(k: int) -> ArrayView:
        return array(made.items[k], lambda i: component(element(view, i), k))

    return Several(made, tuple(part(k) for k in range(len(made.items))))


def written_layout(p: n.Pattern, out: ArrayView, given: DataType) -> ArrayView | None:
    """Return the view to which a layout pattern's input must be written to produce ``out``.

    None if the pattern computes, or if input elements would be written twice or not at all.
    """
    if isinstance(p, n.Pipe):
        kinds = child_inputs(p, given)
        view: ArrayView | None = out
        for stage, kind in reversed(list(zip(p.stages, kinds, strict=True))):
            view = None if view is None else written_layout(stage, view, kind)
        return view
    if isinstance(p, n.Join):
        k, row = _length(_item(given)), _item(given)
        return array(given, lambda c: array(row, lambda e: element(out, c * k + e)))
    if isinstance(p, n.SplitPattern):
        m = p.length
        return array(given, lambda i: element(element(out, i // m), i % m))
    if isinstance(p, n.Transpose):
        column = _item(given)
        return array(given, lambda i: array(column, lambda j: element(element(out, j), i)))
    if isinstance(p, n.Crop):
        kept = p.length
        return array(given, lambda i: dropped(element(out, i), i, kept))
    if isinstance(p, n.Scatter):
        length, index = _length(given), p.index
        return array(given, lambda i: element(out, at_index(index, i, length)))
    if isinstance(p, n.Zip):
        return _unzipped(out, given)
    if isinstance(p, n.Unzip):
        return array(given, lambda i: _zipped(out, i, _item(given)))
    if isinstance(p, n.Map):
        return _written_map(p, out, given)
    return None


def dropped(out: ArrayView, i: Poly, length: Poly) -> ArrayView:
    """Return a view for writing below a length; writes beyond it are dropped."""
    if below(i, length):
        return out
    if isinstance(out, Memory):
        return Memory(out.type, out.store, out.offset, (*out.guards, (i, length)))
    if isinstance(out, Several):
        return Several(out.type, tuple(dropped(item, i, length) for item in out.items))
    assert isinstance(out, Lazy)
    return array(out.type, lambda j: dropped(element(out, j), i, length))


def _written_map(p: n.Map, out: ArrayView, given: DataType) -> ArrayView | None:
    if n.computes(p.f) or written_layout(p.f, _dummy(p.f, _item(given)), _item(given)) is None:
        return None

    def at(i: Poly) -> ArrayView:
        found = written_layout(p.f, element(out, i), _item(given))
        assert found is not None
        return found

    return array(given, at)


def _dummy(p: n.Pattern, given: DataType) -> ArrayView:
    """Return a placeholder view of a pattern's result, to test whether layout can be written."""
    kind = infer(p, given)[0]
    if isinstance(kind, TupleType):
        return Several(kind, tuple(ArrayView(item) for item in kind.items))
    return ArrayView(kind)
