"""Translation of patterns to code: layout becomes views, maps and reductions become loops.

A pattern is *read* (its result becomes a view) or *written* (its result goes to memory). A map that
is read and has no level is computed where its elements are used. A map that is written becomes a
loop. ``to_global``, ``to_local`` and ``to_private`` allocate memory, to which they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.arith import LoopVariable as LoopAtom
from tilewright.arith import Poly, Size
from tilewright.patterns import nodes as n
from tilewright.patterns.binding import check_names
from tilewright.patterns.check import infer, requirements, scalars, type_of
from tilewright.patterns.codegen.code import (
    Allocate,
    Assign,
    Block,
    Buffer,
    BufferLoad,
    Code,
    Declare,
    ForLoop,
    FunctionCall,
    IndexValue,
    Name,
    Number,
    Statement,
    Store,
    Value,
    loads,
)
from tilewright.patterns.codegen.tidy import inlined
from tilewright.patterns.codegen.vectors import LENGTHS
from tilewright.patterns.codegen.views import (
    ArrayView,
    Lazy,
    Memory,
    Scalar,
    Several,
    component,
    element,
    read_layout,
    scalar_value,
    scalar_values,
    written_layout,
)
from tilewright.patterns.codegen.views import Store as Buffers
from tilewright.patterns.codegen.windows import OpenLoop, flat, out_of_order, overlap
from tilewright.patterns.errors import LoweringError
from tilewright.patterns.places import about, located
from tilewright.patterns.types import (
    UNIT,
    ArrayType,
    DataType,
    ScalarType,
    TupleType,
    dimensions,
    i32,
)

MOST_UNROLLED = 1024  # most iterations to unroll; larger code exceeds instruction caches
NOTHING = Several(UNIT, ())
Body = Callable[[Poly], None]


def generate(program: n.Pattern, name: str = "kernel") -> Code:
    """Return the code of a program.

    Args:
        program: a pattern that starts at its inputs.
        name: the name of the function.

    Raises:
        PatternTypeError: it is not well typed.
        LoweringError: a result needs memory that the program does not name, or cannot be written.
    """
    kind = type_of(program)
    with about(program):
        maker = _Generator(program)
        outputs = maker.buffers("out", "output", kind)
        maker.write(program, NOTHING, Memory(kind, outputs, Poly.constant(0)))
    body = inlined(maker.block)
    sizes = tuple(sorted(size_names(program)))
    return Code(name, tuple(maker.inputs.values()), tuple(flat(outputs)), sizes, body)


def size_names(program: n.Pattern) -> set[str]:
    """Return the names of the sizes that a program depends on."""
    lengths = [length for kind in _types(program) for length in _lengths(kind)]
    lengths += [requirement.value for requirement in requirements(program)]
    return {a.name for length in lengths for a in _sizes(length)}


def _lengths(kind: DataType) -> list[Poly]:
    if isinstance(kind, TupleType):
        return [length for item in kind.items for length in _lengths(item)]
    return [kind.length, *_lengths(kind.item)] if isinstance(kind, ArrayType) else []


def _types(program: n.Pattern) -> list[DataType]:
    return [p.type for p in n.inputs(program)] + [type_of(program)]


def _sizes(p: Poly) -> list[Size]:
    return [a for a in p.all_atoms() if isinstance(a, Size)]


class _Generator:
    """State of one walk over a program; statements go to the innermost open block."""

    def __init__(self, program: n.Pattern) -> None:
        self.outermost: Block = []
        self.block = self.outermost
        self.sequential: list[OpenLoop] = []
        self.count: dict[str, int] = {}
        self.inputs: dict[n.Input, Buffer | Name] = {}
        self.tables: dict[n.TablePattern, Buffer] = {}
        self.reserved = {p.name for p in n.inputs(program)} | size_names(program)
        check_names(n.inputs(program))
        for p in n.inputs(program):
            lengths, item = dimensions(p.type)
            if not isinstance(item, ScalarType):
                raise LoweringError(f"input {p.name} is an array of {item}; zip arrays instead")
            size = Poly.constant(1)
            for length in lengths:
                size = size * length
            array = Buffer(p.name, "input", item, size)
            self.inputs[p] = array if lengths else Name(p.name, item)

    def fresh(self, stem: str) -> str:
        """Return an unused name."""
        while True:
            number = self.count.get(stem, 0)
            self.count[stem] = number + 1
            name = f"{stem}{number}"
            if name not in self.reserved:
                return name

    def buffers(self, stem: str, space: str, kind: DataType, size: Poly | None = None) -> Buffers:
        """Return memory for a value: one buffer per component."""
        size = Poly.constant(1) if size is None else size
        if isinstance(kind, ArrayType):
            return self.buffers(stem, space, kind.item, size * kind.length)
        if isinstance(kind, TupleType):
            return tuple(self.buffers(stem, space, item, size) for item in kind.items)
        assert isinstance(kind, ScalarType)
        return Buffer(self.fresh(stem), space, kind, size)

    def emit(self, statement: Statement) -> None:
        self.block.append(statement)

    # Reading

    def read(self, p: n.Pattern, view: ArrayView) -> ArrayView:
        """Return the result of a pattern as a view; emit the statements that compute it."""
        if isinstance(p, n.Pipe):
            for stage in p.stages:
                view = self.read(stage, view)
            return view
        if isinstance(p, n.Map):
            return self._read_map(p, view)
        if isinstance(p, n.Reduce):
            return self._reduce(p, view)
        if isinstance(p, n.UserFun):
            return self._call(p, view)
        if isinstance(p, n.To):
            return self._stored(p, view)
        if isinstance(p, n.Iterate):
            for _ in range(p.count):
                view = self.read(_kept(p.f), view)
            return view
        if isinstance(p, n.Fork | n.Par):
            kind = infer(p, view.type)[0]
            shared = isinstance(p, n.Fork)
            parts = [view if shared else component(view, k) for k in range(len(p.items))]
            made = [self.read(item, part) for item, part in zip(p.items, parts, strict=True)]
            return Several(kind, tuple(made))
        return self._source(p, view)

    def _read_map(self, p: n.Map, view: ArrayView) -> ArrayView:
        if p.level is not None and n.computes(p.f):
            cure = "say where it is stored, with to_global, to_local or to_private"
            raise LoweringError(located(f"the result of {p} is read by another pattern: {cure}", p))
        kind = infer(p, view.type)[0]
        return Lazy(kind, lambda i: self.read(p.f, element(view, i)))

    def _source(self, p: n.Pattern, view: ArrayView) -> ArrayView:
        """Return the view of a source (a value without input), or of a pattern of layout."""
        kind = infer(p, view.type)[0]
        if isinstance(p, n.Input):
            found = self.inputs[p]
            if isinstance(found, Name):
                return Scalar(kind, found)
            return Memory(kind, found, Poly.constant(0))
        if isinstance(p, n.Literal):
            assert p.type is not None
            return Scalar(kind, Number(p.value, p.type))
        if isinstance(p, n.Indices):
            return Lazy(kind, lambda i: Scalar(i32, IndexValue(i)))
        if isinstance(p, n.TablePattern):
            return Lazy(kind, lambda i: self._table(p, i))
        if isinstance(p, n.SlideSeq):
            key = object()
            return Lazy(kind, lambda i: self._window(key, p, view, i))
        found_view = read_layout(p, view)
        assert found_view is not None, p
        return found_view

    def _window(self, key: object, p: n.SlideSeq, view: ArrayView, i: Poly) -> ArrayView:
        """Return a window, in private memory if a sequential loop reads the windows in order."""
        kind = _item(infer(p, view.type)[0])
        size, step, kept = overlap(p, kind)
        if i.value is not None or not kept:
            return Lazy(kind, lambda e: element(view, i * step + e))
        loop = next((x for x in reversed(self.sequential) if Poly.of(x.variable) == i), None)
        if loop is None:
            raise out_of_order(p)
        if key not in loop.windows:
            outer, self.block = self.block, loop.before
            window = loop.windows[key] = self._allocate("w", "private", kind)
            at = [element(window, Poly.constant(e)) for e in range(size)]
            for e in range(kept):
                self._copy(element(view, Poly.constant(e)), at[e], n.UNROLL)
            self.block = loop.start
            for e in range(kept, size):
                self._copy(element(view, i * step + e), at[e], n.UNROLL)
            self.block = loop.end
            for e in range(kept):
                self._copy(at[e + step], at[e], n.UNROLL)
            self.block = outer
        return loop.windows[key]

    def _table(self, p: n.TablePattern, i: Poly) -> ArrayView:
        if isinstance(i.value, int):
            return Scalar(p.type, Number(p.values[i.value], p.type))
        if p not in self.tables:
            size = Poly.constant(len(p.values))
            self.tables[p] = Buffer(self.fresh("table"), "table", p.type, size, p.values)
        return Scalar(p.type, BufferLoad(self.tables[p], i))

    def _call(self, p: n.UserFun, view: ArrayView) -> ArrayView:
        kind = infer(p, view.type)[0]
        types = scalars(view.type)
        assert isinstance(kind, ScalarType)
        assert types is not None
        name = self.fresh("v")
        value = FunctionCall(p, tuple(scalar_values(view)), types, kind)
        self.emit(Declare(name, kind, value))
        return Scalar(kind, Name(name, kind))

    def _reduce(self, p: n.Reduce, view: ArrayView) -> ArrayView:
        kind = infer(p, view.type)[0]
        types = scalars(kind)
        if types is None:
            return self._reduce_arrays(p, view, self._allocate("acc", "private", kind))
        if isinstance(p.init, n.Literal) and isinstance(kind, ScalarType):
            start: list[Value] = [Number(p.init.value, kind)]
        else:
            start = scalar_values(self.read(p.init, NOTHING))
        names = [Name(self.fresh("acc"), t) for t in types]
        for name, value in zip(names, start, strict=True):
            self.emit(Declare(name.name, name.type, value, changes=True))
        acc = _regrouped(kind, iter(names))

        def step(i: Poly) -> None:
            pair = TupleType((kind, _item(view.type)))
            new = self.read(p.f, Several(pair, (acc, element(view, i))))
            self._assign(names, scalar_values(new))

        assert isinstance(view.type, ArrayType)
        self._loop(view.type.length, p.level or n.SEQ, step)
        return acc

    def _reduce_arrays(self, p: n.Reduce, view: ArrayView, acc: Memory) -> ArrayView:
        """Return the view of a reduction whose accumulator is an array.

        The accumulator is updated in place if no element depends on another one.
        """
        self.write(p.init, NOTHING, acc)
        pair = TupleType((acc.type, _item(view.type)))
        length, level = _length(view.type), p.level or n.SEQ
        before, names = list(self.block), dict(self.count)

        def within(i: Poly) -> None:
            self.write(p.f, Several(pair, (acc, element(view, i))), acc)

        self._loop(length, level, within)
        if in_place(self.block[len(before) :], set(flat(acc.store))):
            return acc
        if any(buffer.space == "local" for buffer in flat(acc.store)):
            raise LoweringError(
                f"{p} in local memory: an element of its accumulator depends on others"
            )
        self.block[:] = before
        if not any(loop.windows for loop in self.sequential):  # their names stay in use
            self.count = names
        following = self._allocate("new", "private", acc.type)

        def step(i: Poly) -> None:
            self.write(p.f, Several(pair, (acc, element(view, i))), following)
            self._copy(following, acc)

        self._loop(length, level, step)
        return acc

    def _allocate(self, stem: str, space: str, kind: DataType) -> Memory:
        """Return memory for a value, from here to the end of the block.

        Outside of all loops it is global memory, whose size is not limited.
        """
        store = self.buffers(stem, "global" if self.block is self.outermost else space, kind)
        for buffer in flat(store):
            self.emit(Allocate(buffer))
        return Memory(kind, store, Poly.constant(0))

    def _assign(self, names: list[Name], values: list[Value]) -> None:
        """Assign all accumulators at once: all values are computed before the first changes."""
        if len(names) > 1:
            kept = [Name(self.fresh("new"), name.type) for name in names]
            for name, value in zip(kept, values, strict=True):
                self.emit(Declare(name.name, name.type, value))
            values = list(kept)
        for name, value in zip(names, values, strict=True):
            self.emit(Assign(name.name, value))

    def _stored(self, p: n.To, view: ArrayView) -> ArrayView:
        stem = {"global": "g", "local": "l", "private": "p"}[p.space]
        memory = self._allocate(stem, p.space, infer(p.f, view.type)[0])
        if isinstance(p.f, n.Reduce) and scalars(memory.type) is None:
            return self._reduce_arrays(p.f, view, memory)
        self.write(p.f, view, memory)
        return memory

    # Writing

    def write(self, p: n.Pattern, view: ArrayView, out: ArrayView) -> None:
        """Emit the statements that write the result of a pattern to ``out``."""
        stages = n.stages(p)
        last = max((k for k, s in enumerate(stages) if n.computes(s)), default=None)
        if last is not None:
            before, after = n.pipe(*stages[:last]), n.pipe(*stages[last + 1 :])
            given = infer(before, view.type)[0]
            target = written_layout(after, out, infer(stages[last], given)[0])
            if target is not None:
                self._write_stage(stages[last], self.read(before, view), target)
                return
        # What scatters is written to, not read: layout before it is read.
        first = next((k for k, stage in enumerate(stages) if n.scatters(stage)), len(stages))
        before, after = n.pipe(*stages[:first]), n.pipe(*stages[first:])
        target = written_layout(after, out, infer(before, view.type)[0])
        if target is None:
            before, target = p, out
        self._copy(self.read(before, view), target)

    def _write_stage(self, p: n.Pattern, view: ArrayView, out: ArrayView) -> None:
        if isinstance(p, n.Map):
            self._loop(
                _length(view.type),
                p.level,
                lambda i: self.write(p.f, element(view, i), element(out, i)),
            )
        elif isinstance(p, n.Fork | n.Par):
            for k, item in enumerate(p.items):
                part = view if isinstance(p, n.Fork) else component(view, k)
                self.write(item, part, component(out, k))
        elif isinstance(p, n.To) and p.space == "global":
            self.write(p.f, view, out)
        elif isinstance(p, n.Iterate) and p.count:
            for _ in range(p.count - 1):
                view = self.read(_kept(p.f), view)
            self.write(p.f, view, out)
        else:
            self._copy(self.read(p, view), out)

    def _copy(self, view: ArrayView, out: ArrayView, level: n.MapLevel | None = None) -> None:
        """Emit loops that copy a view to ``out`` element by element."""
        if isinstance(view.type, ArrayType):
            length = view.type.length
            self._loop(
                length, level, lambda i: self._copy(element(view, i), element(out, i), level)
            )
        elif isinstance(view.type, TupleType):
            for k in range(len(view.type.items)):
                self._copy(component(view, k), component(out, k), level)
        else:
            value = scalar_value(view)
            assert isinstance(out, Memory)
            assert isinstance(out.store, Buffer)
            self.emit(Store(out.store, out.offset, value, out.guards))

    def _loop(self, extent: Poly, level: n.MapLevel | None, body: Body) -> None:
        # A loop over threads stays: without it, every thread would store the one element.
        if extent == 1 and (level is None or level.kind not in n.GRID_KINDS):
            body(Poly.constant(0))
            return
        if level == n.UNROLL:
            if not isinstance(extent.value, int) or extent.value > MOST_UNROLLED:
                raise LoweringError(
                    f"a loop of {extent} iterations cannot be unrolled: "
                    f"give a number up to {MOST_UNROLLED}"
                )
            for i in range(extent.value):
                body(Poly.constant(i))
            return
        if level == n.VEC and extent.value not in LENGTHS:
            raise LoweringError(f"a vector of {extent} elements: give 2, 4, 8 or 16")
        loop = ForLoop(LoopAtom(self.fresh("i"), extent), level or UNDECIDED)
        outer, self.block = self.block, loop.body
        made = OpenLoop(loop.variable)
        if level == n.SEQ:
            self.sequential.append(made)
        body(Poly.of(loop.variable))
        if level == n.SEQ:
            self.sequential.pop()
            made.used(loop.body)
        loop.body[:] = [*made.start, *loop.body, *made.end]
        self.block = outer
        self.block += made.before
        self.emit(loop)


def in_place(block: Block, buffers: set[Buffer]) -> bool:
    """Return whether each stored value depends on no other element of the buffers.

    This holds if each buffer has one store, and all loads of the buffer read the stored element, in
    the same block and before the store.
    """
    written: dict[Buffer, list[tuple[int, int, Poly]]] = {b: [] for b in buffers}
    read: dict[Buffer, list[tuple[int, int, Poly]]] = {b: [] for b in buffers}

    def visit(block: Block) -> None:
        for position, s in enumerate(block):
            if isinstance(s, ForLoop):
                visit(s.body)
                continue
            for v in loads([s]):
                if v.buffer in buffers:
                    read[v.buffer].append((id(block), position, v.index))
            if isinstance(s, Store) and s.buffer in buffers:
                written[s.buffer].append((id(block), position, s.index))

    visit(block)
    return all(
        len(written[b]) == 1
        and all(
            where == written[b][0][0] and at <= written[b][0][1] and index == written[b][0][2]
            for where, at, index in read[b]
        )
        for b in buffers
    )


UNDECIDED = n.MapLevel("undecided")


def _kept(f: n.Pattern) -> n.Pattern:
    """Return a pattern whose result is stored, so that iteration recomputes no earlier step."""
    return n.To("global", f) if n.computes(f) and not isinstance(f, n.To) else f


def _item(kind: DataType) -> DataType:
    assert isinstance(kind, ArrayType)
    return kind.item


def _length(kind: DataType) -> Poly:
    assert isinstance(kind, ArrayType)
    return kind.length


def _regrouped(kind: DataType, names: Iterator[Name]) -> ArrayView:
    """Return scalar variables as a view of a type of nested tuples."""
    if isinstance(kind, TupleType):
        return Several(kind, tuple(_regrouped(item, names) for item in kind.items))
    return Scalar(kind, next(names))
