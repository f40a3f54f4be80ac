"""Search for the GPU schedule with the lowest predicted time.

The search starts from two schedules: the groups of greedy merging by the cost of Sioutas 2020, and
the same with the large groups split into one kernel per Func. A group is large if it takes a
relevant share of the time. Each large group is kept, cut in two or split completely, whichever is
predicted to be fastest. Then the points per thread and the tiles are chosen per group. Greedy
merging by time would stop too early, because two merges may only pay together.

The effort is bounded by the number of stages of the plans that are timed, not by seconds, so that
results are reproducible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from tilewright.halide.ir.names import readable
from tilewright.halide.ir.plan import PlannedSchedule, RunnerUp
from tilewright.halide.schedulers.analytic.gpu.assemble import assemble
from tilewright.halide.schedulers.analytic.gpu.changes import (
    POINT_DIMENSIONS,
    RESHAPES,
    Change,
    Factors,
    neighbour,
    other_tile,
    points_of,
    reduced,
    reshaped,
    with_options,
)
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH, GpuConstants
from tilewright.halide.schedulers.analytic.gpu.group_times import GroupTimes, TimedGroup
from tilewright.halide.schedulers.analytic.gpu.merging import merged_options, only_readers
from tilewright.halide.schedulers.analytic.gpu.plan import Options
from tilewright.halide.schedulers.analytic.gpu.recomputing import cuts
from tilewright.halide.schedulers.analytic.gpu.slide_search import SlideSearch
from tilewright.halide.schedulers.analytic.grouping import Group
from tilewright.halide.schedulers.diversity import LEAST_SHARE

# Points per thread along x and y that every large group is tried with first (chosen).
FIRST_POINTS = ((1, 4), (2, 2))
# Points per thread that groups which would spill are tried with at the end (chosen).
FEWER_POINTS = ((1, 2), (2, 1), (1, 1))
# Limits of the threads per block that are tried at the end (chosen).
THREADS = (512, 256, 128, 64)


@dataclass(frozen=True, eq=False)
class TimedSchedule:
    """A schedule as planned groups in execution order, and its predicted seconds."""

    groups: tuple[TimedGroup, ...]
    seconds: float

    def share(self, each: TimedGroup) -> float:
        """Return the approximate share of the time that a group takes."""
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
        self.grouped_seconds = math.inf

    def best(self, least: float = math.inf) -> TimedSchedule | None:
        """Return the fastest schedule; None if a group has no plan.

        Also None if the schedule takes `least` seconds or more before its points and tiles are
        refined (`grouped_seconds`), because most of the time of a search goes into that.
        """
        merged = self._start(self.first)
        alone = replace(self.first, mode="none")
        single = self._start(alone) if merged is None else self._apart(merged, alone)
        self._whole = [each for each in (merged, single) if each is not None]
        if not self._whole:
            return None
        now = self._whole[0]
        for points in FIRST_POINTS:
            now = self._changed(now, with_options(points=points))
        if merged is not None and single is not None:
            now = self._divided(now, single)
        now = self._merged(now)
        self.grouped_seconds = now.seconds
        return self._refined(now) if now.seconds < least else None

    def others(
        self, best: TimedSchedule, options: Iterable[Options], count: int
    ) -> list[TimedSchedule]:
        """Return alternative schedules.

        They comprise the schedules that the search started from, one schedule per entry of
        `options`, and up to `count` other plans of each large group of `best`.
        """
        found = [*self._whole]
        for variation in options:
            made = self._start(variation)
            if made is not None:
                found.append(made)
        for each in self.large(best):
            now = each
            for _ in range(count):
                (other,) = self._timed([(now.group, other_tile(now))])
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
        """Return the next fastest schedule that was considered; None if there is none."""
        found = [
            (made.seconds, self._grouping(made))
            for made in self._whole
            if [each.group for each in made.groups] != [each.group for each in best.groups]
        ]
        for each in self.large(best):
            others = [other for other in self._tried[each.group] if other.parts is not each.parts]
            other = _fastest(others)
            if other is not None:
                kept = [group for group in best.groups if group is not each]
                difference = f"{readable(each.group.output)} with {_difference(other, each)}"
                found.append((self._made([*kept, other]).seconds, difference))
        # Faster ones were rejected because their kernels were expected to spill registers.
        slower = [each for each in found if each[0] >= best.seconds]
        return RunnerUp(*min(slower)) if slower else None

    def _grouping(self, made: TimedSchedule) -> str:
        count = len(made.groups)
        if all(len(each.group.members) == 1 for each in made.groups):
            return "every Func in a kernel of its own"
        if made is self._whole[-1] and len(self._whole) > 1:
            return "every Func of the large groups in a kernel of its own"
        return f"the {count} {'group' if count == 1 else 'groups'} of least cost (Sioutas 2020)"

    def large(self, now: TimedSchedule) -> list[TimedGroup]:
        """Return the groups with at least `LEAST_SHARE` of the time, the slowest first."""
        large = [each for each in now.groups if now.share(each) >= LEAST_SHARE]
        return sorted(large, key=lambda each: -each.seconds)

    def retimed(self, made: TimedSchedule, constants: GpuConstants) -> TimedSchedule:
        """Return the schedule with its predicted time by other constants."""
        parts = self.times.times_by(made.groups, constants)
        return replace(made, seconds=sum(part.seconds for part in parts))

    def planned(
        self, made: TimedSchedule, constants: GpuConstants | None = None
    ) -> PlannedSchedule:
        """Return the schedule with a report on every kernel; costs are predicted seconds.

        `constants` are those of the predictions, by default the search's.
        """
        plans = [each.plan for each in made.groups]
        planned = assemble(self.search.analysis, self.search.model, plans, self.first)
        parts = self.times.times_by(made.groups, constants or self.times.constants)
        seconds = {(part.output, part.stage): part.seconds for part in parts}
        groups = tuple(
            replace(report, cost=seconds.get((report.output, report.stage), 0.0))
            for report in planned.groups
        )
        return replace(planned, groups=groups, cost=made.seconds)

    def tiled(self, groups: Iterable[Group]) -> TimedSchedule | None:
        """Return the fastest schedule with the given groups; None if a group has no plan."""
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
        """Return a schedule with its large groups split completely; None if a Func has no plan."""
        large = [each for each in self.large(made) if len(each.group.members) > 1]
        names = {name for each in large for name in each.group.members}
        groups = [group for group in self.search.groups(options) if group.output in names]
        timed = self._timed((group, options) for group in groups)
        if None in timed:
            return None
        kept = [each for each in made.groups if each not in large]
        return self._made([*kept, *(each for each in timed if each)])

    def _divided(self, now: TimedSchedule, single: TimedSchedule) -> TimedSchedule:
        """Return a schedule with each large group kept, cut in two or split completely.

        `single` is the schedule with all large groups split completely.
        """
        alone = {each.group.output: each for each in single.groups}
        for each in self.large(now):
            if len(each.group.members) > 1:
                cut = self._cut(now, each, 0)
                apart = self._better(now, each, [alone.get(name) for name in each.group.members])
                now = min(cut, apart, key=lambda made: made.seconds)
        return now

    def _cut(self, now: TimedSchedule, each: TimedGroup, depth: int) -> TimedSchedule:
        """Return the schedule with a group cut in two if that is faster; cut the parts likewise."""
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

    def _merged(self, now: TimedSchedule) -> TimedSchedule:
        """Return the schedule with groups merged with their only readers where that is faster.

        Greedy merging by cost leaves groups apart that take less time together: the cost counts
        recomputation, but not what it saves with several points per thread.
        """
        most = self.times.spent + SEARCH.merging_effort
        refused: set[Group] = set()
        while True:
            pairs = [pair for pair in self._pairs(now) if pair[2] not in refused]
            if not pairs:
                return now
            producer, reader, group = pairs[0]
            refused.add(group)
            kept = [each for each in now.groups if each not in (producer, reader)]
            limit = max(producer.registers, reader.registers, SEARCH.most_estimated_registers)
            for changes in merged_options(self.search.analysis, group):
                if len(group.members) > self._left(most):
                    break
                (tried,) = self._timed([(group, replace(self.first, **changes))])
                if tried is not None and tried.registers <= limit:
                    made = self._made([*kept, tried])
                    if made.seconds < now.seconds:
                        now = made
                        break

    def _pairs(self, now: TimedSchedule) -> list[tuple[TimedGroup, TimedGroup, Group]]:
        """Return the groups to merge and both as a single group, the slowest first.

        Those that take too little time are omitted.
        """
        found = [
            pair
            for pair in only_readers(self.search.view, now.groups)
            if now.share(pair[0]) + now.share(pair[1]) >= LEAST_SHARE
        ]
        return sorted(found, key=lambda pair: -pair[0].seconds - pair[1].seconds)

    def _better(
        self, now: TimedSchedule, old: TimedGroup, new: Iterable[TimedGroup | None]
    ) -> TimedSchedule:
        """Return `now` with group `old` replaced by `new` if all have plans and that is faster."""
        parts = list(new)
        kept = [each for each in now.groups if each is not old]
        made = self._made([*kept, *(part for part in parts if part is not None)])
        return made if None not in parts and made.seconds < now.seconds else now

    # --- points and tiles ---------------------------------------------------------------------

    def _refined(self, now: TimedSchedule) -> TimedSchedule:
        """Return the same groups with the fastest points per thread, fusion and tiles."""
        for points in FIRST_POINTS:
            now = self._changed(now, with_options(points=points))
        for _ in range(SEARCH.point_steps):
            before = now
            for at in range(2 * POINT_DIMENSIONS):
                now = self._changed(now, partial(neighbour, at=at))
            if now is before:
                break
        for threads in THREADS:
            now = self._changed(now, with_options(max_threads=threads))
            now = self._changed(now, with_options(points=(), max_threads=threads))
        for steps in SEARCH.most_steps:
            now = self._changed(now, reduced(steps))
            # Try both together: fewer sums may pay only with more steps, and vice versa.
            for points in SEARCH.reduced_points:
                now = self._changed(now, reduced(steps, points))
        if self.first.mode == "nested":
            now = self._changed(now, with_options(mode="overlapped"))
        for _ in range(SEARCH.other_tiles):
            now = self._changed(now, other_tile)
        return self._unspilled(self._slid(self._reshaped(now)))

    def _slid(self, now: TimedSchedule) -> TimedSchedule:
        """Return the schedule with kernels whose members slide along z, where it is faster."""
        search = SlideSearch(
            self.search,
            self.first,
            lambda group, options: self._timed([(group, options)])[0],
            self._made,
        )
        return search.best(now, self.large)

    def _reshaped(self, now: TimedSchedule) -> TimedSchedule:
        """Return the schedule with tiles scaled step by step, as long as the time falls.

        A second start is each large group's fastest plan with other points or steps.
        """
        most = max(self.times.spent, SEARCH.most_timed) + SEARCH.reshaping_effort
        second = {each: self._alternative(each) for each in self.large(now)}
        found = self._climbed(now, most)
        other = self._climbed(self._made(second.get(each, each) for each in now.groups), most)
        faster = [
            b if b.seconds < a.seconds and _in_registers(b, a) else a
            for a, b in zip(found.groups, other.groups, strict=True)
        ]
        return min(found, self._made(faster), key=lambda made: made.seconds)

    def _alternative(self, each: TimedGroup) -> TimedGroup:
        """Return the fastest plan of a group with other points or steps; itself if none."""
        shape = points_of(each.plan), each.options.steps
        others = (
            other
            for other in self._tried[each.group]
            if (points_of(other.plan), other.options.steps) != shape and _in_registers(other, each)
        )
        return _fastest(others) or each

    def _climbed(self, now: TimedSchedule, most: int) -> TimedSchedule:
        for _ in range(SEARCH.tile_steps):
            before = now
            for tile, points in RESHAPES:
                change = partial(self._reshape, tile=tile, points=points)
                now = self._changed(now, change, most)
            if now is before:
                break
        return now

    def _reshape(self, each: TimedGroup, tile: Factors, points: Factors) -> Options | None:
        """Return options with the tile of the group's slowest kernel scaled."""
        slowest = max(self.times.times([each]), key=lambda part: part.seconds)
        return reshaped(each, slowest.stage, tile, points)

    def _changed(
        self, now: TimedSchedule, change: Change, most: int | None = None
    ) -> TimedSchedule:
        """Return the schedule with `change` applied to every large group that it makes faster.

        `most` is the effort after which nothing is tried, by default `SEARCH.most_timed`.
        """
        most = SEARCH.most_timed if most is None else most
        large, wanted, stages = [], [], 0
        for each in self.large(now):
            options = change(each)
            if options is None or options == each.options:
                continue
            stages += len(each.group.members)
            if stages <= self._left(most):
                large.append(each)
                wanted.append((each.group, options))
        found = self._timed(wanted)
        faster = {
            each: other
            for each, other in zip(large, found, strict=True)
            if other is not None
            and other.seconds < each.seconds
            and _in_registers(other, each)
            and (not other.options.tiles or _together(other, each))
        }
        if not faster:
            return now
        made = self._made([faster.get(each, each) for each in now.groups])
        return made if made.seconds < now.seconds else now

    # --- registers ----------------------------------------------------------------------------

    def _unspilled(self, now: TimedSchedule) -> TimedSchedule:
        """Return the schedule without plans that are expected to spill, where others exist.

        Such a plan is replaced by the fastest plan of its group that fits the registers. If there
        is none, the group is cut in two where the larger part has the fewest members: each needs
        registers for its sizes and addresses, and kernels with many are underestimated. The
        schedule may then take at most `SEARCH.spill_slack` of its time.
        """
        most = SEARCH.spill_slack * now.seconds
        effort = self.times.spent + SEARCH.unspilled_effort
        for each in now.groups:
            if _fits(each):
                continue
            kept = [group for group in now.groups if group is not each]
            for replacements in (
                self._fitting_plans(each, effort),
                self._fitting_cuts(each, effort),
            ):
                pairs = [(_largest(parts), self._made([*kept, *parts])) for parts in replacements]
                pairs = [(size, made) for size, made in pairs if made.seconds <= most]
                if pairs:
                    now = min(pairs, key=lambda pair: (pair[0], pair[1].seconds))[1]
                    break
        return now

    def _fitting_plans(self, each: TimedGroup, effort: int) -> Iterator[list[TimedGroup]]:
        """Yield the plans of a group that fit; none is tried after `effort` stages were counted."""
        changed = [replace(each.options, points=points) for points in FEWER_POINTS]
        changed += [replace(self.first, max_threads=threads) for threads in THREADS]
        for options in changed:
            if len(each.group.members) <= self._left(effort):
                self._timed([(each.group, options)])
        yield from ([other] for other in self._tried[each.group] if _fits(other))

    def _fitting_cuts(self, each: TimedGroup, effort: int) -> Iterator[list[TimedGroup]]:
        """Yield the parts of each cut of a group if all of them have plans that fit."""
        for groups in cuts(self.search.model, each.plan, each.group)[: SEARCH.unspilled_cuts]:
            if len(each.group.members) > self._left(effort):
                return
            plain = self._timed((group, self.first) for group in groups)
            alike = self._timed((group, each.options) for group in groups)
            pairs = zip(plain, alike, strict=True)
            fastest = [_fastest(part for part in pair if part and _fits(part)) for pair in pairs]
            parts = [part for part in fastest if part is not None]
            if len(parts) == len(groups):
                yield parts

    # --- times --------------------------------------------------------------------------------

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


