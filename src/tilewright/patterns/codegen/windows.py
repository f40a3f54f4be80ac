"""Windows that a sequential loop keeps in private memory from one iteration to the next.

Before the loop, code reads the elements of the first window except its last ``step``. Each
iteration reads ``step`` new elements, computes, and shifts the others to their positions in the
next window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.arith import LoopVariable
from tilewright.patterns import nodes as n
from tilewright.patterns.codegen.code import Block, Buffer, BufferLoad, Store, loads
from tilewright.patterns.codegen.views import Memory
from tilewright.patterns.codegen.views import Store as Buffers
from tilewright.patterns.errors import LoweringError
from tilewright.patterns.places import located
from tilewright.patterns.types import ArrayType, DataType, TupleType


@dataclass(eq=False, slots=True)
class OpenLoop:
    """A sequential loop whose body is under construction.

    Args:
        variable: the variable of the loop.
        before: statements before the loop.
        start: the first statements of the body.
        end: the last statements of the body.
        windows: memory of the windows that the loop keeps, by the view that reads them.
    """

    variable: LoopVariable
    before: Block = field(default_factory=list)
    start: Block = field(default_factory=list)
    end: Block = field(default_factory=list)
    windows: dict[object, Memory] = field(default_factory=dict)

    def used(self, body: Block) -> None:
        """Drop the stores to elements of windows that neither the body nor a later step reads."""
        for window in self.windows.values():
            for buffer in flat(window.store):
                self._drop(buffer, body)

    def _drop(self, buffer: Buffer, body: Block) -> None:
        wanted = {v.index.value for v in loads(body) if v.buffer is buffer}
        if None in wanted:
            return
        moves = [s for s in self.end if isinstance(s, Store) and s.buffer is buffer]
        for s in moves:  # in ascending order: each element is replaced by a later one
            assert isinstance(s.value, BufferLoad)
            if s.index.value in wanted:
                wanted.add(s.value.index.value)
        for block in (self.before, self.start, self.end):
            block[:] = [
                s
                for s in block
                if not (isinstance(s, Store) and s.buffer is buffer and s.index.value not in wanted)
            ]


def flat(store: Buffers) -> list[Buffer]:
    """Return the buffers of all components, in order."""
    return [store] if isinstance(store, Buffer) else [b for part in store for b in flat(part)]


def overlap(p: n.SlideSeq, window: DataType) -> tuple[int, int, int]:
    """Return the size and step of a window, and the number of elements that neighbours share.

    Raises:
        LoweringError: the size, the step, or a length of the elements is not a number.
    """
    size, step = p.size.value, p.step.value
    if elements(window) is None or not isinstance(size, int) or not isinstance(step, int):
        cure = "give numbers, or use slide"
        raise LoweringError(located(f"{p} keeps a window of type {window}: {cure}", p))
    return size, step, max(size - step, 0)


def elements(kind: DataType) -> int | None:
    """Return the number of scalars in a value of a type; None if it depends on a size."""
    if isinstance(kind, TupleType):
        each = [elements(item) for item in kind.items]
        found = [count for count in each if count is not None]
        return sum(found) if len(found) == len(each) else None
    if not isinstance(kind, ArrayType):
        return 1
    inner, length = elements(kind.item), kind.length.value
    return inner * length if inner is not None and isinstance(length, int) else None


def out_of_order(p: n.SlideSeq) -> LoweringError:
    """Return the error for windows that no sequential loop reads in order."""
    cure = "put map_seq after it, or use slide"
    return LoweringError(located(f"the windows of {p} are not read in order: {cure}", p))
