"""A lower bound on the makespan of all plans.

| symbol | meaning | shape, unit |
|---|---|---|
| `heads[t][d]` | earliest start of task t on device d | seconds |
| `tails[t][d]` | time that must follow the end of t on d | seconds |
| h, q | a head and a tail that bound the work of a device | seconds |
| x | share of each task on each device | tasks x devices, 0 to 1 |
| y | difference of the shares of both ends of an edge | edges x devices |
| `unit` | length of the longest path, the unit of time in the programme | seconds |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from tilewright.mapping.heft import optimistic_costs
from tilewright.mapping.instance import Instance

# The number of heads and of tails that are combined in the bounds on the devices' work.
_LEVELS = 16


def lower_bound(problem: Instance) -> float:
    """Return a lower bound on the makespan of every schedule, in seconds.

    The bound is the optimum of a linear programme in which tasks may be split over devices and
    start at any time. Three constraints remain. A task starts after those it needs, and half of the
    difference between their shares is moved. Its successors must fit after it. A device has time
    for the work that it gets: the work of the tasks that cannot start on it before h, and that are
    followed by at least q, fits between h and the makespan minus q.
    """
    if not problem.count:
        return 0.0
    heads, tails = _heads(problem), optimistic_costs(problem)
    longest = max(
        min(h + c + r for h, c, r in zip(*rows, strict=True))
        for rows in zip(heads, problem.cost, tails, strict=True)
    )
    return max(longest, _relaxed(problem, heads, tails, longest))


def _heads(problem: Instance) -> list[list[float]]:
    """Return the earliest time at which each task can start on each device."""
    devices = range(len(problem.devices))
    heads = [[0.0] * len(devices) for _ in range(problem.count)]
    for t in range(problem.count):
        for d in devices:
            heads[t][d] = max(
                (
                    min(heads[p][e] + problem.cost[p][e] + moves[e][d] for e in devices)
                    for p, moves in problem.before[t]
                ),
                default=0.0,
            )
    return heads


class _Rows:
    """Inequalities: a sum of coefficients times variables is at most the right side."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, float]] = []
        self.right: list[float] = []

    def add(self, right: float, terms: Sequence[tuple[int, float]]) -> None:
        self.entries += [(len(self.right), column, value) for column, value in terms]
        self.right.append(right)

    def matrix(self, columns: int) -> Any:
        rows, cols, values = zip(*self.entries, strict=True)
        return coo_array((values, (rows, cols)), shape=(len(self.right), columns)).tocsr()


