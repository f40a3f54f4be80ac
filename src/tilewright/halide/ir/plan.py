"""The results of the schedulers: schedules, with the groups and costs that explain them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.halide.ir.schedule import KnownValue, OutputExtent, Schedule


@dataclass(frozen=True, slots=True)
class GroupReport:
    """One group (a kernel, or a parallel loop nest) as its scheduler sees it.

    `funcs` are its members in realisation order, inlined ones left out; `stage` is the stage of
    `output` whose loops are tiled. `tile` has one size for every tiled loop, innermost first, and
    `loops` their names. On a GPU `blocks` and `threads` are the launch (x, y, z), `shared_bytes` a
    block's shared memory and `occupancy` its share of the warps an SM can hold; on a CPU
    `parallel_tasks` and `vector_width` (lanes) say how the work is distributed. Other fields keep
    their defaults. `cost` is the search's estimate in its own unit, infinite if there is
    none; `seconds` is the predicted time, None if it was not asked for or cannot be said, and
    `limit` names what most of it is. `occupancy_limit` names what keeps the occupancy below 1, as
    far as that is known. `notes` are sentences for a reader.
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

    `extents` are those of the outputs, in the pipeline's order, and `conditions` those under
    which a call runs the nests made for this size; empty if they are those of all other calls.
    `seconds` is the predicted time, None if the model has none.
    """

    extents: tuple[tuple[int, ...], ...]
    conditions: tuple[OutputExtent | KnownValue, ...] = ()
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedSchedule:
    """A schedule with its groups and the cost expected by the search.

    `cost` is in the search's own unit, and infinite if it has none; `seconds` is the predicted
    time (`tilewright.halide.schedulers.prediction`), None if it was not asked for.
    `max_registers` per thread is the cap that CUDA kernels are compiled with; None for that of
    Halide's runtime (64). `name` is empty, except for a schedule that the pipeline came with.

    `runner_up` is the second best schedule that was considered, None if the search does not say.

    A schedule for several sizes lists them in `sizes`, the largest first; `groups` are those of
    the largest then, and `cost` is the geometric mean over the sizes.
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
    """The schedule that came second: its predicted seconds, and how it differs, in words."""

    seconds: float
    difference: str


@dataclass(frozen=True, slots=True)
class PartTime:
    """The predicted time of a part of a schedule, in seconds.

    A part is computed at the outermost level: on a CPU a Func at root with all Funcs computed in
    its loops, `stage` being its last stage; on a GPU a kernel, `stage` being the one whose loops
    are launched. `terms` has the components of the time by name, in seconds; they overlap, so that
    their sum may exceed `seconds`. `occupancy` is the share of an SM's warps that a kernel keeps
    resident, 0 without a kernel, and `occupancy_limit` is what limits that share.
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

    `parts` are in the order in which they run. `notes` are sentences on effects that the prediction
    ignores.
    """

    parts: tuple[PartTime, ...]
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The sum over all parts."""
        return sum(part.seconds for part in self.parts)
