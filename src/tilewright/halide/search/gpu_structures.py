"""Other schedules to measure on a GPU: the best ones by sampled constants of the time model.

The analytic search returns what is fastest by the constants of its model, which are uncertain for
a GPU and for the errors of the model on a pipeline. Each proposal is the best schedule by constants
that are drawn from their distribution given the measurements of this pipeline so far (Thompson
sampling). So the proposals vary where the constants are uncertain, and agree where measurements
have determined them. The draws of a batch are independent of each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tilewright.halide.analysis.scheduled_nest import UNKNOWN
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.schedulers.analytic.gpu.calibrated import fitted_constants
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.fitting import Observation, drawn
from tilewright.halide.schedulers.analytic.gpu.group_times import can_predict
from tilewright.halide.schedulers.analytic.gpu.recorded import observation
from tilewright.halide.schedulers.analytic.gpu.scheduler import KeptSearches
from tilewright.halide.schedulers.prediction import schedule_nest, with_prediction
from tilewright.halide.schedulers.registry import Fusion, plan
from tilewright.halide.schedulers.task import Task
from tilewright.machines import GpuMachine

# Number of schedules to plan per draw. The first one that is new is proposed.
ALTERNATIVES = 6
# Number of draws per proposal. After these, further draws are unlikely to find a new schedule.
MOST_DRAWS = 2


@dataclass(eq=False)
class SampledStructures:
    """Proposes schedules for a GPU to measure, and learns from their times.

    Proposals are reproducible: they depend on the seed and the measurements only.

    Args:
        task: The pipeline and its GPU, whose clock and memory bandwidth must be known.
        seed: The seed of the draws.
        fusion: How Funcs may be computed within the tiles of others.
        executor: Runs the searches; by default this thread, one after the other. Only in this
            thread do draws share plans.
        observed: What the measured schedules say of the constants.
        known: The schedules that are not proposed (again).
    """

    task: Task
    seed: int = 0
    fusion: Fusion = "nested"
    executor: Executor | None = None
    observed: list[Observation] = field(default_factory=list)
    known: set[Schedule] = field(default_factory=set)
    _draws: int = 0
    _kept: KeptSearches = field(default_factory=KeptSearches)

    def tell(self, schedule: Schedule, seconds: float | None) -> None:
        """Add the measured time of a schedule in seconds; None if it failed."""
        self.known.add(schedule)
        machine = self.task.machine
        assert isinstance(machine, GpuMachine)
        if seconds is None:
            return
        try:
            with np.errstate(invalid="ignore", over="ignore"):
                nest = schedule_nest(self.task, schedule)
                found = observation(self.task.name, nest, machine, self.constants, seconds)
        except UNKNOWN:
            return
        if found.kernels:
            self.observed.append(found)

    def propose(self, count: int) -> list[PlannedSchedule]:
        """Return up to `count` schedules that were neither measured nor proposed yet."""
        found: list[PlannedSchedule] = []
        for _ in range(MOST_DRAWS):
            for plans in self._planned(count - len(found)):
                new = next((each for each in plans if each.schedule not in self.known), None)
                if new is not None:
                    self.known.add(new.schedule)
                    found.append(with_prediction(replace(new, runner_up=None), self.task))
            if len(found) == count:
                break
        return found

    @property
    def constants(self) -> GpuConstants:
        """The constants before any measurement of the pipeline."""
        return fitted_constants(self.task.gpu_calibration)

    def _planned(self, count: int) -> Iterator[list[PlannedSchedule]]:
        """Yield the best schedules of each of `count` draws."""
        sampled = [self._constants(self._draws + i) for i in range(count)]
        self._draws += count
        if self.executor:
            yield from self.executor.map(partial(best_plans, self.task, self.fusion), sampled)
        else:
            yield from map(partial(best_plans, self.task, self.fusion, kept=self._kept), sampled)

    def _constants(self, number: int) -> GpuConstants:
        machine = self.task.machine
        assert isinstance(machine, GpuMachine)
        random = np.random.default_rng([self.seed, number])
        return drawn(self.observed, machine, self.constants, random)


def best_plans(
    task: Task, fusion: Fusion, constants: GpuConstants, *, kept: KeptSearches | None = None
) -> list[PlannedSchedule]:
    """Return the best schedules by the given constants; `kept` is as in `plan`."""
    return plan(task, k=ALTERNATIVES, fusion=fusion, constants=constants, kept=kept)


def can_sample(task: Task) -> bool:
    """Return whether the constants of the task's GPU can be sampled: times can be predicted."""
    return isinstance(task.machine, GpuMachine) and can_predict(task.machine)
