"""The search for the schedule of least predicted time on a GPU.

It starts from the groups that greedy merging by the cost of Sioutas 2020 ends with, and from these
with every Func of the large ones in a kernel of its own. Each large group is kept, cut in two, or
taken apart, whichever is predicted to be fastest. Then the points that a thread computes and the
tiles are chosen, group by group. Greedy merging by time alone would end early: two merges may pay
only together.

The effort is bounded in stages whose work is counted, not in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tilewright.halide.ir.names import readable
from tilewright.halide.ir.plan import PlannedSchedule, RunnerUp
from tilewright.halide.schedulers.analytic.gpu.assemble import assemble
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.gpu.group_times import GroupTimes, TimedGroup
from tilewright.halide.schedulers.analytic.gpu.plan import GroupPlan, Options
from tilewright.halide.schedulers.analytic.gpu.recomputing import cuts
from tilewright.halide.schedulers.analytic.grouping import Group
from tilewright.halide.schedulers.diversity import LEAST_SHARE

# Points of a thread along x and y that every large group is tried with, before their neighbours.
FIRST_POINTS = ((1, 4), (2, 2))
# Bounds of a block's threads that are tried at the end.
THREADS = (512, 256, 128, 64)

Points = tuple[int, ...]
POINT_DIMENSIONS = 2
Change = Callable[[TimedGroup], Options | None]


@dataclass(frozen=True, eq=False)
class TimedSchedule:
    """A schedule as groups with their plans, in the order they run in, and its seconds."""

    groups: tuple[TimedGroup, ...]
    seconds: float

    def share(self, each: TimedGroup) -> float:
        """Return the share of the time that a group takes, about."""
        return each.seconds / self.seconds


class TimeSearch:
    """Chooses groups, points per thread and tiles by predicted time."""

    def __init__(self, times: GroupTimes, first: Options) -> None:
        self.times = times
        self.search = times.search
        self.first = first
        self._order = self.search.algorithm.order
        self._tried: dict[Group, list[TimedGroup]] = {}
        self._whole: list[TimedSchedule] = []

    def best(self) -> TimedSchedule | None:
        """Return the fastest schedule; None if a group has no plan."""
        merged = self._start(self.first)
        alone = replace(self.first, mode="none")
        single = self._start(alone) if merged is None else self._apart(merged, alone)
        self._whole = [each for each in (merged, single) if each is not None]
        if not self._whole:
            return None
        now = self._whole[0]
        for points in FIRST_POINTS:
            now = self._changed(now, _with(points=points))
        if merged is not None and single is not None:
            now = self._divided(now, single)
        return self._refined(now)

    def others(
        self, best: TimedSchedule, options: Iterable[Options], count: int
    ) -> list[TimedSchedule]:
        """Return other schedules: all groups under other options, or one planned otherwise."""
        found = [*self._whole]
        for variation in options:
            made = self._start(variation)
            if made is not None:
                found.append(made)
        for each in self._large(best):
            now = each
            for _ in range(count):
                (other,) = self._timed([(now.group, _other_tile(now))])
                if other is None:
                    break
                now = other
            tried = sorted(self._tried[each.group], key=lambda other: other.seconds)
            new = {id(other.parts): other for other in tried if other.parts is not each.parts}
            for other in list(new.values())[:count]:
                kept = [group for group in best.groups if group is not each]
                found.append(self._made([*kept, other]))
        return found

    def runner_up(self, best: TimedSchedule) -> RunnerUp | None:
        """Return the fastest other schedule that was considered; None if there was none."""
        found = [
            (made.seconds, self._grouping(made))
            for made in self._whole
            if [each.group for each in made.groups] != [each.group for each in best.groups]
        ]
        for each in self._large(best):
            others = [other for other in self._tried[each.group] if other.parts is not each.parts]
            other = _fastest(others)
            if other is not None:
                kept = [group for group in best.groups if group is not each]
                difference = f"{readable(each.group.output)} with {_difference(other, each)}"
                found.append((self._made([*kept, other]).seconds, difference))
        # Where the first is not the fastest, registers stood against the others.
        slower = [each for each in found if each[0] >= best.seconds]
        return RunnerUp(*min(slower)) if slower else None

    def _grouping(self, made: TimedSchedule) -> str:
        count = len(made.groups)
        if all(len(each.group.members) == 1 for each in made.groups):
            return "every Func in a kernel of its own"
        if made is self._whole[-1] and len(self._whole) > 1:
            return "every Func of the large groups in a kernel of its own"
        return f"the {count} {'group' if count == 1 else 'groups'} of least cost (Sioutas 2020)"

    def planned(self, made: TimedSchedule) -> PlannedSchedule:
        """Return a schedule with a report on every kernel; costs are predicted seconds."""
        plans = [each.plan for each in made.groups]
        planned = assemble(self.search.analysis, self.search.model, plans, self.first)
        seconds = {
            (part.output, part.stage): part.seconds for part in self.times.times(made.groups)
        }
        groups = tuple(
            replace(report, cost=seconds.get((report.output, report.stage), 0.0))
            for report in planned.groups
        )
        return replace(planned, groups=groups, cost=made.seconds)

    def tiled(self, groups: Iterable[Group]) -> TimedSchedule | None:
        """Return the fastest schedule with these groups; None if one has no plan."""
        timed = self._timed((group, self.first) for group in groups)
        if None in timed:
            return None
        return self._refined(self._made([each for each in timed if each]))

    # --- groups -------------------------------------------------------------------------------

    def _start(self, options: Options) -> TimedSchedule | None:
        groups = self.search.groups(options)
        timed = self._timed((group, options) for group in groups)
        return None if None in timed else self._made([each for each in timed if each])

    def _apart(self, made: TimedSchedule, options: Options) -> TimedSchedule | None:
        """Return a schedule with its large groups taken apart; None if a Func has no plan."""
        large = [each for each in self._large(made) if len(each.group.members) > 1]
        names = {name for each in large for name in each.group.members}
        groups = [group for group in self.search.groups(options) if group.output in names]
        timed = self._timed((group, options) for group in groups)
        if None in timed:
            return None
        kept = [each for each in made.groups if each not in large]
        return self._made([*kept, *(each for each in timed if each)])

    def _divided(self, now: TimedSchedule, single: TimedSchedule) -> TimedSchedule:
        """Return a schedule with its large groups as they are, taken apart, or cut in two."""
        alone = {each.group.output: each for each in single.groups}
        for each in self._large(now):
            if len(each.group.members) > 1:
                cut = self._cut(now, each, 0)
                apart = self._better(now, each, [alone.get(name) for name in each.group.members])
                now = min(cut, apart, key=lambda made: made.seconds)
        return now

    def _cut(self, now: TimedSchedule, each: TimedGroup, depth: int) -> TimedSchedule:
        """Return the schedule with a group in two where that is faster, and these again."""
        if depth >= SEARCH.most_cuts or each not in now.groups:
            return now
        for groups in cuts(self.search.model, each.plan, each.group)[: SEARCH.tried_cuts]:
            if self._left(SEARCH.cutting_effort) < len(each.group.members):
                return now
            plain = self._timed((group, self.first) for group in groups)
            alike = self._timed((group, each.options) for group in groups)
            fastest = [_fastest(pair) for pair in zip(plain, alike, strict=True)]
            found = self._better(now, each, fastest)
            if found is not now:
                for part in fastest:
                    if part is not None and len(part.group.members) > 1:
                        found = self._cut(found, part, depth + 1)
                return found
        return now

    def _better(
        self, now: TimedSchedule, old: TimedGroup, new: Iterable[TimedGroup | None]
    ) -> TimedSchedule:
        """Return the schedule with a group replaced, if that is faster and all is planned."""
        parts = list(new)
        kept = [each for each in now.groups if each is not old]
        made = self._made([*kept, *(part for part in parts if part is not None)])
        return made if None not in parts and made.seconds < now.seconds else now

    # --- points and tiles ---------------------------------------------------------------------

    def _refined(self, now: TimedSchedule) -> TimedSchedule:
        """Return the same groups with the fastest points per thread, fusion and tiles."""
        for points in FIRST_POINTS:
            now = self._changed(now, _with(points=points))
        for _ in range(SEARCH.point_steps):
            before = now
            for at in range(2 * POINT_DIMENSIONS):
                now = self._changed(now, partial(_neighbour, at=at))
            if now is before:
                break
        for threads in THREADS:
            now = self._changed(now, _with(max_threads=threads))
            now = self._changed(now, _with(points=(), max_threads=threads))
        for steps in SEARCH.most_steps:
            now = self._changed(now, _reduced(steps))
            # Fewer sums may pay only with more steps, more steps only with fewer sums.
            for points in SEARCH.reduced_points:
                now = self._changed(now, _reduced(steps, points))
        if self.first.mode == "nested":
            now = self._changed(now, _with(mode="overlapped"))
        for _ in range(SEARCH.other_tiles):
            now = self._changed(now, _other_tile)
        return now

    def _changed(self, now: TimedSchedule, change: Change) -> TimedSchedule:
        """Return the schedule with every large group under other options where that is faster."""
        large, wanted, stages = [], [], 0
        for each in self._large(now):
            options = change(each)
            if options is None or options == each.options:
                continue
            stages += len(each.group.members)
            if stages <= self._left(SEARCH.most_timed):
                large.append(each)
                wanted.append((each.group, options))
        found = self._timed(wanted)
        faster = {
            each: other
            for each, other in zip(large, found, strict=True)
            if other is not None and other.seconds < each.seconds and _in_registers(other, each)
        }
        if not faster:
            return now
        made = self._made([faster.get(each, each) for each in now.groups])
        return made if made.seconds < now.seconds else now

    # --- times --------------------------------------------------------------------------------

    def _large(self, now: TimedSchedule) -> list[TimedGroup]:
        """Return the groups that take a share of the time that matters, the largest first."""
        large = [each for each in now.groups if now.share(each) >= LEAST_SHARE]
        return sorted(large, key=lambda each: -each.seconds)

    def _left(self, most: int) -> int:
        return most - self.times.spent

    def _timed(self, wanted: Iterable[tuple[Group, Options]]) -> list[TimedGroup | None]:
        found = self.times.timed(wanted)
        for each in found:
            if each is not None:
                self._tried.setdefault(each.group, []).append(each)
        return found

    def _made(self, groups: Iterable[TimedGroup]) -> TimedSchedule:
        ordered = tuple(sorted(groups, key=lambda each: self._order[each.group.output]))
        return TimedSchedule(ordered, sum(part.seconds for part in self.times.times(ordered)))


def _in_registers(other: TimedGroup, each: TimedGroup) -> bool:
    """Return whether `other` is expected to keep its values in registers, as far as `each` does."""
    return other.registers <= max(each.registers, SEARCH.most_estimated_registers)


def _fastest(timed: Iterable[TimedGroup | None]) -> TimedGroup | None:
    return min((each for each in timed if each), key=lambda each: each.seconds, default=None)


def _difference(other: TimedGroup, each: TimedGroup) -> str:
    """Return how a plan of a group differs from another, in words."""
    theirs, ours = points_of(other.plan), points_of(each.plan)
    if theirs != ours:
        return f"{_by(theirs)} points per thread, not {_by(ours)}"
    tiles = [_by(plan.kernels[-1].tile) for plan in (other.plan, each.plan)]
    if tiles[0] != tiles[1]:
        return f"tiles of {tiles[0]}, not {tiles[1]}"
    return (
        "members in shared memory, not in threads"
        if each.plan.kernels[-1].nested
        else ("members in threads, not in shared memory")
    )


def _by(extents: Iterable[int]) -> str:
    return "x".join(map(str, extents)) or "1"


def _with(**changes: Any) -> Change:
    """Return the change of a group's options to others in some fields."""
    return lambda each: replace(each.options, **changes)


