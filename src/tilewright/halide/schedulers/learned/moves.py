"""Moves: changes of a schedule, as immutable values.

`applied` returns a new schedule; to undo a move, keep the previous one. `possible_moves` lists
moves, some of which lead to illegal schedules; `violations` has the reasons.

| move | effect |
|---|---|
| `Inline` | compute a Func at each read |
| `ComputeRoot` | compute a Func completely, before its readers |
| `ComputeAt` | compute a Func at a loop of a reader; if it is stored further out, it slides along \
the loops between, and Halide folds its storage where possible |
| `Reshape` | replace the loops of a Func, or of one of its stages: levels of tiles, vector \
dimension and lanes, register block, order, parallel loops |
| `Resize` | change the factor of one split: a tile, a block, lanes |
| `Steps` | vectorise or unroll part of the innermost loop over a reduction |
| `Swap` | exchange a loop with the loop around it |
| `Remap` | make a serial loop parallel, or a parallel loop serial |
| `Factor` | split a reduction into partial results, in slices and in lanes (`partial_results`) |
| `StageCopy` | copy what a Func reads at one of its loops (`staging`) |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tilewright.halide.analysis.inlining import View, may_inline
from tilewright.halide.analysis.paths import Node, find_paths
from tilewright.halide.analysis.reorderable import is_reorderable
from tilewright.halide.ir.algorithm import Algorithm, Call, Func, walk
from tilewright.halide.ir.loops import origin, part_of
from tilewright.halide.ir.nest import stage_schedules
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    FuncSchedule,
    Level,
    Mapping,
    Schedule,
    ScheduledLoop,
    ScheduleError,
    Split,
    StageSchedule,
)
from tilewright.halide.legality.check import Violation, check
from tilewright.halide.legality.stages import is_associative
from tilewright.halide.schedulers.learned.partial_results import Factor, factor_moves, factored
from tilewright.halide.schedulers.learned.scene import LEAST_LANES, Scene
from tilewright.halide.schedulers.learned.shape_choices import member_shapes, root_shapes
from tilewright.halide.schedulers.learned.shapes import NestShape, stages_in_loops, stages_of
from tilewright.halide.schedulers.learned.staging import StageCopy, staged, staging_moves

# Candidates: iterations of `Steps`, factors of `Resize` on the present size.
STEPS = (2, 4, 8, 16)
RESIZES = (1 / 4, 1 / 2, 2, 4)
# Maximum nodes in the expressions of a reader after inlining: compile time is proportional to them.
LARGEST_EXPRESSION = 1500


@dataclass(frozen=True, slots=True)
class Inline:
    """Compute a Func at each read."""

    func: int


@dataclass(frozen=True, slots=True)
class ComputeRoot:
    """Compute a Func at root with the loops of `shape`."""

    func: int
    shape: NestShape


@dataclass(frozen=True, slots=True)
class ComputeAt:
    """Compute a Func at a loop of a reader; `store` is the same level or one further out."""

    func: int
    compute: Level
    store: Level
    shape: NestShape


@dataclass(frozen=True, slots=True)
class Reshape:
    """Replace the loops of a Func without changing its levels.

    With a `stage`, only those of this stage; the stages of a Func may have different shapes.
    """

    func: int
    shape: NestShape
    stage: int | None = None


@dataclass(frozen=True, slots=True)
class Resize:
    """Change the factor of a split."""

    func: int
    stage: int
    split: int
    factor: int


@dataclass(frozen=True, slots=True)
class Steps:
    """Vectorise or unroll `count` iterations of the innermost reduction loop."""

    func: int
    stage: int
    count: int
    mapping: Mapping


@dataclass(frozen=True, slots=True)
class Swap:
    """Exchange loop number `inner` (innermost: 0) with the loop around it."""

    func: int
    stage: int
    inner: int


@dataclass(frozen=True, slots=True)
class Remap:
    """Make a loop parallel or serial."""

    func: int
    stage: int
    loop: str
    mapping: Mapping


Move: TypeAlias = (
    Inline | ComputeRoot | ComputeAt | Reshape | Resize | Steps | Swap | Remap | Factor | StageCopy
)


# --- applying -----------------------------------------------------------------------------------


def applied(schedule: Schedule, move: Move, scene: Scene) -> Schedule:
    """Return the schedule after a move; it may be illegal (see `violations`).

    Raises `ScheduleError` if the move does not fit the schedule.
    """
    scene = scene.of(schedule)
    entries = {entry.func: entry for entry in schedule.funcs}
    entry = entries.get(move.func)
    if entry is None:
        raise ScheduleError(
            f"the schedule has no entry for Func {move.func}, so it cannot change it"
        )
    if isinstance(move, Factor):
        return factored(schedule, move, scene)
    if isinstance(move, StageCopy):
        return staged(schedule, move, scene)
    func = scene.extended.funcs[move.func]
    if isinstance(move, Inline):
        changed = FuncSchedule(move.func, INLINE, INLINE)
    elif isinstance(move, ComputeRoot):
        changed = _at(entry, ROOT, ROOT, stages_of(func, move.shape))
    elif isinstance(move, ComputeAt):
        stages = stages_in_loops(func, move.shape, scene.extended)
        changed = _at(entry, move.compute, move.store, stages)
    elif isinstance(move, Reshape):
        if entry.compute.kind == "at":
            stages = stages_in_loops(func, move.shape, scene.extended)
        else:
            stages = stages_of(func, move.shape)
        if move.stage is not None:
            nests = [nest for _, nest in stage_schedules(scene.extended, entry)]
            nests[move.stage] = stages[move.stage]
            stages = tuple(nests)
        changed = replace(entry, stages=stages)
    else:
        nests = [nest for _, nest in stage_schedules(scene.extended, entry)]
        nests[move.stage] = _changed(nests[move.stage], move)
        changed = replace(entry, stages=tuple(nests))
    entries[move.func] = changed
    funcs = tuple(_rehung(entries[i], changed) for i in sorted(entries))
    return replace(schedule, funcs=funcs)


def _at(
    entry: FuncSchedule, compute: Level, store: Level, stages: tuple[StageSchedule, ...]
) -> FuncSchedule:
    return FuncSchedule(
        entry.func, compute, store, stages=stages, storage_order=entry.storage_order
    )


def _changed(nest: StageSchedule, move: Resize | Steps | Swap | Remap) -> StageSchedule:
    loops = list(nest.loops)
    if isinstance(move, Resize):
        splits = list(nest.splits)
        old = splits[move.split]
        if not isinstance(old, Split):
            raise ScheduleError(f"number {move.split} of the nest's splits is a fuse: give a split")
        splits[move.split] = replace(old, factor=move.factor)
        return replace(nest, splits=tuple(splits))
    if isinstance(move, Steps):
        at = next(i for i, loop in enumerate(loops) if _reduces(loop.name))
        run = loops[at].name
        outer, inner = part_of(run, "b", move.stage), part_of(run, "u", move.stage)
        split = Split(run, outer, inner, move.count, "guard_with_if")
        loops[at] = ScheduledLoop(outer)
        vector = move.mapping == "vectorized"
        loops.insert(0 if vector else at, ScheduledLoop(inner, move.mapping))
        return replace(
            nest, splits=(*nest.splits, split), loops=tuple(loops), atomic=nest.atomic or vector
        )
    if isinstance(move, Swap):
        pair = loops[move.inner : move.inner + 2]
        loops[move.inner : move.inner + 2] = pair[::-1]
    else:
        at = next(i for i, loop in enumerate(loops) if loop.name == move.loop)
        loops[at] = replace(loops[at], mapping=move.mapping)
    return replace(nest, loops=tuple(loops))


def _rehung(entry: FuncSchedule, after: FuncSchedule) -> FuncSchedule:
    """Return an entry with its levels updated to the loops of a changed Func.

    A level at a loop that no longer exists moves to a tile loop of that Func. Without tile loops,
    it moves to the level at which that Func is computed, or to root.
    """
    compute, store = (_moved(level, after) for level in (entry.compute, entry.store))
    if (compute, store) == (entry.compute, entry.store):
        return entry
    return replace(entry, compute=compute, store=store)


def _moved(level: Level, host: FuncSchedule) -> Level:
    if level.kind != "at" or level.func != host.func:
        return level
    if host.compute.kind == "inline" or level.stage >= len(host.stages):
        return ROOT
    loops = host.stages[level.stage].loops
    if level.loop in [loop.name for loop in loops]:
        return level
    outside = [
        loop.name
        for loop in loops
        if loop.mapping in ("serial", "parallel") and not _reduces(loop.name)
    ]
    tiles = [name for name in outside if "t" in name or name.startswith("p")] or outside[1:]
    return replace(level, loop=tiles[0]) if tiles else host.compute


def _reduces(loop: str) -> bool:
    found = origin(loop)
    return found is not None and found[0] == "r"


# --- listing ------------------------------------------------------------------------------------


def violations(schedule: Schedule, scene: Scene) -> list[Violation]:
    """Return why a state is illegal; empty if it is legal."""
    scene = scene.of(schedule)
    return check(schedule, scene.algorithm, known=scene.problems.setdefault(schedule.target, {}))


def possible_moves(schedule: Schedule, scene: Scene, func: int | None = None) -> Iterator[Move]:
    """Yield moves of `func`, or of all Funcs; some may be illegal."""
    scene = scene.of(schedule)
    for entry in schedule.funcs:
        if func is None or entry.func == func:
            yield from level_moves(entry, schedule, scene)
            yield from loop_moves(entry, schedule, scene)


def changed_func(move: Move) -> int:
    """Return the position, after a move, of the Func whose sizes matter most for it."""
    return move.func + 1 if isinstance(move, StageCopy) else move.func


def _hosts(func: int, schedule: Schedule) -> bool:
    levels = (level for entry in schedule.funcs for level in (entry.compute, entry.store))
    return any(level.kind == "at" and level.func == func for level in levels)


def _free(func: Func) -> bool:
    """Return whether the schedule may change the Func's loops."""
    dotted = any("." in loop.name for stage in func.stages for loop in stage.loops)
    return not (func.fixed or func.scheduled or dotted)


