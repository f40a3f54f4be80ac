"""The computation of a Halide pipeline without its schedule: the immutable `Algorithm`.

An `Algorithm` is read from Halide's own serialisation (see `tilewright.halide.frontend.importer`).
Expressions form a graph in which equal subexpressions are one object, so they compare by
identity and every walk over them memoises on identity: Halide's expressions share
subexpressions so heavily that a tree walk may take exponential time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

TypeCode = Literal["int", "uint", "float", "handle", "bfloat"]


@dataclass(frozen=True, slots=True)
class Type:
    """A Halide type: its code, bits per lane, and lanes."""

    code: TypeCode
    bits: int
    lanes: int = 1

    @property
    def bytes(self) -> int:
        """Bytes of one value in memory, all lanes included."""
        return (self.bits + 7) // 8 * self.lanes

    def __str__(self) -> str:
        """Return Halide's spelling, e.g. ``uint8`` or ``float32x4``."""
        lanes = f"x{self.lanes}" if self.lanes > 1 else ""
        return f"{self.code}{self.bits}{lanes}"


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """A literal number or string."""

    value: int | float | str
    type: Type


VariableKind = Literal["var", "rvar", "param"]


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """A loop variable, a reduction variable, or a scalar parameter of the pipeline."""

    name: str
    kind: VariableKind
    type: Type


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """An operator. `name` is one of the keys of `OPERATORS`; operands are in source order.

    ``select`` takes (condition, then, else). Division and modulus round as Halide's do:
    towards the sign of the divisor for integers, so that ``0 <= a % b < |b|``.
    """

    name: str
    args: tuple[Expr, ...]
    type: Type


CallKind = Literal["func", "image", "intrinsic", "extern"]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A value of a Func, of an input image or embedded buffer, an intrinsic, or a C function."""

    name: str
    kind: CallKind
    args: tuple[Expr, ...]
    type: Type
    value_index: int = 0


Expr = Const | Variable | Op | Call

OPERATORS = frozenset(
    "cast reinterpret add sub mul div mod min max eq ne lt le gt ge and or not select "
    "ramp broadcast shuffle vector_reduce".split()
)

LoopKind = Literal["pure", "pure_rvar", "impure_rvar"]


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of an unscheduled stage.

    A ``pure`` loop runs over a dimension of the Func. A ``pure_rvar`` may run in any order
    and in parallel, an ``impure_rvar`` only in its own order.
    """

    name: str
    kind: LoopKind


@dataclass(frozen=True, slots=True, eq=False)
class ReductionVariable:
    """One dimension of a reduction domain; `min` and `extent` are expressions."""

    name: str
    min: Expr
    extent: Expr


@dataclass(frozen=True, eq=False)
class Stage:
    """A pure definition (index 0) or an update definition of a Func.

    `args` are the left-hand coordinates, `values` one expression per Tuple element, and
    `loops` the loops around the assignment, innermost first. `predicates` restrict the
    reduction domain (``RDom.where``).
    """

    func: str
    index: int
    args: tuple[Expr, ...]
    values: tuple[Expr, ...]
    predicates: tuple[Expr, ...]
    loops: tuple[Loop, ...]
    rvars: tuple[ReductionVariable, ...]

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Every distinct call in the stage, right-hand side, left-hand side and predicates."""
        roots = [*self.values, *self.args, *self.predicates]
        for rvar in self.rvars:
            roots += [rvar.min, rvar.extent]
        return tuple(node for node in walk(*roots) if isinstance(node, Call))


@dataclass(frozen=True, slots=True)
class ExternStage:
    """An extern definition: a C function and its arguments.

    `reads` names the Funcs and images that it reads completely, `expressions` are its scalar
    arguments, and `arguments` gives the kind of each argument in order: ``func``, ``image``,
    ``buffer`` or ``expression``.
    """

    function: str
    reads: tuple[str, ...]
    expressions: tuple[Expr, ...] = ()
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """A dimension's range: first coordinate and number of coordinates."""

    min: int
    extent: int

    @property
    def max(self) -> int:
        """The last coordinate."""
        return self.min + self.extent - 1


