"""From a graph and a machine to a plan: which task runs where and when."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tilewright.mapping.bound import lower_bound
from tilewright.mapping.exact import SearchTimeout, optimum
from tilewright.mapping.graph import Graph, GraphTask, MappingError
from tilewright.mapping.heft import heft, peft
from tilewright.mapping.improve import improve
from tilewright.mapping.instance import Instance, Predictor, TaskSchedule, instance
from tilewright.mapping.platform import Platform

Method = Literal["auto", "search", "heft", "peft", "exact"]
METHODS: tuple[Method, ...] = ("auto", "search", "heft", "peft", "exact")
# `auto` proves the optimum of graphs up to this many tasks, within this time.
_SMALL, _PROOF_SECONDS = 9, 2.0


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One task of a plan, from `start` to `end` seconds."""

    task: str
    device: str
    start: float
    end: float


@dataclass(frozen=True)
class MappingPlan:
    """Steps in the order of their start; on each device they run in this order.

    `bound` is a makespan that no plan can beat, `proven` says that this one is optimal (by the
    predicted times).
    """

    graph: Graph
    platform: Platform
    steps: tuple[PlanStep, ...]
    bound: float
    proven: bool
    method: str

    @property
    def makespan(self) -> float:
        """Predicted seconds from the first start to the last end."""
        return max((s.end for s in self.steps), default=0.0)

    def on(self, device: str) -> tuple[PlanStep, ...]:
        """Return the steps of a device, in order."""
        return tuple(s for s in self.steps if s.device == device)

    def device_of(self, task: str) -> str:
        """Return where a task runs."""
        return next(s.device for s in self.steps if s.task == task)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "makespan": self.makespan,
            "bound": self.bound,
            "proven": self.proven,
            "method": self.method,
            "steps": [
                {"task": s.task, "device": s.device, "start": s.start, "end": s.end}
                for s in self.steps
            ],
            "platform": self.platform.to_dict(),
            **self.graph.to_dict(),
        }


def plan(
    graph: Graph,
    platform: Platform,
    predict: Predictor | None = None,
    *,
    method: Method = "auto",
    seed: int = 0,
) -> MappingPlan:
    """Place the tasks of `graph` on the devices of `platform` for a small makespan.

    Args:
        graph: tasks, what they need, and how much data travels.
        platform: devices and links.
        predict: seconds of a task on a device, where the task does not say (see `predictor`);
            None or infinity where the device cannot run it.
        method: ``heft`` and ``peft`` are list schedules; ``search`` improves the better of them
            by local search; ``exact`` is an optimum, for a dozen tasks; ``auto`` searches, and
            proves the optimum of small graphs.
        seed: the seed of the local search.

    Raises:
        MappingError: a task that no device can run, or a graph too large for ``exact``.
    """
    if method not in METHODS:
        raise MappingError(f"there is no method {method!r}; use one of {', '.join(METHODS)}")
    problem = instance(graph, platform, predict)
    bound = lower_bound(problem)
    schedule, proven = _schedule(problem, method, seed, bound)
    if proven:
        bound = schedule.makespan
    steps = [
        PlanStep(
            problem.names[t],
            problem.devices[schedule.device[t]],
            schedule.start[t],
            schedule.end[t],
        )
        for t in sorted(schedule.order, key=lambda t: (schedule.start[t], t))
    ]
    proven = proven or schedule.makespan <= bound * (1 + 1e-6)
    return MappingPlan(graph, platform, tuple(steps), bound, proven, method)


def _schedule(
    problem: Instance, method: Method, seed: int, bound: float
) -> tuple[TaskSchedule, bool]:
    if not problem.count:
        return TaskSchedule((), (), (), ()), True
    if method == "heft":
        return heft(problem), False
    if method == "peft":
        return peft(problem), False
    found = improve(problem, [heft(problem), peft(problem)], seed=seed, bound=bound)
    if method == "exact":
        try:
            return optimum(problem, found), True
        except SearchTimeout as error:
            raise MappingError(f"{error}: use method='search'") from None
    if method == "auto" and problem.count <= _SMALL:
        try:
            return optimum(problem, found, seconds=_PROOF_SECONDS), True
        except SearchTimeout:
            return found, False
    return found, False


def predictor(models: Mapping[tuple[str, str], Any]) -> Predictor:
    """Return seconds of tasks by models, one for each (kernel, device's name).

    A model has ``predict`` for rows by name, as the estimators of `tilewright.prediction` do.
    A device without a model of a task's kernel cannot run it.

    >>> class Constant:
    ...     def predict(self, rows):
    ...         return [2.0 for _ in rows]
    >>> predictor({("matmul", "cpu"): Constant()})(GraphTask("a", kernel="matmul"), "cpu")
    2.0
    """

    def predict(task: GraphTask, device: str) -> float | None:
        model = models.get((task.kernel, device))
        if model is None:
            return None
        seconds = float(model.predict([dict(task.query)])[0])
        return seconds if math.isfinite(seconds) else None

    return predict
