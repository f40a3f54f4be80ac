"""From a plan to loops: splits, order and mapping of every stage of a group on a CPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.halide.analysis.bounds import Box, Interval
from tilewright.halide.analysis.specialization import known_values
from tilewright.halide.ir.algorithm import Func
from tilewright.halide.ir.schedule import (
    ROOT,
    FuncSchedule,
    Fuse,
    Level,
    ScheduledLoop,
    Split,
    StageSchedule,
    Tail,
)
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.regions import Window
from tilewright.halide.schedulers.analytic.cpu.register_block import Block, scans, value_bytes
from tilewright.halide.schedulers.analytic.grouping import Group


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a group's output is tiled.

    `sizes` gives the tile in each dimension (at least the extent: not tiled), `order` the
    tile loops from innermost to outermost, `sliding` the dimension along which members are
    computed row by row, if any. With `deep`, they are computed for one block of the row at a
    time, right before it is used.
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]
    sliding: Window | None = None
    deep: bool = False


@dataclass(frozen=True, slots=True)
class _Nest:
    """One stage's schedule and the loops at which others may be computed."""

    stage: StageSchedule
    tile_level: str | None
    row_level: str | None
    block_level: str | None


def fit_block(block: Block, extents: Mapping[int, float]) -> Block:
    """The block, shrunk to a region: vectors no longer than it, no more rows than it has."""
    lanes, vectors, rows = block.lanes, block.vectors, block.rows
    if block.vector is not None:
        room = max(1, int(extents[block.vector]))
        vectors = max(1, min(vectors, room // lanes))
        while lanes > room:
            lanes //= 2
        if lanes < SEARCH.least_lanes:
            return Block(row=block.row, rows=rows) if block.row is not None else Block()
    if block.row is not None:
        rows = max(1, min(rows, int(extents[block.row])))
    row = block.row if rows > 1 else None
    return Block(block.vector, lanes, vectors, row, rows if row is not None else 1)


def stage_nest(
    costs: CpuCosts,
    func: Func,
    index: int,
    extents: Sequence[float],
    tiling: Tiling | None,
    cores: int,
) -> _Nest:
    """The nest of one stage over a region of the given extents.

    With a tiling, the stage belongs to a group's output: tile loops are made, the outermost
    of them parallel. Without, it is a member's, computed whole where it is needed.
    """
    view = costs.analysis.view
    stage = view.stages(func.name)[index]
    suffix = "" if index == 0 else f"_{index}"
    tail: Tail = "shift_inwards" if index == 0 else "guard_with_if"
    dims = sorted(costs.pure_loops(func.name, index))
    splits: list[Split | Fuse] = []
    block_loops: list[ScheduledLoop] = []
    row_loops: list[ScheduledLoop] = []
    inner: dict[int, str] = {}
    tile_loops: dict[int, str] = {}
    sizes = {d: int(extents[d]) for d in dims}
    if tiling is not None:
        sizes = {d: min(sizes[d], tiling.sizes[d]) for d in dims}
    block = fit_block(
        costs.block(func.name, index),
        {d: sizes[d] for d in dims} | {d: extents[d] for d in range(len(extents)) if d not in dims},
    )
    for d in dims:
        loop = f"v{d}"
        if tiling is not None and tiling.sizes[d] < extents[d]:
            tile_loops[d], within = f"v{d}t{suffix}", f"v{d}n{suffix}"
            splits.append(Split(loop, tile_loops[d], within, sizes[d], tail))
            loop = within
        if d == block.vector:
            if sizes[d] != block.width or d not in tile_loops:
                splits.append(Split(loop, f"v{d}b{suffix}", f"v{d}w{suffix}", block.width, tail))
                inner[d], loop = f"v{d}b{suffix}", f"v{d}w{suffix}"
            if block.vectors > 1:
                splits.append(Split(loop, f"v{d}u{suffix}", f"v{d}v{suffix}", block.lanes, tail))
                block_loops += [
                    ScheduledLoop(f"v{d}v{suffix}", "vectorized"),
                    ScheduledLoop(f"v{d}u{suffix}", "unrolled"),
                ]
            else:
                block_loops.append(ScheduledLoop(loop, "vectorized"))
        elif d == block.row:
            if sizes[d] != block.rows or d not in tile_loops:
                splits.append(Split(loop, f"v{d}b{suffix}", f"v{d}u{suffix}", block.rows, tail))
                inner[d], loop = f"v{d}b{suffix}", f"v{d}u{suffix}"
            row_loops.append(ScheduledLoop(loop, "unrolled"))
        else:
            inner[d] = loop
    summary = costs.analysis.summaries(func.name)[index]
    rvar_index = {r.name: i for i, r in enumerate(stage.rvars)}
    reductions = [
        ScheduledLoop(f"r{rvar_index[loop.name]}") for loop in stage.loops if loop.kind != "pure"
    ]
    innermost = costs.innermost(func.name)
    sequence = costs.loop_order(func.name, inner)
    slides = tiling.sliding if tiling is not None else None
    if slides is not None and slides.dimension in inner:
        sequence.remove(slides.dimension)
        sequence.append(slides.dimension)
    within_tile = [ScheduledLoop(inner[d]) for d in sequence]
    if slides is not None and slides.dimension in inner and slides.step > 1:
        # The rows of one step run inside, for one computation of every member.
        rows = inner[slides.dimension]
        splits.append(Split(rows, f"{rows}s", f"{rows}r", slides.step, tail))
        within_tile[-1:] = [ScheduledLoop(f"{rows}r"), ScheduledLoop(f"{rows}s")]
        inner[slides.dimension] = f"{rows}s"
    beside = costs.companion(func.name, index)
    if beside in inner and (slides is None or slides.dimension != beside):
        within_tile = _transposing(costs, func, beside, sizes[beside], within_tile, splits, tail)
    if scans(summary) or summary.scatter:
        # Running along the contiguous dimension inside a scan keeps its lines in cache.
        inside = zip(sequence, within_tile, strict=True)
        first = [loop for d, loop in inside if d == innermost or not reductions]
        rest = [loop for loop in within_tile if loop not in first]
        body = [*block_loops, *row_loops, *first, *reductions, *rest]
    else:
        body = [*block_loops, *row_loops, *reductions, *within_tile]
    # Cutting a loop into a clean body and borders copies everything computed inside it, so
    # only loops whose borders matter are cut: those over vectors, and those of guarded tails.
    vector_name = f"v{block.vector}" if block.vector is not None else None
    cut = {loop.name for loop in block_loops}
    for change in splits:
        if isinstance(change, Split) and (
            change.tail == "guard_with_if" or change.old.startswith(vector_name or "?")
        ):
            cut.add(change.outer)
    if vector_name is None:
        cut.update(loop.name for loop in within_tile[:1])
    body = [loop if loop.name in cut else replace(loop, partition="never") for loop in body]
    row_level = None
    if slides is not None:
        row_level = inner.get(slides.dimension)
    block_level = within_tile[0].name if within_tile else None
    tile_level: str | None = None
    if tiling is not None:
        outer = [tile_loops[d] for d in tiling.order if d in tile_loops]
        counts = {tile_loops[d]: math.ceil(extents[d] / sizes[d]) for d in tile_loops}
        outer, parallel = _parallelise(outer, counts, splits, cores, suffix)
        body += [
            ScheduledLoop(
                name,
                "parallel" if name == parallel else "serial",
                "auto" if name in cut else "never",
            )
            for name in outer
        ]
        tile_level = outer[0] if outer else None
    return _Nest(
        StageSchedule(tuple(splits), tuple(body)), tile_level, row_level, block_level or tile_level
    )


def _transposing(
    costs: CpuCosts,
    func: Func,
    beside: int,
    size: int,
    loops: list[ScheduledLoop],
    splits: list[Split | Fuse],
    tail: Tail,
) -> list[ScheduledLoop]:
    """The loops within a tile, with the one of dimension `beside` moved next to the vectors.

    A long one is cut, so that the lines that its part of each row touches stay in cache.
    """
    name = next(loop.name for loop in loops if loop.name.startswith(f"v{beside}"))
    rest = [loop for loop in loops if loop.name != name]
    part = int(costs.companion_bytes) // value_bytes(func.types)
    if size <= part:
        return [ScheduledLoop(name), *rest]
    place = [loop.name for loop in loops].index(name)
    splits.append(Split(name, f"{name}o", f"{name}c", part, tail))
    rest.insert(place, ScheduledLoop(f"{name}o"))
    return [ScheduledLoop(f"{name}c"), *rest]


def _parallelise(
    outer: list[str],
    counts: Mapping[str, int],
    splits: list[Split | Fuse],
    cores: int,
    suffix: str,
) -> tuple[list[str], str | None]:
    """Fuses outer tile loops until there are tasks enough, and runs the outermost in parallel."""
    if not outer:
        return outer, None
    loops = list(outer)
    tasks = counts[loops[-1]]
    n = 0
    while tasks < SEARCH.tasks_per_core * cores and len(loops) > 1:
        fused = f"p{n}{suffix}"
        splits.append(Fuse(loops[-2], loops[-1], fused))
        tasks *= counts[loops[-2]]
        loops[-2:] = [fused]
        counts = {**counts, fused: tasks}
        n += 1
    return loops, loops[-1] if tasks > 1 else None


def group_schedules(
    costs: CpuCosts, group: Group, tiling: Tiling, cores: int
) -> list[FuncSchedule]:
    """The schedules of all Funcs of a group."""
    analysis = costs.analysis
    view = analysis.view
    order = view.algorithm.order
    output = view.by_name[group.output]
    region = analysis.regions[group.output]
    full = [_whole(i) for i in region]
    nests = [
        stage_nest(costs, output, s.index, full, tiling, cores) for s in view.stages(output.name)
    ]
    me = order[output.name]
    known = known_values(
        (s for name in group.members for s in view.stages(name)), costs.analysis.known
    )
    result = [
        FuncSchedule(
            me,
            ROOT,
            ROOT,
            stages=tuple(
                replace(n.stage, specialize=known if i == len(nests) - 1 else ())
                for i, n in enumerate(nests)
            ),
            storage_order=_storage_order(costs, output),
        )
    ]
    if len(group.members) == 1:
        return result
    last = nests[-1]
    stage = len(nests) - 1

    def at(loop: str | None) -> Level:
        return ROOT if loop is None else Level("at", me, stage, loop)

    box = []
    for d, interval in enumerate(region):
        size = min(tiling.sizes[d], full[d])
        count = math.ceil(full[d] / size)
        low = float(np.max(interval.lo)) if math.isfinite(float(np.max(interval.lo))) else 0.0
        start = low + size * (count // 2 if count > 1 else 0)
        box.append(Interval(start, start + size - 1.0))
    regions, _ = costs.member_boxes(group, tuple(box))
    rows = regions
    slides: set[str] = set()
    if tiling.sliding is not None:
        along, step = tiling.sliding
        first = box[along].lo
        row = list(box)
        row[along] = Interval(first, first + step - 1.0)
        block = costs.block(output.name, 0)
        if tiling.deep and block.vector is not None:
            left = box[block.vector].lo
            row[block.vector] = Interval(left, left + block.width - 1.0)
        rows, _ = costs.member_boxes(group, tuple(row))
        row[along] = Interval(first, first + 2.0 * step - 1.0)
        pairs, _ = costs.member_boxes(group, tuple(row))
        # Where two rows need no more in common, there is nothing to keep between them.
        slides = {
            name for name in rows if _volume(pairs[name]) < SEARCH.kept_rows * _volume(rows[name])
        }
    by_func: dict[str, tuple[_Nest, ...]] = {output.name: tuple(nests)}
    levels: dict[str, tuple[Level, Level]] = {}
    for name in reversed(group.members[:-1]):
        func = view.by_name[name]
        nest = costs.nested.get(name)
        if nest is not None:
            host = nest.host
            host_nest = by_func[host][-1]
            level = (
                Level("at", order[host], len(by_func[host]) - 1, host_nest.block_level)
                if host_nest.block_level is not None
                else levels.get(host, (ROOT, ROOT))[1]
            )
            levels[name] = (level, level)
            block = costs.block(host, 0)
            extents = [
                float(block.width if d == block.vector else block.rows if d == block.row else 1)
                for d in range(len(func.args))
            ]
        else:
            innermost = last.block_level if tiling.deep else last.row_level
            compute = at(innermost if tiling.sliding is not None else last.tile_level)
            keeps = tiling.sliding is None or name in slides
            levels[name] = (at(last.tile_level) if keeps else compute, compute)
            extents = [_whole(i) for i in rows[name]]
        by_func[name] = tuple(
            stage_nest(costs, func, s.index, extents, None, cores) for s in view.stages(name)
        )
        store, compute = levels[name]
        result.append(
            FuncSchedule(
                order[name],
                compute,
                store,
                stages=tuple(n.stage for n in by_func[name]),
                storage_order=_storage_order(costs, func),
            )
        )
    return result


def _storage_order(costs: CpuCosts, func: Func) -> tuple[int, ...]:
    inner = costs.innermost(func.name)
    if inner == 0:
        return ()
    return (inner, *(d for d in range(len(func.args)) if d != inner))


def _volume(box: Box) -> float:
    return math.prod(_whole(interval) for interval in box)


def _whole(interval: Interval) -> float:
    value = float(np.max(interval.extent))
    return value if math.isfinite(value) else SEARCH.unknown_extent
