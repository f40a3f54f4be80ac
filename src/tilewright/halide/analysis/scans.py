"""Scans: updates whose steps along one dimension read what the steps before have stored.

Halide stores dimensions in the order of the definition, so a step of ``f[x, r] = f[x, r - 1] + ..``
is a row of unknown length away from the next. With the scanned dimension innermost, the distance is
one element: the compiler then knows which of several unrolled steps reads what another has stored.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.halide.ir.algorithm import Func, Stage, Variable, walk


def scanned_dimension(func: Func, stages: Iterable[Stage]) -> int | None:
    """Return the only dimension along which updates of a Func store step by step, if there is one.

    Args:
        func: The Func.
        stages: Its stages, as other Funcs are inlined into them.
    """
    found: set[int] = set()
    for stage in stages:
        rvars = {loop.name for loop in stage.loops if loop.kind == "impure_rvar"}
        loads = any(call.kind == "func" and call.name == func.name for call in stage.calls)
        moved = {
            d
            for d, arg in enumerate(stage.args)
            for node in walk(arg)
            if isinstance(node, Variable) and node.name in rvars
        }
        if moved and not loads:
            return None
        found |= moved
    return found.pop() if len(found) == 1 else None