def level_moves(entry: FuncSchedule, schedule: Schedule, scene: Scene) -> Iterator[Move]:
    """Yield moves to other levels of a Func: inlined, at root, or at loops of its readers."""
    algorithm = scene.extended
    func = algorithm.funcs[entry.func]
    if func.name in algorithm.outputs or not _free(func):
        return
    gone = entry.compute.kind == "inline" or _hosts(entry.func, schedule)
    if not gone and may_inline(algorithm, func) and _small(entry.func, schedule, scene):
        yield Inline(entry.func)
    if entry.compute.kind != "root":
        yield ComputeRoot(entry.func, next(root_shapes(func, scene)))
    shape = next(member_shapes(func, scene))
    for compute, store in _levels(entry.func, schedule, algorithm):
        if (compute, store) != (entry.compute, entry.store):
            yield ComputeAt(entry.func, compute, store, shape)


def _small(func: int, schedule: Schedule, scene: Scene) -> bool:
    """Return whether expressions stay small if `func` is inlined, too."""
    gone = frozenset(e.func for e in schedule.funcs if e.compute.kind == "inline") | {func}
    if (func, gone) not in scene.small:
        scene.small[func, gone] = _stays_small(func, gone, scene.extended)
    return scene.small[func, gone]


def _stays_small(func: int, gone: frozenset[int], algorithm: Algorithm) -> bool:
    view = View(algorithm, frozenset(algorithm.funcs[i].name for i in gone))
    for name in view.reached(algorithm.funcs[func].name):
        if name not in view.inlined:
            for stage in view.stages(name):
                nodes = walk(*stage.values, *stage.args)
                if any(n >= LARGEST_EXPRESSION for n, _ in enumerate(nodes)):
                    return False
    return True


