"""A workload: kernels that need each other's results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.errors import TilewrightError


class MappingError(TilewrightError):
    """A graph or a machine cannot be planned; the message says what to change."""


@dataclass(frozen=True, slots=True)
class GraphTask:
    """One kernel's run.

    `seconds` has its time on each device that can run it, by the device's name. `kernel` and
    `query` (the kernel's parameters) are the inputs of a model for devices without `seconds`.
    `result_bytes` is the size of the result, `input_bytes` that of the operands that no other task
    produces, which are on the machine's home device. `returned` says that the result is needed
    there.
    """

    name: str
    seconds: Mapping[str, float] = field(default_factory=dict, hash=False)
    kernel: str = ""
    query: Mapping[str, float] = field(default_factory=dict, hash=False)
    result_bytes: float = 0.0
    input_bytes: float = 0.0
    returned: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """`target` needs the result of `source`; `bytes` (default: all of it) are moved."""

    source: str
    target: str
    bytes: float | None = None


@dataclass(frozen=True)
class Graph:
    """Tasks and their dependencies.

    Raises:
        MappingError: a repeated name, an edge to an unknown task, or a cycle.

    >>> graph = Graph((GraphTask("a"), GraphTask("b")), (Edge("a", "b"),))
    >>> graph.order
    ('a', 'b')
    """

    tasks: tuple[GraphTask, ...]
    edges: tuple[Edge, ...] = ()
    order: tuple[str, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tasks", tuple(self.tasks))
        object.__setattr__(self, "edges", tuple(self.edges))
        names = [t.name for t in self.tasks]
        twice = {n for n in names if names.count(n) > 1}
        if twice:
            raise MappingError(f"{sorted(twice)[0]!r} names two tasks: give each its own name")
        for e in self.edges:
            for end in (e.source, e.target):
                if end not in names:
                    raise MappingError(
                        f"the edge {e.source!r} to {e.target!r} names no task: there is no {end!r}"
                    )
            _check(e.bytes or 0.0, f"the bytes of the edge {e.source!r} to {e.target!r}")
        for task in self.tasks:
            _check(task.result_bytes, f"result_bytes of {task.name!r}")
            _check(task.input_bytes, f"input_bytes of {task.name!r}")
        object.__setattr__(self, "order", _topological(names, self.edges))

    def __getitem__(self, name: str) -> GraphTask:
        for task in self.tasks:
            if task.name == name:
                return task
        raise KeyError(name)

    def bytes_of(self, edge: Edge) -> float:
        """Return the bytes that an edge moves if its ends are on different devices."""
        return self[edge.source].result_bytes if edge.bytes is None else edge.bytes

    def needs(self, name: str) -> tuple[str, ...]:
        """Return the tasks whose results a task takes, in the order of its edges."""
        return tuple(e.source for e in self.edges if e.target == name)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; `graph_from_dict` reads it back."""
        tasks = []
        for t in self.tasks:
            row: dict[str, Any] = {"name": t.name}
            if t.kernel:
                row["kernel"] = t.kernel
            if t.query:
                row["query"] = dict(t.query)
            if t.seconds:
                row["seconds"] = dict(t.seconds)
            for key in ("result_bytes", "input_bytes"):
                if getattr(t, key):
                    row[key] = getattr(t, key)
            if t.returned:
                row["returned"] = True
            row["needs"] = [
                e.source if e.bytes is None else {"task": e.source, "bytes": e.bytes}
                for e in self.edges
                if e.target == t.name
            ]
            tasks.append(row)
        return {"tasks": tasks}


def graph_from_dict(data: Any) -> Graph:
    """Read a graph from plain data.

    ``{"tasks": [{"name": "a", "seconds": {"cpu": 1e-3}, "result_bytes": 8000},
    {"name": "b", "kernel": "matmul", "query": {"m": 64, "n": 64, "k": 64}, "needs": ["a"]}]}``;
    an element of `needs` may be ``{"task": "a", "bytes": 100}``.

    Raises:
        MappingError: data of another form.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("tasks"), list):
        raise MappingError('not a graph: it must be a JSON object with a list "tasks"')
    tasks, edges = [], []
    known = {"name", "seconds", "kernel", "query", "result_bytes", "input_bytes", "returned"}
    for row in data["tasks"]:
        if not isinstance(row, Mapping) or not isinstance(row.get("name"), str):
            raise MappingError(f'a task is an object with a "name", not {row!r}')
        unknown = set(row) - known - {"needs"}
        if unknown:
            raise MappingError(
                f"task {row['name']!r}: {sorted(unknown)[0]!r} is unknown; there are "
                + ", ".join(sorted(known | {"needs"}))
            )
        for key in ("seconds", "query"):
            values = row.get(key, {})
            if not isinstance(values, Mapping) or not all(map(_is_number, values.values())):
                raise MappingError(f"task {row['name']!r}: {key!r} is an object of numbers")
        early = [device for device, s in row.get("seconds", {}).items() if s < 0]
        if early:
            raise MappingError(
                f"task {row['name']!r}: {row['seconds'][early[0]]} seconds on {early[0]!r}; give 0 "
                "or more"
            )
        for key in ("result_bytes", "input_bytes"):
            if not _is_number(row.get(key, 0)):
                raise MappingError(f"task {row['name']!r}: {key!r} is a number")
        if (
            not isinstance(row.get("kernel", ""), str)
            or type(row.get("returned", False)) is not bool
        ):
            raise MappingError(
                f"task {row['name']!r}: 'kernel' is a name and 'returned' true or false"
            )
        tasks.append(GraphTask(**{k: v for k, v in row.items() if k in known}))
        edges += _needs(row)
    return Graph(tuple(tasks), tuple(edges))


def _needs(row: Mapping[str, Any]) -> list[Edge]:
    """Return the edges that end in a task."""
    needs = row.get("needs", [])
    if not isinstance(needs, list):
        raise MappingError(f"task {row['name']!r}: 'needs' is a list of names, not {needs!r}")
    edges = []
    for need in needs:
        if isinstance(need, str):
            edges.append(Edge(need, row["name"]))
        elif (
            isinstance(need, Mapping)
            and isinstance(need.get("task"), str)
            and (need.get("bytes") is None or _is_number(need["bytes"]))
        ):
            edges.append(Edge(need["task"], row["name"], need.get("bytes")))
        else:
            raise MappingError(f'task {row["name"]!r}: "needs" lists names, not {need!r}')
    return edges


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check(value: float, what: str) -> None:
    if not math.isfinite(value) or value < 0:
        raise MappingError(f"{what} is {value}: give a number of bytes from 0")


def _topological(names: list[str], edges: Iterable[Edge]) -> tuple[str, ...]:
    """Return Kahn's topological order; raise MappingError for a cycle."""
    after: dict[str, list[str]] = {name: [] for name in names}
    waiting = dict.fromkeys(names, 0)
    for edge in edges:
        after[edge.source].append(edge.target)
        waiting[edge.target] += 1
    ready = [name for name in names if not waiting[name]]
    for name in ready:  # grows during the loop
        for follower in after[name]:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    if len(ready) < len(names):
        stuck = next(name for name in names if waiting[name])
        raise MappingError(f"the tasks depend on each other in a cycle, among them {stuck!r}")
    return tuple(ready)
