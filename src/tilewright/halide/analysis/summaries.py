"""Summarise stages for the cost models: operations, loads with their strides, regions.

An `Analysis` describes one `View` (an algorithm with some Funcs inlined) at given sizes. It does
not depend on a machine.

| symbol | meaning | unit |
|---|---|---|
| `strides` | step of the index per iteration of a loop, in each storage dimension | elements |
| `count` | operations or loads per iteration of a stage | count |
| `arithmetic` | operations per iteration, weighted by `op_weight` | additions |
| `box` | region of a Func, one interval per dimension | coordinates |
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tilewright.halide.analysis.bounds import (
    EVERYTHING,
    Access,
    Bounder,
    Box,
    Env,
    Interval,
    Linearizer,
    accesses_of,
    span_box,
    stage_env,
    touched,
    type_range,
    unbounded,
    union_boxes,
)
from tilewright.halide.analysis.fixed_point import fixed_point
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.instructions import StageInstructions, stage_instructions
from tilewright.halide.analysis.layouts import Strides, contiguous_axes, known_strides, laid_out
from tilewright.halide.analysis.lowering_bounds import LoweringBounder
from tilewright.halide.analysis.operation_counts import (
    OpCount,
    count_operations,
    loop_divisions,
    op_weight,
)
from tilewright.halide.analysis.reorderable import is_reorderable
from tilewright.halide.analysis.residues import at_residues, residues_of
from tilewright.halide.analysis.specialization import worth_knowing
from tilewright.halide.analysis.strides import (
    Slopes,
    clamps_of,
    dependences,
    divisors_of,
    strides_of,
)
from tilewright.halide.analysis.waits import NO_WAITS, StageWaits, waits_of
from tilewright.halide.ir.algorithm import (
    Call,
    Const,
    Expr,
    Func,
    Loop,
    Stage,
    Type,
    Variable,
    walk,
)
from tilewright.halide.ir.schedule import KnownValue

# Summaries that a stage keeps, one per combination of its symbols' values. Analyses of one
# schedule use some ten combinations.
MOST_SUMMARIES = 32


@dataclass(frozen=True, slots=True)
class Load:
    """One distinct load of a stage.

    Attributes:
        callee: The Func or image.
        kind: ``func`` or ``image``.
        type: The type of the value.
        strides: For every loop that the address depends on, the step per iteration in each storage
            dimension (innermost first); None if the dependence is not affine away from borders.
        indirect: Whether the address depends on loaded data.
        clamped: The loops that a clamp or select in an index depends on. Vectors along them are
            gathered at a border.
        divisors: For every loop whose variable is divided in an index, the period of the division
            (`strides.divisors_of`): a stride cannot describe ``x // 8 * 8`` or ``x % 8``.
        aligned: The loops along which vectors begin at multiples of that period.
        apart: The strides of the buffer's dimensions, in elements, where known (`layouts`).
    """

    callee: str
    kind: str
    type: Type
    strides: Mapping[str, tuple[float, ...] | None]
    indirect: bool
    clamped: frozenset[str]
    divisors: Mapping[str, int] = field(default_factory=dict)
    aligned: frozenset[str] = frozenset()
    apart: Strides = ()


@dataclass(frozen=True, eq=False)
class Phases:
    """The summaries of a stage at known residues of its loops.

    `periods` gives the period of each loop whose residues can be known, and `summarise` returns the
    summaries of all residues, given the periods of some of these loops.
    """

    periods: Mapping[str, int]
    summarise: Callable[[Mapping[str, int]], tuple[StageSummary, ...]]

    def along(self, loops: Collection[str]) -> tuple[StageSummary, ...]:
        """Return the summaries where the residues of `loops` are known; none without loops."""
        known = {loop: period for loop, period in self.periods.items() if loop in loops}
        return self.summarise(known) if known else ()


@dataclass(frozen=True, eq=False)
class StageSummary:
    """The properties of one stage that the cost models need.

    `ops` are the operations as written, and `vector_ops` those that a CPU executes in vectors,
    where arithmetic on narrow integers takes fewer (`fixed_point`). `remainders` has, for every
    loop whose variable is divided outside coordinates of loads, the period of the divisions
    (`strides.divisors_of`), as in ``select(x % 2 == 0, a, b)``. `scatter` is whether the stage
    stores at coordinates that depend on loaded data, and `reorderable` is `is_reorderable`.
    `periods` are `remainders` with the divisions in coordinates that depend on loaded data.
    `phases` is set by a scheduler that aligns the Func's bounds. `waits` are chains and conditions.
    `apart` are the strides of the Func's dimensions, in elements, where they are known.
    """

    func: str
    index: int
    loops: tuple[Loop, ...]
    accesses: tuple[Access, ...]
    loads: tuple[Load, ...]
    ops: tuple[OpCount, ...]
    types: tuple[Type, ...]
    args: tuple[Expr, ...]
    scatter: bool
    vector_ops: tuple[OpCount, ...]
    remainders: Mapping[str, int] = field(default_factory=dict)
    reorderable: bool = False
    periods: Mapping[str, int] = field(default_factory=dict)
    phases: Phases | None = None
    waits: StageWaits = NO_WAITS
    apart: Strides = ()

    @cached_property
    def arithmetic(self) -> float:
        """Operations per iteration in additions, weighted by `op_weight`."""
        return sum(op.count * op_weight(op) for op in self.ops)

    @cached_property
    def scans(self) -> bool:
        """Whether the coordinates that the stage writes depend on a reduction variable."""
        reductions = {loop.name for loop in self.loops if loop.kind != "pure"}
        return any(
            isinstance(node, Variable) and node.name in reductions for node in walk(*self.args)
        )

    def reads(self, callee: str) -> tuple[Access, ...]:
        """Return the accesses to one Func or image."""
        return tuple(a for a in self.accesses if a.callee == callee)


def nothing_to_do(stage: Stage) -> bool:
    """Return whether all values of a stage are undefined, so that Halide emits no loops for it."""
    return all(isinstance(v, Call) and v.name == "undef" for v in stage.values)


def _summary(func: Func, stage: Stage, linear: Linearizer, slopes: Slopes) -> StageSummary:
    """Return the summary of a stage; analyses that agree on its symbols' values share it."""
    key = func.name, linear.values(stage.symbols), slopes.values(stage.symbols)
    found = stage.derived.get(key)
    if not isinstance(found, StageSummary):
        if len(stage.derived) >= MOST_SUMMARIES:
            stage.derived.clear()
        found = stage.derived[key] = _summarise_stage(func, stage, linear, slopes)
    return found


