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

# Of an array on a device: indices there are 32-bit numbers, and sums of two are made.
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
    """Elements of a buffer from an index on, as many as the lanes of a vector."""

    lanes: int


@dataclass(frozen=True, eq=False, slots=True)
class Lane(Value):
    """A lane of a variable that a vector was loaded to."""

    name: str
    number: int
    type: ScalarType


@dataclass(frozen=True, eq=False, slots=True)
class Vector(Value):
    """A vector of scalars, to be stored from an index on."""

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
    """An index as a value of type i32."""

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
    """``value`` where ``0 <= index < length``, else a number."""

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
    """A new variable; ``changes`` says that it is assigned to later."""

    name: str
    type: ScalarType
    value: Value
    changes: bool = False


@dataclass(eq=False, slots=True)
class Assign(Statement):
    """A variable gets a value."""

    name: str
    value: Value


@dataclass(eq=False, slots=True)
class Store(Statement):
    """An element of a buffer gets a value, if all guards hold: pairs (i, n) mean ``i < n``."""

    buffer: Buffer
    index: Poly
    value: Value
    guards: tuple[tuple[Poly, Poly], ...] = ()


@dataclass(eq=False, slots=True)
class Allocate(Statement):
    """Memory that lives to the end of the block."""

    buffer: Buffer


@dataclass(eq=False, slots=True)
class Barrier(Statement):
    """All threads of a work-group wait for each other."""


def values_of(s: Statement) -> tuple[Value, ...]:
    """Return the values in a statement itself, not in those inside of it."""
    return (s.value,) if isinstance(s, Declare | Assign | Store) else ()


def parts_of(v: Value) -> tuple[Value, ...]:
    """Return the values inside a value."""
    if isinstance(v, FunctionCall):
        return v.args
    if isinstance(v, Vector):
        return v.lanes
    return (v.value, v.other) if isinstance(v, Inside) else ()


def all_values(v: Value) -> Iterator[Value]:
    """Yield a value and those inside of it."""
    yield v
    for part in parts_of(v):
        yield from all_values(part)


def statements(block: Block) -> Iterator[Statement]:
    """Yield all statements, each before those inside of it."""
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


def loads(block: Block) -> Iterator[BufferLoad]:
    """Yield all loads, one for each place in the code."""
    for s in statements(block):
        for v in values_of(s):
            yield from (part for part in all_values(v) if isinstance(part, BufferLoad))


def stores(block: Block) -> Iterator[Store]:
    """Yield all stores, one for each place in the code."""
    yield from (s for s in statements(block) if isinstance(s, Store))


def indices_of(s: Statement) -> Iterator[Poly]:
    """Yield the index expressions in a statement itself."""
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
        inputs: arrays and scalars that it reads, in the order of the program's inputs.
        outputs: a buffer for each array (or scalar) of the result.
        sizes: names of the sizes that it takes, sorted.
        body: the statements.
    """

    name: str
    inputs: tuple[Buffer | Name, ...]
    outputs: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    body: Block

    @property
    def reserved(self) -> frozenset[str]:
        """Names that the caller chose: of inputs and sizes."""
        return frozenset({*self.sizes, *(item.name for item in self.inputs)})
