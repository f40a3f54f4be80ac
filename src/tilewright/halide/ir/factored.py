"""Split reductions in two, as a schedule asks: ``Stage.rfactor``.

The algorithm gets a Func of partial results, directly before the Func that combines them. Its
expressions are those that Halide makes, without its hints for bounds inference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.halide.ir.algorithm import (
    Algorithm,
    Call,
    Const,
    Expr,
    Func,
    Loop,
    Op,
    ReductionVariable,
    Stage,
    Type,
    Variable,
    walk,
)
from tilewright.halide.ir.associativity import Combiner, combiner
from tilewright.halide.ir.names import distinct, readable
from tilewright.halide.ir.nest import NestLoop, original_loops, split_loops
from tilewright.halide.ir.schedule import Factored, ScheduleError, Split, StageSchedule

_INT = Type("int", 32)


@dataclass(frozen=True, slots=True)
class FactorCall:
    """The calls ``func.update(stage - 1).split(…).rfactor(…)``, whose result is `result`.

    `func` and `result` are positions in the algorithm with all added Funcs. `splits` and `rvars`
    have canonical names; `names` has the names in Halide of the loops that the splits make, and
    `vars` those of the new dimensions, one per loop of `rvars`.
    """

    func: int
    stage: int
    splits: tuple[Split, ...]
    rvars: tuple[str, ...]
    names: Mapping[str, str]
    vars: tuple[str, ...]
    result: int


@dataclass(frozen=True)
class Extended:
    """An algorithm with Funcs of partial results.

    `places` maps the Funcs of the algorithm before, followed by the added Funcs, to positions in
    this one. `calls` make the added Funcs.
    """

    algorithm: Algorithm
    places: tuple[int, ...]
    calls: tuple[FactorCall, ...] = ()


def with_partial_results(base: Algorithm, factored: Sequence[Factored]) -> Extended:
    """Return the algorithm with the reductions split, in the order of `factored`.

    Raises:
        ScheduleError: A reduction cannot be split (see `factor_problem`).
    """
    funcs = list(base.funcs)
    order = list(range(len(funcs)))  # entries of `funcs`, in realisation order
    pending = []
    for entry in factored:
        current = replace(base, funcs=tuple(funcs[i] for i in order))
        reason = factor_problem(funcs, entry)
        if reason:
            name = funcs[entry.func].name if 0 <= entry.func < len(funcs) else str(entry.func)
            raise ScheduleError(f"{name}: {reason}")
        split = _Reduction(current, funcs[entry.func], entry)
        order.insert(order.index(entry.func), len(funcs))
        pending.append((entry, split, len(funcs)))
        funcs.append(split.partial())
        funcs[entry.func] = split.combining()
    places = tuple(order.index(i) for i in range(len(funcs)))
    partials = tuple(func.name for func in funcs[len(base.funcs) :])
    calls = tuple(
        FactorCall(
            places[entry.func],
            entry.stage,
            entry.splits,
            tuple(loop.name for loop in split.kept),
            split.made,
            tuple(split.vars[loop.name] for loop in split.kept),
            places[result],
        )
        for entry, split, result in pending
    )
    algorithm = replace(
        base,
        funcs=tuple(funcs[i] for i in order),
        partials=partials,
        factored=tuple(factored),
        original=base,
    )
    return Extended(algorithm, places, calls)


def factored_problems(base: Algorithm, factored: Sequence[Factored]) -> Iterator[tuple[str, str]]:
    """Yield the first reason why reductions cannot be split, as a Func's name and a sentence."""
    for i, entry in enumerate(factored):
        made = with_partial_results(base, factored[:i])
        funcs = [made.algorithm.funcs[place] for place in made.places]
        reason = factor_problem(funcs, entry)
        if reason:
            known = 0 <= entry.func < len(funcs)
            yield (funcs[entry.func].name if known else str(entry.func)), reason
            return


def factor_problem(funcs: Sequence[Func], entry: Factored) -> str:
    """Return the reason why a reduction cannot be split; empty if it can."""
    if not 0 <= entry.func < len(funcs):
        return f"there is no Func {entry.func} to split; the pipeline has {len(funcs)} Funcs"
    func = funcs[entry.func]
    if func.fixed or func.scheduled:
        return "the reduction of an extern, memoised or already scheduled Func cannot be split"
    if not 1 <= entry.stage < len(func.stages):
        return f"it has no update {entry.stage}; only the reduction of an update can be split"
    stage = func.stages[entry.stage]
    if any("." in loop.name for loop in stage.loops):
        return "Halide cannot schedule a loop whose name has a dot; rename the Var"
    found = combiner(stage)
    return found if isinstance(found, str) else _loop_problem(func, stage, entry)


