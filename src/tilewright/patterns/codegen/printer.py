"""The common base of all printers: blocks, assignments and index definitions."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tilewright.patterns.codegen.code import (
    Allocate,
    Assign,
    Barrier,
    Block,
    Buffer,
    Code,
    Declare,
    ForLoop,
    Name,
    Statement,
    Store,
    Vector,
    VectorLoad,
    loads,
)
from tilewright.patterns.codegen.tidy import IndexNames
from tilewright.patterns.codegen.words import Words


def scratch(code: Code) -> list[Buffer]:
    """Return the intermediate arrays outside of all loops, which the caller provides."""
    return [s.buffer for s in code.body if isinstance(s, Allocate) and s.buffer.space == "global"]


def tables(block: Block) -> list[Buffer]:
    """Return the constant arrays, in the order of their first use."""
    found = (v.buffer for v in loads(block) if v.buffer.space == "table")
    return list(dict.fromkeys(found))


class Printer(ABC):
    """Prints blocks; each target prints loops, memory and barriers."""

    def __init__(self, words: Words, indices: IndexNames) -> None:
        self.words, self.indices = words, indices
        words.named = indices.names

    @abstractmethod
    def loop(self, loop: ForLoop, depth: int, spread: bool) -> list[str]:
        """Return the lines of a loop."""

    @abstractmethod
    def allocate(self, buffer: Buffer, depth: int, freed: list[str]) -> list[str]:
        """Return the lines that allocate memory; append names to free later to ``freed``."""

    def barrier(self) -> str:
        """Return a barrier; empty if the target needs none."""
        return ""

    def block(self, block: Block, depth: int, spread: bool) -> list[str]:
        """Return the lines of a block.

        Args:
            block: the statements.
            depth: the depth of indentation.
            spread: whether the block is inside a parallel loop.
        """
        pad = "  " * depth
        lines = [
            f"{pad}const {self.words.dialect.index} {self.indices.names[atom]} = "
            f"{self.words.define(atom)};"
            for atom in self.indices.at[id(block)]
        ]
        freed: list[str] = []
        for s in block:
            if isinstance(s, Allocate):
                lines += self.allocate(s.buffer, depth, freed)
            elif isinstance(s, ForLoop):
                lines += self.loop(s, depth, spread)
            elif isinstance(s, Barrier):
                lines.append(pad + self.barrier())
            else:
                lines.append(pad + self.simple(s))
        return lines + [f"{pad}free({name});" for name in freed]

    def simple(self, s: Statement) -> str:
        """Return a statement of one line."""
        if isinstance(s, Declare):
            const = "" if s.changes else "const "
            kind = self.words.type(s.type)
            if isinstance(s.value, VectorLoad):
                kind += str(s.value.lanes)
            return f"{const}{kind} {s.name} = {self.words.value(s.value)};"
        if isinstance(s, Assign):
            return f"{s.name} = {self.words.value(s.value)};"
        assert isinstance(s, Store)
        if isinstance(s.value, Vector):
            return self._vector(s, s.value)
        text = f"{s.buffer.name}[{self.words.index(s.index)}] = {self.words.value(s.value)};"
        index = self.words.index
        open_ = [guard for guard in s.guards if guard not in self.words.inside]
        tests = " && ".join(f"{index(i)} < {index(length)}" for i, length in open_)
        return f"if ({tests}) {text}" if tests else text

    def _vector(self, s: Store, v: Vector) -> str:
        at = f"{s.buffer.name} + {self.words.index(s.index)}"
        values = ", ".join(map(self.words.value, v.lanes))
        kind = self.words.type(s.buffer.type)
        store = self.words.dialect.vector_store
        return store.format(n=len(v.lanes), type=kind, at=at, values=values)

    def table(self, buffer: Buffer, qualifier: str) -> str:
        """Return the definition of a constant array."""
        values = ", ".join(self.words.number(v, buffer.type) for v in buffer.values)
        kind = self.words.type(buffer.type)
        return f"{qualifier} {kind} {buffer.name}[{len(buffer.values)}] = {{{values}}};"

    def parameters(
        self, inputs: list[Buffer | Name], written: list[Buffer], sizes: tuple[str, ...], space: str
    ) -> list[str]:
        """Return the parameters of a function; ``space`` qualifies pointers."""
        found = []
        for item in inputs:
            kind = self.words.type(item.type)
            pointer = f"{space}const {kind} *restrict {item.name}"
            found.append(pointer if isinstance(item, Buffer) else f"const {kind} {item.name}")
        found += [f"{space}{self.words.type(b.type)} *restrict {b.name}" for b in written]
        return found + [f"const {self.words.dialect.index} {name}" for name in sizes]
