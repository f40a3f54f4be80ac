"""The optimum of a small graph, by branch and bound."""

from __future__ import annotations

import math
import time

from tilewright.mapping.heft import optimistic_costs
from tilewright.mapping.instance import Instance, TaskSchedule, simulate


class SearchTimeout(Exception):
    """The search did not end within its time."""


def optimum(problem: Instance, start: TaskSchedule, *, seconds: float = 60.0) -> TaskSchedule:
    """Return a schedule of least makespan; a good `start` schedule makes the search faster.

    Tasks are placed in the order of their start times; every schedule in which no task can start
    earlier has such an order. A branch is pruned if the remaining tasks cannot end before the best
    known schedule, judged by the longest path after each task on its best devices, and by the
    remaining work over all devices.

    Raises:
        TooLarge: no proof within `seconds`; about a dozen tasks are feasible.
    """
    search = _Search(problem, start, time.monotonic() + seconds)
    search.branch(0.0, [0.0] * len(problem.devices), 0.0)
    return search.best


class _Search:
    def __init__(self, problem: Instance, start: TaskSchedule, deadline: float) -> None:
        count = problem.count
        self.problem, self.best, self.deadline = problem, start, deadline
        self.rest = optimistic_costs(problem)
        self.least = [min(row) for row in problem.cost]
        self.waiting = [len(problem.before[t]) for t in range(count)]
        self.order: list[int] = []
        self.device, self.end = [-1] * count, [0.0] * count
        self.left = sum(self.least)
        self.steps = 0

    def branch(self, last: float, free: list[float], longest: float) -> None:
        self.steps += 1
        if self.steps % 4096 == 0 and time.monotonic() > self.deadline:
            raise SearchTimeout(f"{self.problem.count} tasks are too many for an exact optimum")
        problem = self.problem
        if len(self.order) == problem.count:
            if longest < self.best.makespan * (1 - 1e-12):
                self.best = simulate(problem, self.order, self.device)
            return
        best = self.best.makespan * (1 - 1e-12)
        # No later task starts before `last`, so a device idle until then stays so.
        begins = [max(f, last) for f in free]
        if (sum(begins) + self.left) / len(free) >= best:
            return
        choices = []
        for t in range(problem.count):
            if self.waiting[t] or self.device[t] >= 0:
                continue
            soonest = math.inf
            for d, cost in enumerate(problem.cost[t]):
                if math.isinf(cost):
                    continue
                begin = free[d]
                for p, moves in problem.before[t]:
                    begin = max(begin, self.end[p] + moves[self.device[p]][d])
                through = max(begin, last) + cost + self.rest[t][d]
                soonest = min(soonest, through)
                if begin >= last and through < best:
                    choices.append((through, t, d, begin))
            if soonest >= best:
                return
        choices.sort()
        for through, t, d, begin in choices:
            if through >= self.best.makespan * (1 - 1e-12):
                break
            end = begin + problem.cost[t][d]
            kept = free[d]
            free[d] = end
            self.device[t], self.end[t] = d, end
            self.order.append(t)
            self.left -= self.least[t]
            for s, _ in problem.after[t]:
                self.waiting[s] -= 1
            self.branch(begin, free, max(longest, end))
            for s, _ in problem.after[t]:
                self.waiting[s] += 1
            self.left += self.least[t]
            self.order.pop()
            self.device[t] = -1
            free[d] = kept