def _levels(func: int, schedule: Schedule, algorithm: Algorithm) -> Iterator[tuple[Level, Level]]:
    """Yield compute and store levels around all reads of a Func, outermost first."""
    others = tuple(entry for entry in schedule.funcs if entry.func != func)
    trial = replace(schedule, funcs=(FuncSchedule(func, ROOT, ROOT), *others), clones=())
    try:
        paths = find_paths(replace(trial, algorithm=algorithm.digest), algorithm)
    except ScheduleError:
        return
    uses = paths.uses.get(func, ())
    if any(use not in paths.stages for use in uses):
        return  # an extern stage reads it, which has no loops
    ways = [path for use in uses for path in paths.stages[use]]
    if not ways:
        return
    stages = _stages_of_loops({node.func for node in ways[0]}, others, algorithm)
    free: list[Level] = []  # possible store levels for compute levels further in
    for node in ways[0]:
        if node.func == func or node.mapping in ("vectorized", "unrolled"):
            return
        if (node.func, node.loop) not in stages or not all(_holds(way, node) for way in ways):
            continue
        level = Level("at", node.func, stages[node.func, node.loop], node.loop)
        yield level, level
        if node.mapping == "parallel":
            free = []
        for outer in free[:1] + free[-1:] if len(free) > 1 else free:
            yield level, outer
        free.append(level)


