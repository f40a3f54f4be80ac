"""The loops of a stage under a schedule, by canonical name.

A stage starts with the loops of its definition, named ``v0``, ``v1`` … and ``r0``, ``r1`` …
Splits and fusions replace some of them by new loops. This module applies these changes, so that
other modules can look up a loop's kind, extent and origin.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.halide.ir.algorithm import Algorithm, Const, Expr, Func, LoopKind, Stage
from tilewright.halide.ir.loops import pure_loop, reduction_loop
from tilewright.halide.ir.schedule import (
    FuncSchedule,
    Fuse,
    Schedule,
    ScheduledLoop,
    ScheduleError,
    Split,
    StageSchedule,
    Tail,
)

GUARDED: frozenset[Tail] = frozenset(
    {"guard_with_if", "predicate", "predicate_loads", "predicate_stores"}
)
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_ORIGINAL = re.compile(r"[vr]\d+")
# Nests whose loops are kept: searches ask for the same ones again and again.
ENTRIES = 4096


@dataclass(frozen=True, slots=True)
class NestLoop:
    """One loop of a nest.

    `extent` is the number of iterations if it is a known constant, else None. `sources` are the
    canonical names of the stage's original loops that it iterates over. `inside` is whether it
    descends from the inner loop of a split. `guarded` is whether a condition may skip some of its
    iterations, as with the tails ``guard_with_if`` and ``predicate``.
    """

    name: str
    kind: LoopKind
    extent: int | None
    sources: tuple[str, ...]
    inside: bool = False
    guarded: bool = False

    @property
    def reduction(self) -> bool:
        """Whether the loop is an RVar in Halide."""
        return self.kind != "pure"


def original_loops(func: Func, stage: Stage) -> tuple[NestLoop, ...]:
    """Return the loops of a stage's definition, innermost first, under canonical names."""
    rvars = {rvar.name: i for i, rvar in enumerate(stage.rvars)}
    loops = []
    for loop in stage.loops:
        name: str
        extent: int | None
        if loop.kind == "pure" and loop.name in func.args:
            bound = func.bounds.get(loop.name)
            name, extent = pure_loop(func.args.index(loop.name)), bound.extent if bound else None
        elif loop.name not in rvars:
            raise ScheduleError(
                f"{func.name} already has a schedule: its loop {loop.name} is not in its "
                "definition; serialise the pipeline before scheduling it"
            )
        else:
            index = rvars[loop.name]
            name, extent = reduction_loop(index), _constant(stage.rvars[index].extent)
        loops.append(NestLoop(name, loop.kind, extent, (name,)))
    return tuple(loops)


def _constant(expr: Expr) -> int | None:
    return expr.value if isinstance(expr, Const) and isinstance(expr.value, int) else None


def split_loops(func: Func, stage: Stage, schedule: StageSchedule) -> tuple[NestLoop, ...]:
    """Return the loops after all splits and fusions and before reordering, innermost first.

    Raises:
        ScheduleError: A split or a fusion names a loop that does not exist, or gives a new loop a
            name that is taken.
    """
    loops = list(original_loops(func, stage))
    used = {loop.name for loop in loops}
    for change in schedule.splits:
        if isinstance(change, Split):
            _split(loops, change, used)
        else:
            _fuse(loops, change, used)
    return tuple(loops)


@lru_cache(maxsize=ENTRIES)
def scheduled_loops(func: Func, stage: Stage, schedule: StageSchedule) -> tuple[NestLoop, ...]:
    """Return the loops of the final nest, innermost first, in the order of `schedule.loops`.

    Raises:
        ScheduleError: `schedule.loops` is not a permutation of the loops that remain after splits
            and fusions.
    """
    by_name = {loop.name: loop for loop in split_loops(func, stage, schedule)}
    listed = [loop.name for loop in schedule.loops]
    unknown = [name for name in listed if name not in by_name]
    missing = [name for name in by_name if name not in listed]
    if unknown or missing or len(listed) != len(set(listed)):
        raise ScheduleError(
            f"the loops of a stage must be {sorted(by_name)}, each once, but are {listed}"
        )
    return tuple(by_name[name] for name in listed)


def default_stage(func: Func, stage: Stage) -> StageSchedule:
    """Return the nest of a stage without any scheduling directives."""
    return StageSchedule(
        (), tuple(ScheduledLoop(loop.name) for loop in original_loops(func, stage))
    )


_EXACT: frozenset[Tail] = frozenset({"guard_with_if", "predicate"})


