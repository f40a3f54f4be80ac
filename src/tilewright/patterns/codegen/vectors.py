"""Expansion of loops over vector lanes: computation per lane, loads and stores of whole vectors.

The threads of a GPU compute lane by lane, so vectors save memory instructions only. An access of
global or local memory becomes a vector access under three conditions: its lanes are consecutive
elements, the index of the first is proved to be a multiple of the access's length, and their type
has vectors. An access has at most `MOST_BYTES`: a longer vector is loaded and stored in pieces. Any
other access is done once per lane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd, lcm

from tilewright.arith import Poly, Size, substitute
from tilewright.patterns import nodes as n
from tilewright.patterns.check import SizeRequirement
from tilewright.patterns.codegen.code import (
    Allocate,
    Assign,
    Block,
    Buffer,
    BufferLoad,
    Declare,
    ForLoop,
    FunctionCall,
    IndexValue,
    Inside,
    Lane,
    Name,
    Number,
    Statement,
    Store,
    Value,
    Vector,
    VectorLoad,
    all_values,
    indices_of,
    values_of,
)
from tilewright.patterns.errors import LoweringError

MOST_BYTES = 16  # per access of a thread (CUDA C programming guide, device memory accesses)
LENGTHS = (2, 4, 8, 16)  # lengths of vector types in OpenCL C (specification 6.3.2)


def multiples(requirements: Sequence[SizeRequirement]) -> dict[str, int]:
    """Return a known divisor of each of a program's sizes, from the requirements of its splits."""
    found: dict[str, int] = {}
    for requirement in requirements:
        top, bottom = requirement.value.fraction
        atoms = [a for a in top.all_atoms() if isinstance(a, Size)]
        plain = len(atoms) == 1 and top == Poly.of(atoms[0])
        if requirement.kind == "whole" and plain and isinstance(bottom.value, int):
            found[atoms[0].name] = lcm(found.get(atoms[0].name, 1), bottom.value)
    return found


def with_vectors(
    block: Block, known: Mapping[str, int], reserved: frozenset[str] = frozenset()
) -> Block:
    """Return a block without loops over lanes.

    Args:
        block: the code of a grid of threads.
        known: a divisor of each size, by name.
        reserved: names that must not be used.

    Raises:
        LoweringError: a loop over lanes has no vector access, or such loops are nested.
    """
    made: Block = []
    for s in block:
        if isinstance(s, ForLoop) and s.level == n.VEC:
            made += _Lanes(s, known, reserved).unrolled()
            continue
        if isinstance(s, ForLoop):
            s.body = with_vectors(s.body, known, reserved)
        made.append(s)
    return made