def _loop_problem(func: Func, stage: Stage, entry: Factored) -> str:
    """Return the reason why the loops of a reduction cannot be split; empty if they can."""
    reductions = {loop.name for loop in original_loops(func, stage) if loop.reduction}
    for split in entry.splits:
        if split.tail != "guard_with_if":
            return "the splits of a reduction before rfactor must have the tail guard_with_if"
        if split.old not in reductions:
            return f"{split.old!r} is not a loop of its reduction"
        reductions |= {split.outer, split.inner}
    try:
        loops = split_loops(func, stage, StageSchedule(entry.splits))
    except ScheduleError as error:
        return str(error)
    left = {loop.name for loop in loops if loop.reduction}
    for name in entry.rvars:
        if name not in left:
            return f"{name!r} is not a loop of its reduction"
    if len(set(entry.rvars)) != len(entry.rvars):
        return "list each loop that becomes a dimension once"
    if left <= set(entry.rvars):
        return "every loop of its reduction would become a dimension; keep one, or split one"
    return ""


class _Reduction:
    """The update of a Func that is split: the new Func, and what the old one becomes.

    Attributes:
        kept: The loops that become dimensions of the new Func, innermost first.
        made: The names in Halide of the loops that the splits make, by canonical name.
        vars: The names of the new dimensions, by the canonical name of the loop.
    """

    def __init__(self, algorithm: Algorithm, func: Func, entry: Factored) -> None:
        self.func = func
        self.index = entry.stage
        self.stage = stage = func.stages[entry.stage]
        self.loops = split_loops(func, stage, StageSchedule(entry.splits))
        self.kept = tuple(loop for loop in self.loops if loop.name in entry.rvars)
        taken = _taken(algorithm)
        self.name = _intermediate(func.name, taken)
        originals = original_loops(func, stage)
        self.named = {o.name: s.name for o, s in zip(originals, stage.loops, strict=True)}
        self.made: dict[str, str] = {}
        for split in entry.splits:
            for loop, role in ((split.outer, "o"), (split.inner, "i")):
                name = distinct(f"{readable(self.named[split.old])}_{role}", taken)
                taken.add(name)
                self.named[loop] = self.made[loop] = name
        self.vars: dict[str, str] = {}
        for kept in self.kept:
            name = distinct(f"{readable(self.named[kept.name])}_u", taken)
            taken.add(name)
            self.vars[kept.name] = name
        self._bounds(entry.splits)
        found = combiner(stage)
        assert isinstance(found, Combiner)
        self.combiner = found

    def _bounds(self, splits: Sequence[Split]) -> None:
        """Determine each loop's range, and the conditions of splits that do not divide it."""
        self.ranges: dict[str, tuple[Expr, Expr]] = {}
        places = {rvar.name: rvar for rvar in self.stage.rvars}
        for canonical, name in self.named.items():
            if name in places:
                self.ranges[canonical] = places[name].min, places[name].extent
        self.guards: list[tuple[str, Expr]] = []
        for split in splits:
            least, extent = self.ranges[split.old]
            self.ranges[split.inner] = _number(0), _number(split.factor)
            self.ranges[split.outer] = _number(0), _divided(extent, split.factor)
            known = _known(extent)
            if known is None or known % split.factor:
                self.guards.append((split.old, _sum(least, extent)))
        self.splits = splits

    def partial(self) -> Func:
        """Return the Func of partial results."""
        func, extra = self.func, tuple(self.vars[loop.name] for loop in self.kept)
        dims = tuple(Variable(name, "var", _INT) for name in (*func.args, *extra))
        added = dims[len(func.args) :]
        loops = tuple(Loop(dim.name, "pure") for dim in dims)
        first = Stage(self.name, 0, dims, self.combiner.identities, (), loops, ())
        inner = {
            loop.name: Variable(self.named[loop.name], "rvar", _INT)
            for loop in self.loops
            if loop.reduction
        }
        inner |= {loop.name: dim for loop, dim in zip(self.kept, added, strict=True)}
        values = self._values(inner)
        new: dict[Expr, Expr] = {}
        replaced = {self.named[loop]: value for loop, value in values.items()}

        def change(expr: Expr) -> Expr:
            for node in walk(expr):
                new.setdefault(node, self._node(node, replaced, new, added))
            return new[expr]

        update = Stage(
            self.name,
            1,
            (*map(change, self.stage.args), *added),
            tuple(map(change, self.stage.values)),
            (*map(change, self.stage.predicates), *self._guards(values)),
            self._partial_loops(),
            self._domain([each for each in self.loops if each not in self.kept]),
        )
        return Func(self.name, (*func.args, *extra), func.types, (first, update))

    def _guards(self, values: Mapping[str, Expr]) -> Iterator[Expr]:
        """Yield the conditions of splits that do not divide their loops."""
        for loop, end in self.guards:
            yield Op("lt", (values[loop], end), Type("uint", 1))

    def _values(self, inner: Mapping[str, Expr]) -> dict[str, Expr]:
        """Return the value of every loop of the reduction from the loops that are left."""
        values = dict(inner)
        for split in reversed(self.splits):
            scaled = Op("mul", (values[split.outer], _number(split.factor)), _INT)
            whole: Expr = Op("add", (scaled, values[split.inner]), _INT)
            values[split.old] = _sum(whole, self.ranges[split.old][0])
        return values

    def _node(
        self,
        node: Expr,
        replaced: Mapping[str, Expr],
        new: Mapping[Expr, Expr],
        added: tuple[Expr, ...],
    ) -> Expr:
        """Return one node with operands from `new`, over the loops of the new Func."""
        if isinstance(node, Variable):
            return replaced.get(node.name, node) if node.kind == "rvar" else node
        if not isinstance(node, Op | Call):
            return node
        args = tuple(new[arg] for arg in node.args)
        if isinstance(node, Call) and node.kind == "func" and node.name == self.func.name:
            return replace(node, name=self.name, args=(*args, *added))
        changed = any(a is not b for a, b in zip(args, node.args, strict=True))
        return replace(node, args=args) if changed else node

    def _partial_loops(self) -> tuple[Loop, ...]:
        """Return the loops of the new Func's update, in Halide's order."""
        return tuple(
            Loop(self.vars[loop.name], "pure")
            if loop.name in self.vars
            else Loop(self.named[loop.name], loop.kind)
            for loop in self.loops
        )

    def _domain(self, loops: Sequence[NestLoop]) -> tuple[ReductionVariable, ...]:
        return tuple(
            ReductionVariable(self.named[loop.name], *self.ranges[loop.name])
            for loop in loops
            if loop.reduction
        )

    def combining(self) -> Func:
        """Return the Func with an update that combines the partial results."""
        func = self.func
        dims = tuple(Variable(arg, "var", _INT) for arg in func.args)
        rvars = tuple(Variable(self.named[loop.name], "rvar", _INT) for loop in self.kept)
        types = list(enumerate(func.types))
        old = [Call(func.name, "func", dims, type, i) for i, type in types]
        new = [Call(self.name, "func", (*dims, *rvars), type, i) for i, type in types]
        loops = [
            Loop(self.named[loop.name], loop.kind)
            for loop in self.loops
            if loop in self.kept or not loop.reduction
        ]
        there = {loop.name for loop in loops}
        loops += [Loop(arg, "pure") for arg in func.args if arg not in there]
        stage = Stage(
            func.name,
            self.index,
            dims,
            self.combiner.combine(old, new),
            (),
            tuple(loops),
            self._domain(self.kept),
        )
        stages = (*func.stages[: self.index], stage, *func.stages[self.index + 1 :])
        return replace(func, stages=stages)


