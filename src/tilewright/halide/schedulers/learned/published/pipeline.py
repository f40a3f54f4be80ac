"""A pipeline as the published schedulers see it: Funcs, stages, and what stages read of Funcs.

| symbol | meaning | unit |
|---|---|---|
| node | a Func, or an input image that a Func of its name wraps | |
| edge | the reads of one node by one stage | |
| span | (first, last, constant): a range of a loop or coordinate, and whether its extent is known \
to the compiler | coordinates |
| `required` | what readers need of a node | spans |
| `computed` | what must be computed for that, e.g. all bins of a histogram | spans |

Bounds are floats, or arrays of shape (N,) for N rows of sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.bounds import (
    Access,
    Bound,
    Bounder,
    Interval,
    Linear,
    least,
    most,
    stage_env,
    touched,
)
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.lowering_bounds import LoweringBounder
from tilewright.halide.analysis.summaries import Analysis, StageSummary, estimated_boxes
from tilewright.halide.ir.algorithm import (
    Algorithm,
    Call,
    Const,
    Expr,
    Func,
    Stage,
    Variable,
    walk,
)
from tilewright.halide.schedulers.learned.published.canonical import (
    Canonical,
    calls_of,
    counted,
)
from tilewright.halide.schedulers.learned.published.derivatives import Jacobian, jacobian

Flag: TypeAlias = bool | npt.NDArray[np.bool_]


class LoopSpan(NamedTuple):
    """A range with both ends included; `constant`: whether the compiler knows its extent."""

    lo: Bound
    hi: Bound
    constant: Flag

    @property
    def extent(self) -> Bound:
        """The number of coordinates."""
        return self.hi - self.lo + 1.0


Spans = tuple[LoopSpan, ...]
Plan = tuple[tuple[float, float, tuple[tuple[int, float], ...]], ...]


@dataclass(eq=False)
class Region:
    """What a loop computes of a node: required and computed coordinates, loops of each stage."""

    required: Spans
    computed: Spans
    loops: list[Spans]


@dataclass(eq=False)
class StageNode:
    """One stage of a node; its loops are innermost first.

    Attributes:
        node: The node.
        index: 0 for the pure definition, then the updates.
        stage: The definition; None for an input.
        loops: Names of the loops.
        pure: Whether iterations of each loop may run in any order.
        reduction: Whether each loop is over a reduction variable.
        dimension: The dimension of the Func that each loop runs over; -1 for a reduction variable.
        lanes: Values of the narrowest type in the definition that a vector register holds.
        ranges: The range of each reduction variable.
        lossy: As in `Pipeline`.
        edges: What it reads, by name of the Func.
        depends: Identifiers of all nodes that it reads directly or through others.
    """

    node: FuncNode
    index: int
    stage: Stage
    summary: StageSummary
    loops: tuple[str, ...]
    pure: tuple[bool, ...]
    reduction: tuple[bool, ...]
    dimension: tuple[int, ...]
    lanes: int
    ranges: dict[str, LoopSpan]
    lossy: bool = False
    edges: list[FuncReads] = field(default_factory=list)
    depends: set[int] = field(default_factory=set)

    @cached_property
    def store_jacobian(self) -> Jacobian:
        """The derivatives of the coordinates that it writes by its loops."""
        return jacobian(self.canonical_args, self.loops, self.lossy)

    @cached_property
    def canonical_values(self) -> tuple[Expr, ...]:
        """The values in canonical form."""
        canonical = Canonical()
        return tuple(canonical(value) for value in self.stage.values)

    @cached_property
    def canonical_args(self) -> tuple[Expr, ...]:
        """The coordinates on the left-hand side in canonical form."""
        canonical = Canonical()
        return tuple(canonical(arg) for arg in self.stage.args)


@dataclass(eq=False)
class FuncNode:
    """One Func.

    `id` is its position from the outputs towards the inputs, `position` that in
    `Algorithm.funcs`. An `input` is a Func that only wraps an image; it is never scheduled.
    """

    id: int
    position: int
    func: Func
    bytes: int
    output: bool
    stages: list[StageNode] = field(default_factory=list)
    readers: list[FuncReads] = field(default_factory=list)
    input: bool = False

    @property
    def dimensions(self) -> int:
        """The number of dimensions."""
        return len(self.func.args)

    @cached_property
    def updates_args(self) -> tuple[tuple[StageNode, tuple[Expr, ...]], ...]:
        """The updates with their coordinates."""
        return tuple((stage, stage.stage.args) for stage in self.stages[1:])


@dataclass(eq=False)
class FuncReads:
    """What one stage reads of a node.

    Attributes:
        producer: The node that is read.
        consumer: The stage that reads it.
        access: The coordinates.
        calls: Distinct calls in the definition.
        jacobians: The distinct derivatives of coordinates by loops, with the number of loads each.
        known: Per dimension, whether the first and the last coordinate are affine in the ends of at
            most one loop and depend on no parameter, with that loop (-1 for none).
        plans: Per dimension, its linear forms in the loops: the smallest and the largest constant,
            and the loops with their coefficients; None if it is not linear.
    """

    producer: FuncNode
    consumer: StageNode
    access: Access
    calls: int
    jacobians: tuple[tuple[Jacobian, int], ...]
    known: tuple[tuple[bool, int], ...]
    plans: tuple[Plan | None, ...]

    @cached_property
    def parts(self) -> tuple[Access, ...]:
        """The access, one dimension each."""
        return tuple(replace(self.access, forms=(dim,)) for dim in self.access.forms)


def natural_lanes(vector_bytes: int, bits: int) -> int:
    """Return the values of a type that a vector register of this size holds."""
    return max(1, vector_bytes // max(1, (bits + 7) // 8))


class Pipeline:
    """The nodes of an algorithm at its estimates, outputs first.

    Args:
        algorithm: The algorithm; its outputs have estimates.
        vector_bytes: Size of a vector register; 1 for GPUs.
        lossy: Whether derivatives are those of the released Anderson2021 (`lossy_sum`).
    """

    def __init__(self, algorithm: Algorithm, vector_bytes: int, lossy: bool = False) -> None:
        self.algorithm = algorithm
        self.lossy = lossy
        self.accesses: dict[object, Any] = {}  # kept by `gpu_loads`
        view = View(algorithm)
        self.boxes = estimated_boxes(view)
        self.analysis = Analysis(view, self.boxes, algorithm.symbols)
        exact = self.analysis.bounder
        self.bounder = LoweringBounder(exact.linear, exact.values)
        order = sorted(algorithm.halide_order, key=algorithm.halide_order.__getitem__, reverse=True)
        self.nodes = [self._node(i, algorithm.by_name[name]) for i, name in enumerate(order)]
        self.by_name = {node.func.name: node for node in self.nodes}
        self.by_position = {node.position: node for node in self.nodes}
        for node in self.nodes:
            self._add_stages(node, vector_bytes)
        for node in self.nodes:
            for stage in node.stages:
                self._add_edges(stage)
            node.input = not node.output and _wraps_image(node)
        for node in reversed(self.nodes):
            for stage in node.stages:
                for edge in stage.edges:
                    stage.depends.add(edge.producer.id)
                    for other in edge.producer.stages:
                        stage.depends |= other.depends
        self.scheduled = [node for node in self.nodes if not node.input]
        self.stages = [stage for node in self.scheduled for stage in reversed(node.stages)]

    def _node(self, place: int, func: Func) -> FuncNode:
        position = self.algorithm.order[func.name]
        return FuncNode(place, position, func, func.bytes, func.name in self.algorithm.outputs)

    def _add_stages(self, node: FuncNode, vector_bytes: int) -> None:
        func = node.func
        for stage, summary in zip(func.stages, self.analysis.summaries(func.name), strict=True):
            names = tuple(loop.name for loop in stage.loops)
            node.stages.append(
                StageNode(
                    node,
                    stage.index,
                    stage,
                    summary,
                    names,
                    tuple(loop.kind != "impure_rvar" for loop in stage.loops),
                    tuple(loop.kind != "pure" for loop in stage.loops),
                    tuple(func.args.index(n) if n in func.args else -1 for n in names),
                    natural_lanes(vector_bytes, _narrowest(stage)),
                    _ranges(stage, self.bounder),
                    self.lossy,
                )
            )

    def _add_edges(self, stage: StageNode) -> None:
        definition = stage.stage
        calls = calls_of((*definition.args, *definition.values, *definition.predicates))
        own = stage.node.func.name
        accesses = {a.callee: a for a in stage.summary.accesses if a.kind == "func"}
        loads = _loads(stage, self.lossy)
        for name in sorted(accesses):
            if name == own:
                continue
            access = accesses[name]
            edge = FuncReads(
                self.by_name[name],
                stage,
                access,
                calls[name],
                tuple(loads.get(name, {}).items()),
                tuple(_known(dim, stage) for dim in access.forms),
                tuple(_plan(dim, stage) for dim in access.forms),
            )
            stage.edges.append(edge)
            edge.producer.readers.append(edge)

    # --- regions --------------------------------------------------------------------------

    def region(self, node: FuncNode, required: Spans) -> Region:
        """Return the region of a node whose readers need the box `required`."""
        computed = self._computed(node, required)
        return Region(required, computed, [self._loops(s, computed) for s in node.stages])

    def _computed(self, node: FuncNode, required: Spans) -> Spans:
        box = tuple(Interval(span.lo, span.hi) for span in required)
        spans = list(required)
        for stage, args in node.updates_args:
            env = stage_env(node.func, stage.stage, box, self.bounder)
            memo: dict[int, Interval] = {}
            for d, arg in enumerate(args):
                if isinstance(arg, Variable) and arg.kind == "var":
                    continue
                written = self.bounder.bound(arg, env, memo)
                lo, hi = least(spans[d].lo, written.lo), most(spans[d].hi, written.hi)
                spans[d] = LoopSpan(lo, hi, False)
        return tuple(spans)

    @staticmethod
    def _loops(stage: StageNode, computed: Spans) -> Spans:
        return tuple(
            computed[dimension] if dimension >= 0 else stage.ranges[name]
            for name, dimension in zip(stage.loops, stage.dimension, strict=True)
        )

    def footprint(self, edge: FuncReads, loops: Spans) -> Spans:
        """Return what a stage reads of a node while its loops run over `loops`."""
        consumer = edge.consumer
        env: dict[str, Interval] = {}
        memo: dict[int, Interval] = {}
        spans = []
        for d, (plan, (affine, loop)) in enumerate(zip(edge.plans, edge.known, strict=True)):
            if plan is None:
                if not env:
                    pairs = zip(consumer.loops, loops, strict=True)
                    env = {name: Interval(span.lo, span.hi) for name, span in pairs}
                part = touched(edge.parts[d], env, self.bounder, memo)[0]
            else:
                part = _planned(plan, loops)
            constant: Flag = affine and (loop < 0 or loops[loop].constant)
            spans.append(LoopSpan(part.lo, part.hi, constant))
        return tuple(spans)


def _plan(forms: Sequence[tuple[Linear, float, float]], stage: StageNode) -> Plan | None:
    """Return the linear forms of one dimension in the loops of a stage; None for others."""
    found = []
    for form, low, high in forms:
        terms = []
        for atom, c in form.terms:
            if not isinstance(atom, Variable) or atom.name not in stage.loops:
                return None
            terms.append((stage.loops.index(atom.name), c))
        found.append((low, high, tuple(terms)))
    return tuple(found)


def _planned(plan: Plan, loops: Spans) -> Interval:
    """Return the interval of linear forms while the loops run over `loops`."""
    total: Interval | None = None
    for low, high, terms in plan:
        lo: Bound = low
        hi: Bound = high
        for loop, c in terms:
            span = loops[loop]
            if c == 1.0:
                lo, hi = lo + span.lo, hi + span.hi
            elif c > 0:
                lo, hi = lo + c * span.lo, hi + c * span.hi
            else:
                lo, hi = lo + c * span.hi, hi + c * span.lo
        if total is None:
            total = Interval(lo, hi)
        else:
            total = Interval(least(total.lo, lo), most(total.hi, hi))
    assert total is not None
    return total


def _ranges(stage: Stage, bounder: Bounder) -> dict[str, LoopSpan]:
    """Return the ranges of a stage's reduction variables."""
    found = {}
    memo: dict[int, Interval] = {}
    for rvar in stage.rvars:
        low = bounder.bound(rvar.min, {}, memo)
        size = bounder.bound(rvar.extent, {}, memo)
        found[rvar.name] = LoopSpan(low.lo, low.hi + size.hi - 1.0, True)
    return found