@dataclass(frozen=True, eq=False)
class Func:
    """One Func: its dimensions, the types of its values, and its stages.

    `estimates` has an entry for every dimension for which the user gave one. `scheduled` says that
    the user has already scheduled it; `memoized` and extern Funcs are never rescheduled. `strides`
    are the strides, in elements, that the buffers of an output are constrained to.
    """

    name: str
    args: tuple[str, ...]
    types: tuple[Type, ...]
    stages: tuple[Stage, ...]
    extern: ExternStage | None = None
    estimates: dict[str, Span] = field(default_factory=dict)
    bounds: dict[str, Span] = field(default_factory=dict)
    memoized: bool = False
    scheduled: bool = False
    strides: tuple[int | None, ...] = ()

    @property
    def fixed(self) -> bool:
        """Whether the scheduler must leave the Func at root as it is."""
        return self.extern is not None or self.memoized

    @property
    def pure(self) -> bool:
        """Whether the Func is a single pure definition, the only kind that Halide can inline."""
        return self.extern is None and len(self.stages) == 1

    @property
    def bytes(self) -> int:
        """Bytes of one element, summed over all Tuple values."""
        return sum(t.bytes for t in self.types)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A scalar or buffer argument of the pipeline (`dimensions` is 0 for a scalar).

    `estimates` has the range of each dimension of a buffer, if known, and `strides` the stride, in
    elements, if the user fixed it (for interleaved images, for example).
    """

    name: str
    type: Type
    dimensions: int
    is_buffer: bool
    estimates: tuple[Span | None, ...] = ()
    strides: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class EmbeddedBuffer:
    """A constant buffer embedded in the pipeline, and the hash of its contents."""

    name: str
    type: Type
    dims: tuple[Span, ...]
    content: str = ""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A Func that replaces another in the calls of `caller`, or everywhere if that is empty.

    Made by ``Func.in_`` and ``Func.clone_in``. The calls in an `Algorithm` are those after
    the substitution.
    """

    wrapped: str
    caller: str
    wrapper: str


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a Func that a schedule makes for some of its readers; all fields are names.

    A `wrapper` reads the original instead of computing its values again.
    """

    name: str
    original: str
    readers: tuple[str, ...]
    wrapper: bool = False


@dataclass(frozen=True, eq=False)
class Algorithm:
    """A whole pipeline.

    `funcs` are in realisation order (producers first), `outputs` the names of those the
    caller asks for. `digest` identifies the computation up to the names of Funcs, variables
    and reduction variables, so that the same pipeline built twice has one digest; names of
    parameters, which are the pipeline's interface, count. Estimates do not: they are `Func`'s
    and `Parameter`'s, and `scalars` has those of the scalar parameters. `requirements` are the
    conditions that the pipeline checks when it starts.

    Where a schedule copies Funcs, `copies` lists them and `original` is the algorithm without
    them (see `tilewright.halide.ir.clones`); the digest and the bytes remain those of `original`.
    """

    funcs: tuple[Func, ...]
    outputs: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    buffers: tuple[EmbeddedBuffer, ...]
    digest: str
    serialized: bytes = field(repr=False)
    scalars: dict[str, int | float] = field(default_factory=dict)
    requirements: tuple[Expr, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()
    copies: tuple[Copy, ...] = ()
    original: Algorithm | None = field(default=None, repr=False)

    @cached_property
    def symbols(self) -> dict[str, int | float]:
        """Values, as estimated, of the variables of kind ``param`` that expressions use.

        They are the scalar parameters and an input's ``NAME.min.D``, ``NAME.extent.D``
        and ``NAME.stride.D``, for dimension D, and the same of an output.
        """
        values: dict[str, int | float] = dict(self.scalars)
        ranges = [(p.name, p.estimates, p.strides) for p in self.parameters if p.is_buffer]
        ranges += [(b.name, b.dims, ()) for b in self.buffers]
        for output in self.outputs:
            func = self.by_name[output]
            spans = tuple(func.estimates.get(arg) for arg in func.args)
            if len(func.types) == 1:
                ranges.append((output, spans, func.strides))
            else:
                names = [f"{output}.{i}" for i in range(len(func.types))]
                ranges += [(name, spans, func.strides) for name in names]
        for name, spans, strides in ranges:
            stride: int | None = 1
            for d, span in enumerate(spans):
                fixed = strides[d] if d < len(strides) else None
                stride = stride if fixed is None else fixed
                if stride is not None:
                    values[f"{name}.stride.{d}"] = stride
                if span is not None:
                    values[f"{name}.min.{d}"] = span.min
                    values[f"{name}.extent.{d}"] = span.extent
                stride = None if span is None or stride is None else stride * span.extent
        return values

    @cached_property
    def by_name(self) -> dict[str, Func]:
        """Funcs by name."""
        return {func.name: func for func in self.funcs}

    @cached_property
    def order(self) -> dict[str, int]:
        """The position of each Func in realisation order, by which schedules refer to it."""
        return {func.name: i for i, func in enumerate(self.funcs)}

    @cached_property
    def halide_order(self) -> dict[str, int]:
        """The position of each Func in Halide's own realisation order, which depends on names."""
        order: dict[str, int] = {}
        entered: set[str] = set()
        stack = [(name, False) for name in reversed(self.outputs)]
        while stack:
            name, done = stack.pop()
            if done:
                order[name] = len(order)
            elif name not in entered:
                entered.add(name)
                stack.append((name, True))
                callees = sorted(self.producers[name], reverse=True)
                stack.extend((callee, False) for callee in callees)
        return order

    @cached_property
    def producers(self) -> dict[str, tuple[str, ...]]:
        """The other Funcs that each Func reads, in realisation order."""
        result: dict[str, tuple[str, ...]] = {}
        for func in self.funcs:
            read = {c.name for s in func.stages for c in s.calls if c.kind == "func"}
            if func.extern is not None:
                read.update(name for name in func.extern.reads if name in self.by_name)
            read.discard(func.name)
            result[func.name] = tuple(sorted(read, key=self.order.__getitem__))
        return result

    @cached_property
    def consumers(self) -> dict[str, tuple[str, ...]]:
        """The other Funcs that read each Func, in realisation order."""
        result: dict[str, list[str]] = {func.name: [] for func in self.funcs}
        for func in self.funcs:
            for producer in self.producers[func.name]:
                result[producer].append(func.name)
        return {name: tuple(readers) for name, readers in result.items()}


def parameters_used(algorithm: Algorithm) -> frozenset[str]:
    """Return the names of scalars, and of inputs' bounds (``im.extent.0``), that any stage uses.

    Names that only occur in the pipeline's requirements are left out.
    """
    roots: list[Expr] = []
    for func in algorithm.funcs:
        if func.extern is not None:
            roots += func.extern.expressions
        for stage in func.stages:
            roots += [*stage.values, *stage.args, *stage.predicates]
            for rvar in stage.rvars:
                roots += [rvar.min, rvar.extent]
    return frozenset(
        node.name for node in walk(*roots) if isinstance(node, Variable) and node.kind == "param"
    )


def walk(*roots: Expr) -> Iterator[Expr]:
    """Yield every distinct node reachable from `roots`, each once, operands before operators."""
    seen: set[int] = set()
    stack: list[tuple[Expr, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            yield node
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        stack.append((node, True))
        if isinstance(node, Op | Call):
            stack.extend((arg, False) for arg in reversed(node.args))
