"""Short descriptions of the differences between the schedules of one search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.halide.ir.names import readable
from tilewright.halide.ir.plan import GroupReport, PlannedSchedule

# Number of differences to describe; further ones are counted.
_NAMED = 2


def distinctions(plans: Sequence[PlannedSchedule]) -> tuple[str, ...]:
    """Return how each schedule differs from the first one; empty for the first one.

    Compute levels come before tile sizes, and these before vectors, threads and tasks.
    """
    if not plans:
        return ()
    found = []
    for plan in plans[1:]:
        differences = list(dict.fromkeys(_differences(plans[0], plan)))
        more = len(differences) - _NAMED
        text = "; ".join(differences[:_NAMED]) + (f"; {more} more" if more > 0 else "")
        same = plan.schedule == plans[0].schedule
        found.append(text or ("" if same else "other loop orders or store levels"))
    return ("", *found)


def _differences(first: PlannedSchedule, other: PlannedSchedule) -> Iterator[str]:
    before, after = _groups(first), _groups(other)
    homes = {func: group.output for group in other.groups for func in group.funcs}
    stored = {func for group in first.groups for func in group.funcs}
    for output, stage in sorted(after.keys() - before.keys()):
        if stage == 0:
            yield f"{readable(output)} in a separate group"
    for output, stage in sorted(before.keys() - after.keys()):
        if stage == 0 and output in homes:
            yield f"{readable(output)} in the group of {readable(homes[output])}"
    for func in sorted(stored - homes.keys()):
        yield f"{readable(func)} inlined"
    for func in sorted(homes.keys() - stored):
        yield f"{readable(func)} stored"
    shared = [key for key in after if key in before]
    for key in shared:
        if after[key].tile != before[key].tile:
            yield f"{readable(key[0])} in tiles of {_tile(after[key])}"
    for key in shared:
        yield from _mapping(before[key], after[key])


def _mapping(before: GroupReport, after: GroupReport) -> Iterator[str]:
    """Yield differences in how a group's work is mapped to vectors, threads and tasks."""
    name = readable(after.output)
    if after.vector_width != before.vector_width:
        yield f"{name} in vectors of {max(1, after.vector_width)}"
    if after.threads != before.threads:
        yield f"{name} in blocks of {'x'.join(map(str, after.threads)) or 'one'} threads"
    if after.parallel_tasks != before.parallel_tasks and after.tile == before.tile:
        count = max(1, after.parallel_tasks)
        yield f"{name} in {count} task{'' if count == 1 else 's'}"


def _groups(plan: PlannedSchedule) -> dict[tuple[str, int], GroupReport]:
    return {(group.output, group.stage): group for group in plan.groups}


def _tile(group: GroupReport) -> str:
    return "x".join(map(str, group.tile)) or "one piece"
