"""Count the GPU instructions of one iteration of a stage, by the loops that they depend on.

The counts are those of the PTX that Halide 21 generates. Equal expressions are one node of the
graph and count once. An expression that is invariant in a loop is computed outside that loop. A
product and a sum become one fused multiply-add, and a load includes the constant offset of its
address.

| symbol | meaning | unit |
|---|---|---|
| `count` | instructions each time one of their `loops` advances | count |
| `row` | index in a dimension other than the first, multiplied by that dimension's stride | |
| `forms` | the indices of an access, one linear form per dimension | elements |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.halide.analysis.bounds import STRICT, Linear, Linearizer
from tilewright.halide.analysis.strides import Dependences, Slopes, dependences, strides_of
from tilewright.halide.ir.algorithm import (
    Call,
    Const,
    Expr,
    Func,
    Op,
    Stage,
    Type,
    Variable,
    walk,
)

Loops = frozenset[str]

# Instructions per call, counted in Halide 21's PTX of a kernel with only this call. A call belongs
# to the first entry that its name begins with.
_CALLS: tuple[tuple[str, float], ...] = (
    ("fast_exp", 15.0),
    ("fast_log", 19.0),
    ("fast_pow", 37.0),
    ("exp", 20.0),
    ("log", 25.0),
    ("pow", 64.0),
    ("sin", 122.0),
    ("cos", 122.0),
    ("tanh", 37.0),
    ("atan2", 48.0),
    ("atan", 26.0),
    ("saturating_cast", 2.0),
    ("saturating", 3.0),
    ("rounding_shift", 3.0),
    ("rounding_halving", 3.0),
    ("halving", 2.0),
    ("mul_shift_right", 2.0),
)
# Calls that are one instruction of the special function unit.
_SPECIAL = ("fast_inverse", "sqrt")
# Instructions per operation on floats and on integers; 1 for operations not listed.
_FLOAT = {"min": 2.0, "max": 2.0, "mod": 4.0, "abs": 4.0, "absd": 4.0, "lerp": 2.0}
_INTEGER = {"absd": 3.0, "lerp": 19.0}
# Instructions per integer division by a variable and by a constant, keyed by whether the type is
# signed. A division by a power of two is one shift. A remainder takes one more.
_DIVISION = {True: 10.0, False: 4.0}
_DIVISION_BY_CONSTANT = {True: 6.0, False: 3.0}
_FREE = ("likely", "promise", "unsafe_promise", "strict_float", "undef", "return_second")
_WORD_BITS = 32  # sums of products are fused from this size on


@dataclass(frozen=True, slots=True)
class InstructionCount:
    """Instructions that depend on the same loops; `special` run in the special function unit."""

    loops: Loops
    plain: float
    special: float


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """A load or a store of one value.

    Attributes:
        callee: The Func or image.
        args: The coordinates.
        bytes: Size of the value.
        store: Whether it is a store.
        loops: The access is repeated whenever one of these loops advances.
        moved: The loops that the address depends on.
        outer: The loops of coordinates other than the first, and those in `bent`.
        bent: The loops of coordinates that are not affine in the loop variables.
        strides: As in `summaries.Load`.
        indirect: As in `summaries.Load`.
        base: Identifies the address up to a constant offset in the first dimension.
        folded: Identifies the address up to constant offsets in all dimensions.
        rows: Dimension, index without its constant, constant and loops of the index, for every
            dimension except the first whose index depends on a loop.
    """

    callee: str
    args: tuple[Expr, ...]
    bytes: int
    store: bool
    loops: Loops
    moved: Loops
    outer: Loops
    bent: Loops
    strides: Mapping[str, tuple[float, ...] | None]
    indirect: bool
    base: object
    folded: object
    rows: tuple[tuple[int, object, float, Loops], ...]


@dataclass(frozen=True, slots=True)
class StageInstructions:
    """The instructions of one iteration: `work` without address arithmetic, and `accesses`."""

    work: tuple[InstructionCount, ...]
    accesses: tuple[MemoryAccess, ...]


def stage_instructions(
    func: Func, stage: Stage, linear: Linearizer, slopes: Slopes
) -> StageInstructions:
    """Return the instructions of one iteration of a stage."""
    roots = [*stage.values, *stage.predicates, *stage.args]
    nodes = list(walk(*roots))
    depends = dependences(nodes)
    calls = [n for n in nodes if isinstance(n, Call) and n.kind in ("func", "image")]
    indices = [arg for call in calls for arg in call.args] + list(stage.args)
    every = frozenset(loop.name for loop in stage.loops)
    accesses = []
    for call in calls:
        found = _access(call.name, call.value_index, call.args, call.type, linear, slopes, depends)
        # A value of the Func itself is loaded in every iteration, since this stage changes it.
        accesses.append(found if call.name != func.name else replace(found, loops=every))
    for value, kind in enumerate(func.types):
        found = _access(func.name, value, stage.args, kind, linear, slopes, depends)
        base, folded = ("store", found.base), ("store", found.folded)
        accesses.append(replace(found, store=True, loops=every, base=base, folded=folded))
    return StageInstructions(_work(nodes, indices, depends), tuple(accesses))


def _access(
    callee: str,
    value: int,
    args: tuple[Expr, ...],
    kind: Type,
    linear: Linearizer,
    slopes: Slopes,
    depends: Dependences,
) -> MemoryAccess:
    """Return a load of value `value` of `callee` at coordinates `args`, as a `MemoryAccess`."""
    forms = [linear(arg) for arg in args]
    own = [depends[id(arg)][0] for arg in args]
    nothing: Loops = frozenset()
    moved = nothing.union(*own)
    bent = nothing.union(*(o for form, o in zip(forms, own, strict=True) if not form.affine))
    terms = [_terms(form) for form in forms]
    further = range(1, len(args))
    return MemoryAccess(
        callee,
        args,
        kind.bytes,
        False,
        moved,
        moved,
        bent.union(*own[1:]),
        bent,
        strides_of(args, slopes, depends),
        any(depends[id(arg)][1] for arg in args),
        (callee, value, *terms, *(form.const for form in forms[1:])),
        (callee, value, *terms),
        tuple((d, terms[d], forms[d].const, own[d]) for d in further if own[d]),
    )


def _terms(form: Linear) -> object:
    return frozenset(
        (atom.name if isinstance(atom, Variable) else id(atom), c) for atom, c in form.terms
    )


def _work(
    nodes: list[Expr], indices: list[Expr], depends: Dependences
) -> tuple[InstructionCount, ...]:
    """Return the instructions of all nodes except loads and the affine parts of their indices."""
    free = _affine_tops(nodes, indices)
    found: dict[Loops, tuple[float, float]] = {}
    for node in nodes:
        if id(node) in free or isinstance(node, Const | Variable):
            continue
        if isinstance(node, Call) and node.kind in ("func", "image"):
            continue
        loops = depends[id(node)][0]
        before, cost = found.get(loops, (0.0, 0.0)), cost_of(node)
        found[loops] = before[0] + cost[0], before[1] + cost[1]
    return tuple(InstructionCount(loops, *counts) for loops, counts in found.items())


def _affine_tops(nodes: list[Expr], indices: list[Expr]) -> set[int]:
    """Return the sums and multiples that occur in addresses only, by identity."""
    used: set[int] = set()  # by something other than an address
    tops = {id(arg) for arg in indices}
    free: set[int] = set()
    for node in reversed(nodes):
        inside = id(node) in tops and id(node) not in used and _affine(node)
        if inside:
            free.add(id(node))
        if isinstance(node, Op | Call):
            loads = isinstance(node, Call) and node.kind in ("func", "image")
            for arg in node.args:
                if inside:
                    tops.add(id(arg))
                elif not loads:
                    used.add(id(arg))
    return free


def _affine(node: Expr) -> bool:
    if not isinstance(node, Op) or node.type.code == "float":
        return False
    if node.name in ("add", "sub"):
        return True
    if node.name == "mul":
        return any(isinstance(arg, Const) for arg in node.args)
    return node.name == "cast" and node.type.bits >= _WORD_BITS


def cost_of(node: Op | Call) -> tuple[float, float]:
    """Return the instructions of an operation: plain ones, and those of the special function unit.

    >>> from tilewright.halide.ir.algorithm import Const, Type
    >>> seven = Const(7, Type("int", 32))
    >>> cost_of(Op("div", (Op("add", (seven, seven), seven.type), seven), seven.type))
    (6.0, 0.0)
    """
    name = node.name.removeprefix(STRICT)
    floats = node.type.code in ("float", "bfloat")
    if name.startswith(_FREE):
        return 0.0, 0.0
    if isinstance(node, Call):
        if name.startswith(_SPECIAL):
            return 0.0, 1.0
        for prefix, count in _CALLS:
            if name.startswith(prefix):
                return count, 0.0
    if name in ("div", "mod") and not (floats and name == "mod"):
        return _division(node, name, floats)
    if name in ("cast", "reinterpret"):
        return _cast(node, name), 0.0
    if name in ("add", "sub") and _fused(node, floats):
        return 0.0, 0.0
    return (_FLOAT if floats else _INTEGER).get(name, 1.0), 0.0


def _fused(node: Op | Call, floats: bool) -> bool:
    wide = floats or node.type.bits >= _WORD_BITS
    return wide and any(isinstance(arg, Op) and arg.name == "mul" for arg in node.args)


def _division(node: Op | Call, name: str, floats: bool) -> tuple[float, float]:
    right = node.args[1]
    constant = isinstance(right, Const)
    if floats:
        return (1.0, 0.0) if constant else (0.0, 1.0)
    signed = node.type.code == "int"
    more = 1.0 if name == "mod" else 0.0
    if isinstance(right, Const) and isinstance(right.value, int):
        if right.value > 0 and right.value & (right.value - 1) == 0:
            return 1.0, 0.0
        return _DIVISION_BY_CONSTANT[signed] + more, 0.0
    return _DIVISION[signed] + more, 1.0


def _cast(node: Op | Call, name: str) -> float:
    source = node.args[0]
    same = source.type.code == node.type.code or source.type.bits == node.type.bits
    loaded = isinstance(source, Call) and source.kind in ("func", "image")
    integers = "float" not in (source.type.code, node.type.code)
    # A load instruction can widen the loaded value.
    return 0.0 if name == "reinterpret" or (integers and (loaded or same)) else 1.0
