"""The loop nest of a schedule for GPUs, as the scheduler of Anderson et al. 2021 describes it.

A stage at root has levels of blocks, threads and serial loops, and a level of single iterations.
A stage computed in the blocks of another has no level of blocks, and one computed in threads only
serial loops::

    for y, x blocks:         output: level (6, 40), block;     f computed here
      for yi, xi threads:    f: thread, serial, simd;          output: level (4, 32), thread
        for yii:             output: level (2, 1), serial
          one iteration      output: level (1, 1), simd

Copies that stage values in registers (``Func.in_``) are not part of the nest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.halide.analysis.bounds import Bound
from tilewright.halide.analysis.scheduled_nest import Factors
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.schedule import (
    Factored,
    FuncSchedule,
    Level,
    Schedule,
    ScheduleError,
)
from tilewright.halide.schedulers.learned.published.levels import (
    LevelNode,
    LoopPart,
    PublishedNest,
    StageSite,
    innermost_dimension,
    sizes_of,
    task_of,
)
from tilewright.halide.schedulers.learned.published.pipeline import (
    FuncNode,
    LoopSpan,
    Pipeline,
    Spans,
    StageNode,
    ceil_div,
    floor_div,
)

Group = tuple[str, list[tuple[str, LoopPart]]]


class GpuNest(PublishedNest):
    """The levels of a schedule for a GPU.

    Args:
        pipeline: The pipeline.
        schedule: The schedule; copies that only pass on values are left out.
        factors: As in `PublishedNest`.
        as_released: Whether a Func that is computed in the loops of another is stored at every
            level around as well, up to root. The released code does that by accident, and therefore
            takes shared memory and registers for global memory.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        schedule: Schedule,
        factors: Factors | None = None,
        as_released: bool = True,
    ) -> None:
        self._as_released = as_released
        super().__init__(pipeline, schedule, factors)

    def _store(self, entry: FuncSchedule | None, node: FuncNode, compute: LevelNode) -> LevelNode:
        level: LevelNode | None = compute
        while level is not None:
            level.stored.append(node)
            level = level.parent if self._as_released else None
        return self.root if self._as_released else compute

    def _add_stage(
        self,
        stage: StageNode,
        place: int,
        entry: FuncSchedule | None,
        compute: LevelNode,
        store: LevelNode,
    ) -> None:
        node = stage.node
        around = self.region_at(compute, node).loops[stage.index]
        loops, mapping = self.final_loops(stage, place, entry, around)
        groups = _groups(loops, mapping, compute)
        vector_dim = innermost_dimension(node, entry)
        has_vector = vector_dim >= 0 and vector_dim in stage.dimension
        vector_loop = stage.dimension.index(vector_dim) if has_vector else -1
        sizes = [sizes_of(len(stage.loops), [part for _, part in g]) for _, g in groups]
        inside = tuple(_one(span) for span in around)
        parent, first = compute, None
        for at, (label, group) in enumerate(groups):
            level = LevelNode(stage, parent, sizes[at], label == "block")
            level.label, level.innermost = label, label == "simd"
            level.vector_loop, level.vector_dim = vector_loop, vector_dim
            further = sizes[at + 1 :]
            spans = _tile(label, around, sizes[at], further, stage) if len(further) > 1 else inside
            self.own_region(level, spans)
            for name, _ in group:
                self.note(node, stage, name, level)
            parent.children.insert(0 if level.innermost else len(parent.children), level)
            parent, first = level, first or level
        self.note_innermost(parent)
        site = StageSite(compute, store, first, parent)
        site.task = task_of(parent)
        self.sites[node.id, stage.index] = site


def _groups(
    loops: Sequence[tuple[str, list[LoopPart]]], mapping: dict[str, str], compute: LevelNode
) -> list[Group]:
    """Return the label and loops of each level, outermost first."""
    labels = [mapping.get(name, "serial") for name, _ in loops]
    last_block = max((i for i, label in enumerate(labels) if label == "gpu_block"), default=-1)
    last_thread = max((i for i, label in enumerate(labels) if label == "gpu_thread"), default=-1)
    groups: dict[str, Group] = {}
    if loops and compute.root:
        groups["block"] = ("block", [])
    if loops and not _inside_threads(compute):
        groups["thread"] = ("thread", [])
    groups["serial"] = ("serial" if loops else "", [])
    for i, (name, parts) in enumerate(loops):
        # Serial loops among the threads are those of thread loops that were split again.
        label = "block" if i <= last_block else "thread" if i <= last_thread else "serial"
        chosen = groups.get(label, groups["serial"])
        chosen[1].extend((name, part) for part in parts)
    return [*groups.values(), ("simd", [])]


def _inside_threads(level: LevelNode | None) -> bool:
    while level is not None:
        if level.label == "thread":
            return True
        level = level.parent
    return False


def _one(span: LoopSpan) -> LoopSpan:
    """Return the middle iteration."""
    lo = span.lo + floor_div(span.extent, 2.0)
    return LoopSpan(lo, lo, True)


def _tile(
    label: str,
    around: Spans,
    size: Sequence[Bound],
    further: Sequence[Sequence[Bound]],
    stage: StageNode,
) -> Spans:
    """Return the loops in the middle iteration of a level around further levels.

    The threads are those in the middle of all iterations, not of the middle block.
    """
    spans = []
    for i, (span, count) in enumerate(zip(around, size, strict=True)):
        extent: Bound = 1.0
        for inner in further:
            extent = extent * inner[i]
        if label == "thread":
            count = ceil_div(span.extent, extent)
        lo = span.lo + floor_div(count, 2.0) * extent
        spans.append(LoopSpan(lo, lo + extent - 1.0, span.constant or stage.pure[i]))
    return tuple(spans)


@dataclass(frozen=True)
class _Places:
    """Positions of Funcs in the algorithm without copies."""

    found: dict[int, int]

    def level(self, level: Level) -> Level:
        if level.kind != "at":
            return level
        if level.func not in self.found:
            raise ScheduleError("a Func is computed in the loops of a copy: not supported here")
        return replace(level, func=self.found[level.func])


def without_copies(schedule: Schedule, algorithm: Algorithm) -> Schedule:
    """Return the schedule without copies that only pass on values (``Func.in_``).

    Raises:
        ScheduleError: The schedule has copies that compute values again.
    """
    if not schedule.clones:
        return schedule
    if any(isinstance(each, Factored) or not each.wrapper for each in schedule.clones):
        raise ScheduleError(
            "the published features have no copies that compute values again, and no rfactor"
        )
    extended = with_clones(algorithm, schedule.clones)
    places = _Places(
        {
            i: algorithm.order[func.name]
            for i, func in enumerate(extended.funcs)
            if func.name in algorithm.order
        }
    )
    funcs = tuple(
        replace(
            entry,
            func=places.found[entry.func],
            compute=places.level(entry.compute),
            store=places.level(entry.store),
        )
        for entry in schedule.funcs
        if entry.func in places.found
    )
    return replace(schedule, funcs=funcs, clones=())
