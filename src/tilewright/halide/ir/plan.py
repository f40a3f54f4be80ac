"""The results of the schedulers: schedules, with the groups and costs they are based on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.halide.ir.schedule import CallCondition, Schedule


@dataclass(frozen=True, slots=True)
class GroupReport:
    """One group of Funcs that share a kernel or a parallel loop nest.

    `funcs` are the Funcs of the group in realisation order, without inlined ones. `stage` is the
    stage of `output` whose loops are tiled. `tile` has the size of each tiled loop, innermost
    first, and `loops` has their names.

    On a GPU, `blocks` and `threads` are the launch (x, y, z), `shared_bytes` is the shared memory
    per block, and `occupancy` is the fraction of an SM's warps that are resident;
    `occupancy_limit` names what keeps it below 1, if that is known. On a CPU, `parallel_tasks` is
    the number of tasks and `vector_width` the number of lanes. Fields of the other device keep
    their defaults.

    `cost` is the search's estimate in the unit of that search, infinite if it has none. `seconds`
    is the predicted time, None if it was not requested or cannot be predicted; `limit` names its
    largest component. `notes` are sentences for the user.
    """

    funcs: tuple[str, ...]
    output: str
    stage: int = 0
    tile: tuple[int, ...] = ()
    loops: tuple[str, ...] = ()
    blocks: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()
    shared_bytes: int = 0
    occupancy: float = 0.0
    occupancy_limit: str = ""
    parallel_tasks: int = 0
    vector_width: int = 0
    cost: float = 0.0
    seconds: float | None = None
    limit: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedSize:
    """One of several sizes that a schedule has nests for.

    `extents` has the extents of every output, in the pipeline's order. A call runs the nests for
    this size if all `conditions` hold; if there are none, these are the nests of all other calls.
    `seconds` is the predicted time, None if there is no prediction.
    """

    extents: tuple[tuple[int, ...], ...]
    conditions: tuple[CallCondition, ...] = ()
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedSchedule:
    """A schedule with its groups and the cost that the search estimates.

    `cost` is in the unit of that search, infinite if it has none. `seconds` is the predicted time
    (`tilewright.halide.schedulers.prediction`), None if it was not requested. `max_registers` is
    the maximum number of registers per thread that CUDA kernels are compiled for; None for that of
    Halide's runtime (64). `name` is empty unless the schedule was given with the pipeline.

    `runner_up` is the second best schedule of the search, None if the search has none.

    A schedule for several sizes lists them in `sizes`, the largest first. `groups` are then those
    of the largest size, and `cost` is the geometric mean over the sizes.
    """

    schedule: Schedule
    groups: tuple[GroupReport, ...]
    cost: float
    notes: tuple[str, ...] = ()
    max_registers: int | None = None
    name: str = ""
    sizes: tuple[PlannedSize, ...] = ()
    seconds: float | None = None
    runner_up: RunnerUp | None = None


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The second best schedule: its predicted time in seconds, and its difference in words."""

    seconds: float
    difference: str


@dataclass(frozen=True, slots=True)
class PartTime:
    """The predicted time of a part of a schedule, in seconds.

    On a CPU, a part is a Func at root with all Funcs computed in its loops, and `stage` is its last
    stage. On a GPU, a part is a kernel, and `stage` is the stage whose loops are launched. `terms`
    has the components of the time by name, in seconds. Components overlap in time, so their sum may
    exceed `seconds`. `occupancy` is the fraction of an SM's warps that the kernel keeps resident, 0
    if the part is not a kernel. `occupancy_limit` names the resource that limits it.
    """

    output: str
    stage: int
    seconds: float
    terms: Mapping[str, float] = field(default_factory=dict, hash=False)
    occupancy: float = 0.0
    occupancy_limit: str = ""

    @property
    def limit(self) -> str:
        """The name of the largest term; empty if there is none."""
        return max(self.terms, key=self.terms.__getitem__, default="")


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted time of a schedule at the pipeline's estimates, in seconds.

    `parts` are in execution order. `notes` are sentences on effects that the prediction ignores.
    """

    parts: tuple[PartTime, ...]
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The sum over all parts."""
        return sum(part.seconds for part in self.parts)
