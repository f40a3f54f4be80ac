"""A graph on a machine as numbers, and the times of an order and a placement."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.mapping.graph import Graph, GraphTask, MappingError
from tilewright.mapping.platform import Platform

Predictor = Callable[[GraphTask, str], float | None]
_Row = tuple[float, ...]


@dataclass(frozen=True)
class Instance:
    """Tasks by number, in a topological order.

    `cost[t][d]` is the time of task t on device d (infinite if it cannot run), including its
    transfers from and to the machine's home device. `before[t]` has (task, c) pairs: the tasks it
    needs, with ``c[d][e]`` the time from device d to e; `after[t]` the same for those that need it.
    """

    names: tuple[str, ...]
    devices: tuple[str, ...]
    cost: tuple[_Row, ...]
    before: tuple[tuple[tuple[int, tuple[_Row, ...]], ...], ...]
    after: tuple[tuple[tuple[int, tuple[_Row, ...]], ...], ...]

    @property
    def count(self) -> int:
        """The number of tasks."""
        return len(self.names)


def instance(graph: Graph, platform: Platform, predict: Predictor | None = None) -> Instance:
    """Number the tasks; `predict(task, device name)` returns times that the graph lacks.

    It may return None or infinity for a device that cannot run the task.

    Raises:
        MappingError: a task that no device can run, or a time that is not a positive number.
    """
    names = graph.order
    index = {name: i for i, name in enumerate(names)}
    devices = platform.names
    cost = tuple(tuple(_cost(graph[n], d, platform, predict) for d in devices) for n in names)
    for name, row in zip(names, cost, strict=True):
        if all(math.isinf(c) for c in row):
            raise MappingError(
                f"no device can run {name!r}: give its seconds for one of {', '.join(devices)}"
            )
    before: list[list[tuple[int, tuple[_Row, ...]]]] = [[] for _ in names]
    after: list[list[tuple[int, tuple[_Row, ...]]]] = [[] for _ in names]
    for edge in graph.edges:
        size = graph.bytes_of(edge)
        moves = tuple(tuple(platform.transfer(a, b, size) for b in devices) for a in devices)
        source, target = index[edge.source], index[edge.target]
        before[target].append((source, moves))
        after[source].append((target, moves))
    return Instance(names, devices, cost, tuple(map(tuple, before)), tuple(map(tuple, after)))


def _cost(task: GraphTask, device: str, platform: Platform, predict: Predictor | None) -> float:
    seconds = task.seconds.get(device)
    if seconds is None and predict is not None:
        seconds = predict(task, device)
    if seconds is None or seconds == math.inf:
        return math.inf
    if not seconds >= 0:
        raise MappingError(f"{task.name!r} takes {seconds} seconds on {device!r}: check the model")
    moved = platform.transfer(platform.home, device, task.input_bytes)
    if task.returned:
        moved += platform.transfer(device, platform.home, task.result_bytes)
    return float(seconds) + moved


@dataclass(frozen=True, slots=True)
class TaskSchedule:
    """An order of the tasks, a device for each (by task), and the resulting times."""

    order: tuple[int, ...]
    device: tuple[int, ...]
    start: tuple[float, ...]
    end: tuple[float, ...]

    @property
    def makespan(self) -> float:
        """When the last task ends, in seconds."""
        return max(self.end, default=0.0)


def simulate(problem: Instance, order: Sequence[int], device: Sequence[int]) -> TaskSchedule:
    """Start each task, in `order`, as soon as its device is free and its operands have arrived.

    `order` must be topological. Every schedule in which no task can be moved ahead without
    changing an order is the simulation of some order and placement, an optimal one included.
    """
    start, end = [0.0] * problem.count, [0.0] * problem.count
    free = [0.0] * len(problem.devices)
    for t in order:
        d = device[t]
        begin = free[d]
        for p, moves in problem.before[t]:
            come = end[p] + moves[device[p]][d]
            if come > begin:
                begin = come
        start[t] = begin
        free[d] = end[t] = begin + problem.cost[t][d]
    return TaskSchedule(tuple(order), tuple(device), tuple(start), tuple(end))


def by_start(problem: Instance, device: Sequence[int], start: Mapping[int, float]) -> TaskSchedule:
    """Return the schedule whose tasks are ordered by start time."""
    rank = {t: i for i, t in enumerate(range(problem.count))}
    order = sorted(range(problem.count), key=lambda t: (start[t], rank[t]))
    return simulate(problem, order, device)
