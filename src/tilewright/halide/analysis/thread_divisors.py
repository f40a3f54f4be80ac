"""Divisors of a thread's coordinates, which tell whether Halide bounds what its registers hold.

Halide 21 finds a constant number of values for ``x / 4`` next to `x`, but not next to ``x / 2``, as
in a pyramid whose levels are all in registers.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.halide.analysis.lowering_bounds import divisor_of
from tilewright.halide.analysis.summaries import Analysis


def divided_differently(
    analysis: Analysis, anchor: str, members: Collection[str]
) -> dict[str, tuple[int, ...]]:
    """Return those of the Funcs in a thread of `anchor` that need several divisors, with these."""
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
