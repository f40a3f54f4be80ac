"""Members of a group at deeper loops than those at which the search computes them.

The search computes the members of a group at its tile loops, and reductions in registers at a block
of their reader. It does not try the loops between these, nor those of the only member that reads
another one. There, a member has a smaller buffer, which stays in a nearer cache, but its own loops
start more often. The model of loop nests (`nest_costs`) knows what that costs.

Loops further out are not tried: reductions would leave the registers there (in three programs,
0.97, 1.02 and 1.59 of the time).
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.halide.analysis.bounds import Box, Interval
from tilewright.halide.analysis.running_nest import running_nest
from tilewright.halide.analysis.scheduled_nest import UNKNOWN, ScheduledNest
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.names import titled
from tilewright.halide.ir.plan import GroupReport, PartTime, PlannedSchedule
from tilewright.halide.ir.schedule import FuncSchedule, Level, Schedule
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.nest_costs import part_times


def with_deeper_members(
    algorithm: Algorithm, planned: PlannedSchedule, boxes: Mapping[str, Box], model: CpuModel
) -> PlannedSchedule | None:
    """Return the plan with members at deeper loops; None if that is not clearly faster.

    One member, or all members at one loop, move at a time, to where the model of loop nests
    predicts the least time.
    """
    extended = with_clones(algorithm, planned.schedule.clones)
    if len(extended.funcs) > SEARCH.rival_funcs or not _members(planned.schedule):
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        try:
            nest = running_nest(algorithm, planned.schedule, boxes)
        except UNKNOWN:
            return None
        known: dict[Hashable, PartTime] = {}

        def seconds(schedule: Schedule) -> float:
            try:
                own = running_nest(algorithm, schedule, boxes, like=nest)
                return sum(part.seconds for part in part_times(own, model, known))
            except UNKNOWN:
                return np.inf

        def on_stack(schedule: Schedule) -> bool:
            changes = zip(planned.schedule.funcs, schedule.funcs, strict=True)
            moved = {after.func for before, after in changes if before.compute != after.compute}
            return _constant(running_nest(algorithm, schedule, boxes, like=nest), moved)

        schedule, least = planned.schedule, seconds(planned.schedule)
        for _ in range(SEARCH.most_moved):
            costed = [(seconds(other), other) for other in _moved(schedule, extended)]
            faster = [each for each in costed if each[0] < SEARCH.clear_gain * least]
            faster.sort(key=lambda each: each[0])
            legal = (each for each in faster if not check(each[1], algorithm))
            found = next((each for each in legal if on_stack(each[1])), None)
            if found is None:
                break
            least, schedule = found
    if schedule is planned.schedule:
        return None
    return replace(planned, schedule=schedule, groups=_noted(planned, schedule, extended))


def _constant(nest: ScheduledNest, funcs: Container[int]) -> bool:
    """Return whether buffers of Funcs are as large for outputs of other sizes and at other places.

    Otherwise Halide cannot know their sizes, and they come from the heap in every iteration.
    """
    other = {
        name: tuple(_elsewhere(part) for part in box)
        for name, box in nest.analysis.output_boxes.items()
    }

    def sizes(nest: ScheduledNest) -> list[tuple[int, list[float]]]:
        found = [each for each in nest.allocations if each.func in funcs]
        return [(each.func, [float(np.max(part)) for part in each.extents]) for each in found]

    return sizes(nest) == sizes(nest.of_size(other))


def _elsewhere(part: Interval) -> Interval:
    """Return a longer interval that starts one further; short ones, such as colours, stay."""
    if float(np.max(part.extent)) < SEARCH.untiled_extent:
        return part
    return Interval(part.lo + 1.0, part.lo + 2.0 * part.extent + 1.0)


def _members(schedule: Schedule) -> list[FuncSchedule]:
    """Return the Funcs that are computed and stored at one loop of another one."""
    return [e for e in schedule.funcs if e.compute.kind == "at" and e.compute == e.store]


def _moved(schedule: Schedule, algorithm: Algorithm) -> Iterator[Schedule]:
    """Yield the schedules with one member, or all members at one loop, at a deeper loop."""
    entries = {entry.func: entry for entry in schedule.funcs}
    members = _members(schedule)
    for level in dict.fromkeys(member.compute for member in members):
        own = tuple(member.func for member in members if member.compute == level)
        host = entries.get(level.func)  # None: the user scheduled it
        for other in _loops(host, level.stage, level.loop) if host is not None else ():
            for funcs in dict.fromkeys((*((func,) for func in own), own)):
                yield _at(schedule, funcs, other)
    for member in members:
        reader = _only_reader(entries, member.func, algorithm)
        if reader is not None and reader.func != member.compute.func:
            for stage in range(len(reader.stages)):
                for other in _loops(reader, stage):
                    yield _at(schedule, (member.func,), other)


def _loops(entry: FuncSchedule, stage: int, inside: str = "") -> list[Level]:
    """Return the loops of a stage in which others can be computed, or those inside one of them."""
    loops = entry.stages[stage].loops
    end = next((i for i, loop in enumerate(loops) if loop.name == inside), len(loops))
    return [
        Level("at", entry.func, stage, loop.name)
        for loop in loops[:end]
        if loop.mapping in ("serial", "parallel")
    ]


def _only_reader(
    entries: Mapping[int, FuncSchedule], func: int, algorithm: Algorithm
) -> FuncSchedule | None:
    """Return the only Func that is not inlined and reads another one, if it is a member itself."""
    readers = algorithm.consumers[algorithm.funcs[func].name]
    reader = entries.get(algorithm.order[readers[0]]) if len(readers) == 1 else None
    return reader if reader is not None and reader.compute.kind == "at" else None


def _at(schedule: Schedule, funcs: Sequence[int], level: Level) -> Schedule:
    entries = (
        replace(entry, compute=level, store=level) if entry.func in funcs else entry
        for entry in schedule.funcs
    )
    return replace(schedule, funcs=tuple(entries))


def _noted(
    planned: PlannedSchedule, schedule: Schedule, algorithm: Algorithm
) -> tuple[GroupReport, ...]:
    """Return the reports on the groups, with a note for each Func that was moved."""
    notes: dict[str, str] = {}
    for before, after in zip(planned.schedule.funcs, schedule.funcs, strict=True):
        if before.compute != after.compute:
            func, host = (algorithm.funcs[i].name for i in (after.func, after.compute.func))
            notes[func] = f"{titled(func)} in a loop inside the tiles of {titled(host)}"
    return tuple(
        replace(report, notes=(*report.notes, *(notes[f] for f in report.funcs if f in notes)))
        for report in planned.groups
    )
