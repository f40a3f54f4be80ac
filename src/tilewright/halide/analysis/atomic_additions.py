"""Find updates that Halide turns into atomic additions on a GPU.

Halide 21 emits an atomic addition if subtracting the old value from the update's value leaves an
expression that does not read the Func. It recognises the old value by comparing the coordinates
that are written with those that are read. Two steps of lowering can make them differ:

- A subexpression that occurs twice may become a ``let`` in the coordinates of one side only.
- Values of Funcs are clamped to their range in the coordinates read, but not in those written.

If the comparison fails, Halide emits a compare-and-swap loop that loads the element twice, once to
compare and once to add, in an order that the device's compiler chooses. This loop loses updates;
``docs/decisions/opencl-platforms.md`` has the evidence.
"""

from __future__ import annotations

from collections import Counter

from tilewright.halide.analysis.inlining import Interner, Rewriter, TooLarge
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Call, Const, Expr, Op, Stage, Variable, walk

# Maximum number of expression nodes in an update; larger ones count as not atomic.
_MOST_NODES = 20_000


def is_atomic_addition(analysis: Analysis, name: str, index: int, *, floats: bool) -> bool | None:
    """Return whether Halide emits one atomic addition per iteration of a Func's update.

    The update must add to a single 32-bit value, at the same coordinates on both sides, and must
    not read the Func elsewhere.

    Args:
        analysis: The pipeline.
        name: The Func.
        index: The update's stage number.
        floats: Whether the device has atomic additions of floats.

    Returns:
        None if Halide may fail to see that the coordinates are the same; only lowering the pipeline
        can tell (`tilewright.halide.execution.atomic_additions`).
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
    """Return the expressions with each set of equal subexpressions as one object."""
    rewriter = Rewriter(lambda name: None, Interner(), _MOST_NODES)
    return [[rewriter.rewrite(e, {}) for e in group] for group in groups]


def _same_when_simplified(stage: Stage, own: Call) -> bool:
    """Return whether both sides certainly keep the same coordinates during lowering."""
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
    """Return whether Halide 21 makes a ``let`` of a subexpression that occurs twice."""
    if isinstance(node, Const | Variable):
        return False
    if isinstance(node, Op) and node.name in ("cast", "broadcast"):
        return _gets_a_name(node.args[0])
    if isinstance(node, Op) and node.name in ("add", "sub", "mul", "div"):
        return not any(isinstance(arg, Const) for arg in node.args)
    return True
