"""Stages at coordinates whose remainders are known, as ``select(x % 2 == 0, a, b)`` at even x.

Where a loop runs over even coordinates only, half of such a stage is never computed.

| symbol | meaning | unit |
|---|---|---|
| period | the number d in ``x % d`` | elements |
| residue | the value of ``x % d`` | elements |
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping

from tilewright.halide.analysis.inlining import Interner, rewritten, settled
from tilewright.halide.ir.algorithm import Call, Const, Expr, Op, Stage, Variable

# Values of narrow types may wrap around: larger literals are not computed.
_LARGEST = 127
# What operators on literals give. The quotients of positive periods are rounded down, as Python's.
_FOLDED: dict[str, Callable[..., object]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
    "not": operator.not_,
}


def residues_of(periods: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yield all residues of variables, given their periods: two of one variable with period 2."""
    for values in itertools.product(*(range(period) for period in periods.values())):
        yield dict(zip(periods, values, strict=True))


def at_residues(stage: Stage, residues: Mapping[str, int], periods: Mapping[str, int]) -> Stage:
    """Return the stage as it is where its variables have the given residues.

    Remainders by a divisor of a variable's period become literals, and so does what follows from
    them. Selects whose condition is then known become one of their branches.

    Args:
        stage: The stage.
        residues: The residue of each variable.
        periods: The period of each variable.
    """
    rewriter = _AtResidues(residues, periods)

    def all_of(exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(map(rewriter, exprs))

    return Stage(
        stage.func,
        stage.index,
        stage.args,
        all_of(stage.values),
        all_of(stage.predicates),
        stage.loops,
        stage.rvars,
    )


class _AtResidues:
    """Rewrites expressions; equal nodes become one object."""

    def __init__(self, residues: Mapping[str, int], periods: Mapping[str, int]) -> None:
        self._residues = residues
        self._periods = periods
        self._interner = Interner()
        self._memo: dict[int, Expr] = {}

    def __call__(self, root: Expr) -> Expr:
        """Return the expression at the residues."""
        return rewritten(root, self._memo, self._leaf, self._rebuilt)

    def _leaf(self, node: Variable | Const) -> Expr:
        if isinstance(node, Const):
            return self._interner.const(node)
        return self._interner.variable(node)

    def _rebuilt(self, node: Op | Call, args: tuple[Expr, ...]) -> Expr:
        if isinstance(node, Call):
            chosen = settled(node, args)
            return self._interner.call(args, node) if chosen is None else chosen
        if node.name == "select" and isinstance(args[0], Const):
            return args[1] if args[0].value else args[2]
        literal = self._literal(node, args)
        if literal is None:
            return self._interner.op(node.name, args, node)
        return self._interner.const(Const(literal, node.type))

    def _literal(self, node: Op, args: tuple[Expr, ...]) -> int | bool | None:
        """Return the value of an operation on integers, None if it is not known."""
        if node.type.lanes != 1 or node.type.code not in ("int", "uint"):
            return None
        if node.name == "mod":
            divisor = args[1]
            if isinstance(divisor, Const) and isinstance(divisor.value, int) and divisor.value > 0:
                return self._residue(args[0], divisor.value)
            return None
        fold = _FOLDED.get(node.name)
        values = [a.value for a in args if isinstance(a, Const) and isinstance(a.value, int)]
        if fold is None or len(values) != len(args):
            return None
        value = fold(*values)
        return value if isinstance(value, int) and 0 <= value <= _LARGEST else None

    def _residue(self, expr: Expr, divisor: int) -> int | None:
        """Return an expression modulo `divisor`, None if it is not known."""
        if isinstance(expr, Const):
            return expr.value % divisor if isinstance(expr.value, int) else None
        if isinstance(expr, Variable):
            period = self._periods.get(expr.name)
            known = period is not None and period % divisor == 0
            return self._residues[expr.name] % divisor if known else None
        if isinstance(expr, Op) and expr.name in ("add", "sub", "mul"):
            parts = [self._residue(arg, divisor) for arg in expr.args]
            if any(part is None for part in parts):
                return None
            value = _FOLDED[expr.name](*parts)
            assert isinstance(value, int)
            return value % divisor
        return None