def _summarise_stage(func: Func, stage: Stage, linear: Linearizer, slopes: Slopes) -> StageSummary:
    roots = [*stage.values, *stage.predicates]
    depends = dependences(stage.nodes)
    clamps = clamps_of(stage.nodes, depends)
    loads: dict[object, Load] = {}
    seen: set[int] = set()
    computed = [*roots, *(arg for arg in stage.args if depends[id(arg)][1])]
    stack: list[Expr] = list(computed)
    while stack:
        node = stack.pop()
        if id(node) in seen or isinstance(node, Const | Variable):
            continue
        seen.add(id(node))
        if isinstance(node, Call) and node.kind in ("func", "image"):
            clamped = frozenset[str]().union(*(clamps[id(a)] for a in node.args))
            key = (node.name, node.value_index, *(id(a) for a in node.args))
            if key not in loads:
                loads[key] = Load(
                    node.name,
                    node.kind,
                    node.type,
                    strides_of(node.args, slopes, depends),
                    any(depends[id(a)][1] for a in node.args),
                    clamped,
                    divisors_of(node.args, slopes),
                )
            stack.extend(a for a in node.args if depends[id(a)][1])
            continue
        stack.extend(node.args)
    ops = count_operations(computed, depends, {})
    found = fixed_point(stage.nodes)
    scatter = any(depends[id(a)][1] for a in stage.args)
    calls = list(stage.calls)
    return StageSummary(
        func.name,
        stage.index,
        stage.loops,
        accesses_of(calls, linear),
        tuple(loads.values()),
        ops,
        func.types,
        stage.args,
        scatter,
        count_operations(computed, depends, found) if found else ops,
        divisors_of(loop_divisions(roots, depends), slopes),
        is_reorderable(stage),
        divisors_of(loop_divisions(roots, depends, indirect=True), slopes),
        waits=waits_of(func.name, stage),
    )


