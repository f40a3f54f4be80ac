"""A graph from a Python function that calls kernels."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.mapping.graph import Edge, Graph, GraphTask, MappingError

_active = threading.local()


@dataclass(frozen=True, slots=True, eq=False)
class TracedValue:
    """A placeholder for a kernel's result while a function is traced; `like` is shape data."""

    task: str
    like: Any


@dataclass
class Trace:
    """A traced function: its graph, and the work of each task (see `execute`).

    `work` maps each task to a function of the results it needs.
    """

    tasks: list[GraphTask] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    work: dict[str, Callable[..., Any]] = field(default_factory=dict)
    results: tuple[str, ...] = ()

    @property
    def graph(self) -> Graph:
        """The tasks and their dependencies."""
        return Graph(tuple(self.tasks), tuple(self.edges))


def kernel(
    name: str,
    query: Callable[..., Mapping[str, float]],
    result: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function a kernel: a normal call runs it, a call within `trace` records a task.

    Args:
        name: the name of the kernel, by which models are found.
        query: from the arguments to the kernel's parameters, e.g.
            ``lambda a, b: {"m": a.shape[0], "k": a.shape[1], "n": b.shape[1]}``.
        result: from the arguments to a stand-in for the result (only its shape, dtype and `nbytes`
            matter), without computing it. By default the kernel is run.

    >>> import numpy as np
    >>> @kernel("product", lambda a, b: {"n": len(a)}, lambda a, b: a)
    ... def product(a, b):
    ...     return a @ b
    >>> eye = np.eye(3)
    >>> trace(lambda a: product(product(a, a), a), eye).graph.order
    ('product 1', 'product 2')
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            traced: Trace | None = getattr(_active, "trace", None)
            if traced is None:
                return function(*args)
            return _note(traced, name, query, result, function, call, args)

        return call

    return decorate


def trace(function: Callable[..., Any], *args: Any) -> Trace:
    """Call `function` with its arguments and record the kernels that it calls.

    The function's control flow must depend only on `args`, not on the kernels' results.

    Raises:
        MappingError: traced within another trace, or no kernel was called.
    """
    if getattr(_active, "trace", None) is not None:
        raise MappingError("a function is being traced already: trace one at a time")
    traced = Trace()
    _active.trace = traced
    try:
        returned = function(*args)
    finally:
        _active.trace = None
    if not traced.tasks:
        raise MappingError("the function called no kernel: decorate its kernels with @kernel")
    outputs = returned if isinstance(returned, tuple | list) else [returned]
    traced.results = tuple(v.task for v in outputs if isinstance(v, TracedValue))
    traced.tasks = [
        GraphTask(t.name, t.seconds, t.kernel, t.query, t.result_bytes, t.input_bytes, True)
        if t.name in traced.results
        else t
        for t in traced.tasks
    ]
    return traced


def _note(
    traced: Trace,
    name: str,
    query: Callable[..., Mapping[str, float]],
    result: Callable[..., Any] | None,
    function: Callable[..., Any],
    call: Callable[..., Any],
    args: tuple[Any, ...],
) -> TracedValue:
    likes = [a.like if isinstance(a, TracedValue) else a for a in args]
    task = f"{name} {1 + sum(t.kernel == name for t in traced.tasks)}"
    # A kernel called by a kernel is part of it.
    _active.trace = None
    try:
        like = function(*likes) if result is None else result(*likes)
        asked = {k: float(v) for k, v in query(*likes).items()}
    finally:
        _active.trace = traced
    given = sum(_bytes(a) for a in args if not isinstance(a, TracedValue))
    traced.tasks.append(
        GraphTask(task, kernel=name, query=asked, result_bytes=_bytes(like), input_bytes=given)
    )
    needed = [a.task for a in args if isinstance(a, TracedValue)]
    sources = list(dict.fromkeys(needed))
    traced.edges += [Edge(source, task) for source in sources]
    places = [sources.index(a.task) if isinstance(a, TracedValue) else None for a in args]
    traced.work[task] = functools.partial(_call, call, places, list(args))
    return TracedValue(task, like)


def _call(
    function: Callable[..., Any], places: list[int | None], args: list[Any], *results: Any
) -> Any:
    """Return the function with results in place of the placeholders."""
    filled = [a if p is None else results[p] for a, p in zip(args, places, strict=True)]
    return function(*filled)


def _bytes(value: Any) -> float:
    """Return the bytes of an array or a sparse matrix; 0 for numbers and the like."""
    size = getattr(value, "nbytes", None)
    if size is None:
        parts = (getattr(value, part, None) for part in ("data", "indices", "indptr"))
        size = sum(getattr(part, "nbytes", 0) for part in parts)
    return float(size)
