"""Which groups a search by predicted time merges with their readers, and with which options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Call, Expr, Op
from tilewright.halide.schedulers.analytic.gpu.group_times import TimedGroup
from tilewright.halide.schedulers.analytic.grouping import Group

# Options that merged groups are tried with (chosen).
_OPTIONS: tuple[dict[str, Any], ...] = (
    {"points": (1, 4)},
    {"points": (1, 2)},
    {"points": (1, 1, 4)},
    {},
)


def merged_options(analysis: Analysis, group: Group) -> list[Mapping[str, Any]]:
    """Return the options to try a merged group with.

    Several points per thread are not tried if the size of a member varies between blocks. Every
    thread of the block then computes the bounds of the member, and Halide splits the loops over
    the points that exceed them into three (measured: 130 to 160 instructions per thread and
    member, 30 with one point). The predicted time does not count them.
    """
    return [each for each in _OPTIONS if not (each and sizes_vary(analysis, group))]


def sizes_vary(analysis: Analysis, group: Group) -> bool:
    """Return whether the blocks of a group need different sizes of a member.

    They do if a coordinate is divided: 16 pixels need two or three cells of a grid of 8 by 8.
    """
    inside = set(group.members[:-1])
    return any(
        _divides(coordinate)
        for name in group.members
        for stage in analysis.instructions(name)
        for access in stage.accesses
        if access.callee in inside and not access.store and access.callee != name
        for coordinate in access.args
    )


def _divides(coordinate: Expr) -> bool:
    """Return whether a coordinate contains a quotient, other than in the index of loaded data."""
    seen: set[int] = set()
    stack = [coordinate]
    while stack:
        node = stack.pop()
        if id(node) in seen or not isinstance(node, Call | Op):
            continue
        seen.add(id(node))
        if isinstance(node, Call) and node.kind in ("func", "image"):
            continue
        if node.name == "div":
            return True
        stack.extend(node.args)
    return False


def only_readers(
    view: View, groups: Sequence[TimedGroup]
) -> Iterator[tuple[TimedGroup, TimedGroup, Group]]:
    """Yield the groups that one other group reads, with that and both as a single group."""
    order = view.algorithm.order
    owner = {name: each for each in groups for name in each.group.members}
    for each in groups:
        readers = [owner[name] for name in view.consumers[each.group.output] if name in owner]
        others = [reader for reader in readers if reader is not each]
        if others and all(reader is others[0] for reader in others):
            inside = {*each.group.members, *others[0].group.members[:-1]}
            members = (*sorted(inside, key=order.__getitem__), others[0].group.output)
            yield each, others[0], Group(members)
