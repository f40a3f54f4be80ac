"""How short no plan can be: a lower bound on the makespan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from tilewright.mapping.heft import optimistic_costs
from tilewright.mapping.instance import Instance

# How many heads and tails are combined in the bounds on the devices' work.
_LEVELS = 16


def lower_bound(problem: Instance) -> float:
    """Seconds below which no schedule can end.

    A linear programme in which tasks may be shared out over devices and start at any time.
    What remains true: a task starts after those it needs, half of the distance between their
    shares being moved; what follows it must fit behind it; and a device does what is given to
    it. Of the tasks that cannot start on a device before h, and behind which q must follow,
    the work given to the device fits between h and the makespan less q.
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
    """The earliest time at which each task can start on each device."""
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


def _relaxed(
    problem: Instance,
    heads: list[list[float]],
    tails: list[list[float]],
    longest: float,
) -> float:
    count, devices = problem.count, len(problem.devices)
    # In units of the longest way, so that the solver sees numbers near one.
    unit = longest or 1.0
    cost = [[c / unit if math.isfinite(c) else 0.0 for c in row] for row in problem.cost]
    edges = [(p, t, moves) for t in range(count) for p, moves in problem.before[t]]
    # The variables: shares, starts, differences of shares over edges, the makespan.
    start = count * devices
    first = start + count
    whole = first + len(edges) * devices
    rows = _Rows()

    def x(t: int, d: int) -> int:
        return t * devices + d

    for t in range(count):
        after = [(x(t, d), cost[t][d] + tails[t][d] / unit) for d in range(devices)]
        rows.add(0.0, [(start + t, 1.0), *after, (whole, -1.0)])
        rows.add(0.0, [(start + t, -1.0), *((x(t, d), heads[t][d] / unit) for d in range(devices))])
    for i, (p, t, moves) in enumerate(edges):
        run = [(x(p, d), cost[p][d]) for d in range(devices)]
        least = min((c for a, r in enumerate(moves) for b, c in enumerate(r) if a != b), default=0)
        moved = [(first + i * devices + d, 0.5 * least / unit) for d in range(devices)]
        rows.add(0.0, [(start + p, 1.0), *run, *moved, (start + t, -1.0)])
        for d in range(devices):
            y = first + i * devices + d
            rows.add(0.0, [(x(p, d), 1.0), (x(t, d), -1.0), (y, -1.0)])
            rows.add(0.0, [(x(t, d), 1.0), (x(p, d), -1.0), (y, -1.0)])
    for d in range(devices):
        for head in _levels([row[d] for row in heads]):
            for tail in _levels([row[d] for row in tails]):
                # Beyond the longest way a device without any of these tasks could be idle.
                if head + tail > longest:
                    continue
                inside = [t for t in range(count) if heads[t][d] >= head and tails[t][d] >= tail]
                if inside:
                    work = [(x(t, d), cost[t][d]) for t in inside]
                    rows.add(-(head + tail) / unit, [*work, (whole, -1.0)])
    shares = np.arange(count * devices)
    sums = coo_array((np.ones(len(shares)), (shares // devices, shares)), shape=(count, whole + 1))
    able = [math.isfinite(c) for row in problem.cost for c in row]
    bounds: list[tuple[float, float | None]] = [(0.0, 1.0 if a else 0.0) for a in able]
    bounds += [(0.0, None)] * (whole + 1 - start)
    target = np.zeros(whole + 1)
    target[whole] = 1.0
    found = linprog(
        target,
        A_ub=rows.matrix(whole + 1),
        b_ub=rows.right,
        A_eq=sums.tocsr(),
        b_eq=np.ones(count),
        bounds=bounds,
        method="highs",
    )
    # The solver's tolerance, on the safe side; without a solution the longest way stands.
    return float(found.fun) * unit * (1 - 1e-7) if found.success else 0.0


def _levels(values: Sequence[float]) -> list[float]:
    """A few of the values, zero among them, evenly spread by rank."""
    distinct = sorted({0.0, *(v for v in values if math.isfinite(v))})
    if len(distinct) <= _LEVELS:
        return distinct
    return [distinct[round(i * (len(distinct) - 1) / (_LEVELS - 1))] for i in range(_LEVELS)]
