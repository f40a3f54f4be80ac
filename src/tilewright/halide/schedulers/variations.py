"""Schedules that differ from a given one in a single choice.

If the cost models find too few schedules, as for a pipeline of one Func, these variations are worth
measuring: other dimensions for vectors, parallel loops or threads, other tile sizes, more or less
unrolling, or another compute level of a Func. They are not costed and may be illegal: the caller
must check them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np

from tilewright.halide.analysis.inlining import View, may_inline
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.ir.algorithm import Algorithm, Func, Stage, walk
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.loops import origin, part_of
from tilewright.halide.ir.nest import default_stage, original_loops
from tilewright.halide.ir.plan import GroupReport, PlannedSchedule
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    FuncSchedule,
    Fuse,
    Mapping,
    ScheduledLoop,
    Split,
    StageSchedule,
    Tail,
)
from tilewright.halide.schedulers.analytic.gpu.capability import host_only
from tilewright.machines import CpuMachine, GpuMachine

Machine = CpuMachine | GpuMachine
Stages = tuple[StageSchedule, ...]

# Threads per block in the two innermost dimensions, the usual ones first.
BLOCKS = ((32, 8), (16, 16), (64, 2), (128, 1), (32, 1), (8, 8), (256, 1))
# Unroll factors of pure loops and of reduction loops.
UNROLLS = (2, 4)
UNROLLED_REDUCTIONS = (2, 4, 8)
# A dimension with a smaller extent at the estimates is not vectorised.
LEAST_VECTOR = 4
# Maximum nodes in the expressions of a reader after inlining: compile time is proportional to them.
LARGEST_EXPRESSION = 1500
# Number of block dimensions in a launch.
LAUNCH_DIMENSIONS = 3


@dataclass(frozen=True)
class _Pipeline:
    """A pipeline with its machine, the extents of its Funcs, and the entries of a schedule."""

    algorithm: Algorithm
    machine: Machine
    extents: dict[str, tuple[float, ...]]
    schedule: tuple[FuncSchedule, ...]

    @property
    def gpu(self) -> bool:
        return isinstance(self.machine, GpuMachine)

    def hosts(self, func: int) -> bool:
        """Return whether other Funcs are computed or stored at loops of `func`."""
        levels = [level for entry in self.schedule for level in (entry.compute, entry.store)]
        return any(level.kind == "at" and level.func == func for level in levels)


def variations(
    planned: PlannedSchedule, algorithm: Algorithm, machine: Machine
) -> Iterator[PlannedSchedule]:
    """Yield schedules that differ from `planned` in one choice; they may be illegal.

    The kinds of choices take turns; within a kind, Funcs of expensive groups come first. The
    reports of changed groups say that they were not costed.
    """
    algorithm = with_clones(algorithm, planned.schedule.clones)
    view = View(algorithm)
    regions = Analysis(view, estimated_boxes(view), algorithm.symbols).regions
    extents = {
        name: tuple(float(np.max(interval.extent)) for interval in box)
        for name, box in regions.items()
    }
    entries = planned.schedule.funcs
    pipeline = _Pipeline(algorithm, machine, extents, entries)
    indices = sorted(range(len(entries)), key=_by_cost(planned, algorithm, entries))
    kinds = (_nests, _fusion, _inlining, _factors, _unrolled_reductions)
    for row in zip_longest(*(_moves(kind, pipeline, indices) for kind in kinds)):
        for move in row:
            if move is not None and move[1] != entries[move[0]]:
                yield _changed(planned, algorithm, *move)


def _moves(
    kind: Callable[[_Pipeline, FuncSchedule], Iterator[FuncSchedule]],
    pipeline: _Pipeline,
    indices: list[int],
) -> Iterator[tuple[int, FuncSchedule]]:
    """Yield (index, new entry) for the choices of one kind, for each entry of the schedule."""
    for i in indices:
        yield from ((i, entry) for entry in kind(pipeline, pipeline.schedule[i]))


def _by_cost(
    planned: PlannedSchedule, algorithm: Algorithm, entries: tuple[FuncSchedule, ...]
) -> Callable[[int], tuple[float, int, int]]:
    """Return a sort key of entries: expensive groups first, outputs before members."""
    costs: dict[str, tuple[float, int]] = {}
    for group in planned.groups:
        cost = group.cost if math.isfinite(group.cost) else 0.0
        for name in group.funcs:
            costs[name] = (-cost, int(name != group.output))

    def key(i: int) -> tuple[float, int, int]:
        name = algorithm.funcs[entries[i].func].name
        return (*costs.get(name, (0.0, 2)), -i)

    return key


# --- one kind of choice each ------------------------------------------------------------------


def _nests(pipeline: _Pipeline, entry: FuncSchedule) -> Iterator[FuncSchedule]:
    """Yield other nests for a Func at root, unless other Funcs are computed in its loops."""
    func = pipeline.algorithm.funcs[entry.func]
    if entry.compute.kind != "root" or func.fixed or func.scheduled or pipeline.hosts(entry.func):
        return
    for stages in _plain(pipeline, func):
        yield replace(entry, stages=stages)


def _fusion(pipeline: _Pipeline, entry: FuncSchedule) -> Iterator[FuncSchedule]:
    """Yield a Func computed at a loop of another one, at root instead."""
    func = pipeline.algorithm.funcs[entry.func]
    if entry.compute.kind != "at":
        return
    for stages in _first(_plain(pipeline, func)):
        yield FuncSchedule(entry.func, ROOT, ROOT, stages=stages)


def _inlining(pipeline: _Pipeline, entry: FuncSchedule) -> Iterator[FuncSchedule]:
    """Yield an inlined Func at root, or another Func inlined."""
    algorithm = pipeline.algorithm
    func = algorithm.funcs[entry.func]
    if entry.compute.kind == "inline":
        for stages in _first(_plain(pipeline, func)):
            yield FuncSchedule(entry.func, ROOT, ROOT, stages=stages)
    elif may_inline(algorithm, func) and not pipeline.hosts(entry.func):
        inlined = {e.func for e in pipeline.schedule if e.compute.kind == "inline"} | {entry.func}
        view = View(algorithm, frozenset(algorithm.funcs[i].name for i in inlined))
        readers = [name for name in view.reached(func.name) if name not in view.inlined]
        if all(_small(view, name) for name in readers):
            yield FuncSchedule(entry.func, INLINE, INLINE)


def _factors(pipeline: _Pipeline, entry: FuncSchedule) -> Iterator[FuncSchedule]:
    """Yield the entry with the factor of one split halved or doubled."""
    func = pipeline.algorithm.funcs[entry.func]
    extents = pipeline.extents.get(func.name, ())
    for s, nest in enumerate(entry.stages):
        for i, change in enumerate(nest.splits):
            if not isinstance(change, Split):
                continue
            source = origin(change.old)
            known = math.inf
            if source is not None and source[0] == "v" and source[1] < len(extents):
                known = extents[source[1]]
            # With larger tiles, members may no longer fit in cache or shared memory.
            alone = entry.compute.kind == "root" and not pipeline.hosts(entry.func)
            doubled = (2 * change.factor,) if alone else ()
            for factor in (change.factor // 2, *doubled):
                if 2 <= factor <= known:
                    splits = list(nest.splits)
                    splits[i] = replace(change, factor=factor)
                    stages = list(entry.stages)
                    stages[s] = replace(nest, splits=tuple(splits))
                    yield replace(entry, stages=tuple(stages))


def _unrolled_reductions(pipeline: _Pipeline, entry: FuncSchedule) -> Iterator[FuncSchedule]:
    """Yield the entry with the innermost serial reduction loop unrolled."""
    func = pipeline.algorithm.funcs[entry.func]
    for stage, nest in zip(func.stages, entry.stages, strict=False):
        for copies in UNROLLED_REDUCTIONS:
            changed = _unroll_reduction(stage, nest, copies)
            if changed is not None:
                stages = list(entry.stages)
                stages[stage.index] = changed
                yield replace(entry, stages=tuple(stages))


def _unroll_reduction(stage: Stage, nest: StageSchedule, copies: int) -> StageSchedule | None:
    for at, loop in enumerate(nest.loops):
        source = origin(loop.name)
        if source is None or source[0] != "r" or loop.name != f"r{source[1]}":
            continue
        if loop.mapping != "serial":
            return None
        outer = part_of(loop.name, "o", stage.index)
        inner = part_of(loop.name, "i", stage.index)
        split = Split(loop.name, outer, inner, copies, "guard_with_if")
        loops = [*nest.loops]
        loops[at : at + 1] = [ScheduledLoop(inner, "unrolled"), ScheduledLoop(outer)]
        return replace(nest, splits=(*nest.splits, split), loops=tuple(loops))
    return None


# --- nests that do not depend on the given schedule -------------------------------------------


def _plain(pipeline: _Pipeline, func: Func) -> Iterator[Stages]:
    """Yield nests of a Func at root that are independent of a cost model, usual ones first."""
    if any("." in loop.name for stage in func.stages for loop in stage.loops):
        return  # Halide cannot schedule dimensions with a dot in their names.
    extents = pipeline.extents.get(func.name, ())
    if len(extents) != len(func.args):
        return
    if isinstance(pipeline.machine, GpuMachine):
        memoized = frozenset(f.name for f in pipeline.algorithm.funcs if f.memoized)
        if any(host_only(stage, func, pipeline.machine, memoized) for stage in func.stages):
            return
        for block in BLOCKS:
            yield tuple(_gpu_stage(func, stage, block) for stage in func.stages)
        return
    natural = pipeline.machine.lanes(8 * max((t.bytes for t in func.types), default=4))
    dims = [d for d, extent in enumerate(extents) if LEAST_VECTOR <= extent < math.inf]
    for parallel in (True, False):
        for lanes in dict.fromkeys((natural, natural // 2, 2 * natural, LEAST_VECTOR)):
            for vector in dims:
                if LEAST_VECTOR <= lanes <= extents[vector]:
                    yield from _cpu_nests(func, extents, vector, lanes, parallel)
        yield from _cpu_nests(func, extents, None, 1, parallel)


def _cpu_nests(
    func: Func, extents: tuple[float, ...], vector: int | None, lanes: int, parallel: bool
) -> Iterator[Stages]:
    choices: list[tuple[int | None, int]] = [(None, 1)]
    choices += [
        (d, copies)
        for copies in UNROLLS
        for d, extent in enumerate(extents)
        if copies <= extent and d != vector
    ]
    for unrolled, copies in choices:
        chosen = {vector: (lanes, "vectorized"), unrolled: (copies, "unrolled")}
        yield tuple(_cpu_stage(func, stage, chosen, parallel) for stage in func.stages)


def _cpu_stage(
    func: Func,
    stage: Stage,
    inside: dict[int | None, tuple[int, Mapping]] | dict[int | None, tuple[int, str]],
    parallel: bool,
) -> StageSchedule:
    """Return a stage with vectorised and unrolled inner loops, and a parallel outermost loop."""
    tail: Tail = "shift_inwards" if stage.index == 0 else "guard_with_if"
    splits: list[Split | Fuse] = []
    inner: list[ScheduledLoop] = []
    outer: list[ScheduledLoop] = []
    reductions: list[ScheduledLoop] = []
    for loop in original_loops(func, stage):
        source = origin(loop.name)
        if loop.kind != "pure" or source is None:
            reductions.append(ScheduledLoop(loop.name))
            continue
        if source[1] not in inside:
            outer.append(ScheduledLoop(loop.name))
            continue
        factor, mapping = inside[source[1]]
        rest, part = part_of(loop.name, "o", stage.index), part_of(loop.name, "i", stage.index)
        splits.append(Split(loop.name, rest, part, factor, tail))
        # Vectors are innermost.
        inner.insert(
            0 if mapping == "vectorized" else len(inner),
            ScheduledLoop(part, mapping),  # type: ignore[arg-type]
        )
        outer.append(ScheduledLoop(rest))
    if parallel and outer:
        outer[-1] = replace(outer[-1], mapping="parallel")
    return StageSchedule(tuple(splits), (*inner, *reductions, *outer))


def _gpu_stage(func: Func, stage: Stage, block: tuple[int, ...]) -> StageSchedule:
    """Return one kernel with these threads per block; reduction loops are within threads."""
    loops = original_loops(func, stage)
    pure = [loop.name for loop in loops if loop.kind == "pure"]
    if not pure:
        return replace(default_stage(func, stage), single_thread=True)
    splits: list[Split | Fuse] = []
    threads: list[ScheduledLoop] = []
    blocks: list[str] = []
    for loop, count in zip(pure, block, strict=False):
        outer, inner = part_of(loop, "b", stage.index), part_of(loop, "t", stage.index)
        splits.append(Split(loop, outer, inner, count, "guard_with_if"))
        threads.append(ScheduledLoop(inner, "gpu_thread"))
        blocks.append(outer)
    blocks += pure[len(block) :]
    while len(blocks) > LAUNCH_DIMENSIONS:
        fused = part_of(f"f{len(blocks)}", "b", stage.index)
        splits.append(Fuse(blocks[-2], blocks[-1], fused))
        blocks[-2:] = [fused]
    inside = [ScheduledLoop(loop.name) for loop in loops if loop.kind != "pure"]
    outside = [ScheduledLoop(name, "gpu_block") for name in blocks]
    return StageSchedule(tuple(splits), (*inside, *threads, *outside))


def _first(stages: Iterable[Stages]) -> Iterator[Stages]:
    yield from (found for found, _ in zip(stages, range(1), strict=False))


def _small(view: View, name: str) -> bool:
    nodes = 0
    for stage in view.stages(name):
        for _ in walk(*stage.values, *stage.args):
            nodes += 1
            if nodes > LARGEST_EXPRESSION:
                return False
    return True


# --- the plan of a changed schedule -----------------------------------------------------------


def _changed(
    planned: PlannedSchedule, algorithm: Algorithm, index: int, entry: FuncSchedule
) -> PlannedSchedule:
    entries = list(planned.schedule.funcs)
    before = entries[index]
    entries[index] = entry
    name = algorithm.funcs[entry.func].name
    groups: list[GroupReport] = []
    for group in planned.groups:
        if name not in group.funcs and not set(group.funcs) & set(algorithm.consumers[name]):
            groups.append(group)
            continue
        funcs = group.funcs
        if name != group.output and before.compute != entry.compute:
            funcs = tuple(member for member in funcs if member != name)
        elif name == group.output and entry.compute.kind == "inline":
            continue
        groups.append(_uncosted(group, funcs))
    moved = entry.compute.kind == "root" and before.compute.kind != "root"
    if moved:
        groups.append(GroupReport((name,), name, cost=math.inf, notes=(NOT_COSTED,)))
        groups.sort(key=lambda group: algorithm.order[group.output])
    schedule = replace(planned.schedule, funcs=tuple(entries))
    return PlannedSchedule(schedule, tuple(groups), math.inf, planned.notes)


NOT_COSTED = "varied, not costed by the search"


def _uncosted(group: GroupReport, funcs: tuple[str, ...]) -> GroupReport:
    notes = tuple(note for note in group.notes if note != NOT_COSTED)
    return replace(
        group,
        funcs=funcs,
        tile=(),
        blocks=(),
        threads=(),
        shared_bytes=0,
        occupancy=0.0,
        parallel_tasks=0,
        vector_width=0,
        cost=math.inf,
        seconds=None,
        notes=(*notes, NOT_COSTED),
    )
