"""The intermediate code of patterns: loops, loads and stores with symbolic indices.

All targets share this form; printers differ in syntax, and features count its loads and stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tilewright.arith import LoopVariable as LoopAtom
from tilewright.arith import Poly
from tilewright.patterns.nodes import MapLevel, UserFun
from tilewright.patterns.types import ScalarType

# Limit per array on a device: indices are 32-bit numbers there, and kernels add some of them.
MOST_ELEMENTS = 2**30


@dataclass(frozen=True, eq=False, slots=True)
class Buffer:
    """Memory for elements of one scalar type.

    Args:
        space: ``input``, ``output``, ``global``, ``local``, ``private`` or ``table``.
        size: elements, in the program's sizes.
        values: the values of a table.
    """

    name: str
    space: str
    type: ScalarType
    size: Poly
    values: tuple[bool | int | float, ...] = ()

    @property
    def memory(self) -> str:
        """``global``, ``local``, ``private`` or ``table``."""
        return "global" if self.space in ("input", "output") else self.space


class Value:
    """A scalar expression of the code."""

    __slots__ = ()


@dataclass(frozen=True, eq=False, slots=True)
class BufferLoad(Value):
    """An element of a buffer."""

    buffer: Buffer
    index: Poly


@dataclass(frozen=True, eq=False, slots=True)
class VectorLoad(BufferLoad):
    """Consecutive elements of a buffer from an index on, one per lane of a vector."""

    lanes: int


@dataclass(frozen=True, eq=False, slots=True)
class Lane(Value):
    """A lane of a vector variable."""

    name: str
    number: int
    type: ScalarType


@dataclass(frozen=True, eq=False, slots=True)
class Vector(Value):
    """A vector of scalars, to be stored at consecutive indices."""

    lanes: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Name(Value):
    """A scalar variable, or a scalar input."""

    name: str
    type: ScalarType


@dataclass(frozen=True, eq=False, slots=True)
class Number(Value):
    """A literal."""

    value: bool | int | float
    type: ScalarType


@dataclass(frozen=True, eq=False, slots=True)
class IndexValue(Value):
    """The value of an index, as i32."""

    index: Poly


@dataclass(frozen=True, eq=False, slots=True)
class FunctionCall(Value):
    """A user function of values."""

    function: UserFun
    args: tuple[Value, ...]
    types: tuple[ScalarType, ...]
    type: ScalarType


@dataclass(frozen=True, eq=False, slots=True)
class Inside(Value):
    """``value`` if ``0 <= index < length``, else a constant."""

    index: Poly
    length: Poly
    value: Value
    other: Number


class Statement:
    """A step of the code."""

    __slots__ = ()


Block = list[Statement]


@dataclass(eq=False, slots=True)
class ForLoop(Statement):
    """A loop of ``variable`` from 0 to its extent, and the level that runs it."""

    variable: LoopAtom
    level: MapLevel
    body: Block = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Declare(Statement):
    """The declaration of a variable; ``changes`` means that later statements assign to it."""

    name: str
    type: ScalarType
    value: Value
    changes: bool = False


@dataclass(eq=False, slots=True)
class Assign(Statement):
    """The assignment of a value to a variable."""

    name: str
    value: Value


@dataclass(eq=False, slots=True)
class Store(Statement):
    """A store to a buffer, if all guards hold: a pair (i, n) means ``i < n``."""

    buffer: Buffer
    index: Poly
    value: Value
    guards: tuple[tuple[Poly, Poly], ...] = ()


@dataclass(eq=False, slots=True)
class Allocate(Statement):
    """An allocation that lives to the end of the block."""

    buffer: Buffer


@dataclass(eq=False, slots=True)
class Barrier(Statement):
    """A barrier of the threads of a work-group."""


def values_of(s: Statement) -> tuple[Value, ...]:
    """Return the values in a statement, without those of nested statements."""
    return (s.value,) if isinstance(s, Declare | Assign | Store) else ()


def parts_of(v: Value) -> tuple[Value, ...]:
    """Return the values inside a value."""
    if isinstance(v, FunctionCall):
        return v.args
    if isinstance(v, Vector):
        return v.lanes
    return (v.value, v.other) if isinstance(v, Inside) else ()


def all_values(v: Value) -> Iterator[Value]:
    """Yield a value and all values inside it."""
    yield v
    for part in parts_of(v):
        yield from all_values(part)


def statements(block: Block) -> Iterator[Statement]:
    """Yield all statements, outer before nested ones."""
    for s in block:
        yield s
        if isinstance(s, ForLoop):
            yield from statements(s.body)


def lanes_of(access: BufferLoad | Store) -> int:
    """Return the number of elements that a load or store moves at once."""
    if isinstance(access, VectorLoad):
        return access.lanes
    value = access.value if isinstance(access, Store) else None
    return len(value.lanes) if isinstance(value, Vector) else 1


def calls(s: Statement) -> list[FunctionCall]:
    """Return the calls of user functions in a statement, without those of nested statements."""
    return [v for value in values_of(s) for v in all_values(value) if isinstance(v, FunctionCall)]


def loads(block: Block) -> Iterator[BufferLoad]:
    """Yield all loads, one per occurrence in the code."""
    for s in statements(block):
        for v in values_of(s):
            yield from (part for part in all_values(v) if isinstance(part, BufferLoad))


def stores(block: Block) -> Iterator[Store]:
    """Yield all stores, one per occurrence in the code."""
    yield from (s for s in statements(block) if isinstance(s, Store))


def indices_of(s: Statement) -> Iterator[Poly]:
    """Yield the index expressions in a statement, without those of nested statements."""
    if isinstance(s, Store):
        yield s.index
        yield from (p for guard in s.guards for p in guard)
    if isinstance(s, ForLoop):
        yield s.variable.extent
    for v in values_of(s):
        for part in all_values(v):
            if isinstance(part, BufferLoad | IndexValue):
                yield part.index
            if isinstance(part, Inside):
                yield from (part.index, part.length)


@dataclass(eq=False, slots=True)
class Code:
    """The code of a program.

    Args:
        name: the name of the function.
        inputs: arrays and scalars that the code reads, in the order of the program's inputs.
        outputs: one buffer per array or scalar of the result.
        sizes: names of the sizes that are parameters, sorted.
        body: the statements.
    """

    name: str
    inputs: tuple[Buffer | Name, ...]
    outputs: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    body: Block

    @property
    def reserved(self) -> frozenset[str]:
        """The names that the user chose, for inputs and sizes."""
        return frozenset({*self.sizes, *(item.name for item in self.inputs)})
