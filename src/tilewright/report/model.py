"""The content of reports as plain data, which any capability can fill in.

Nothing here depends on Halide or on how a schedule was found. Times are in seconds, sizes in
bytes. Unknown values have defaults, and the pages leave out empty parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

NodeKind = Literal["input", "func", "output"]
LineKind = Literal["produce", "consume", "allocate", "for", "compute"]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a pipeline's graph: an input, a Func, or an output.

    `group` is the index into the report's groups of the group that computes it (None for
    inputs), `inlined` says that it has no storage, and `detail` is shown on hovering.
    """

    name: str
    kind: NodeKind = "func"
    group: int | None = None
    inlined: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Dag:
    """A pipeline's graph: `edges` go from producer to consumer, by node name."""

    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group of Funcs computed together: a kernel on a GPU, a parallel loop nest on a CPU.

    `tile` has (loop, size) pairs, innermost first. `blocks` and `threads` are a GPU launch's;
    `parallel` (tasks) and `vector` (lanes) a CPU's. `shared_bytes` is the shared memory of a
    block, or the storage of the members inside a tile. `predicted` is in the unit that the report
    names, `limit` the largest part of a predicted time, and `occupancy_limit` the resource that
    limits the occupancy; `measured` is in seconds.
    """

    name: str
    funcs: tuple[str, ...]
    tile: tuple[tuple[str, int], ...] = ()
    blocks: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()
    parallel: int | None = None
    vector: int | None = None
    shared_bytes: int | None = None
    registers: int | None = None
    occupancy: float | None = None
    occupancy_limit: str = ""
    predicted: float | None = None
    limit: str = ""
    measured: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class NestLine:
    """One line of a loop nest, indented by `depth`.

    `mapping` is a loop's mapping (``serial``, ``parallel``, ``gpu_block`` …), or a remark on a line
    of another kind. `memory` is the kind of an allocation's memory (``heap``, ``stack``,
    ``gpu_shared``, ``register`` …), `bytes` its size and `extent` a loop's iterations, if known.
    """

    depth: int
    kind: LineKind
    name: str
    mapping: str = ""
    extent: int | None = None
    memory: str = ""
    bytes: int | None = None
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: a value with an interval, or a status other than ``ok`` and why.

    `ours` marks the subject of the report. `slower` is the bar's time over ours with the ends of
    its interval, from pairs of the same round, if available.
    """

    label: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    status: str = "ok"
    message: str = ""
    ours: bool = False
    slower: tuple[float, float, float] | None = None

    @property
    def ok(self) -> bool:
        """Whether there is a value to draw."""
        return self.status == "ok" and self.value is not None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One candidate that was tried, with its times.

    `predicted` and `measured` are in seconds; `source` says in words how `measured` was obtained
    ("final rounds", "alone, recorded"). `cut_short` says that the measurement was ended early, as
    it was clearly slower than the best, and the time is only a lower bound. `chosen` marks the
    candidate that the report is about; `differs` says how it differs from the first, and is empty
    for the first.
    """

    label: str
    status: str
    predicted: float | None = None
    measured: float | None = None
    note: str = ""
    source: str = ""
    chosen: bool = False
    differs: str = ""
    cut_short: bool = False


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One of several sizes that a schedule was made for.

    `size` is the size of the outputs, and `condition` the condition under which a call runs the
    loops for it. `predicted` and `measured` are in seconds.
    """

    size: str
    condition: str = ""
    predicted: float | None = None
    measured: float | None = None


@dataclass(frozen=True)
class ScheduleReport:
    """A schedule, explained.

    `verified` is None if nothing was run. `speedup_interval` is a confidence interval of the
    speedup over the naive schedule, if their times come from the same rounds. `predicted` is the
    predicted time of a run in seconds, None without a prediction. `predicted_unit` is ``s`` if
    predictions are in seconds; otherwise they are shown as shares of their sum. For a schedule for
    several `sizes`, all other values are those of the largest. `comparison` has the medians of
    `tilewright compare`.
    """

    pipeline: str
    target: str
    machine: str = ""
    mode: str = ""
    verified: bool | None = None
    seconds: float | None = None
    naive_seconds: float | None = None
    speedup_interval: tuple[float, float] | None = None
    predicted: float | None = None
    groups: tuple[GroupRow, ...] = ()
    predicted_unit: str = "s"
    dag: Dag = field(default_factory=Dag)
    nest: tuple[NestLine, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    sizes: tuple[SizeRow, ...] = ()
    comparison: tuple[Bar, ...] = ()
    python: str = ""
    cpp: str = ""
    notes: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def speedup(self) -> float | None:
        """The speedup over the naive schedule, None if either is not measured."""
        if not self.seconds or self.naive_seconds is None:
            return None
        return self.naive_seconds / self.seconds

    @property
    def all_failed(self) -> bool:
        """Whether candidates were tried and none gave right answers."""
        statuses = {attempt.status for attempt in self.attempts} - {"not tried"}
        return self.verified is False or (bool(statuses) and "ok" not in statuses)

    @property
    def failure(self) -> str:
        """The reason why a schedule is not verified, in two words."""
        statuses = {attempt.status for attempt in self.attempts} - {"ok", "not tried"}
        return statuses.pop().replace("_", " ") if len(statuses) == 1 else "wrong answer"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**asdict(self), "speedup": self.speedup}


@dataclass(frozen=True)
class Progress:
    """The progress of long work: a snapshot, not an increment.

    `phase` names the current step. `failed` counts candidates by status. `best` is the least time
    so far, in seconds; `total` is None if unknown.
    """

    phase: str
    done: int = 0
    total: int | None = None
    failed: Mapping[str, int] = field(default_factory=dict)
    best: float | None = None
    message: str = ""