def points_of(plan: GroupPlan) -> Points:
    """Return the points that a thread computes along x and y in the last parallel kernel."""
    parallel = [kernel for kernel in plan.kernels if kernel.kind == "parallel"]
    if not parallel:
        return ()
    threads = parallel[-1].kernel.roles.threads[:POINT_DIMENSIONS]
    return tuple(parallel[-1].registers[i] for i in threads)


def _neighbour(each: TimedGroup, at: int) -> Options | None:
    """Return options with twice, or half, the points along x or y; None beyond the limits."""
    points = [*points_of(each.plan)]
    dimension, half = divmod(at, 2)
    if dimension >= len(points) or (half and points[dimension] == 1):
        return None
    points[dimension] = points[dimension] // 2 if half else points[dimension] * 2
    within = points[dimension] <= SEARCH.most_points[dimension]
    if not within or math.prod(points) > SEARCH.most_register_tile:
        return None
    return replace(each.options, points=tuple(points))


def _reduced(steps: int, points: Points | None = None) -> Change:
    """Return the change to more iterations of a reduction together, where there is one.

    Points per thread are as they were, or `points`.
    """

    def change(each: TimedGroup) -> Options | None:
        stages = (
            each.plan.kernels[-1].kernel.analysis.view.stages(name) for name in each.group.members
        )
        reduces = any(stage.rvars for own in stages for stage in own)
        shape = each.options.points if points is None else points
        return replace(each.options, steps=steps, points=shape) if reduces else None

    return change


def _other_tile(each: TimedGroup) -> Options:
    """Return the options of a group with tiles unlike the present ones."""
    tiles = [
        (kernel.kernel.output, kernel.kernel.stage.index, kernel.tile)
        for kernel in each.plan.kernels
        if kernel.tile
    ]
    return replace(each.options, unlike=(*each.options.unlike, *tiles))
