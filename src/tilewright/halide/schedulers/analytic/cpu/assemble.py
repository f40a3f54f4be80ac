"""From a plan to loops: splits, loop order and mapping of the stages of a group on a CPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.halide.analysis.bounds import Box, Interval
from tilewright.halide.analysis.specialization import known_values
from tilewright.halide.ir.algorithm import Func
from tilewright.halide.ir.loops import part_of, pure_loop, reduction_loop, runs_over, stage_suffix
from tilewright.halide.ir.schedule import (
    ROOT,
    DimensionBounds,
    FuncSchedule,
    Fuse,
    Level,
    ScheduledLoop,
    Split,
    StageSchedule,
    Tail,
)
from tilewright.halide.schedulers.analytic.cpu.blocks import Block, fit_block
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.interleaved import interleaved_conditions
from tilewright.halide.schedulers.analytic.cpu.parallel_rvars import parallel_rvar
from tilewright.halide.schedulers.analytic.cpu.regions import Window
from tilewright.halide.schedulers.analytic.cpu.tile_loops import parallelised, transposing
from tilewright.halide.schedulers.analytic.grouping import Group


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tiling of a group's output.

    `sizes` is the tile size by dimension (the extent or more: not tiled), `order` the dimensions
    of the tile loops from innermost to outermost. `sliding` is the window along which members are
    computed row by row, if any. With `deep`, they are computed one block of a row at a time.
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]
    sliding: Window | None = None
    deep: bool = False


@dataclass(frozen=True, slots=True)
class _Nest:
    """The schedule of a stage and the loops at which other Funcs may be computed."""

    stage: StageSchedule
    tile_level: str | None
    row_level: str | None
    block_level: str | None


def stage_nest(
    costs: CpuCosts,
    func: Func,
    index: int,
    extents: Sequence[float],
    tiling: Tiling | None,
    cores: int,
    alone: bool = False,
    aligned: bool = True,
    borders: bool = False,
) -> _Nest:
    """Return the loop nest of a stage over a region of the given extents.

    With a `tiling`, the stage belongs to the output of a group: it gets tile loops, and the
    outermost of these is parallel. Without, it belongs to a member, which is computed completely
    at its compute level. `alone` says that the group has no other Funcs, `aligned` whether bounds
    are aligned, so that the Func's phases are unrolled, `borders` whether other Funcs of the group
    read clamped coordinates in loops over vectors inside the tile loops.
    """
    dims = sorted(costs.pure_loops(func.name, index))
    sizes = {d: int(extents[d]) for d in dims}
    if tiling is not None:
        sizes = {d: min(sizes[d], tiling.sizes[d]) for d in dims}
    block = fit_block(
        costs.block(func.name, index),
        {d: sizes[d] for d in dims} | {d: extents[d] for d in range(len(extents)) if d not in dims},
    )
    if not aligned:
        block = replace(block, unrolled=())
    loops = _Loops(costs, func, index, block, sizes)
    for d in dims:
        loops.split(d, tiled=tiling is not None and tiling.sizes[d] < extents[d])
    if alone:
        loops.across = parallel_rvar(costs, func.name, index, loops.tile_loops)
    slides = tiling.sliding if tiling is not None else None
    within_tile, sequence = loops.within_tile(slides)
    body = loops.body(within_tile, sequence)
    cut = loops.cut(within_tile, borders)
    body = [loop if loop.name in cut else replace(loop, partition="never") for loop in body]
    row_level = None if slides is None else loops.inner.get(slides.dimension)
    block_level = within_tile[0].name if within_tile else None
    tile_level: str | None = None
    if tiling is not None:
        outer = loops.over_tiles(tiling.order, extents, cores, cut)
        body += outer
        tile_level = outer[0].name if outer else None
    return _Nest(
        StageSchedule(tuple(loops.splits), tuple(body), atomic=loops.atomic),
        tile_level,
        row_level,
        block_level or tile_level,
    )


class _Loops:
    """Builds the loops of one stage.

    `tile_loops` maps dimensions to loops over tiles, `inner` to loops within a tile that are not
    part of the block. `block_loops` and `row_loops` are the loops of the block, innermost first.
    `atomic` says whether a reduction loop is vectorised. `across` is a reduction loop to run in
    parallel outside all others, with its iterations per task.
    """

    def __init__(
        self, costs: CpuCosts, func: Func, index: int, block: Block, sizes: Mapping[int, int]
    ) -> None:
        self.costs = costs
        self.func = func
        self.index = index
        self.block = block
        self.sizes = sizes
        self.suffix = stage_suffix(index)
        self.tail: Tail = "shift_inwards" if index == 0 else "guard_with_if"
        self.aligned = {block.vector} & costs.alignment.moduli(func.name).keys()
        self.splits: list[Split | Fuse] = []
        self.block_loops: list[ScheduledLoop] = []
        self.row_loops: list[ScheduledLoop] = []
        self.inner: dict[int, str] = {}
        self.tile_loops: dict[int, str] = {}
        self.atomic = False
        self.across: tuple[str, int] | None = None

    def split(self, d: int, tiled: bool) -> None:
        """Split the loop over dimension `d`: into tiles if `tiled`, and into its blocks, if any."""
        loop, block = pure_loop(d), self.block
        if tiled:
            self.tile_loops[d], loop = self._part(d, "t"), self._part(d, "n")
            self._cut(pure_loop(d), self.tile_loops[d], loop, self.sizes[d], self._tail(d))
        if d == block.vector:
            loop = self._blocks(d, loop, "w", block.width)
            if block.vectors > 1:
                vector, unrolled = self._part(d, "v"), self._part(d, "u")
                self._cut(
                    loop, unrolled, vector, block.lanes, self._tail(d, block.width % block.lanes)
                )
                self.block_loops.append(ScheduledLoop(vector, "vectorized"))
                self.block_loops.append(ScheduledLoop(unrolled, "unrolled"))
            else:
                self.block_loops.append(ScheduledLoop(loop, "vectorized"))
        elif d == block.row:
            loop = self._blocks(d, loop, "u", block.rows)
            self.row_loops.append(ScheduledLoop(loop, "unrolled"))
        elif d in (phases := dict(block.unrolled)):
            loop = self._blocks(d, loop, "u", phases[d])
            self.row_loops.append(ScheduledLoop(loop, "unrolled"))
        else:
            self.inner[d] = loop

    def _part(self, d: int, role: str) -> str:
        """Return the name of a part of the loop over dimension `d` (see `part_of`)."""
        return part_of(pure_loop(d), role, self.index)

    def _blocks(self, d: int, loop: str, kind: str, size: int) -> str:
        """Return the loop within blocks along `d`; add one over blocks if there are several."""
        if self.sizes[d] == size and d in self.tile_loops:
            return loop
        self.inner[d], within = self._part(d, "b"), self._part(d, kind)
        rest = self.sizes[d] % size if d in self.tile_loops else size
        self._cut(loop, self.inner[d], within, size, self._tail(d, rest))
        return within

    def _tail(self, d: int, rest: int = 1) -> Tail:
        """Return the tail strategy of a split along `d` with `rest` iterations in the last part.

        Aligned bounds need a guard: the last part may be unaligned if it is shifted inwards.
        """
        return "guard_with_if" if rest and d in self.aligned else self.tail

    def _cut(self, loop: str, outer: str, inner: str, factor: int, tail: Tail) -> None:
        self.splits.append(Split(loop, outer, inner, factor, tail))

    def within_tile(self, slides: Window | None) -> tuple[list[ScheduledLoop], list[int]]:
        """Return the loops within a tile and their dimensions, innermost first."""
        costs, inner = self.costs, self.inner
        sequence = costs.loop_order(self.func.name, inner)
        if slides is not None and slides.dimension in inner:
            sequence.remove(slides.dimension)
            sequence.append(slides.dimension)
        loops = [ScheduledLoop(inner[d]) for d in sequence]
        if slides is not None and slides.dimension in inner and slides.step > 1:
            # The rows of one step form an inner loop: members are computed once per step.
            rows = inner[slides.dimension]
            self._cut(rows, part_of(rows, "s"), part_of(rows, "r"), slides.step, self.tail)
            loops[-1:] = [ScheduledLoop(part_of(rows, "r")), ScheduledLoop(part_of(rows, "s"))]
            inner[slides.dimension] = part_of(rows, "s")
        adjacent = costs.companion(self.func.name, self.index)
        if adjacent in inner and (slides is None or slides.dimension != adjacent):
            size = self.sizes[adjacent]
            loops = transposing(costs, self.func, adjacent, size, loops, self.splits, self.tail)
        return loops, sequence

    def over_tiles(
        self, order: Sequence[int], extents: Sequence[float], cores: int, cut: set[str]
    ) -> list[ScheduledLoop]:
        """Return the loops over tiles, one parallel; Halide may partition those in `cut`."""
        tiles = self.tile_loops
        if self.across is not None:
            run, task = self.across
            tasks, within = part_of(run, "t", self.index), part_of(run, "n", self.index)
            self.splits.append(Split(run, tasks, within, task, "guard_with_if"))
            serial = [*(tiles[d] for d in order if d in tiles), within]
            return [*map(ScheduledLoop, serial), ScheduledLoop(tasks, "parallel")]
        counts = {tiles[d]: math.ceil(extents[d] / self.sizes[d]) for d in tiles}
        outer = [tiles[d] for d in order if d in tiles]
        outer, parallel = parallelised(outer, counts, self.splits, cores, self.suffix)
        return [
            ScheduledLoop(
                name,
                "parallel" if name == parallel else "serial",
                "auto" if name in cut else "never",
            )
            for name in outer
        ]

    def body(
        self, within_tile: Sequence[ScheduledLoop], sequence: Sequence[int]
    ) -> list[ScheduledLoop]:
        """Return the loops of a tile and its blocks, innermost first."""
        stage = self.costs.analysis.view.stages(self.func.name)[self.index]
        summary = self.costs.analysis.summaries(self.func.name)[self.index]
        place = {r.name: i for i, r in enumerate(stage.rvars)}
        names = [reduction_loop(place[r.name]) for r in stage.loops if r.kind != "pure"]
        outside = None if self.across is None else self.across[0]
        reductions = [ScheduledLoop(name) for name in names if name != outside]
        block = [*self.block_loops, *self.row_loops]
        if self.block.steps > 1 and reductions:
            run = reductions[0].name
            outer, inner = part_of(run, "b", self.index), part_of(run, "u", self.index)
            self.splits.append(Split(run, outer, inner, self.block.steps, "guard_with_if"))
            reductions[0] = ScheduledLoop(outer)
            # Halide 21 cannot vectorise reductions of a Tuple; LLVM vectorises the unrolled loop.
            self.atomic = len(summary.types) == 1
            block.insert(0, ScheduledLoop(inner, "vectorized" if self.atomic else "unrolled"))
        if not (summary.scans or summary.scatter or self.block.swept):
            return [*block, *reductions, *within_tile]
        # The contiguous dimension inside the reduction loops keeps its cache lines in use.
        innermost = self.costs.innermost(self.func.name)
        inside = zip(sequence, within_tile, strict=True)
        first = [loop for d, loop in inside if d == innermost or not reductions]
        rest = [loop for loop in within_tile if loop not in first]
        return [*block, *first, *reductions, *rest]

    def cut(self, within_tile: Sequence[ScheduledLoop], borders: bool) -> set[str]:
        """Return the loops that Halide may partition into borders and a body without conditions.

        Partitioning copies all code within the loop. It is allowed only where conditions are
        expensive: in loops over vectors, and over parts with guarded tails.

        Args:
            within_tile: the loops within a tile, innermost first.
            borders: whether other Funcs read clamped coordinates in loops over vectors in a tile.
        """
        vector = self.block.vector
        found = {loop.name for loop in self.block_loops}
        for change in self.splits:
            if isinstance(change, Split) and (
                change.tail == "guard_with_if" or runs_over(change.old, vector)
            ):
                found.add(change.outer)
        if vector is None:
            found.update(loop.name for loop in within_tile[:1])
        tiles = None if vector is None else self.tile_loops.get(vector)
        if tiles is not None and (
            vector in self.inner
            or (borders and not _clamped(self.costs, self.func.name, self.index, vector))
        ):
            # All of a tile at a border would run the code with conditions.
            found.discard(tiles)
        return found


def group_schedules(
    costs: CpuCosts, group: Group, tiling: Tiling, cores: int
) -> list[FuncSchedule]:
    """Return the schedules of all Funcs in a group."""
    analysis = costs.analysis
    view = analysis.view
    order = view.algorithm.order
    output = view.by_name[group.output]
    region = analysis.regions[group.output]
    full = [_whole(i) for i in region]
    alone = len(group.members) == 1
    borders = _has_borders(costs, group)
    nests = [
        stage_nest(costs, output, s.index, full, tiling, cores, alone, borders=borders)
        for s in view.stages(output.name)
    ]
    me = order[output.name]
    stages = (s for name in group.members for s in view.stages(name))
    known = *known_values(stages, costs.analysis.known), *interleaved_conditions(costs, group)
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
            bounds=_aligned_bounds(costs, output, full),
        )
    ]
    if alone:
        return result
    levels = _Levels(costs, group, tiling, nests)
    for name in reversed(group.members[:-1]):
        func = view.by_name[name]
        store, compute = levels.place(name)
        extents = levels.extents(name)
        aligned = levels.aligned(name)
        made = tuple(
            stage_nest(costs, func, s.index, extents, None, cores, aligned=aligned)
            for s in view.stages(name)
        )
        levels.nests[name] = made
        result.append(
            FuncSchedule(
                order[name],
                compute,
                store,
                stages=tuple(n.stage for n in made),
                storage_order=_storage_order(costs, func),
                bounds=_aligned_bounds(costs, func, extents) if aligned else (),
            )
        )
    return result


def _has_borders(costs: CpuCosts, group: Group) -> bool:
    """Return whether a member of the tiles reads beyond the borders of its inputs in vectors."""
    return any(
        _clamped(costs, name, s.index, costs.block(name, s.index).vector)
        for name in group.members[:-1]
        if name not in costs.nested
        for s in costs.analysis.view.stages(name)
    )


def middle_tile(sizes: Sequence[int], region: Box) -> list[Interval]:
    """Return the middle tile of an output; the last tile ends with `region` (shift_inwards).

    Args:
        sizes: tile sizes by dimension, in elements.
        region: the region computed of the output.
    """
    box = []
    for size, interval in zip(sizes, region, strict=True):
        whole = _whole(interval)
        tile = min(size, whole)
        count = math.ceil(whole / max(tile, 1.0))  # outputs may be empty
        low = float(np.max(interval.lo))
        offset = min(tile * (count // 2), whole - tile)
        start = (low if math.isfinite(low) else 0.0) + offset
        box.append(Interval(start, start + tile - 1.0))
    return box


class _Levels:
    """The compute and store levels of a group's members, and the regions computed at a time."""

    def __init__(
        self, costs: CpuCosts, group: Group, tiling: Tiling, output: Sequence[_Nest]
    ) -> None:
        self.costs = costs
        self.group = group
        self.tiling = tiling
        self.nests: dict[str, tuple[_Nest, ...]] = {group.output: tuple(output)}
        self.levels: dict[str, tuple[Level, Level]] = {}
        box = middle_tile(tiling.sizes, costs.analysis.regions[group.output])
        self.rows, _ = costs.member_boxes(group, tuple(box))
        self.slides: frozenset[str] = frozenset()
        if tiling.sliding is not None:
            self._slide(box, tiling.sliding)

    def _slide(self, box: Sequence[Interval], window: Window) -> None:
        """Find members' regions per step of the window, and which members have rows to reuse."""
        along, step = window
        first = box[along].lo
        row = list(box)
        row[along] = Interval(first, first + step - 1.0)
        block = self.costs.block(self.group.output, 0)
        if self.tiling.deep and block.vector is not None:
            left = box[block.vector].lo
            row[block.vector] = Interval(left, left + block.width - 1.0)
        self.rows, _ = self.costs.member_boxes(self.group, tuple(row))
        row[along] = Interval(first, first + 2.0 * step - 1.0)
        pairs, _ = self.costs.member_boxes(self.group, tuple(row))
        # If two steps share no values, nothing is kept between them.
        self.slides = frozenset(
            name
            for name, box in self.rows.items()
            if _volume(pairs[name]) < SEARCH.kept_rows * _volume(box)
        )

    def place(self, name: str) -> tuple[Level, Level]:
        """Return a member's store and compute levels, given those of its readers."""
        order = self.costs.analysis.view.algorithm.order
        nest = self.costs.nested.get(name)
        if nest is not None:
            host = self.nests[nest.host]
            block = host[-1].block_level
            level = (
                self.levels.get(nest.host, (ROOT, ROOT))[1]
                if block is None
                else Level("at", order[nest.host], len(host) - 1, block)
            )
            self.levels[name] = (level, level)
            return level, level
        output = self.nests[self.group.output]
        last = output[-1]

        def at(loop: str | None) -> Level:
            return (
                ROOT
                if loop is None
                else Level("at", order[self.group.output], len(output) - 1, loop)
            )

        slides = self.tiling.sliding is not None
        innermost = last.block_level if self.tiling.deep else last.row_level
        compute = at(innermost if slides else last.tile_level)
        keeps = not slides or name in self.slides
        self.levels[name] = (at(last.tile_level) if keeps else compute, compute)
        return self.levels[name]

    def aligned(self, name: str) -> bool:
        """Return whether a member's bounds may be aligned: it is computed in few, large pieces.

        The pieces of a sliding window and of blocks would be computed in part twice.
        """
        return self.tiling.sliding is None and name not in self.costs.nested

    def extents(self, name: str) -> list[float]:
        """Return the extents of the region of a member that is computed at a time."""
        nest = self.costs.nested.get(name)
        if nest is None:
            return [_whole(i) for i in self.rows[name]]
        block = self.costs.block(nest.host, 0)
        return [
            float(block.width if d == block.vector else block.rows if d == block.row else 1)
            for d in range(len(self.costs.analysis.view.by_name[name].args))
        ]


def _clamped(costs: CpuCosts, name: str, index: int, d: int | None) -> bool:
    """Return whether a stage reads clamped coordinates at an end of dimension `d`, if any."""
    return any(count > 0 for at, count in costs.facts.ends(name, index) if at == d)


def _storage_order(costs: CpuCosts, func: Func) -> tuple[int, ...]:
    inner = costs.innermost(func.name)
    if inner == 0:
        return ()
    return (inner, *(d for d in range(len(func.args)) if d != inner))


def _aligned_bounds(
    costs: CpuCosts, func: Func, extents: Sequence[float]
) -> tuple[DimensionBounds, ...]:
    """Return the directives that align a Func's bounds along its last stage's block."""
    block = costs.block(func.name, len(func.stages) - 1)
    block = fit_block(block, dict(enumerate(extents)))
    return costs.alignment.bounds(func.name, {block.vector, *(d for d, _ in block.unrolled)})


def _volume(box: Box) -> float:
    return math.prod(_whole(interval) for interval in box)


def _whole(interval: Interval) -> float:
    value = float(np.max(interval.extent))
    return value if math.isfinite(value) else SEARCH.unknown_extent
