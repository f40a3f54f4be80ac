"""Choose schedules that differ significantly, so that measuring several is worthwhile.

Two schedules are similar if all Funcs with a significant share of the time have the same compute
and store levels, loops and mappings, and the same tile and vector sizes up to a factor of about the
square root of two.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import FuncSchedule, Fuse, Split

# Schedules differ significantly if the groups that differ have this share of the predicted time.
LEAST_SHARE = 0.02


@dataclass
class Chosen:
    """The accepted schedules, which differ significantly, and a reserve of similar ones."""

    algorithm: Algorithm
    accepted: list[PlannedSchedule] = field(default_factory=list)
    reserve: list[PlannedSchedule] = field(default_factory=list)

    def offer(self, planned: PlannedSchedule) -> bool:
        """Accept a schedule unless it is similar to an accepted one; return whether it was."""
        here = (*self.accepted, *self.reserve)
        if any(planned.schedule == other.schedule for other in here):
            return False
        if not self.is_new(planned):
            self.reserve.append(planned)
            return False
        self.accepted.append(planned)
        return True

    def is_new(self, planned: PlannedSchedule) -> bool:
        """Return whether a schedule differs significantly from all accepted ones."""
        return all(differ(planned, other, self.algorithm) for other in self.accepted)

    def best(self, k: int) -> list[PlannedSchedule]:
        """Return up to `k` schedules in the order offered; the reserve comes last."""
        return [*self.accepted, *self.reserve][:k]


def differ(one: PlannedSchedule, other: PlannedSchedule, algorithm: Algorithm) -> bool:
    """Return whether two schedules of one pipeline differ significantly."""
    if one.schedule.clones != other.schedule.clones:
        return True
    left = {entry.func: choices(entry) for entry in one.schedule.funcs}
    right = {entry.func: choices(entry) for entry in other.schedule.funcs}
    changed = {func for func in left | right if left.get(func) != right.get(func)}
    if not changed:
        return False
    order = with_clones(algorithm, one.schedule.clones).order
    shares = [_share(planned, changed, order) for planned in (one, other)]
    return max(shares) >= LEAST_SHARE


def far_from(
    tiles: npt.NDArray[np.float64], others: Sequence[Sequence[int]]
) -> npt.NDArray[np.bool_]:
    """Return which of N tilings, shape (N, dimensions), differ from all others by a factor of two.

    >>> far_from(np.array([[8.0, 8.0], [12.0, 8.0], [12.0, 4.0]]), [(8, 8)])
    array([False, False,  True])
    """
    far = np.ones(len(tiles), dtype=bool)
    for sizes in others:
        far &= (np.abs(np.log2(tiles / np.asarray(sizes, dtype=np.float64))) >= 1.0).any(axis=1)
    return far


def choices(entry: FuncSchedule) -> Hashable:
    """Return the choices in a Func's schedule that distinguish schedules; factors are rounded."""
    stages = []
    for nest in entry.stages:
        changes: list[Hashable] = []
        for change in nest.splits:
            if isinstance(change, Split):
                changes.append((change.old, change.outer, round(math.log2(change.factor))))
            elif isinstance(change, Fuse):
                changes.append((change.inner, change.outer))
        loops = tuple((loop.name, loop.mapping) for loop in nest.loops)
        shared = nest.compute_with is not None
        stages.append((tuple(changes), loops, nest.atomic, nest.single_thread, shared))
    return entry.compute, entry.store, entry.memory, entry.storage_order, tuple(stages)


def _share(planned: PlannedSchedule, funcs: set[int], order: dict[str, int]) -> float:
    """Return the share of the predicted time of the groups that contain `funcs`; 1 if unknown."""
    costs = [group.cost for group in planned.groups]
    total = sum(costs)
    touched = [
        group.cost
        for group in planned.groups
        if any(order.get(name, -1) in funcs for name in group.funcs)
    ]
    if not math.isfinite(total) or total <= 0.0:
        return 1.0
    return sum(touched) / total