def _taken(algorithm: Algorithm) -> set[str]:
    """Return the names that the pipeline uses."""
    taken = {parameter.name for parameter in algorithm.parameters}
    taken |= {buffer.name for buffer in algorithm.buffers}
    for func in algorithm.funcs:
        taken |= {func.name, *func.args}
        for stage in func.stages:
            taken |= {rvar.name for rvar in stage.rvars}
    return taken


def _intermediate(name: str, taken: set[str]) -> str:
    """Return Halide's name of the Func of partial results: ``f_intm``, then ``f_intm$1``."""
    result = f"{name}_intm"
    wish, number = result.replace("$", "_"), 1
    while result in taken:
        result, number = f"{wish}${number}", number + 1
    return result


def _number(value: int) -> Const:
    return Const(value, _INT)


def _known(expr: Expr) -> int | None:
    return expr.value if isinstance(expr, Const) and isinstance(expr.value, int) else None


def _sum(a: Expr, b: Expr) -> Expr:
    if _known(a) == 0:
        return b
    if _known(b) == 0:
        return a
    x, y = _known(a), _known(b)
    return Op("add", (a, b), _INT) if x is None or y is None else _number(x + y)


def _divided(extent: Expr, factor: int) -> Expr:
    """Return the quotient, rounded up."""
    known = _known(extent)
    if known is not None:
        return _number(-(-known // factor))
    return Op("div", (_sum(extent, _number(factor - 1)), _number(factor)), _INT)
