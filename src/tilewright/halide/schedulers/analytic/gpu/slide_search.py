"""Search for kernels whose members slide along z, among groups that were planned without.

Each group, and each group together with its only reader, is tried in a few shapes. The fastest of
them is scaled step by step, as long as the predicted time falls. A group is replaced if the
schedule becomes faster.

| symbol | meaning | unit |
|---|---|---|
| shape | the tile along x, y and z, points per thread along y, and planes per iteration | count |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.halide.schedulers.analytic.gpu.changes import within
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.gpu.group_times import TimedGroup
from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
from tilewright.halide.schedulers.analytic.gpu.merging import only_readers
from tilewright.halide.schedulers.analytic.gpu.plan import Options
from tilewright.halide.schedulers.analytic.grouping import Group

if TYPE_CHECKING:
    from tilewright.halide.schedulers.analytic.gpu.time_search import TimedSchedule

Shape = tuple[int, ...]
# Shapes that every group is tried with (chosen).
_SHAPES: tuple[Shape, ...] = (
    (32, 8, 16, 1, 1),
    (32, 8, 16, 1, 2),
    (32, 8, 32, 1, 4),
    (64, 4, 16, 1, 2),
)
# Factors of a shape that are tried in turn (chosen).
_FACTORS: tuple[tuple[float, ...], ...] = (
    (1, 1, 2, 1, 1),
    (1, 1, 0.5, 1, 1),
    (1, 2, 1, 1, 1),
    (1, 0.5, 1, 1, 1),
    (2, 1, 1, 1, 1),
    (0.5, 1, 1, 1, 1),
    (2, 0.5, 1, 1, 1),
    (0.5, 2, 1, 1, 1),
    (1, 1, 1, 1, 2),
    (1, 1, 1, 1, 0.5),
    (1, 2, 1, 2, 1),
)


class SlideSearch:
    """Replaces groups of a schedule by such kernels.

    Args:
        search: The search for the plan of a group.
        first: The options that plans start from.
        timed: Predicts the time of a group under options; None if it has no plan.
        made: Returns the schedule of some groups.
    """

    def __init__(
        self,
        search: GroupingSearch,
        first: Options,
        timed: Callable[[Group, Options], TimedGroup | None],
        made: Callable[[Iterable[TimedGroup]], TimedSchedule],
    ) -> None:
        self.search = search
        self.first = first
        self.timed = timed
        self.made = made
        self._left = SEARCH.sliding_effort

    def best(
        self, now: TimedSchedule, large: Callable[[TimedSchedule], list[TimedGroup]]
    ) -> TimedSchedule:
        """Return the schedule with kernels that slide wherever it becomes faster.

        `large` returns the groups of a schedule that take a relevant share of its time.
        """
        if self.first.mode == "none" or self.first.any_size:
            return now
        tried: set[Group] = set()
        while True:
            wanted = [each for each in self._wanted(now, large(now)) if each[0] not in tried]
            if not wanted:
                return now
            group, old = wanted[0]
            tried.add(group)
            found = self._fastest(group, old)
            if found is not None:
                made = self.made([*(each for each in now.groups if each not in old), found])
                # Times of kernels with and without barriers are harder to compare.
                gain = SEARCH.merged_sliding_gain if len(old) > 1 else 1.0
                now = made if gain * made.seconds < now.seconds else now

    def _wanted(
        self, now: TimedSchedule, large: list[TimedGroup]
    ) -> Iterator[tuple[Group, list[TimedGroup]]]:
        """Yield the groups that can slide, with those of the schedule that they replace.

        A group without planes along z, or with several stages, is none of them.
        """
        for each in large:
            if self._slides(each.group):
                yield each.group, [each]
        for producer, reader, group in only_readers(self.search.view, now.groups):
            if (producer in large or reader in large) and self._slides(group):
                yield group, [producer, reader]

    def _slides(self, group: Group) -> bool:
        if len(group.members) < 2 or len(self.search.view.stages(group.output)) != 1:
            return False
        return bool(self.search.kernels.kernel(group, 0).sliding)

    def _fastest(self, group: Group, old: list[TimedGroup]) -> TimedGroup | None:
        """Return the fastest plan of a group that is not expected to spill; None without one."""
        limit = max(SEARCH.most_estimated_registers, *(each.registers for each in old))
        lone = any(each.lone for each in old)
        known: dict[Shape, TimedGroup | None] = {}

        def seconds(shape: Shape) -> float:
            if shape not in known:
                known[shape] = self._planned(group, shape, old)
            found = known[shape]
            if found is None or found.registers > limit or (found.lone and not lone):
                return float("inf")
            return found.seconds

        extents = self._extents(group)
        shapes = {tuple(map(min, shape, (*extents, *shape[len(extents) :]))) for shape in _SHAPES}
        now = min(sorted(shapes), key=seconds)
        improved = True
        while improved:
            improved = False
            for factors in _FACTORS:
                other = tuple(int(n * f) for n, f in zip(now, factors, strict=True))
                if seconds(other) < seconds(now):
                    now, improved = other, True
        return known[now] if seconds(now) < float("inf") else None

    def _extents(self, group: Group) -> tuple[int, ...]:
        kernel = self.search.kernels.kernel(group, 0)
        return tuple(kernel.extents[i] for i in kernel.roles.threads)

    def _planned(self, group: Group, shape: Shape, old: list[TimedGroup]) -> TimedGroup | None:
        """Return the plan of a group with a shape; None if there is none or no effort is left."""
        *tile, rows, planes = shape
        points = (1, rows, planes)
        smallest, most = SEARCH.least_walked, SEARCH.most_walked
        if not (within(points) and 1 <= planes <= SEARCH.most_planes and min(tile) >= 1):
            return None
        if not smallest <= tile[-1] <= most or self._left < len(group.members):
            return None
        kernel = self.search.kernels.kernel(group, 0)
        whole = self._others(old, group)
        for i, extent in zip(kernel.roles.threads, tile, strict=True):
            whole[i] = extent
        place = group.output, 0, tuple(whole)
        options = replace(self.first, points=points, tiles=(place,), planes=planes)
        self._left -= len(group.members)
        return self.timed(group, options)

    def _others(self, old: list[TimedGroup], group: Group) -> list[int]:
        """Return the tile that the output has now; 1 along each loop without one."""
        for each in old:
            for kernel in each.plan.kernels:
                if kernel.kernel.output == group.output and kernel.tile:
                    return list(kernel.tile)
        return [1] * len(self.search.kernels.kernel(group, 0).extents)
