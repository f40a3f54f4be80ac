"""The released network of Anderson 2021 as a model of whole schedules for a GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.errors import TilewrightError
from tilewright.halide.analysis.scheduled_nest import UNKNOWN
from tilewright.halide.ir.nest import exact_size
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.ir.variants import running_at
from tilewright.halide.schedulers.learned.published import network
from tilewright.halide.schedulers.learned.published.algorithm_features import algorithm_features
from tilewright.halide.schedulers.learned.published.gpu_features import (
    GpuLimits,
    gpu_features,
    gpu_pipeline,
)
from tilewright.halide.schedulers.learned.published.weights import Weights
from tilewright.halide.schedulers.task import Task
from tilewright.machines import GpuMachine


@dataclass(frozen=True, eq=False)
class Rated:
    """A schedule for the estimated sizes, and the network's prediction in milliseconds.

    `planned` is the plan that the schedule is of, or from which its factors were tuned.
    """

    schedule: Schedule
    milliseconds: float
    planned: PlannedSchedule | None = None


@dataclass(eq=False)
class PublishedGpuModel:
    """The released features and network for one pipeline and GPU; `predictions` counts its uses."""

    task: Task
    weights: Weights
    predictions: int = 0
    _known: dict[Schedule, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the pipeline as the released scheduler does; errors if the machine is no GPU."""
        machine = self.task.machine
        if not isinstance(machine, GpuMachine):
            raise TilewrightError(
                f"the published network is for GPUs, and the task is for {machine.name}: "
                "give make_task(..., target='cuda', machine='a100') or another GPU"
            )
        self.sms = machine.sms
        self.limits = GpuLimits(
            machine.sms,
            machine.shared_per_block,
            machine.shared_per_sm,
            machine.max_blocks_per_sm,
            machine.max_warps_per_sm,
        )
        self.pipeline = gpu_pipeline(self.task.algorithm)
        self._counts = algorithm_features(self.pipeline)

    def predicted(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.floating[Any]]:
        """Return the predictions for features of shape (N, stages, 73), in milliseconds."""
        self.predictions += len(features)
        return network.predicted_gpu(self.weights, self._counts, features, self.sms)

    def stage_times(
        self, row: int, features: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.floating[Any]]:
        """Return what one stage adds to predictions, for features of shape (N, 73).

        `row` is the position of the stage in `Pipeline.stages`. The result is in milliseconds.
        """
        self.predictions += len(features)
        counts, table = self._counts[row : row + 1], features[:, np.newaxis]
        return network.stage_times_gpu(self.weights, counts, table, self.sms)[:, 0]

    def milliseconds(self, schedule: Schedule) -> float:
        """Return the prediction for a schedule.

        Raises one of `UNKNOWN` if the schedule has no published features.
        """
        schedule = running_at(exact_size(schedule), self.task.algorithm)
        if schedule not in self._known:
            found = gpu_features(self.pipeline, schedule, limits=self.limits)
            self._known[schedule] = float(self.predicted(found.values)[0])
        return self._known[schedule]

    def rated(self, schedule: Schedule, planned: PlannedSchedule | None = None) -> Rated:
        """Return a schedule with its prediction, infinite if it has no published features."""
        try:
            found = self.milliseconds(schedule)
        except UNKNOWN:
            found = math.inf
        return Rated(schedule, found if math.isfinite(found) else math.inf, planned)
