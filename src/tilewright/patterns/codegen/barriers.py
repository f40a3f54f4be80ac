"""Insertion of barriers where threads of a work-group need each other's results.

The statements of a work-group run in order, each distributed over the threads. Two statements need
a barrier between them if one writes local memory that the other reads or writes, unless every
thread accesses its own elements only. In a loop, the last statement also precedes the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.arith import LoopVariable as LoopAtom
from tilewright.arith import Poly, substitute
from tilewright.patterns.codegen.code import (
    Barrier,
    Block,
    Buffer,
    ForLoop,
    loads,
    statements,
    stores,
)


def with_barriers(block: Block, once: bool) -> Block:
    """Return the body of a kernel with barriers inserted.

    Args:
        block: the body without barriers.
        once: whether each group runs a single iteration of the loops over groups.
    """
    shared = {s.buffer for s in stores(block) if s.buffer.space == "local"}
    own = {buffer for buffer in shared if _own_elements(block, buffer)}
    return _Inserter(frozenset(shared - own), once).block(block)


@dataclass(slots=True)
class _Pending:
    """Local memory read and written since the last barrier."""

    read: set[Buffer] = field(default_factory=set)
    written: set[Buffer] = field(default_factory=set)

    def conflicts(self, other: _Pending) -> bool:
        """Return whether the next step needs a barrier before it."""
        return bool(self.written & (other.read | other.written) or self.read & other.written)


@dataclass(frozen=True, slots=True)
class _Inserter:
    shared: frozenset[Buffer]
    once: bool

    def touched(self, block: Block) -> _Pending:
        """Return the shared memory that a block reads and writes."""
        read = {v.buffer for v in loads(block)} & self.shared
        return _Pending(read, {s.buffer for s in stores(block)} & self.shared)

    def block(self, block: Block) -> Block:
        made: Block = []
        pending = _Pending()
        for s in block:
            touched = self.touched([s])
            if pending.conflicts(touched):
                made.append(Barrier())
                pending = _Pending()
            if isinstance(s, ForLoop) and s.level.kind != "lcl":
                s.body = self.block(s.body)
                single = s.level.kind == "wrg" and self.once
                if not single and touched.conflicts(touched) and _grouped(s):
                    s.body.append(Barrier())
                    touched = _Pending()
            made.append(s)
            pending.read |= touched.read
            pending.written |= touched.written
        return made


def _grouped(loop: ForLoop) -> bool:
    """Return whether all threads of a group run the loop: it contains a loop over threads."""
    return any(isinstance(s, ForLoop) and s.level.kind == "lcl" for s in statements(loop.body))


def _own_elements(block: Block, buffer: Buffer) -> bool:
    """Return whether each thread reads only elements of a buffer that it wrote itself.

    This holds if all accesses have the same index in terms of the loops over threads.
    """
    found: set[tuple[Poly, tuple[tuple[int, str], ...]]] = set()
    _collect(block, buffer, {}, found)
    return len(found) == 1 and next(iter(found))[0] is not _UNKNOWN


_UNKNOWN = Poly.constant(-1)


def _collect(
    block: Block,
    buffer: Buffer,
    threads: dict[str, tuple[int, Poly]],
    found: set[tuple[Poly, tuple[tuple[int, str], ...]]],
) -> None:
    for s in block:
        if isinstance(s, ForLoop):
            inner = dict(threads)
            if s.level.kind == "lcl":
                inner[s.variable.name] = (s.level.dim, s.variable.extent)
            _collect(s.body, buffer, inner, found)
            continue
        indices = [v.index for v in loads([s]) if v.buffer is buffer]
        indices += [w.index for w in stores([s]) if w.buffer is buffer]
        for index in indices:
            found.add(_by_thread(index, threads))


def _by_thread(
    index: Poly, threads: dict[str, tuple[int, Poly]]
) -> tuple[Poly, tuple[tuple[int, str], ...]]:
    """Return an index whose thread loops are renamed by dimension, and their extents."""
    atoms = [a for a in index.all_atoms() if isinstance(a, LoopAtom)]
    if any(a.name not in threads for a in atoms):
        return _UNKNOWN, ()
    names = {a.name: LoopAtom(f"thread{threads[a.name][0]}", a.extent) for a in atoms}
    renamed = substitute(
        index, lambda a: Poly.of(names[a.name]) if isinstance(a, LoopAtom) else None
    )
    return renamed, tuple(sorted((dim, str(extent)) for dim, extent in threads.values()))
