"""From a graph and a machine to a plan: which task runs where and when."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from tilewright.mapping.bound import lower_bound
from tilewright.mapping.exact import SearchTimeout, optimum
from tilewright.mapping.graph import Graph, GraphTask, MappingError
from tilewright.mapping.heft import heft, peft
from tilewright.mapping.improve import improve
from tilewright.mapping.instance import Instance, Predictor, TaskSchedule, instance, simulate
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
    predicted times). `interval` has the makespans of this placement and order, in seconds, if all
    times are at the lower, or at the upper, ends of the models' intervals; None if no model has
    intervals. `unsure` names tasks whose time is a guess: their sizes are outside the training
    range of their device's model.
    """

    graph: Graph
    platform: Platform
    steps: tuple[PlanStep, ...]
    bound: float
    proven: bool
    method: str
    interval: tuple[float, float] | None = None
    unsure: tuple[str, ...] = ()

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
            "interval": None if self.interval is None else list(self.interval),
            "unsure": list(self.unsure),
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
    robust: bool = False,
) -> MappingPlan:
    """Place the tasks of `graph` on the devices of `platform` for a small makespan.

    Args:
        graph: tasks, what they need, and how much data travels.
        platform: devices and links.
        predict: seconds of a task on a device if the task itself has none (see `predictor`);
            None or infinity where the device cannot run it.
        method: ``heft`` and ``peft`` are list schedules; ``search`` improves the better of them
            by local search; ``exact`` is an optimum, for a dozen tasks; ``auto`` searches, and
            proves the optimum of small graphs.
        seed: the seed of the local search.
        robust: minimise the longest makespan that the models' intervals allow instead of the
            expected one. Needs a `predictor`, or tasks with their seconds.

    Raises:
        MappingError: a task that no device can run, or a graph too large for ``exact``.
    """
    if method not in METHODS:
        raise MappingError(f"there is no method {method!r}; use one of {', '.join(METHODS)}")
    problem = instance(graph, platform, predict)
    models = predict if isinstance(predict, ModelPredictor) else None
    low, high = (
        problem if models is None else instance(graph, platform, partial(models.end, i))
        for i in (0, 1)
    )
    aim = high if robust else problem
    schedule, proven = _schedule(aim, method, seed, lower_bound(aim))
    if robust:
        schedule = simulate(problem, schedule.order, schedule.device)
        proven = False
    bound = schedule.makespan if proven else lower_bound(problem)
    least, most = (simulate(p, schedule.order, schedule.device).makespan for p in (low, high))
    steps = [
        PlanStep(problem.names[t], problem.devices[schedule.device[t]], start, schedule.end[t])
        for start, t in sorted((schedule.start[t], t) for t in schedule.order)
    ]
    unsure = [s.task for s in steps if models and models.unsure(graph[s.task], s.device)]
    proven = proven or schedule.makespan <= bound * (1 + 1e-6)
    return MappingPlan(
        graph,
        platform,
        tuple(steps),
        bound,
        proven,
        method,
        (least, most) if least < most else None,
        tuple(unsure),
    )


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


@dataclass(frozen=True)
class ModelPredictor:
    """Seconds of tasks by models, with their intervals and warnings: see `predictor`."""

    models: Mapping[tuple[str, str], Any]
    coverage: float = 0.9

    def __call__(self, task: GraphTask, device: str) -> float | None:
        """Return predicted seconds, None where the device has no model of the kernel."""
        model = self.models.get((task.kernel, device))
        if model is None:
            return None
        seconds = float(model.predict([dict(task.query)])[0])
        return seconds if math.isfinite(seconds) else None

    def end(self, which: int, task: GraphTask, device: str) -> float | None:
        """Return the lower (0) or upper (1) end of a task's interval, in seconds.

        It is the prediction itself for models without intervals.
        """
        seconds = self(task, device)
        model: Any = self.models.get((task.kernel, device))
        if seconds is None or getattr(model, "calibration_", None) is None:
            return seconds
        bounds = model.predict_interval([dict(task.query)], self.coverage)
        end = float(bounds[which][0])
        return end if math.isfinite(end) else seconds

    def unsure(self, task: GraphTask, device: str) -> bool:
        """Return whether a task without seconds lies outside the training range of its model."""
        model = self.models.get((task.kernel, device))
        if device in task.seconds or model is None:
            return False
        asked = (getattr(model, name, None) for name in ("outside", "unsure"))
        return any(bool(ask([dict(task.query)])[0]) for ask in asked if ask is not None)


def predictor(models: Mapping[tuple[str, str], Any], coverage: float = 0.9) -> ModelPredictor:
    """Return seconds of tasks by models, one for each (kernel, device's name).

    A model has ``predict`` for rows by name, as the estimators of `tilewright.prediction` do;
    intervals of `coverage` and warnings come from those that have them. A device without a model
    of a task's kernel cannot run it.

    >>> class Constant:
    ...     def predict(self, rows):
    ...         return [2.0 for _ in rows]
    >>> predictor({("matmul", "cpu"): Constant()})(GraphTask("a", kernel="matmul"), "cpu")
    2.0
    """
    return ModelPredictor(dict(models), coverage)
