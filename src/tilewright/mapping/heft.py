"""List scheduling on heterogeneous devices: HEFT, and PEFT, which looks one task ahead.

Sources: Topcuoglu, Hariri, Wu, Performance-effective and low-complexity task scheduling for
heterogeneous computing, IEEE TPDS 13(3), 2002 (HEFT); Arabnejad, Barbosa, List scheduling
algorithm for heterogeneous systems by an optimistic cost table, IEEE TPDS 25(3), 2014 (PEFT).

| symbol | meaning | shape, unit |
|---|---|---|
| t, p, s | a task, a task that it needs, a task that needs it | index |
| d, e | devices | index |
| `cost[t][d]` | time of task t on device d, infinite if it cannot run there | seconds |
| `moves[d][e]` | time to move an edge's data from d to e | seconds |
| `ranks[t]` | priority: mean length of the longest path to the end | seconds |
| `table[t][d]` | least time from the end of t on d to the end of all (OCT) | seconds |
| `start`, `end` | of each task in the schedule | seconds |
"""

from __future__ import annotations

import math

from tilewright.mapping.instance import Instance, TaskSchedule, by_start


def upward_ranks(problem: Instance) -> list[float]:
    """Return the mean length of the longest path from each task to the end (HEFT, equation 8)."""
    ranks = [0.0] * problem.count
    for t in reversed(range(problem.count)):
        able = [c for c in problem.cost[t] if math.isfinite(c)]
        tail = max((_mean(moves) + ranks[s] for s, moves in problem.after[t]), default=0.0)
        ranks[t] = sum(able) / len(able) + tail
    return ranks


def optimistic_costs(problem: Instance) -> list[list[float]]:
    """Return the least time from each task's end to the end, by its device (PEFT, equation 4)."""
    count, devices = problem.count, range(len(problem.devices))
    table = [[0.0] * len(devices) for _ in range(count)]
    for t in reversed(range(count)):
        for d in devices:
            table[t][d] = max(
                (
                    min(table[s][e] + problem.cost[s][e] + moves[d][e] for e in devices)
                    for s, moves in problem.after[t]
                ),
                default=0.0,
            )
    return table


def heft(problem: Instance) -> TaskSchedule:
    """Schedule by HEFT: by decreasing upward rank, each task where it ends first, also in a gap."""
    return _by_priority(problem, upward_ranks(problem), None)


def peft(problem: Instance) -> TaskSchedule:
    """Schedule by PEFT: like HEFT, but by each task's end plus its optimistic remaining time."""
    table = optimistic_costs(problem)
    ranks = []
    for t in range(problem.count):
        rows = [r for r, c in zip(table[t], problem.cost[t], strict=True) if math.isfinite(c)]
        ranks.append(sum(rows) / len(rows))
    return _by_priority(problem, ranks, table)


def _by_priority(
    problem: Instance, ranks: list[float], rest: list[list[float]] | None
) -> TaskSchedule:
    count = problem.count
    waiting = [len(problem.before[t]) for t in range(count)]
    ready = [t for t in range(count) if not waiting[t]]
    busy: list[list[tuple[float, float]]] = [[] for _ in problem.devices]
    device, start, end = [0] * count, dict[int, float](), [0.0] * count
    while ready:
        t = max(ready, key=lambda t: (ranks[t], -t))
        ready.remove(t)
        best = math.inf
        for d, cost in enumerate(problem.cost[t]):
            if math.isinf(cost):
                continue
            come = max((end[p] + m[device[p]][d] for p, m in problem.before[t]), default=0.0)
            begin = _gap(busy[d], come, cost)
            value = begin + cost + (0.0 if rest is None else rest[t][d])
            if value < best:
                best, device[t], start[t] = value, d, begin
        d = device[t]
        end[t] = start[t] + problem.cost[t][d]
        busy[d].append((start[t], end[t]))
        busy[d].sort()
        for s, _ in problem.after[t]:
            waiting[s] -= 1
            if not waiting[s]:
                ready.append(s)
    return by_start(problem, device, start)


def _gap(busy: list[tuple[float, float]], come: float, cost: float) -> float:
    """Return the earliest time from `come` on at which `cost` seconds are free."""
    begin = come
    for from_, to in busy:
        if begin + cost <= from_:
            return begin
        begin = max(begin, to)
    return begin


def _mean(moves: tuple[tuple[float, ...], ...]) -> float:
    """Return the mean time between different devices."""
    between = [c for a, row in enumerate(moves) for b, c in enumerate(row) if a != b]
    return sum(between) / len(between) if between else 0.0
