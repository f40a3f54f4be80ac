"""An `Algorithm` computed point by point, straight from its definition.

Slow and plain on purpose: what it computes from an imported pipeline is compared with what
Halide computes from the pipeline itself.
"""

from __future__ import annotations

import itertools
import math
import operator

import numpy as np

from tilewright.halide.execution.contents import from_bfloat16, to_bfloat16
from tilewright.halide.ir.algorithm import Const, Op, Variable

COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
ARITHMETIC = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
IDENTITIES = {"likely", "likely_if_innermost", "strict_float", "promise_clamped"}
STRICT = {"strict_add": "add", "strict_sub": "sub", "strict_mul": "mul"}
BITS = {"bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor}
MATH = {"sqrt": np.sqrt, "sin": np.sin, "exp": np.exp, "floor": np.floor, "pow": np.power}


def store(kind, value):
    """`value` as a value of the type: wrapped, truncated or rounded as Halide does."""
    if kind.code == "float":
        return np.dtype(f"float{kind.bits}").type(value)
    if kind.code == "bfloat":
        return from_bfloat16(to_bfloat16(np.float32([value])))[0]
    if kind.bits == 1:
        return bool(value)
    wrapped = int(value) & ((1 << kind.bits) - 1)
    return (
        wrapped - (1 << kind.bits) if kind.code == "int" and wrapped >> kind.bits - 1 else wrapped
    )


def divide(a, b):
    """Halide's: the remainder is never negative, and anything over zero is zero."""
    if b == 0:
        return 0, 0
    remainder = a % abs(b)
    return (a - remainder) // b, remainder


class Evaluator:
    def __init__(self, algorithm, images):
        """`images` maps names to functions of coordinates."""
        self.algorithm = algorithm
        self.images = images
        self.values = {}

    def func(self, name, box):
        """The values of a Func over a box of (min, extent) pairs, one array a Tuple element."""
        result = [np.zeros([e for _, e in box], object) for _ in self.algorithm.by_name[name].types]
        self.realise(name, box)
        for at in itertools.product(*(range(e) for _, e in box)):
            place = tuple(low + i for (low, _), i in zip(box, at, strict=True))
            for i, array in enumerate(result):
                array[at] = self.read(name, place)[i]
        return result

    def realise(self, name, box):
        """Compute the Func over at least the box."""
        func = self.algorithm.by_name[name]
        if func.pure:
            return
        known = self.values.setdefault(name, {})
        points = itertools.product(*(range(low, low + e) for low, e in box))
        for point in points:
            if point not in known:
                self.pure(func, point)
        for stage in func.stages[1:]:
            self.update(func, stage, box)

    def pure(self, func, point):
        stage = func.stages[0]
        env = dict(zip(func.args, point, strict=True))
        memo: dict = {}
        values = tuple(self.value(e, env, memo) for e in stage.values)
        self.values.setdefault(func.name, {})[point] = values
        return values

    def update(self, func, stage, box):
        ranges = {}
        for loop in stage.loops:
            if loop.name in func.args:
                low, extent = box[func.args.index(loop.name)]
                ranges[loop.name] = range(low, low + extent)
        for rvar in stage.rvars:
            low, extent = self.value(rvar.min, {}, {}), self.value(rvar.extent, {}, {})
            ranges[rvar.name] = range(low, low + extent)
        order = [loop.name for loop in reversed(stage.loops)]
        assert set(order) == set(ranges)
        for at in itertools.product(*(ranges[name] for name in order)):
            env = dict(zip(order, at, strict=True))
            memo: dict = {}
            if not all(self.value(p, env, memo) for p in stage.predicates):
                continue
            place = tuple(self.value(a, env, memo) for a in stage.args)
            values = tuple(self.value(e, env, memo) for e in stage.values)
            self.values[func.name][place] = values

    def read(self, name, place):
        func = self.algorithm.by_name[name]
        known = self.values.setdefault(name, {})
        if place in known:
            return known[place]
        if func.pure:
            return self.pure(func, place)
        if len(func.stages) > 1 and all(self.point_update(func, s) for s in func.stages[1:]):
            # Reductions whose points do not depend on one another are computed one by one.
            self.realise(name, [(p, 1) for p in place])
        else:
            self.realise(name, [(-2, 30)] * len(func.args))
        return known[place]

    def point_update(self, func, stage):
        return all(
            isinstance(a, Variable) and a.name == n
            for a, n in zip(stage.args, func.args, strict=True)
        )

    def value(self, e, env, memo):
        if id(e) in memo:
            return memo[id(e)]
        result = memo[id(e)] = self.compute(e, env, memo)
        return result

    def compute(self, e, env, memo):
        if isinstance(e, Const):
            return e.value if e.type.code == "handle" else store(e.type, e.value)
        if isinstance(e, Variable):
            if e.kind == "param":
                return store(e.type, self.algorithm.symbols[e.name])
            return env[e.name]
        if isinstance(e, Op):
            if e.name == "select":
                return self.value(e.args[1 if self.value(e.args[0], env, memo) else 2], env, memo)
            return self.operator(e, [self.value(a, env, memo) for a in e.args])
        if e.name == "if_then_else":
            return self.value(e.args[1 if self.value(e.args[0], env, memo) else 2], env, memo)
        args = [self.value(a, env, memo) for a in e.args]
        if e.kind == "func":
            return self.read(e.name, tuple(args))[e.value_index]
        if e.kind == "image":
            return store(e.type, self.images[e.name](*args))
        return self.call(e, args)

    def operator(self, e, args):
        kind = e.type
        if e.name in COMPARISONS:
            return COMPARISONS[e.name](*args)
        if e.name in ARITHMETIC:
            return store(kind, ARITHMETIC[e.name](*args))
        if e.name in ("min", "max"):
            return min(args) if e.name == "min" else max(args)
        if e.name in ("div", "mod") and kind.code == "float":
            a, b = args
            return store(kind, a / b if e.name == "div" else a - b * np.floor(a / b))
        if e.name in ("div", "mod"):
            return store(kind, divide(*args)[e.name == "mod"])
        if e.name == "cast":
            source = e.args[0].type
            truncated = source.code in ("float", "bfloat") and kind.code in ("int", "uint")
            return store(kind, math.trunc(args[0]) if truncated else args[0])
        if e.name == "reinterpret":
            return int(np.float32(args[0]).view(np.uint32))
        if e.name == "and":
            return args[0] and args[1]
        if e.name == "or":
            return args[0] or args[1]
        assert e.name == "not", e.name
        return not args[0]

    def call(self, e, args):
        name, kind = e.name, e.type
        if name in IDENTITIES:
            return args[0]
        if name in STRICT:
            return store(kind, ARITHMETIC[STRICT[name]](*args))
        if name in BITS:
            return store(kind, BITS[name](int(args[0]), int(args[1])))
        if name == "bitwise_not":
            return store(kind, ~int(args[0]))
        if name == "shift_left":
            return store(kind, args[0] << args[1] if args[1] >= 0 else args[0] >> -args[1])
        if name == "shift_right":
            return store(kind, args[0] >> args[1] if args[1] >= 0 else args[0] << -args[1])
        if name == "abs":
            return store(kind, abs(args[0]))
        if name == "absd":
            return store(kind, abs(args[0] - args[1]))
        if name == "lerp":
            return store(kind, args[0] * (1 - args[2]) + args[1] * args[2])
        if name == "saturating_cast":
            low = -(1 << kind.bits - 1) if kind.code == "int" else 0
            return min(max(int(args[0]), low), low + (1 << kind.bits) - 1)
        if name == "mux":
            return args[1 + args[0]] if 0 <= args[0] < len(args) - 1 else args[-1]
        if name == "undef":
            return 0
        base = name.rsplit("_", 1)[0]
        assert base in MATH, name
        return store(kind, MATH[base](*args))