def _stages_of_loops(
    funcs: set[int], entries: Sequence[FuncSchedule], algorithm: Algorithm
) -> dict[tuple[int, str], int]:
    """Return the last stage of each loop of `funcs`, by Func and loop."""
    found: dict[tuple[int, str], int] = {}
    for entry in entries:
        if entry.func in funcs:
            for stage, nest in stage_schedules(algorithm, entry):
                found |= {(entry.func, loop.name): stage.index for loop in nest.loops}
    return found


def _holds(way: tuple[Node, ...], node: Node) -> bool:
    return any((each.func, each.loop) == (node.func, node.loop) for each in way)


def loop_moves(entry: FuncSchedule, schedule: Schedule, scene: Scene) -> Iterator[Move]:
    """Yield moves that change the loops of a Func without changing its levels."""
    func = scene.extended.funcs[entry.func]
    if entry.compute.kind == "inline" or not _free(func):
        return
    shapes = root_shapes if entry.compute.kind == "root" else member_shapes
    for shape in shapes(func, scene):
        yield Reshape(entry.func, shape)
        for stage in func.stages if len(func.stages) > 1 else ():
            yield Reshape(entry.func, shape, stage.index)
    extents = scene.extents.get(func.name, ())
    for stage, nest in stage_schedules(scene.extended, entry):
        for i, change in enumerate(nest.splits):
            if isinstance(change, Split):
                most = _extent(change.old, extents)
                for factor in dict.fromkeys(int(change.factor * by) for by in RESIZES):
                    if 2 <= factor <= most:
                        yield Resize(entry.func, stage.index, i, factor)
        yield from _steps(entry.func, func, stage.index, nest)
        for at, (inner, outer) in enumerate(zip(nest.loops, nest.loops[1:], strict=False)):
            if {inner.mapping, outer.mapping} == {"serial"}:
                yield Swap(entry.func, stage.index, at)
        for loop in nest.loops[-2:] if entry.compute.kind == "root" else ():
            if loop.mapping in ("serial", "parallel") and not _reduces(loop.name):
                other: Mapping = "serial" if loop.mapping == "parallel" else "parallel"
                yield Remap(entry.func, stage.index, loop.name, other)
    yield from factor_moves(entry, scene)
    yield from staging_moves(entry, schedule, scene)


def _extent(loop: str, extents: tuple[float, ...]) -> float:
    found = origin(loop)
    if found is None or found[0] == "r" or found[1] >= len(extents):
        return np.inf
    return extents[found[1]]


def _steps(i: int, func: Func, stage: int, nest: StageSchedule) -> Iterator[Move]:
    runs = [loop for loop in nest.loops if _reduces(loop.name)]
    if not runs or runs[0].mapping != "serial" or not runs[0].name[1:].isdigit():
        return
    # Vectors that add to places that depend on data are taken apart, in parallel loops into
    # atomic additions.
    vector = (
        is_associative(func.stages[stage])
        and is_reorderable(func.stages[stage])
        and not any(isinstance(node, Call) for node in walk(*func.stages[stage].args))
        and not any(loop.mapping == "vectorized" for loop in nest.loops)
    )
    for count in STEPS:
        yield Steps(i, stage, count, "unrolled")
        if vector and count >= LEAST_LANES:
            yield Steps(i, stage, count, "vectorized")
