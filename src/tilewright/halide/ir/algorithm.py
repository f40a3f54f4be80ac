"""The computation of a Halide pipeline without its schedule: the immutable `Algorithm`.

`tilewright.halide.frontend.importer` reads an `Algorithm` from Halide's serialisation. Expressions
form a graph in which equal subexpressions are one object, so they compare by identity. Every walk
over them must memoise on identity: Halide's expressions share subexpressions heavily, and a walk
over the tree may take exponential time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from tilewright.halide.ir.schedule import Factored

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
    """A loop variable (``var``), a reduction variable (``rvar``) or a scalar parameter."""

    name: str
    kind: VariableKind
    type: Type


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """An operator. `name` is one of the keys of `OPERATORS`; operands are in source order.

    ``select`` takes (condition, then, else). Integer division and modulus are Halide's: the
    quotient is rounded such that ``0 <= a % b < |b|``.
    """

    name: str
    args: tuple[Expr, ...]
    type: Type


CallKind = Literal["func", "image", "intrinsic", "extern"]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A read of a Func, an input image or an embedded buffer; or an intrinsic or C function call.

    `value_index` is the position of the value in a Func's Tuple.
    """

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

    A ``pure`` loop runs over a dimension of the Func. A ``pure_rvar`` is a reduction variable whose
    iterations may run in any order and in parallel; those of an ``impure_rvar`` must run in order.
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

    `args` are the coordinates on the left-hand side, `values` has one expression per Tuple element,
    and `loops` are the loops around the assignment, innermost first. `predicates` restrict the
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
        return tuple(node for node in self.nodes if isinstance(node, Call))

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The distinct variables of kind ``param`` in the stage, sorted."""
        found = (n for n in self.nodes if isinstance(n, Variable) and n.kind == "param")
        return tuple(sorted({node.name for node in found}))

    @cached_property
    def derived(self) -> dict[object, object]:
        """Results that analyses have derived from this stage, by key."""
        return {}

    @cached_property
    def nodes(self) -> tuple[Expr, ...]:
        """Every distinct node of the stage, operands before operators (see `walk`)."""
        roots = [*self.values, *self.args, *self.predicates]
        for rvar in self.rvars:
            roots += [rvar.min, rvar.extent]
        return tuple(walk(*roots))


@dataclass(frozen=True, slots=True)
class ExternStage:
    """An extern definition: a C function and its arguments.

    `reads` names the Funcs and images that it reads, each of them completely. `expressions` are its
    scalar arguments. `arguments` gives the kind of every argument in order: ``func``, ``image``,
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

    `estimates` maps arguments to the ranges that the user estimated, and `bounds` to those that the
    user promised. `scheduled` is whether the user has already scheduled the Func; `memoized` and
    extern Funcs are never rescheduled. `strides` are the strides, in elements, that an output
    buffer must have, None where the user did not constrain one.
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
        """Whether the Func must be computed at root with its given schedule: extern or memoised."""
        return self.extern is not None or self.memoized

    @property
    def pure(self) -> bool:
        """Whether the Func has a single pure definition; Halide can inline no other Func."""
        return self.extern is None and len(self.stages) == 1

    @property
    def bytes(self) -> int:
        """Bytes of one element, summed over all Tuple values."""
        return sum(t.bytes for t in self.types)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A scalar or buffer argument of the pipeline (`dimensions` is 0 for a scalar).

    `estimates` has the estimated range of each dimension of a buffer, None if there is none.
    `strides` has the stride in elements where the user fixed it (for interleaved images, for
    example), else None.
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
    """A wrapper or clone that the user made with ``Func.in_`` or ``Func.clone_in``.

    `caller` calls `wrapper` in place of `wrapped`; if `caller` is empty, every Func does. The calls
    in an `Algorithm` are those after the substitution.
    """

    wrapped: str
    caller: str
    wrapper: str


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a Func that a schedule makes for some of its readers; Funcs are given by name.

    With `wrapper`, the copy reads the original instead of computing its values again.
    """

    name: str
    original: str
    readers: tuple[str, ...]
    wrapper: bool = False


@dataclass(frozen=True, eq=False)
class Algorithm:
    """A whole pipeline.

    `funcs` are in realisation order (producers first), and `outputs` names those that the caller
    receives. `digest` identifies the computation. It does not depend on the names of Funcs,
    variables and reduction variables, so the same pipeline built twice has one digest. It does
    depend on the names of parameters, which are the pipeline's interface. It does not depend on
    estimates; those of scalar parameters are in `scalars`. `requirements` are the conditions that
    the pipeline checks when it starts. `serialized` is Halide's serialisation.

    If a schedule adds Funcs, `copies` lists the copies, `partials` names the Funcs of partial
    results, and `original` is the algorithm without them (see `tilewright.halide.ir.clones`).
    `digest` and `serialized` remain those of `original`.
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
    partials: tuple[str, ...] = ()
    factored: tuple[Factored, ...] = ()
    original: Algorithm | None = field(default=None, repr=False)

    @cached_property
    def sliced(self) -> frozenset[str]:
        """The partial results that have dimensions for loops: Halide clamps what these read."""
        named = zip(self.partials, self.factored, strict=True)
        return frozenset(name for name, entry in named if entry.rvars)

    @cached_property
    def symbols(self) -> dict[str, int | float]:
        """Estimated values of the variables of kind ``param`` that expressions use.

        These are the scalar parameters and, for dimension D of an input or output,
        ``NAME.min.D``, ``NAME.extent.D`` and ``NAME.stride.D`` (in elements).
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
        """The position of each Func in Halide's realisation order, which depends on names."""
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
    """Return the scalars and the bounds of inputs (``im.extent.0``) that any stage uses, by name.

    The pipeline's requirements do not count as uses.
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