def _single_points(nest: StageSchedule) -> StageSchedule:
    """Return the nest with one point per GPU thread, where a thread has several of a tile.

    A thread keeps the values of its points in registers, whose number must be constant. Halide
    cannot infer a constant number if each point is guarded::

        before: v0 -> v0_b, v0_i by 128; v0_i -> v0_t, v0_r by 4      after: v0 -> v0_b, v0_t by 32
    """
    mapped = {loop.name: loop.mapping for loop in nest.loops}
    splits = list(nest.splits)
    dropped: set[str] = set()
    for tile in nest.splits:
        for points in nest.splits:
            if (
                isinstance(tile, Split)
                and isinstance(points, Split)
                and tile.tail not in _EXACT
                and points.old == tile.inner
                and mapped.get(points.outer) == "gpu_thread"
                and points.inner in mapped
            ):
                factor = -(-tile.factor // points.factor)
                splits[splits.index(tile)] = replace(tile, inner=points.outer, factor=factor)
                splits.remove(points)
                dropped.add(points.inner)
    loops = tuple(loop for loop in nest.loops if loop.name not in dropped)
    return replace(nest, splits=tuple(splits), loops=loops)


def points_of_threads(nest: StageSchedule) -> dict[Split, Split]:
    """Return the splits that give each GPU thread several unrolled points, with parts swapped.

    There are none in a nest with block loops, because that is a kernel's output.
    """
    mapped = {loop.name: loop.mapping for loop in nest.loops}
    if "gpu_block" in mapped.values():
        return {}
    return {
        change: replace(change, outer=change.inner, inner=change.outer)
        for change in nest.splits
        if isinstance(change, Split)
        and mapped.get(change.outer) == "gpu_thread"
        and mapped.get(change.inner) == "unrolled"
    }


def _strided_points(nest: StageSchedule) -> StageSchedule:
    """Return the nest with one point per GPU thread at a time, where a thread has several.

    This is for Funcs computed in blocks, where `_single_points` is for outputs. A serial loop
    around the threads goes over the points, which are as far apart as there are threads::

        before: v0 -> v0_t, v0_r by 4 (unrolled)      after: v0 -> v0_r (serial), v0_t by 4
    """
    swapped = points_of_threads(nest)
    if not swapped:
        return nest
    names = {split.inner for split in swapped}
    splits = tuple(
        swapped.get(change, change) if isinstance(change, Split) else change
        for change in nest.splits
    )
    loops = [loop for loop in nest.loops if loop.name not in names]
    around = 1 + max(i for i, loop in enumerate(loops) if loop.mapping == "gpu_thread")
    serial = [replace(loop, mapping="serial") for loop in nest.loops if loop.name in names]
    return replace(nest, splits=splits, loops=(*loops[:around], *serial, *loops[around:]))


def vectors_first(nest: StageSchedule, extents: Sequence[int]) -> StageSchedule:
    """Return the nest with loops split into vectors first, where the last tile lacks some.

    Guards then leave out whole vectors of the last tile, not one lane at a time::

        before: v0 -> v0_o, v0_i by 512; v0_i -> v0_io, v0_ii by 32
        after:  v0 -> v0_i, v0_ii by 32; v0_i -> v0_o, v0_io by 16

    `extents` are those of the Func's dimensions.
    """
    full = {pure_loop(d): extent for d, extent in enumerate(extents)}
    lanes = {loop.name for loop in nest.loops if loop.mapping == "vectorized"}
    splits = list(nest.splits)
    for tiles, vectors in itertools.product(nest.splits, nest.splits):
        if (
            isinstance(tiles, Split)
            and isinstance(vectors, Split)
            and tiles.old in full
            and tiles.inner == vectors.old
            and vectors.inner in lanes
            and tiles.factor % vectors.factor == 0
            and -full[tiles.old] % tiles.factor >= vectors.factor
        ):
            whole = replace(vectors, old=tiles.old, outer=vectors.old)
            count = tiles.factor // vectors.factor
            outside = replace(tiles, old=vectors.old, inner=vectors.outer, factor=count)
            splits.remove(vectors)
            at = splits.index(tiles)
            splits[at : at + 1] = [whole, outside]
    return replace(nest, splits=tuple(splits))


def guarded(nest: StageSchedule) -> StageSchedule:
    """Return the nest with every split guarded, so that it is correct at every size.

    The loop over the points of one GPU thread is removed or moved outside the threads, so nothing
    may be computed at it. Loop partitioning is left on only for loops directly around vectors.
    Elsewhere it would copy all code inside the loop, for calls that are too small to gain from it.
    """
    nest = _strided_points(_single_points(nest))
    splits = tuple(
        replace(change, tail="guard_with_if")
        if isinstance(change, Split) and change.tail not in _EXACT
        else change
        for change in nest.splits
    )
    inside = {loop.name for loop in nest.loops if loop.mapping in ("vectorized", "unrolled")}
    cuts = [change for change in splits if isinstance(change, Split)]
    cut = {change.outer for change in cuts if change.inner in inside}
    # Where vectors are split first, the loop over those of a tile.
    cut |= {change.inner for change in cuts if change.old in cut}
    loops = tuple(
        loop if loop.name in cut or loop.name in inside else replace(loop, partition="never")
        for loop in nest.loops
    )
    return replace(nest, splits=splits, loops=loops, specialize=(), sizes=())


def all_guarded(schedule: Schedule) -> Schedule:
    """Return the schedule with every split of every nest guarded."""
    funcs = tuple(
        replace(entry, stages=tuple(guarded(nest) for nest in entry.stages))
        for entry in schedule.funcs
    )
    return replace(schedule, funcs=funcs, variants=())


def exact_size(schedule: Schedule) -> Schedule:
    """Return the schedule without the conditions on output sizes."""
    funcs = tuple(
        replace(entry, stages=tuple(replace(nest, sizes=()) for nest in entry.stages))
        for entry in schedule.funcs
    )
    return replace(schedule, funcs=funcs, variants=())


def stage_schedules(
    algorithm: Algorithm, schedule: FuncSchedule
) -> tuple[tuple[Stage, StageSchedule], ...]:
    """Return each stage of a Func with its nest, or its default nest if the schedule has none."""
    func = algorithm.funcs[schedule.func]
    if not schedule.stages:
        return tuple((stage, default_stage(func, stage)) for stage in func.stages)
    if len(schedule.stages) != len(func.stages):
        raise ScheduleError(
            f"{func.name} has {len(func.stages)} stages, but its schedule has "
            f"{len(schedule.stages)}"
        )
    return tuple(zip(func.stages, schedule.stages, strict=True))


def _find(loops: list[NestLoop], name: str) -> int:
    for i, loop in enumerate(loops):
        if loop.name == name:
            return i
    raise ScheduleError(f"there is no loop {name!r}; the loops are {[loop.name for loop in loops]}")


def _take(name: str, used: set[str]) -> None:
    if name in used:
        raise ScheduleError(f"two loops are called {name!r}")
    if not _NAME.fullmatch(name) or _ORIGINAL.fullmatch(name):
        raise ScheduleError(
            f"{name!r} cannot name a new loop; a name must be a letter followed by letters, "
            "digits and _, and not of the form v0 or r0"
        )
    used.add(name)


def _split(loops: list[NestLoop], split: Split, used: set[str]) -> None:
    at = _find(loops, split.old)
    _take(split.outer, used)
    _take(split.inner, used)
    if split.factor < 1:
        raise ScheduleError(f"loop {split.old!r} is split by {split.factor}; at least 1 is needed")
    old = loops[at]
    outer_extent = None if old.extent is None else -(-old.extent // split.factor)
    exact = old.extent is not None and old.extent % split.factor == 0
    guarded = old.guarded or (split.tail in GUARDED and not exact)
    inner = NestLoop(split.inner, old.kind, split.factor, old.sources, True, guarded)
    outer = NestLoop(split.outer, old.kind, outer_extent, old.sources, old.inside, guarded)
    loops[at : at + 1] = [inner, outer]


def _fuse(loops: list[NestLoop], fuse: Fuse, used: set[str]) -> None:
    outer = loops.pop(_find(loops, fuse.outer))
    at = _find(loops, fuse.inner)
    inner = loops[at]
    _take(fuse.fused, used)
    kinds: tuple[LoopKind, ...] = ("impure_rvar", "pure_rvar", "pure")
    kind = next(kind for kind in kinds if kind in (inner.kind, outer.kind))
    known = inner.extent is not None and outer.extent is not None
    loops[at] = NestLoop(
        fuse.fused,
        kind,
        (inner.extent or 0) * (outer.extent or 0) if known else None,
        (*inner.sources, *outer.sources),
        inner.inside or outer.inside,
        inner.guarded or outer.guarded,
    )