class Analysis:
    """Summaries and regions of a view's stages.

    Args:
        view: The algorithm with its inlined Funcs.
        output_boxes: The required region of each output.
        scalars: The estimated value of each scalar parameter.
        specialize: Whether code is specialised on known values of parameters
            (`tilewright.halide.analysis.specialization`).
    """

    def __init__(
        self,
        view: View,
        output_boxes: Mapping[str, Box],
        scalars: Mapping[str, float],
        specialize: bool = False,
    ) -> None:
        self.view = view
        self.linear = Linearizer(scalars)
        self.bounder = Bounder(self.linear, _LazyValues(self))
        self.lowering = LoweringBounder(self.linear, self.bounder.values)
        self._specialize = specialize
        self.known: Mapping[str, KnownValue] = (
            worth_knowing(view.algorithm, self.bounder) if specialize else {}
        )
        # The compiler knows the values of parameters only if the code is specialised on them.
        self._slopes = Slopes({symbol: known.value for symbol, known in self.known.items()})
        self.output_boxes = dict(output_boxes)
        self._mine: dict[str, tuple[StageSummary, ...]] = {}  # with this view's inlining
        self._summaries: dict[tuple[str, frozenset[str]], tuple[StageSummary, ...]] = {}
        self._instructions: dict[tuple[str, frozenset[str]], tuple[StageInstructions, ...]] = {}

    def toggled(self, name: str) -> Analysis:
        """Return the analysis in which `name` is inlined if it is not here, and the reverse.

        Results that are the same in both are shared. Regions are among them: inlining does not
        change the required region of a Func.
        """
        return self._of(self.view.toggled(name))

    def with_inlined(self, inlined: frozenset[str]) -> Analysis:
        """Return the analysis with these Funcs inlined; results are shared as in `toggled`."""
        return self._of(View(self.view.algorithm, inlined, self.view.limit, self.view.shared))

    def _of(self, view: View) -> Analysis:
        # Evaluate these before copying, so that the copy has them; none depends on inlining.
        _ = self.regions, self.contiguous, self.element_bytes
        other = copy.copy(self)
        other.view, other._mine = view, {}
        return other

    def with_boxes(self, output_boxes: Mapping[str, Box]) -> Analysis:
        """Return the same analysis with other required regions of the outputs."""
        other = copy.copy(self)
        other.output_boxes = dict(output_boxes)
        other.__dict__.pop("regions", None)
        return other

    @cached_property
    def contiguous(self) -> dict[str, int]:
        """The contiguous dimension of each input, for inputs whose first one is not contiguous."""
        return contiguous_axes(self.view.algorithm, self.known.values())

    @cached_property
    def apart(self) -> dict[str, Strides]:
        """The known strides of inputs and outputs, where not only that of one dimension is 1."""
        return known_strides(self.view.algorithm, self.known.values(), self._specialize)

    @cached_property
    def element_bytes(self) -> dict[str, int]:
        """Bytes per element of every Func (sum over all Tuple values), input and buffer."""
        algorithm = self.view.algorithm
        sizes = {buffer.name: buffer.type.bytes for buffer in algorithm.buffers}
        sizes |= {parameter.name: parameter.type.bytes for parameter in algorithm.parameters}
        return sizes | {func.name: func.bytes for func in algorithm.funcs}

    @cached_property
    def parameter_names(self) -> frozenset[str]:
        """Names of the pipeline's buffer inputs."""
        return frozenset(p.name for p in self.view.algorithm.parameters if p.is_buffer)

    def summaries(self, name: str) -> tuple[StageSummary, ...]:
        """Return the summaries of a Func's stages."""
        if (mine := self._mine.get(name)) is not None:
            return mine
        known = self._summaries.get(key := (name, self.view.absorbed(name)))
        if known is None:
            func = self.view.algorithm.by_name[name]
            each = (_summary(func, s, self.linear, self._slopes) for s in self.view.stages(name))
            known = self._summaries[key] = tuple(laid_out(one, self.apart) for one in each)
        self._mine[name] = known
        return known

    def at_residues(
        self, name: str, index: int, periods: Mapping[str, int]
    ) -> tuple[StageSummary, ...]:
        """Return the summary of a stage at each combination of residues of some loops.

        `periods` gives the period of each loop (see `residues`). The `remainders` of every summary
        are the stage's `periods`, because lanes of a vector are separated by them.
        """
        summary = self.summaries(name)[index]
        func, stage = self.view.algorithm.by_name[name], self.view.stages(name)[index]
        values = self.linear.values(stage.symbols), self._slopes.values(stage.symbols)
        key = ("residues", name, tuple(sorted(periods.items())), *values, *self.apart.items())
        found = stage.derived.get(key)
        if found is None:
            stages = (at_residues(stage, residues, periods) for residues in residues_of(periods))
            each = (_summarise_stage(func, s, self.linear, self._slopes) for s in stages)
            found = stage.derived[key] = tuple(
                replace(laid_out(one, self.apart), remainders=summary.periods) for one in each
            )
        assert isinstance(found, tuple)
        return found

    def instructions(self, name: str) -> tuple[StageInstructions, ...]:
        """Return the GPU instructions of a Func's stages."""
        key = (name, self.view.absorbed(name))
        known = self._instructions.get(key)
        if known is None:
            func = self.view.algorithm.by_name[name]
            known = tuple(
                stage_instructions(func, stage, self.linear, self._slopes)
                for stage in self.view.stages(name)
            )
            self._instructions[key] = known
        return known

    @cached_property
    def regions(self) -> dict[str, Box]:
        """The box of every Func and input when everything is computed at root."""
        return self.needed(self.output_boxes, [func.name for func in self.view.funcs])

    def needed(
        self,
        wanted: Mapping[str, Box],
        members: Sequence[str],
        exact: Container[str] = (),
        counts: Callable[[str, str], bool] | None = None,
    ) -> dict[str, Box]:
        """Return the boxes that computing some Funcs requires, including their own boxes.

        Args:
            wanted: The initial required boxes of some of these Funcs, by name.
            members: The Funcs that are computed, in realisation order.
            exact: Members whose computed box equals the required one, even if their updates write
                or read a larger box.
            counts: A function of reader and callee: whether that reader's accesses to the callee
                are included. By default, all are.

        Returns:
            The box of each required member, and of every other Func and image that they read.
        """
        found = dict(wanted)
        for name in reversed(members):
            box = found.get(name)
            if box is None:
                continue
            if name not in exact:
                box = found[name] = self.func_region(name, box)
            for callee, part in self.required_by(name, box).items():
                if counts is None or counts(name, callee):
                    found[callee] = union_boxes(found.get(callee), part)
        return found

    def func_region(self, name: str, box: Box) -> Box:
        """Return the region of `name` that is allocated if consumers require `box`.

        It is larger than `box` if update definitions write or read the Func outside `box`.
        """
        func = self.view.by_name[name]
        stages = self.view.stages(name)
        summaries = self.summaries(name)
        for stage, summary in zip(reversed(stages), reversed(summaries), strict=True):
            if stage.index == 0:
                break
            grown = self._with_update(func, stage, summary, box)
            box = tuple(
                Interval(
                    old.lo if unbounded(new.lo) else new.lo,
                    old.hi if unbounded(new.hi) else new.hi,
                )
                for new, old in zip(grown, box, strict=True)
            )
        return box

    def _with_update(self, func: Func, stage: Stage, summary: StageSummary, box: Box) -> Box:
        """Return `box` with what an update writes and reads of its own Func to produce it."""
        memo: dict[int, Interval] = {}
        env = stage_env(func, stage, box, self.bounder)
        grown = union_boxes(box, tuple(self.bounder.bound(a, env, memo) for a in stage.args))
        for access in summary.reads(func.name):
            grown = union_boxes(grown, touched(access, env, self.bounder, memo))
        return grown

    def required_by(self, name: str, box: Box) -> dict[str, Box]:
        """Return the box of every other Func and image that computing `box` of `name` touches."""
        func = self.view.by_name[name]
        result: dict[str, Box] = {}
        for stage in self.view.stages(name):
            env = stage_env(func, stage, box, self.bounder)
            for callee, part in self.read_in(name, stage.index, env).items():
                result[callee] = union_boxes(result.get(callee), part)
        return result

    def read_in(self, name: str, index: int, env: Env) -> dict[str, Box]:
        """Return the box of every other Func and image that a stage reads in loops over `env`."""
        result: dict[str, Box] = {}
        memo: dict[int, Interval] = {}
        for access in self.summaries(name)[index].accesses:
            if access.callee != name:
                part = touched(access, env, self.bounder, memo)
                result[access.callee] = union_boxes(result.get(access.callee), part)
        return result

    def in_loops(self) -> Analysis:
        """Return the analysis of what one iteration of a loop requires."""
        return self

    def value_range(self, name: str, value: int = 0) -> Interval:
        """Return the range of a Func's values, from its type and its pure definition."""
        func = self.view.algorithm.by_name.get(name)
        if func is None:
            return EVERYTHING
        kind = func.types[value]
        if func.extern is not None or len(func.stages) != 1:
            return type_range(kind)
        interval = self.bounder.bound(func.stages[0].values[value], {}, {})
        if kind.code == "float":
            return interval
        limits = type_range(kind)
        inside = bool(interval.lo >= limits.lo) and bool(interval.hi <= limits.hi)
        return interval if inside else limits


class _LazyValues(dict[str, Interval]):
    """Value ranges of Funcs by name, each computed at the first access."""

    def __init__(self, analysis: Analysis) -> None:
        super().__init__()
        self._analysis = analysis

    def get(self, key: str, default: Interval | None = None) -> Interval:  # type: ignore[override]
        if key not in self:
            name, _, value = key.partition(".")
            if name in self._analysis.view.algorithm.by_name:
                self[key] = EVERYTHING  # a Func that refers to itself
                self[key] = self._analysis.value_range(name, int(value or 0))
            else:
                return default if default is not None else EVERYTHING
        return self[key]


def estimated_boxes(view: View) -> dict[str, Box]:
    """Return the boxes of the outputs at the pipeline's estimates."""
    result = {}
    for name in view.algorithm.outputs:
        func = view.algorithm.by_name[name]
        result[name] = span_box(func.estimates[a] for a in func.args)
    return result