def _wraps_image(node: FuncNode) -> bool:
    """Return whether a Func only passes on the values of an image."""
    if len(node.stages) != 1 or len(node.func.types) != 1 or node.stages[0].edges:
        return False
    value = node.stages[0].stage.values[0]
    return (
        isinstance(value, Call)
        and value.kind == "image"
        and len(value.args) == node.dimensions
        and all(
            isinstance(arg, Variable) and arg.name == name
            for arg, name in zip(value.args, node.func.args, strict=True)
        )
    )


def _narrowest(stage: Stage) -> int:
    """Return the bits of the narrowest type in a definition, Booleans left out; at most 32."""
    bits = 32
    for node in walk(*stage.args, *stage.values, *stage.predicates):
        counts = isinstance(node, Const | Variable | Call) or node.name in ("cast", "reinterpret")
        if counts and node.type.bits > 1:
            bits = min(bits, node.type.bits)
    return bits


def _loads(stage: StageNode, lossy: bool) -> dict[str, dict[Jacobian, int]]:
    """Return the Jacobians of the loads of each Func, with their numbers."""
    found: dict[str, dict[Jacobian, int]] = {}
    for root in (*stage.canonical_values, *stage.canonical_args):
        for node, times in counted(root):
            if isinstance(node, Call) and node.kind == "func":
                matrix = jacobian(node.args, stage.loops, lossy)
                of_callee = found.setdefault(node.name, {})
                of_callee[matrix] = of_callee.get(matrix, 0) + times
    return found


