"""Count the operations of a stage's expressions.

| symbol | meaning | unit |
|---|---|---|
| `count` | operations per iteration of a stage | count |
| `depends` | for each expression, the loops it depends on and whether it depends on loaded data | |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.halide.analysis.bounds import STRICT
from tilewright.halide.analysis.fixed_point import FixedPoint
from tilewright.halide.analysis.strides import Dependences
from tilewright.halide.ir.algorithm import Call, Const, Expr, Op, Type, Variable

TRANSCENDENTAL = ("exp", "log", "pow", "sin", "cos", "tan", "atan", "asin", "acos", "erf",
                  "sinh", "cosh", "tanh")  # fmt: skip

# Weights in additions, chosen and not measured: a transcendental function costs a polynomial of
# degree 7 or more, a division or square root half of that.
TRANSCENDENTAL_WEIGHT, DIVISION_WEIGHT = 8.0, 4.0


@dataclass(frozen=True, slots=True)
class OpCount:
    """A number of operations of one kind and type that depend on the same loops.

    `name` is that of an operator, an intrinsic or a C function. `constant_operand` is whether the
    right operand is a literal; a division by a literal is cheap.
    """

    name: str
    type: Type
    loops: frozenset[str]
    constant_operand: bool
    count: int


def op_weight(op: OpCount) -> float:
    """Return a machine-independent weight of an operation relative to an addition."""
    if op.name.startswith(TRANSCENDENTAL):
        return TRANSCENDENTAL_WEIGHT
    if op.name in ("div", "mod") and not (op.constant_operand and op.type.code != "float"):
        return DIVISION_WEIGHT
    return DIVISION_WEIGHT if op.name.startswith("sqrt") else 1.0


def loop_divisions(
    roots: Sequence[Expr], depends: Dependences, indirect: bool = False
) -> list[Expr]:
    """Return the divisions of loop variables in expressions, outside coordinates of loads.

    With `indirect`, those in coordinates that depend on loaded data are included.
    """
    found: list[Expr] = []
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if id(node) in seen or not isinstance(node, Op | Call) or not depends[id(node)][0]:
            continue
        seen.add(id(node))
        if isinstance(node, Op) and node.name in ("div", "mod") and not depends[id(node)][1]:
            found.append(node)
        elif isinstance(node, Call) and node.kind in ("func", "image"):
            stack.extend(arg for arg in node.args if indirect and depends[id(arg)][1])
        else:
            stack.extend(node.args)
    return found


def count_operations(
    roots: Sequence[Expr],
    depends: Dependences,
    replaced: Mapping[int, FixedPoint],
) -> tuple[OpCount, ...]:
    """Count the operations of expressions, some replaced by fixed-point ones.

    Coordinates of loads count only where they depend on loaded data.
    """
    ops: Counter[tuple[str, Type, frozenset[str], bool]] = Counter()
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if id(node) in seen or isinstance(node, Const | Variable):
            continue
        seen.add(id(node))
        if isinstance(node, Call) and node.kind in ("func", "image"):
            stack.extend(a for a in node.args if depends[id(a)][1])
            continue
        loops = depends[id(node)][0]
        if (found := replaced.get(id(node))) is not None:
            stack.extend(found.operands)
            ops[(found.name, node.type, loops, False)] += 1
            if found.conversions:
                ops[("cast", node.type, loops, False)] += found.conversions
            continue
        stack.extend(node.args)
        if isinstance(node, Call) and node.name.startswith(("likely", "strict_float", "promise")):
            continue
        literal = bool(node.args) and isinstance(node.args[-1], Const)
        ops[(node.name.removeprefix(STRICT), node.type, loops, literal)] += 1
    return tuple(OpCount(*key, count=n) for key, n in ops.items())
