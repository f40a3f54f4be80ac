"""Compute the strides of addresses along loops, and the loops that expressions depend on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tilewright.halide.analysis.bounds import Linear, Linearizer
from tilewright.halide.ir.algorithm import Call, Const, Expr, Op, Variable, walk

# By identity of a node: the loops that it depends on, and whether it depends on a load.
Dependences = Mapping[int, tuple[frozenset[str], bool]]


class Slopes(Linearizer):
    """Convert to linear forms that hold away from borders, with fractional coefficients.

    A clamp is replaced by its ``likely`` operand or its varying one, and ``x / 2`` by ``0.5 * x``.
    The loops and divisions in expressions are found once per node as well.
    """

    def __init__(self, scalars: Mapping[str, float]) -> None:
        super().__init__(scalars)
        # By identity of a node, which is kept.
        self._free: dict[int, tuple[Expr, frozenset[str]]] = {}
        self._divisors: dict[int, tuple[Expr, Mapping[str, int]]] = {}

    def free(self, expr: Expr) -> frozenset[str]:
        """Return the loops that an expression depends on."""
        known = self._free.get(id(expr))
        if known is None:
            known = self._free[id(expr)] = expr, dependences(walk(expr))[id(expr)][0]
        return known[1]

    def divisors(self, expr: Expr) -> Mapping[str, int]:
        """Return, per loop, the period after which divisions in an expression repeat."""
        known = self._divisors.get(id(expr))
        if known is None:
            known = self._divisors[id(expr)] = expr, _divisors(expr, self)
        return known[1]

    def _compute(self, e: Expr) -> Linear:
        if isinstance(e, Op) and e.name in ("min", "max", "select"):
            sides = e.args[-2:]
            for side in sides:
                if isinstance(side, Call) and side.name.startswith("likely"):
                    return self(side)
            forms = [self(side) for side in sides]
            varying = [
                f
                for f in forms
                if any(not isinstance(a, Variable) or a.kind != "param" for a, _ in f.terms)
            ]
            if len(varying) == 1 and e.name != "select":
                return varying[0]
        if isinstance(e, Op) and e.name == "div" and e.type.code != "float":
            a, b = self(e.args[0]), self(e.args[1])
            if not b.terms and b.const > 0:
                return Linear(tuple((t, c / b.const) for t, c in a.terms), a.const / b.const)
        return super()._compute(e)


def dependences(nodes: Iterable[Expr]) -> dict[int, tuple[frozenset[str], bool]]:
    """Return, by identity of each node, the loops it depends on and whether on a load, too.

    The nodes come in the order of `walk`.
    """
    result: dict[int, tuple[frozenset[str], bool]] = {}
    for node in nodes:
        if isinstance(node, Variable):
            names = frozenset() if node.kind == "param" else frozenset((node.name,))
            result[id(node)] = (names, False)
        elif isinstance(node, Const):
            result[id(node)] = (frozenset(), False)
        else:
            loops: frozenset[str] = frozenset()
            loaded = isinstance(node, Call) and node.kind in ("func", "image")
            for arg in node.args:
                more, also = result[id(arg)]
                if not more <= loops:
                    loops = loops | more if loops else more
                loaded = loaded or also
            result[id(node)] = (loops, loaded)
    return result


def strides_of(
    args: Sequence[Expr], slopes: Slopes, depends: Dependences
) -> dict[str, tuple[float, ...] | None]:
    """Return the strides of an address along each loop that it depends on (`Load.strides`)."""
    forms = [slopes(arg) for arg in args]
    loops = frozenset().union(*(depends[id(a)][0] for a in args)) if args else frozenset()
    strides: dict[str, tuple[float, ...] | None] = {}
    for loop in loops:
        steps: list[float] | None = []
        for arg, form in zip(args, forms, strict=True):
            step = 0.0
            for atom, c in form.terms:
                if isinstance(atom, Variable):
                    step += c if atom.name == loop else 0.0
                elif loop in depends[id(arg)][0] and loop in slopes.free(atom):
                    steps = None
                    break
            if steps is None:
                break
            steps.append(step)
        strides[loop] = None if steps is None else tuple(steps)
    return strides


def divisors_of(args: Sequence[Expr], slopes: Slopes) -> dict[str, int]:
    """Return, per loop, the period after which divisions in an address repeat, if not 1.

    The period of ``(a * x + b) // d`` and of ``(a * x + b) % d`` is ``d / gcd(a, d)``: 8 for
    ``x // 8``, ``x % 8`` and ``(3 * x + 1) // 8``, and 4 for ``2 * x // 8``. Several divisions have
    the least common multiple of their periods.
    """
    divisors: dict[str, int] = {}
    for arg in args:
        for name, divisor in slopes.divisors(arg).items():
            divisors[name] = math.lcm(divisor, divisors.get(name, 1))
    return {name: divisor for name, divisor in divisors.items() if divisor > 1}


def _divisors(arg: Expr, slopes: Slopes) -> dict[str, int]:
    divisors: dict[str, int] = {}
    for node in walk(arg):
        if not isinstance(node, Op) or node.name not in ("div", "mod"):
            continue
        number, by = node.args
        if isinstance(by, Const) and isinstance(by.value, int) and by.value > 1:
            for atom, step in slopes(number).terms:
                if isinstance(atom, Variable) and float(step).is_integer():
                    divisor = by.value // math.gcd(by.value, int(step))
                    divisors[atom.name] = math.lcm(divisor, divisors.get(atom.name, 1))
    return divisors


def clamps_of(
    nodes: Iterable[Expr], depends: Mapping[int, tuple[frozenset[str], bool]]
) -> dict[int, frozenset[str]]:
    """Return the loops that ``min``, ``max`` and ``select`` in each expression depend on.

    The nodes come in the order of `walk`; `depends` are their `dependences`.
    """
    found: dict[int, frozenset[str]] = {}
    for node in nodes:
        parts = node.args if isinstance(node, Op | Call) else ()
        inside = frozenset[str]()
        for part in parts:
            more = found[id(part)]
            if not more <= inside:
                inside = inside | more if inside else more
        if isinstance(node, Op) and node.name in ("min", "max", "select"):
            inside |= depends[id(node)][0]
        found[id(node)] = inside
    return found