@dataclass(frozen=True)
class _Relaxation:
    """The linear programme's inequalities, row by row.

    Variables, in this order: share x of each task on each device; start of each task;
    difference y of the shares of both ends of each edge on each device; the makespan. Times are in
    units of the longest path, so that the solver sees numbers near one.

    Args:
        problem: the tasks and devices.
        heads: earliest start of each task on each device, seconds.
        tails: seconds that must follow each task on each device.
        longest: seconds of the longest path through the graph.
    """

    problem: Instance
    heads: list[list[float]]
    tails: list[list[float]]
    longest: float

    @property
    def unit(self) -> float:
        """The unit of time, in seconds."""
        return self.longest or 1.0

    @property
    def devices(self) -> range:
        """The devices' numbers."""
        return range(len(self.problem.devices))

    @cached_property
    def cost(self) -> list[list[float]]:
        """Time of each task on each device; 0 if it cannot run there, as its share is 0."""
        return [[c / self.unit if math.isfinite(c) else 0.0 for c in r] for r in self.problem.cost]

    @cached_property
    def edges(self) -> list[tuple[int, int, Any]]:
        """Producer, consumer, and seconds to move the result between each two devices."""
        count = self.problem.count
        return [(p, t, moves) for t in range(count) for p, moves in self.problem.before[t]]

    @property
    def starts(self) -> int:
        """The column of the first task's start."""
        return self.problem.count * len(self.devices)

    @property
    def makespan(self) -> int:
        """The column of the makespan, which is the last one."""
        return self.starts + self.problem.count + len(self.edges) * len(self.devices)

    def share(self, t: int, d: int) -> int:
        """Return the column of a task's share on a device."""
        return t * len(self.devices) + d

    def time_tasks(self, rows: _Rows) -> None:
        """Require that a task starts after its head, and its tail ends before the makespan."""
        for t in range(self.problem.count):
            start = self.starts + t
            after = [
                (self.share(t, d), self.cost[t][d] + self.tails[t][d] / self.unit)
                for d in self.devices
            ]
            before = [(self.share(t, d), self.heads[t][d] / self.unit) for d in self.devices]
            rows.add(0.0, [(start, 1.0), *after, (self.makespan, -1.0)])
            rows.add(0.0, [(start, -1.0), *before])

    def order_tasks(self, rows: _Rows) -> None:
        """Require that a task starts after those it needs; half of the difference is moved."""
        first = self.starts + self.problem.count
        for i, (p, t, moves) in enumerate(self.edges):
            run = [(self.share(p, d), self.cost[p][d]) for d in self.devices]
            apart = (c for a, row in enumerate(moves) for b, c in enumerate(row) if a != b)
            least = min(apart, default=0)
            differences = [first + i * len(self.devices) + d for d in self.devices]
            moved = [(y, 0.5 * least / self.unit) for y in differences]
            ends = [(self.starts + p, 1.0), *run, *moved, (self.starts + t, -1.0)]
            rows.add(0.0, ends)
            for d, y in zip(self.devices, differences, strict=True):
                mine, theirs = self.share(p, d), self.share(t, d)
                rows.add(0.0, [(mine, 1.0), (theirs, -1.0), (y, -1.0)])
                rows.add(0.0, [(theirs, 1.0), (mine, -1.0), (y, -1.0)])

    def fill_devices(self, rows: _Rows) -> None:
        """Require that a device's work fits between the heads and the tails of its tasks."""
        for d in self.devices:
            heads, tails = [row[d] for row in self.heads], [row[d] for row in self.tails]
            for head, tail in product(_levels(heads), _levels(tails)):
                # Beyond the longest path, a device without any of these tasks could be idle.
                if head + tail > self.longest:
                    continue
                inside = [
                    t for t in range(self.problem.count) if heads[t] >= head and tails[t] >= tail
                ]
                if inside:
                    work = [(self.share(t, d), self.cost[t][d]) for t in inside]
                    rows.add(-(head + tail) / self.unit, [*work, (self.makespan, -1.0)])


def _relaxed(
    problem: Instance, heads: list[list[float]], tails: list[list[float]], longest: float
) -> float:
    """Return the least makespan of the linear programme in seconds; 0 if the solver finds none."""
    relaxation = _Relaxation(problem, heads, tails, longest)
    rows = _Rows()
    relaxation.time_tasks(rows)
    relaxation.order_tasks(rows)
    relaxation.fill_devices(rows)
    columns = relaxation.makespan + 1
    shares = np.arange(relaxation.starts)
    sums = coo_array(
        (np.ones(len(shares)), (shares // len(relaxation.devices), shares)),
        shape=(problem.count, columns),
    )
    able = [math.isfinite(c) for row in problem.cost for c in row]
    bounds: list[tuple[float, float | None]] = [(0.0, 1.0 if a else 0.0) for a in able]
    bounds += [(0.0, None)] * (columns - relaxation.starts)
    target = np.zeros(columns)
    target[relaxation.makespan] = 1.0
    found = linprog(
        target,
        A_ub=rows.matrix(columns),
        b_ub=rows.right,
        A_eq=sums.tocsr(),
        b_eq=np.ones(problem.count),
        bounds=bounds,
        method="highs",
    )
    # Less the solver's tolerance; without a solution, the longest path is the bound.
    return float(found.fun) * relaxation.unit * (1 - 1e-7) if found.success else 0.0


def _levels(values: Sequence[float]) -> list[float]:
    """Return a few of the values, zero among them, evenly spread by rank."""
    distinct = sorted({0.0, *(v for v in values if math.isfinite(v))})
    if len(distinct) <= _LEVELS:
        return distinct
    return [distinct[round(i * (len(distinct) - 1) / (_LEVELS - 1))] for i in range(_LEVELS)]
