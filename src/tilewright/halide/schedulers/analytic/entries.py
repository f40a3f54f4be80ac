"""The entries of a schedule for Funcs outside all groups."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.halide.analysis.inlining import View
from tilewright.halide.ir.schedule import INLINE, ROOT, FuncSchedule


def completed(entries: Iterable[FuncSchedule], view: View) -> tuple[FuncSchedule, ...]:
    """Return `entries` in order, completed with the inlined Funcs and, at root, all others.

    A Func that only an extern stage reads stays at root, because its required region is unknown.
    Funcs that are memoised or that the user scheduled get no entry. Extern Funcs are scheduled at
    root explicitly. With Halide's default they would be called per vector of their readers, and
    Halide 21 crashes on GPU kernels that read them.
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
