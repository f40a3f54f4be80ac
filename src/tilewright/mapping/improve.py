"""Local search from a list schedule: move a task to another device or another place.

Simulated annealing over orders and placements. A neighbour moves one task, most often one on the
critical path. It is simulated from the first changed position, and abandoned as soon as the later
tasks can no longer end in time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from tilewright.mapping.heft import optimistic_costs
from tilewright.mapping.instance import Instance, TaskSchedule, simulate

# Share of the moves that take a task of the critical path.
_CRITICAL = 0.7
# Temperatures relative to the makespan: the first of each annealing, and the last of all. High ones
# rearrange small graphs, low ones gain the last percent on large graphs.
_HOT, _COLD = (0.2, 0.05, 0.02), 0.0005


def improve(
    problem: Instance,
    starts: Sequence[TaskSchedule],
    *,
    moves: int | None = None,
    seed: int = 0,
    bound: float = 0.0,
) -> TaskSchedule:
    """Return the best schedule found by annealing, `starts` included.

    The first annealing begins with the best of `starts`, each further one with the best so far.
    `moves` is the total number of moves (default: 12000 plus 450 per task). The search ends early
    at `bound`, a lower bound of all makespans. The same seed gives the same schedule.
    """
    best = min(starts, key=lambda s: s.makespan)
    moves = 12000 + 450 * problem.count if moves is None else moves
    for i, hot in enumerate(_HOT):
        if best.makespan <= bound * (1 + 1e-9):
            break
        rng = random.Random(f"{seed}, {i}")
        best = _Annealing(problem, best, rng).run(moves // len(_HOT), hot, bound)
    return best


class _Annealing:
    def __init__(self, problem: Instance, start: TaskSchedule, rng: random.Random) -> None:
        self.problem, self.rng = problem, rng
        self.rest = optimistic_costs(problem)
        self.able = [[d for d, c in enumerate(row) if math.isfinite(c)] for row in problem.cost]
        self._take(list(start.order), list(start.device), list(start.end), 0)
        self.best = start

    def _take(self, order: list[int], device: list[int], end: list[float], at: int) -> None:
        """Make this the current schedule; nothing before place `at` has changed."""
        self.order, self.device, self.end = order, device, end
        self.makespan = max(end)
        self.place = [0] * len(order)
        if at == 0:
            self.free: list[list[float]] = [[0.0] * len(self.problem.devices)]
        free = list(self.free[at])
        del self.free[at + 1 :]
        for i, t in enumerate(order):
            self.place[t] = i
            if i >= at:
                free[device[t]] = end[t]
                self.free.append(list(free))
        self.path = self._critical()

    def _critical(self) -> list[int]:
        """Return tasks that each start when the next one in the list ends or its data arrive."""
        end, device, cost = self.end, self.device, self.problem.cost
        t = max(range(len(end)), key=end.__getitem__)
        path = [t]
        while True:
            d = device[t]
            start = end[t] - cost[t][d]
            if start <= 1e-12 * self.makespan:
                return path
            slack = 1e-9 * self.makespan
            previous = -1
            for p, moves in self.problem.before[t]:
                if end[p] + moves[device[p]][d] >= start - slack:
                    previous = p
                    break
            if previous < 0:
                for i in range(self.place[t] - 1, -1, -1):
                    if device[self.order[i]] == d:
                        previous = self.order[i]
                        break
            if previous < 0:
                return path
            t = previous
            path.append(t)

    def run(self, moves: int, hot: float, bound: float) -> TaskSchedule:
        cooling = (_COLD / hot) ** (1 / max(1, moves))
        temperature = hot * self.makespan
        for _ in range(moves):
            temperature *= cooling
            limit = self.makespan - temperature * math.log(1 - self.rng.random())
            self._try(limit)
            if self.makespan < self.best.makespan * (1 - 1e-12):
                self.best = simulate(self.problem, self.order, self.device)
                if self.makespan <= bound * (1 + 1e-9):
                    break
        return self.best

    def _try(self, limit: float) -> None:
        """Move a task; take the new schedule if its makespan is at most `limit`."""
        random_ = self.rng.random
        order, place = self.order, self.place
        if random_() < _CRITICAL:
            t = self.path[int(random_() * len(self.path))]
        else:
            t = int(random_() * len(order))
        able = self.able[t]
        d = able[int(random_() * len(able))]
        low = max((place[p] + 1 for p, _ in self.problem.before[t]), default=0)
        high = min((place[s] - 1 for s, _ in self.problem.after[t]), default=len(order) - 1)
        old = place[t]
        new = low + int(random_() * (high - low + 1))
        if new == old and d == self.device[t]:
            return
        moved = list(order)
        del moved[old]
        moved.insert(new, t)
        at = min(old, new)
        device = list(self.device)
        device[t] = d
        end = self._simulate(moved, device, at, limit)
        if end is not None:
            self._take(moved, device, end, at)

    def _simulate(
        self, order: list[int], device: list[int], at: int, limit: float
    ) -> list[float] | None:
        """Return the ends of the tasks, or None if the makespan exceeds `limit`."""
        cost, before, rest = self.problem.cost, self.problem.before, self.rest
        end, free = list(self.end), list(self.free[at])
        for t in order[at:]:
            d = device[t]
            begin = free[d]
            for p, moves in before[t]:
                come = end[p] + moves[device[p]][d]
                if come > begin:
                    begin = come
            begin += cost[t][d]
            if begin + rest[t][d] > limit:
                return None
            end[t] = free[d] = begin
        return end