def _known(forms: Sequence[tuple[Linear, float, float]], stage: StageNode) -> tuple[bool, int]:
    """Return whether one dimension of an access is affine in at most one loop, and that loop."""
    if len(forms) != 1:
        return False, -1
    terms = forms[0][0].terms
    if not terms:
        return True, -1
    if len(terms) == 1 and isinstance(terms[0][0], Variable) and terms[0][0].name in stage.loops:
        return True, stage.loops.index(terms[0][0].name)
    return False, -1


# --- numbers and arrays -------------------------------------------------------------------


def floor_div(a: Bound, b: Bound) -> Bound:
    """Return the quotient rounded down."""
    return a // b


def ceil_div(a: Bound, b: Bound) -> Bound:
    """Return the quotient rounded up."""
    return -(-a // b)


def pick(condition: Flag, a: Bound, b: Bound) -> Bound:
    """Return `a` where the condition holds, else `b`."""
    if isinstance(condition, bool | np.bool_):
        return a if condition else b
    return np.where(condition, a, b)


def both(a: Flag, b: Flag) -> Flag:
    """Return where both hold."""
    if isinstance(a, bool) and isinstance(b, bool):
        return a and b
    return np.logical_and(a, b)


def union(a: Spans, b: Spans) -> Spans:
    """Return the smallest spans that cover both; constant where both are."""
    return tuple(
        LoopSpan(least(p.lo, q.lo), most(p.hi, q.hi), both(p.constant, q.constant))
        for p, q in zip(a, b, strict=True)
    )
