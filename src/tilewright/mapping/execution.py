"""Runs a plan with the real kernels; each device is a worker pinned to its cores."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tilewright.mapping.graph import MappingError
from tilewright.mapping.planning import MappingPlan, PlanStep

_Function: TypeAlias = Callable[..., Any]
# By task, by task and device, or both.
Work: TypeAlias = (
    Mapping[str, _Function]
    | Mapping[tuple[str, str], _Function]
    | Mapping[str | tuple[str, str], _Function]
)


@dataclass(frozen=True)
class Execution:
    """The record of a run: when each task ran, in seconds from the beginning, and its result."""

    steps: tuple[PlanStep, ...]
    results: Mapping[str, Any]

    @property
    def makespan(self) -> float:
        """Seconds from the beginning to the last end."""
        return max((s.end for s in self.steps), default=0.0)


def execute(
    plan: MappingPlan,
    work: Work,
    *,
    workers: Literal["threads", "processes"] | Mapping[str, Executor] = "threads",
    keep: Literal["all", "last"] = "last",
) -> Execution:
    """Run every task on its device, as soon as it is its turn and its operands are available.

    Args:
        plan: the device of each task, and the order on each device.
        work: a function for each task, by name (or for each device, by (task, device)); it is
            called with the results of the tasks that the task needs, in the order of the
            graph's edges.
        workers: ``threads`` suit kernels that release the interpreter's lock (NumPy, SciPy,
            compiled code); ``processes`` any functions that can be pickled, whose operands and
            results are then copied between processes; or an executor for each device, with one
            worker. Workers are pinned to the device's cores and compute with as many threads.
        keep: whether `Execution.results` has every task's result, or only those that no other task
            reads.

    Raises:
        MappingError: a task without a function. An exception of a task is raised unchanged, once
            the running tasks have ended.
    """
    functions = {s.task: _function(work, s) for s in plan.steps}
    with contextlib.ExitStack() as stack:
        if isinstance(workers, Mapping):
            pools = dict(workers)
        else:
            if workers == "threads":
                stack.enter_context(_single_threaded(plan))
            pools = {
                d.name: stack.enter_context(_pool(workers, d.cores)) for d in plan.platform.devices
            }
        # Start-up (a process, its imports) is not part of the plan.
        for future in [pool.submit(os.getpid) for pool in pools.values()]:
            future.result()
        return _Run(plan, functions, pools, keep == "all").run()


def task_seconds(plan: MappingPlan, execution: Execution) -> dict[str, float]:
    """Return each task's seconds since its device was free and its operands were available.

    They include handing the task on and moving its operands between devices. Models for `predictor`
    are best trained on these times: cores share caches, memory and power, so a kernel that has the
    machine to itself is faster than in a plan.
    """
    end = {s.task: s.end for s in execution.steps}
    taken = {}
    for device in plan.platform.names:
        free = 0.0
        for step in (s for s in execution.steps if s.device == device):
            needed = [end[n] for n in plan.graph.needs(step.task)]
            taken[step.task] = step.end - max([free, *needed])
            free = step.end
    return taken


class _Run:
    """Tasks are handed on by the threads that finish others; the lock guards all state."""

    def __init__(
        self,
        plan: MappingPlan,
        functions: Mapping[str, Callable[..., Any]],
        pools: Mapping[str, Executor],
        keep: bool,
    ) -> None:
        self.plan, self.functions, self.pools, self.keep = plan, functions, pools, keep
        self.needs = {s.task: plan.graph.needs(s.task) for s in plan.steps}
        self.readers = dict.fromkeys(self.needs, 0)
        for sources in self.needs.values():
            for source in sources:
                self.readers[source] += 1
        self.queues = {d: list(plan.on(d)) for d in plan.platform.names}
        self.results: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}
        self.done: list[PlanStep] = []
        self.error: BaseException | None = None
        self.running = 0
        self.lock = threading.Lock()
        self.finished = threading.Event()

    def run(self) -> Execution:
        self.began = time.perf_counter()
        with self.lock:
            ready = self._take_ready()
            if not self.running:
                self.finished.set()
        self._submit(ready)
        self.finished.wait()
        if self.error is not None:
            raise self.error
        steps = sorted(self.done, key=lambda s: (s.start, s.end))
        return Execution(tuple(steps), self.kept)

    def _take_ready(self) -> list[tuple[PlanStep, list[Any]]]:
        """Return the first steps of device queues whose operands are available; holds the lock."""
        ready = []
        if self.error is None:
            for queue in self.queues.values():
                # Later tasks of the device may be submitted, too: its worker runs one at a time.
                while queue and all(n in self.results for n in self.needs[queue[0].task]):
                    step = queue.pop(0)
                    ready.append((step, [self.results[n] for n in self.needs[step.task]]))
        self.running += len(ready)
        return ready

    def _submit(self, ready: list[tuple[PlanStep, list[Any]]]) -> None:
        for step, operands in ready:
            future = self.pools[step.device].submit(_timed, self.functions[step.task], operands)
            future.add_done_callback(lambda f, step=step: self._ended(step, f))  # type: ignore[misc]

    def _ended(self, step: PlanStep, future: Future[Any]) -> None:
        ready: list[tuple[PlanStep, list[Any]]] = []
        with self.lock:
            error = future.exception()
            if error is not None:
                self.error = self.error or error
            else:
                start, end, result = future.result()
                self.done.append(
                    PlanStep(step.task, step.device, start - self.began, end - self.began)
                )
                self.results[step.task] = result
                for source in self.needs[step.task]:
                    self.readers[source] -= 1
                    if not self.readers[source]:
                        self.results[source] = None  # all its readers have run
                if self.keep or not self.readers[step.task]:
                    self.kept[step.task] = result
                ready = self._take_ready()
            self.running -= 1
            if not self.running:
                self.finished.set()
        self._submit(ready)


def _timed(function: Callable[..., Any], operands: list[Any]) -> tuple[float, float, Any]:
    # The same clock in every process of a machine.
    start = time.perf_counter()
    result = function(*operands)
    return start, time.perf_counter(), result


def _function(work: Work, step: PlanStep) -> Callable[..., Any]:
    functions: Mapping[Any, _Function] = work
    for key in ((step.task, step.device), step.task):
        if key in functions:
            return functions[key]
    raise MappingError(f"there is no function to run {step.task!r} with on {step.device!r}")


def _pool(workers: str, cores: tuple[int, ...]) -> Executor:
    if workers == "threads":
        return ThreadPoolExecutor(1, initializer=_pin, initargs=(cores, False))
    if workers == "processes":
        context = multiprocessing.get_context("forkserver")
        return ProcessPoolExecutor(1, context, initializer=_pin, initargs=(cores, True))
    raise MappingError(f"workers are 'threads', 'processes' or executors, not {workers!r}")


def _pin(cores: tuple[int, ...], process: bool) -> None:
    """Keep this thread (and those it starts) on the cores."""
    if cores:
        os.sched_setaffinity(0, cores)
        if process:
            import numpy  # noqa: F401  (loads the library that is limited)
            from threadpoolctl import threadpool_limits

            threadpool_limits(len(cores))


@contextlib.contextmanager
def _single_threaded(plan: MappingPlan) -> Iterator[None]:
    """Limit thread pools of libraries, which all workers share, to the fewest cores of a worker."""
    counts = [len(d.cores) for d in plan.platform.devices if d.cores]
    if not counts:
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(min(counts)):
        yield
