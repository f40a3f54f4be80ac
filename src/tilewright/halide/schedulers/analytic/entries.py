"""The entries of a schedule for Funcs outside all groups."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.halide.analysis.inlining import View
from tilewright.halide.ir.schedule import INLINE, ROOT, FuncSchedule


def completed(entries: Iterable[FuncSchedule], view: View) -> tuple[FuncSchedule, ...]:
    """Return `entries` with the inlined Funcs of a view and, at root, all that remain, in order.

    A Func that only an extern stage reads stays at root, because its required region is unknown.
    Funcs that are memoised or that the user scheduled get no entry. An extern Func gets one: left
    at its default, it is called for each vector of its readers, and Halide 21 crashes on GPU
    kernels that read it.
    """
    order = view.algorithm.order
    found = [*entries]
    placed = {entry.func for entry in found}
    rest = [order[name] for name in view.inlined if order[name] not in placed]
    found += [FuncSchedule(func, INLINE, INLINE) for func in rest]
    placed.update(rest)
    for func in view.funcs:
        kept = func.scheduled or func.memoized
        if not kept and order[func.name] not in placed:
            found.append(FuncSchedule(order[func.name], ROOT, ROOT))
    return tuple(sorted(found, key=lambda entry: entry.func))
