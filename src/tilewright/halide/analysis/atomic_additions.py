"""Updates that Halide turns into atomic additions on a GPU.

Halide 21 writes an atomic addition where the update's value less the old one does not read the
Func. It compares the coordinates written with those read, and two things can make these differ:

- A subexpression of the coordinates that occurs twice has a name of its own on one side only.
- The values of Funcs in the coordinates read, not in those written, are clamped to their range.

If the comparison fails, Halide writes a loop of compare-and-swap that reads the element twice, once
to compare and once to add, in an order that the device's compiler chooses. Such a loop loses
updates; ``docs/decisions/opencl-platforms.md`` has the evidence.
"""

from __future__ import annotations

from collections import Counter

from tilewright.halide.analysis.inlining import Interner, Rewriter, TooLarge
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Call, Const, Expr, Op, Stage, Variable, walk

# Maximum number of nodes of an update that is looked at.
_MOST_NODES = 20_000


def is_atomic_addition(analysis: Analysis, name: str, index: int, *, floats: bool) -> bool | None:
    """Return whether Halide makes one atomic addition of each iteration of a Func's update.

    It must add to one value of 32 bits, at coordinates that are the same on both sides, and not
    read the Func otherwise. None means that Halide may or may not see that the coordinates are the
    same, as lowering tells (`tilewright.halide.execution.atomic_additions`). `floats` tells whether
    the device adds floats.
    """
    try:
        own = _added_to(analysis, name, index, floats)
        if own is None:
            return False
        return _same_when_simplified(analysis.view.stages(name)[index], own) or None
    except TooLarge:
        return False


def _added_to(analysis: Analysis, name: str, index: int, floats: bool) -> Call | None:
    """Return the old value that an update adds to; None if it does anything else."""
    func, stage = analysis.view.by_name[name], analysis.view.stages(name)[index]
    if len(stage.values) != 1 or len(func.types) != 1 or not stage.rvars:
        return None
    t = func.types[0]
    if t.bits != 32 or t.lanes != 1 or t.code not in ("int", "uint", "float"):
        return None
    if t.code == "float" and not floats:
        return None
    value = stage.values[0]
    if not isinstance(value, Op) or value.name != "add":
        return None
    selves = [c for c in stage.calls if c.kind == "func" and c.name == name]
    if len(selves) != 1 or sum(arg is selves[0] for arg in value.args) != 1:
        return None
    places, read = _interned(stage.args, selves[0].args)
    same = len(places) == len(read) and all(a is b for a, b in zip(places, read, strict=True))
    return selves[0] if same else None


def _interned(*groups: tuple[Expr, ...]) -> list[list[Expr]]:
    """Return the expressions with equal parts as one shared object."""
    rewriter = Rewriter(lambda name: None, Interner(), _MOST_NODES)
    return [[rewriter.rewrite(e, {}) for e in group] for group in groups]


def _same_when_simplified(stage: Stage, own: Call) -> bool:
    """Return whether nothing in the coordinates could make the two sides differ."""
    (value,) = stage.values
    added = tuple(arg for arg in getattr(value, "args", ()) if arg is not own)
    places, others = _interned(stage.args, added)
    uses = Counter(map(id, places))
    for node in walk(*places):
        uses.update(map(id, node.args if isinstance(node, Op | Call) else ()))
    elsewhere = set(map(id, walk(*others)))
    return not any(
        (isinstance(node, Call) and node.kind == "func")
        or (_gets_a_name(node) and (uses[id(node)] > 1 or id(node) in elsewhere))
        for node in walk(*places)
    )


def _gets_a_name(node: Expr) -> bool:
    """Return whether Halide 21 gives a subexpression that occurs twice a name of its own."""
    if isinstance(node, Const | Variable):
        return False
    if isinstance(node, Op) and node.name in ("cast", "broadcast"):
        return _gets_a_name(node.args[0])
    if isinstance(node, Op) and node.name in ("add", "sub", "mul", "div"):
        return not any(isinstance(arg, Const) for arg in node.args)
    return True
