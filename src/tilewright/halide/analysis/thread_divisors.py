"""Predict whether Halide finds a constant bound for the values that a thread keeps in registers.

This depends on the coordinates at which the thread reads a Func. Halide 21 finds a constant number
of values for reads at `x` and ``x / 4``, but not at ``x / 2`` and ``x / 4``, as in a pyramid with
all levels in registers. It also finds none for reads at ``clamp(x, 0, n)`` and ``clamp(x + 1, 0,
n)``: it then assumes all n values and unrolls a loop over them n times.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.halide.analysis.bounds import Linear
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.lowering_bounds import divisor_of
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Call, Func, Op, Variable


def divided_differently(
    analysis: Analysis, anchor: str, members: Collection[str]
) -> dict[str, tuple[int, ...]]:
    """Return the Funcs in a thread that are read at quotients by several divisors.

    Args:
        analysis: The pipeline.
        anchor: The Func that has the thread loops.
        members: The Funcs computed inside a thread.

    Returns:
        The divisors, relative to the coordinates of `anchor`, of each such Func.
    """
    known: dict[str, frozenset[float]] = {anchor: frozenset({1.0})}
    order = analysis.view.algorithm.order
    for name in sorted(members, key=order.__getitem__, reverse=True):
        known[name] = frozenset(
            before * divisor_of(form)
            for reader in analysis.view.consumers[name]
            for before in known.get(reader, ())
            for summary in analysis.summaries(reader)
            for access in summary.reads(name)
            for forms in access.forms
            for form, _, _ in forms
        )
    found = {
        name: tuple(int(d) for d in sorted(divisors - {1.0})) for name, divisors in known.items()
    }
    return {name: divisors for name, divisors in found.items() if len(divisors) > 1}


def clamped_differently(analysis: Analysis, name: str) -> frozenset[int]:
    """Return the dimensions in which a reader of a Func uses several different clamps.

    Coordinates that differ only by a constant outside the clamp, like ``clamp(x, 0, n)`` and
    ``clamp(x, 0, n) + 1``, count as one.
    """
    found: set[int] = set()
    for reader in analysis.view.consumers[name]:
        reads = [access for summary in analysis.summaries(reader) for access in summary.reads(name)]
        for d, dimension in enumerate(zip(*(access.forms for access in reads), strict=True)):
            forms = [form for forms in dimension for form, _, _ in forms]
            if len({form.terms for form in forms}) > 1 and any(map(_is_clamped, forms)):
                found.add(d)
    return frozenset(found)


def _is_clamped(form: Linear) -> bool:
    atoms = (atom for atom, _ in form.terms)
    return any(isinstance(atom, Op) and atom.name in ("min", "max") for atom in atoms)


def scattered_dimensions(func: Func) -> frozenset[int]:
    """Return the dimensions in which an update of a Func writes elsewhere than at its loop.

    Each computation of the Func covers all these places, besides those that are read. If the latter
    move with a loop outside, Halide finds no constant number of values.
    """
    return frozenset(
        d
        for stage in func.stages[1:]
        for d, (arg, loop) in enumerate(zip(stage.args, func.args, strict=True))
        if not (isinstance(arg, Variable) and arg.kind == "var" and arg.name == loop)
    )


def scattered_by_parameters(view: View, name: str) -> bool:
    """Return whether updates of a Func write at coordinates whose range depends on a parameter.

    Each computation of the Func covers this range. So its number of values, for example the bins of
    a histogram ``1 / sigma``, is known only at run time. The coordinates of loads do not matter.
    """
    left = [arg for stage in view.stages(name)[1:] for arg in stage.args]
    seen: set[int | str] = set()
    while left:
        node = left.pop()
        loads = isinstance(node, Call) and node.kind in ("func", "image")
        key = node.name if isinstance(node, Call) and loads else id(node)
        if key in seen:
            continue
        seen.add(key)
        if isinstance(node, Variable) and node.kind == "param":
            return True
        if isinstance(node, Call) and node.kind == "func":
            left += [value for stage in view.stages(node.name) for value in stage.values]
        elif isinstance(node, Op | Call) and not loads:
            left += node.args
    return False
