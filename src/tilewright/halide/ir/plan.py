"""What an analytic scheduler hands back: schedules, and why each is as it is."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.halide.ir.schedule import KnownValue, OutputExtent, Schedule


@dataclass(frozen=True, slots=True)
class GroupReport:
    """One group (a kernel, or a parallel loop nest) as its scheduler sees it.

    `funcs` are its members in realisation order, inlined ones left out; `stage` is the stage of
    `output` whose loops are tiled. `tile` has one size for every tiled loop, innermost first, and
    `loops` their names. On a GPU `blocks` and `threads` are the launch (x, y, z), `shared_bytes` a
    block's shared memory and `occupancy` its share of the warps an SM can hold; on a CPU
    `parallel_tasks` and `vector_width` (lanes) say how the work is spread. What does not apply is
    left at its default. `cost` is the model's estimate in its own unit, `seconds` the same as time
    where the model speaks of time. `notes` are sentences for a reader.
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
    parallel_tasks: int = 0
    vector_width: int = 0
    cost: float = 0.0
    seconds: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedSize:
    """One of several sizes that a schedule has nests for.

    `extents` are those of the outputs, in the pipeline's order, and `conditions` those under
    which a call runs the nests made for this size; empty where they are those of all other calls.
    `seconds` is the predicted time, None where the model has none.
    """

    extents: tuple[tuple[int, ...], ...]
    conditions: tuple[OutputExtent | KnownValue, ...] = ()
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedSchedule:
    """A schedule, the groups it is made of, and what the model expects it to cost.

    `max_registers` per thread is the cap that CUDA kernels are compiled with; None for that of
    Halide's runtime (64). `name` is empty but for a schedule that the pipeline came with.

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