@dataclass(slots=True)
class _Lanes:
    """One loop over lanes.

    Args:
        loop: the loop.
        known: a divisor of each size, by name.
        reserved: names that must not be used.
        varying: variables of the body whose values differ between lanes.
        buffers: memory that the body allocates per lane.
        accesses: the number of vector accesses.
        made: the number of variables made for vector loads.
    """

    loop: ForLoop
    known: Mapping[str, int]
    reserved: frozenset[str]
    varying: set[str] = field(default_factory=set)
    buffers: dict[Buffer, list[Buffer]] = field(default_factory=dict)
    accesses: int = 0
    made: int = 0

    @property
    def length(self) -> int:
        return int(self.loop.variable.extent.value or 0)

    def unrolled(self) -> Block:
        """Return the statements that replace the loop."""
        block = self.block(self.loop.body)
        if not self.accesses:
            raise LoweringError(
                f"map_vec of {self.length} elements: no access of global or local memory has "
                f"consecutive elements from a multiple of {self.length} on (of {MOST_BYTES} bytes, "
                "if that is less): use map_seq"
            )
        return block

    def block(self, block: Block) -> Block:
        made: Block = []
        for s in block:
            if isinstance(s, ForLoop):
                if s.level == n.VEC or self.moves(s.variable.extent):
                    raise LoweringError("map_vec with a loop inside that lanes run differently")
                made.append(ForLoop(s.variable, s.level, self.block(s.body)))
            elif isinstance(s, Allocate):
                each = [
                    replace(s.buffer, name=self.named(f"{s.buffer.name}_{k}"))
                    for k in range(self.length)
                ]
                self.buffers[s.buffer] = each
                made += map(Allocate, each)
            else:
                made += self.statement(s)
        return made

    def statement(self, s: Statement) -> Block:
        """Return the statements that replace a simple statement, for all lanes."""
        if isinstance(s, Declare) and not s.changes and not self.varies(s):
            return [s]
        before: Block = []
        read = {} if isinstance(s, Store) and s.guards else self.loads(s, before)
        if isinstance(s, Store) and s.buffer not in self.buffers and not s.guards:
            base = self.first(s.buffer, s.index)
            if base is not None:
                self.accesses += 1
                lanes = tuple(self.lane(s.value, k, read) for k in range(self.length))
                width = self.width(s.buffer)
                return [
                    *before,
                    *(
                        Store(s.buffer, base + k, Vector(lanes[k : k + width]))
                        for k in range(0, self.length, width)
                    ),
                ]
        if isinstance(s, Declare):
            self.varying.add(s.name)
        return [*before, *(self.one(s, k, read) for k in range(self.length))]

    def one(self, s: Statement, k: int, read: Mapping[BufferLoad, Value]) -> Statement:
        """Return a statement for one lane."""
        if isinstance(s, Declare):
            return Declare(
                self.named(f"{s.name}_{k}"), s.type, self.lane(s.value, k, read), s.changes
            )
        if isinstance(s, Assign):
            return Assign(self.named(f"{s.name}_{k}"), self.lane(s.value, k, read))
        assert isinstance(s, Store)
        buffer = self.buffers[s.buffer][k] if s.buffer in self.buffers else s.buffer
        guards = tuple((self.at(i, k), self.at(length, k)) for i, length in s.guards)
        return Store(buffer, self.at(s.index, k), self.lane(s.value, k, read), guards)

    def loads(self, s: Statement, before: Block) -> dict[BufferLoad, Value]:
        """Return replacements for the loads of a statement that become vector loads.

        Conditional loads are not moved.
        """
        found: dict[BufferLoad, Value] = {}
        for v in values_of(s):
            for load in _unconditional(v):
                name = self.named(f"{self.loop.variable.name}_v{self.made}")
                base = self.first(load.buffer, load.index)
                if load.buffer in self.buffers or (base is None and self.moves(load.index)):
                    continue
                self.made += 1
                found[load] = Name(name, load.buffer.type)
                if base is None:
                    before.append(Declare(name, load.buffer.type, load))
                    continue
                self.accesses += 1
                width = self.width(load.buffer)
                before += [
                    Declare(
                        self.piece(name, k, width),
                        load.buffer.type,
                        VectorLoad(load.buffer, base + k, width),
                    )
                    for k in range(0, self.length, width)
                ]
        return found

    def width(self, buffer: Buffer) -> int:
        """Return the number of elements of a buffer in one access."""
        return min(self.length, MOST_BYTES // buffer.type.size)

    def piece(self, name: str, k: int, width: int) -> str:
        """Return the variable that holds lane ``k`` of a load in pieces of ``width`` lanes."""
        return name if width == self.length else self.named(f"{name}_{k // width}")

    def lane(self, v: Value, k: int, read: Mapping[BufferLoad, Value]) -> Value:
        """Return a value for one lane."""
        if isinstance(v, BufferLoad) and v in read:
            name = read[v]
            assert isinstance(name, Name)
            if not self.moves(v.index):
                return name
            width = self.width(v.buffer)
            return Lane(self.piece(name.name, k, width), k % width, name.type)
        if isinstance(v, BufferLoad):
            buffer = self.buffers[v.buffer][k] if v.buffer in self.buffers else v.buffer
            return BufferLoad(buffer, self.at(v.index, k))
        if isinstance(v, Name):
            return Name(self.named(f"{v.name}_{k}"), v.type) if v.name in self.varying else v
        if isinstance(v, IndexValue):
            return IndexValue(self.at(v.index, k))
        if isinstance(v, FunctionCall):
            args = tuple(self.lane(a, k, read) for a in v.args)
            return FunctionCall(v.function, args, v.types, v.type)
        if isinstance(v, Inside):
            index, length = self.at(v.index, k), self.at(v.length, k)
            return Inside(index, length, self.lane(v.value, k, read), v.other)
        assert isinstance(v, Number)
        return v

    def named(self, name: str) -> str:
        """Return this name, or a similar one if the user has taken it."""
        while name in self.reserved:
            name += "_"
        return name

    def at(self, p: Poly, k: int) -> Poly:
        """Return an index in one lane."""
        lane = Poly.constant(k)
        return substitute(p, lambda a: lane if a == self.loop.variable else None)

    def moves(self, p: Poly) -> bool:
        """Return whether an index differs between lanes."""
        return self.loop.variable in p.all_atoms()

    def varies(self, s: Statement) -> bool:
        """Return whether the values of a statement differ between lanes."""
        names = {v.name for x in values_of(s) for v in all_values(x) if isinstance(v, Name)}
        read = [v for x in values_of(s) for v in all_values(x) if isinstance(v, BufferLoad)]
        own = any(v.buffer in self.buffers for v in read)
        return bool(names & self.varying) or own or any(map(self.moves, indices_of(s)))

    def first(self, buffer: Buffer, index: Poly) -> Poly | None:
        """Return the first index of a vector access; None if the access cannot be one."""
        base = index - Poly.of(self.loop.variable)
        vectors = buffer.type.kind in "fi" and buffer.memory in ("global", "local")
        if not vectors or self.moves(base):
            return None
        return base if self.divides(base, self.width(buffer)) else None

    def divides(self, p: Poly, width: int) -> bool:
        """Return whether an index is provably a multiple of the length of an access."""
        for monomial, c in p.terms:
            if not isinstance(c, int) or any(power < 1 for _, power in monomial):
                return False
            number = c
            for atom, power in monomial:
                if isinstance(atom, Size):
                    number *= self.known.get(atom.name, 1) ** power
            if gcd(number, width) != width:
                return False
        return True


def _unconditional(v: Value) -> list[BufferLoad]:
    """Return the loads in a value that are always executed."""
    if isinstance(v, BufferLoad):
        return [v]
    if isinstance(v, FunctionCall):
        return [load for arg in v.args for load in _unconditional(arg)]
    return []
