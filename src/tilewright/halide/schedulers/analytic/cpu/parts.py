"""The parts of a nest: each is a Func at root with the Funcs computed in its loops."""

from __future__ import annotations

from collections.abc import Hashable

from tilewright.halide.analysis.nest_structure import Production
from tilewright.halide.analysis.scheduled_nest import ScheduledNest


def part_keys(nest: ScheduledNest) -> dict[Hashable, Production]:
    """Return the Funcs at root by what determines the time of a part, in order.

    These are the schedules of the part, and the storage orders and bounds of all Funcs.
    """
    entries = nest.structure.entries
    others = tuple(
        (i, e.storage_order, e.bounds) for i, e in entries.items() if e.storage_order or e.bounds
    )
    found: dict[Hashable, Production] = {}
    for production in nest.structure.root.productions:
        inside = tuple(entries[i] for i in funcs_of(production))
        found[id(nest.analysis), inside, others] = production
    return found


def funcs_of(production: Production) -> list[int]:
    """Return the positions of the Funcs of a part."""
    inside: list[int] = []
    left = [production]
    while left:
        each = left.pop()
        inside.append(each.func)
        left += [p for s in each.stages for body in s.bodies.values() for p in body.productions]
    return inside