def _fits(each: TimedGroup) -> bool:
    """Return whether a group's plan is not expected to spill registers."""
    return each.registers <= SEARCH.most_estimated_registers


def _largest(parts: Iterable[TimedGroup]) -> int:
    """Return the most Funcs that a group computes."""
    return max(len(part.group.members) for part in parts)


def _in_registers(other: TimedGroup, each: TimedGroup) -> bool:
    """Return whether `other` is not expected to spill registers, or no more than `each`."""
    return other.registers <= max(each.registers, SEARCH.most_estimated_registers)


def _together(other: TimedGroup, each: TimedGroup) -> bool:
    """Return whether an SM runs several blocks of `other` at once, or not of `each` either.

    The predicted time assumes that other blocks work while one waits at a barrier.
    """
    return each.lone or not other.lone


def _fastest(timed: Iterable[TimedGroup | None]) -> TimedGroup | None:
    return min((each for each in timed if each), key=lambda each: each.seconds, default=None)


def _difference(other: TimedGroup, each: TimedGroup) -> str:
    """Return in words how the plan of `other` differs from that of `each`."""
    slides = [any(kernel.sliding for kernel in plan.kernels) for plan in (other.plan, each.plan)]
    if slides[0] != slides[1]:
        return f"members that {'slide' if slides[0] else 'do not slide'} along z"
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
