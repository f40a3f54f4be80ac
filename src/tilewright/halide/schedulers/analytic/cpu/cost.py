"""What a group costs on a CPU, for a whole array of tilings at once.

The time of a group is estimated from what its tiles compute (vector kernels over the regions
that one tile needs, redundant work at the borders included) and what they move between the
levels of memory. The traffic into a cache follows from the largest sweep of consecutive
tiles whose data fits into it: what such a sweep touches is fetched once, what is outside it
again each time. Compute and traffic overlap, so the largest term counts in full and the
others in part.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.bounds import Bound, Box, Interval, stage_env, union_boxes
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Variable
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.register_block import (
    Block,
    best_block,
    block_cycles,
    companion,
    crossings,
    value_bytes,
)
from tilewright.halide.schedulers.analytic.grouping import Group

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GroupCosts:
    """Cycles of a group for each of N tilings (arrays of shape (N,)), and where they go.

    `sliding` says that members are stored once a tile and computed row by row.
    """

    cycles: Array
    compute: Array
    l2: Array
    l3: Array
    memory: Array
    overhead: Array
    tile_bytes: Array
    tasks: Array
    root_bytes: float
    fault: float


class Window(NamedTuple):
    """Members can slide along `dimension` of the output, `step` of its rows at a time."""

    dimension: int
    step: int = 1


@dataclass(frozen=True, eq=False)
class Regions:
    """What N tilings of a group touch, and the cycles that one tile of each computes.

    `held` has the members' boxes that are there at a time, without a window (the whole tile's)
    and with each. `outside` has what one tile touches outside the group, then what each longer
    sweep of consecutive tiles does; `swept` lists the dimensions along which the sweeps go.
    `strips` has what shorter sweeps touch, of the blocks inside a tile, and how many of each a
    tile has, the shortest first; they are only told apart where a block sums up a reduction,
    and so reads much again that the block before it has read.
    """

    full: Array
    tiles: Array
    counts: Array
    swept: tuple[int, ...]
    compute: Bound
    held: Mapping[Window | None, Mapping[str, Box]]
    outside: tuple[Mapping[str, Box], ...]
    strips: tuple[tuple[Array, Mapping[str, Box]], ...] = ()


class Nest(NamedTuple):
    """A reduction is computed in the innermost block of `host`, the one Func that reads it.

    Dimension `whole`, if any, is short and wholly inside that block.
    """

    host: str
    whole: int | None = None


class CpuCosts:
    """Costs the groups of one analysis on one machine.

    `nested` has the reductions that are computed in the innermost block of their one reader
    (nested fusion, Sioutas 2020, Section 4.3). `block_rank` takes that many blocks worse than
    the best for reductions; `transposed` stores what is inside the pipeline with its second
    dimension innermost.
    """

    def __init__(
        self,
        analysis: Analysis,
        model: CpuModel,
        nested: Mapping[str, Nest],
        block_rank: int = 0,
        transposed: bool = False,
    ) -> None:
        self.block_rank = block_rank
        self.transposed = transposed
        self.analysis = analysis
        self.model = model
        self.nested = nested
        self._hosts = {nest.host: guest for guest, nest in nested.items()}
        self._blocks: dict[tuple[str, int], Block] = {}
        self._cycles: dict[tuple[str, int], float] = {}
        self._bytes: dict[str, float] = {}

    # --- stages ---------------------------------------------------------------------------

    def innermost(self, name: str) -> int:
        """The dimension of a Func or input that is contiguous in memory."""
        if name in self.analysis.contiguous:
            return self.analysis.contiguous[name]
        if not self.transposed:
            return 0
        func = self.analysis.view.by_name.get(name)
        if (
            func is None
            or len(func.args) < 2
            or func.fixed
            or name in self.analysis.view.algorithm.outputs
            or name in self.nested
            or name in self._hosts
        ):
            return 0
        return 1

    def loop_order(self, name: str, dimensions: Iterable[int]) -> list[int]:
        """Dimensions of a Func in the order of the loops inside a tile, the innermost first."""
        inner = self.innermost(name)
        return sorted(dimensions, key=lambda d: (d != inner, d))

    def pure_loops(self, name: str, index: int) -> dict[int, str]:
        """The pure loop of each dimension of a Func over which a stage runs."""
        stage = self.analysis.view.stages(name)[index]
        pure = {loop.name for loop in stage.loops if loop.kind == "pure"}
        return {
            d: arg.name
            for d, arg in enumerate(stage.args)
            if isinstance(arg, Variable) and arg.name in pure
        }

    def block(self, name: str, index: int) -> Block:
        """The innermost block of a stage.

        A nested reduction and its reader share one, chosen for the reduction's update.
        """
        key = (name, index)
        known = self._blocks.get(key)
        if known is None:
            guest = self._hosts.get(name)
            if guest is not None:
                known = self.block(guest, len(self.analysis.view.stages(guest)) - 1)
            elif name in self.nested and index < len(self.analysis.view.stages(name)) - 1:
                known = self.block(name, len(self.analysis.view.stages(name)) - 1)
            else:
                region = self.analysis.regions[name]
                extents = {d: _finite(i.extent) for d, i in enumerate(region)}
                known = best_block(
                    self.analysis.summaries(name)[index],
                    self.pure_loops(name, index),
                    extents,
                    self.model,
                    self.innermost,
                    self.block_rank,
                    self.nested[name].whole if name in self.nested else None,
                )
            self._blocks[key] = known
        return known

    def block_cycles(self, name: str, index: int) -> float:
        """Cycles of a stage's block per iteration of its reduction loops."""
        key = (name, index)
        known = self._cycles.get(key)
        if known is None:
            summary = self.analysis.summaries(name)[index]
            known = block_cycles(
                summary,
                self.pure_loops(name, index),
                self.block(name, index),
                self.model,
                self.innermost,
            )
            self._cycles[key] = known
        return known

    @property
    def companion_bytes(self) -> float:
        """Bytes of each row that a transposing stage reads before it goes to other rows."""
        return min(256.0, self.model.l1_bytes / 64.0)

    def companion(self, name: str, index: int) -> int | None:
        """The dimension that a stage runs along next to its vectors, if it transposes."""
        block = self.block(name, index)
        if block.vector is None or name in self.nested or name in self._hosts:
            return None
        summary = self.analysis.summaries(name)[index]
        if any(loop.kind != "pure" for loop in summary.loops):
            return None
        return companion(summary, self.pure_loops(name, index), block.vector, self.innermost)

    def stage_cycles(
        self,
        name: str,
        index: int,
        extents: Mapping[str, Bound],
        members: Collection[str] = (),
    ) -> Bound:
        """Cycles to run a stage once over loops of the given extents.

        `members` are the Funcs whose values for the tile are at hand in a small buffer.
        """
        block = self.block(name, index)
        loops = self.pure_loops(name, index)
        vector = None if block.vector is None else loops.get(block.vector)
        row = None if block.row is None else loops.get(block.row)
        blocks: Bound = 1.0
        lines: Bound = 1.0
        for loop, extent in extents.items():
            if loop == vector:
                blocks = blocks * np.ceil(extent / block.width)
                continue
            steps = np.ceil(extent / block.rows) if loop == row else extent
            blocks, lines = blocks * steps, lines * steps
        cycles: Bound = blocks * self.block_cycles(name, index) + lines * self.model.row_cycles
        for callee in crossings(self.analysis.summaries(name)[index], vector, self.innermost):
            # Every lane touches a line of its own, and a long row of them outgrows the first
            # cache; in a large buffer the lines also lie in as many pages.
            lines_bytes = extents[vector or ""] * 64.0
            beside = self.companion(name, index)
            if beside is not None:
                lines_bytes = np.minimum(lines_bytes, block.lanes * self.companion_bytes)
            wait = 3.0 * (lines_bytes > 0.5 * self.model.l1_bytes)
            if callee not in members:
                wait = wait + 8.0 * (lines_bytes > 0.1 * self.model.l2_bytes)
            stall = np.asarray(blocks * block.points * wait, dtype=np.float64)
            cycles = cycles + stall
        return cycles

    # --- groups ---------------------------------------------------------------------------

    def member_boxes(self, group: Group, box: Box) -> tuple[dict[str, Box], dict[str, Box]]:
        """Regions of the members and of everything outside that one tile needs."""
        analysis = self.analysis
        inside: dict[str, Box] = {group.output: box}
        outside: dict[str, Box] = {}
        members = set(group.members)
        for name in reversed(group.members):
            wanted = inside.get(name)
            if wanted is None:
                continue
            if name != group.output:
                wanted = inside[name] = analysis.func_region(name, wanted)
            for callee, part in analysis.required_by(name, wanted).items():
                where = inside if callee in members else outside
                where[callee] = union_boxes(where.get(callee), part)
        return inside, outside

    def regions(
        self, group: Group, tiles: Array, order: Sequence[int], windows: Sequence[Window] = ()
    ) -> Regions:
        """What `group` needs for tile sizes `tiles` of shape (N, dimensions of the output).

        `order` lists the output's dimensions from the innermost tile loop to the outermost;
        `windows` are those along which its members may slide.
        """
        output = group.output
        region = self.analysis.regions[output]
        full = np.array([_finite(i.extent) for i in region])
        low = np.array([_finite(i.lo, 0.0) for i in region])
        tiles = np.minimum(tiles, full)
        counts = np.ceil(full / tiles)
        # One pass of region inference for the tiles, every sweep over consecutive tiles, and
        # one step of rows of each tile.
        shapes = [tiles]
        swept = tuple(d for d in order if np.any(counts[:, d] > 1))
        for d in swept:
            shape = shapes[-1].copy()
            shape[:, d] = full[d]
            shapes.append(shape)
        for window in windows:
            shape = tiles.copy()
            shape[:, window.dimension] = np.minimum(window.step, shape[:, window.dimension])
            shapes.append(shape)
        strips = self._strips(output, tiles)
        first_strip = len(shapes)
        shapes += [shape for shape, _ in strips]
        stacked = np.concatenate(shapes)
        start = low + stacked * np.floor(np.ceil(full / stacked) / 2.0)
        start = np.where(stacked < full, start, low)
        inside, outside = self.member_boxes(
            group,
            tuple(
                Interval(start[:, d], start[:, d] + stacked[:, d] - 1.0) for d in range(len(full))
            ),
        )
        n = len(tiles)
        whole = _rows_of(inside, 0, n)
        compute: Bound = np.zeros(n)
        for name in group.members:
            if name in whole:
                compute = compute + self.func_cycles(name, whole[name], group.members)
        sweeps = len(swept) + 1
        return Regions(
            full,
            tiles,
            counts,
            swept,
            compute,
            {None: whole}
            | {w: _rows_of(inside, (sweeps + i) * n, n) for i, w in enumerate(windows)},
            tuple(_rows_of(outside, step * n, n) for step in range(sweeps)),
            tuple(
                (count, _rows_of(outside, (first_strip + i) * n, n))
                for i, (_, count) in enumerate(strips)
            ),
        )

    def _strips(self, output: str, tiles: Array) -> list[tuple[Array, Array]]:
        """The shapes of sweeps of blocks inside tiles, the shortest first, and their numbers."""
        guest = self._hosts.get(output)
        # Where the data decide what is read, the bounds are not what a sweep touches.
        if guest is None or any(
            load.indirect for s in self.analysis.summaries(guest) for load in s.loads
        ):
            return []
        block = self.block(output, 0)
        one = np.ones(tiles.shape[1])
        if block.vector is not None:
            one[block.vector] = block.width
        if block.row is not None:
            one[block.row] = block.rows
        shape = np.minimum(one, tiles)
        found = []
        for d in self.loop_order(output, range(tiles.shape[1]))[:-1]:
            if np.all(shape[:, d] == tiles[:, d]):
                continue
            shape = shape.copy()
            shape[:, d] = tiles[:, d]
            found.append((shape, np.ceil(tiles / shape).prod(axis=1)))
        return found

    def costs(
        self, group: Group, regions: Regions, sliding: Window | None = None, deep: bool = False
    ) -> GroupCosts:
        """Cycles of `group` for each of the tilings of `regions`.

        With `sliding`, one of the windows that `regions` knows, members are computed along its
        dimension one step of rows at a time and keep only the rows still needed; with `deep`,
        one block of the row at a time.
        """
        model, analysis = self.model, self.analysis
        output = group.output
        tiles, counts, full = regions.tiles, regions.counts, regions.full
        n_tiles = counts.prod(axis=1)
        held, moved, heap = self._storage(group, regions.held[sliding], len(tiles))
        own = value_bytes(analysis.view.by_name[output].types)
        out_tile = tiles.prod(axis=1) * own
        overhead = model.tile_cycles + heap + model.segment_cycles * _segments(tiles, full)
        members = len(group.members) - 1
        if deep:
            blocks = tiles.prod(axis=1) / self.block(output, 0).points
            overhead = overhead + blocks * model.block_cycles * members
        elif sliding is not None:
            passes = tiles[:, sliding.dimension] / sliding.step
            overhead = overhead + passes * model.pass_cycles * members
        else:
            overhead = overhead + model.tile_cycles * members

        # Members that outgrow a cache are written and read through the next one.
        l2 = np.where(held > model.l1_bytes, moved, 0.0)
        l3 = np.where(held > 0.4 * model.l2_bytes, moved, 0.0)
        memory = np.where(held > 0.7 * model.l3_bytes / model.cores, moved, 0.0)
        l2, l3, memory = l2 * n_tiles, l3 * n_tiles, memory * n_tiles
        into_l1, into_l2, into_l3 = self._traffic(regions, held + out_tile)
        l2, l3, memory = l2 + into_l1, l3 + into_l2, memory + into_l3
        whole = float(full.prod()) * own
        stages = len(analysis.view.by_name[output].stages)
        l2 = l2 + whole * stages
        l3 = l3 + whole * stages
        if whole > model.l3_bytes / 2:
            memory = memory + 2.0 * whole * stages
        root_bytes = 0.0 if output in analysis.view.algorithm.outputs else whole
        fault = self.fault_cycles(root_bytes) if root_bytes > model.fault_threshold else 0.0
        tasks = n_tiles
        # Few tasks also wait for the core that is disturbed.
        imbalance = np.ceil(tasks / model.cores) * model.cores / tasks + 0.08 * model.cores / tasks
        split = imbalance / model.cores
        parts = [
            np.asarray(regions.compute * n_tiles * split),
            l2 / model.l2_rate * split,
            l3 / model.l3_rate * split,
            memory / model.memory_rate,
        ]
        total = np.sum(parts, axis=0)
        peak = np.max(parts, axis=0)
        extra = (overhead * n_tiles) * split + model.region_cycles + fault
        extra = extra + np.minimum(tasks, 256.0) * model.task_cycles / model.cores
        with np.errstate(invalid="ignore"):
            cycles = peak + model.overlap * (total - peak) + extra
        # Infinity less infinity: a region without bounds cannot be stored.
        cycles = np.where(np.isnan(cycles), np.inf, cycles)
        return GroupCosts(
            cycles, parts[0], parts[1], parts[2], parts[3], extra, held, tasks, root_bytes, fault
        )

    def fault_cycles(self, size: float) -> float:
        """Cycles until fresh pages of so many bytes are there, first touched by all cores."""
        return size * self.model.fault_cycles_per_byte / self.model.cores

    def func_cycles(self, name: str, box: Box, members: Collection[str] = ()) -> Bound:
        """Cycles to compute `box` of a Func once on one core, all its stages."""
        analysis = self.analysis
        total: Bound = 0.0
        func = analysis.view.by_name[name]
        for stage in analysis.view.stages(name):
            env = stage_env(func, stage, box, analysis.bounder)
            extents = {loop.name: env[loop.name].extent for loop in stage.loops}
            total = total + self.stage_cycles(name, stage.index, extents, members)
        return total

    def _storage(self, group: Group, rows: Mapping[str, Box], n: int) -> tuple[Array, Array, Array]:
        """Bytes that members hold at a time and move, and cycles to allocate them."""
        model, analysis = self.model, self.analysis
        held = np.zeros(n)
        heap = np.zeros(n)
        moved = np.zeros(n)
        for name in group.members[:-1]:
            if name in self.nested or name not in rows:
                continue
            size: Bound = float(value_bytes(analysis.view.by_name[name].types))
            for interval in rows[name]:
                size = size * interval.extent
            held = held + size
            moved = moved + 2.0 * size * len(analysis.view.by_name[name].stages)
            heap = heap + np.where(size > model.stack_bytes, model.heap_cycles, 0.0)
            faults = size * model.fault_cycles_per_byte
            heap = heap + np.where(size > model.fault_threshold, faults, 0.0)
        return held, moved, heap

    def _traffic(self, regions: Regions, held: Array) -> tuple[Array, Array, Array]:
        """Bytes fetched from outside the group into each cache, over all tiles."""
        model, counts = self.model, regions.counts
        repeats = counts.prod(axis=1)
        limits = (model.l1_bytes * 0.8, model.l2_bytes * 0.8, model.l3_bytes * 0.6)
        into: list[Array] = []
        # How often each sweep is made, what it touches, and what else lives meanwhile.
        nothing = np.zeros(len(counts))
        sweeps = [(repeats * count, outside, nothing) for count, outside in regions.strips]
        sweeps.append((repeats, regions.outside[0], held))
        for d, outside in zip(regions.swept, regions.outside[1:], strict=True):
            repeats = repeats / counts[:, d]
            sweeps.append((repeats, outside, nothing))
        for place, (times, outside, beside) in enumerate(sweeps):
            fetched = np.zeros(len(counts))
            cold = np.zeros(len(counts))
            for name, part in outside.items():
                whole = self.buffer_bytes(name)
                size = np.minimum(self._bytes_of(name, part), whole)
                fetched = fetched + size
                if whole > model.l3_bytes / 2:
                    cold = cold + size
            working = fetched + beside
            for level, limit in enumerate(limits):
                moved = (cold if level == 2 else fetched) * times
                if place == 0:
                    into.append(moved)
                else:
                    into[level] = np.where(working <= limit, moved, into[level])
        return into[0], into[1], into[2]

    def buffer_bytes(self, name: str) -> float:
        """Bytes of a whole Func or input at the sizes of the analysis."""
        known = self._bytes.get(name)
        if known is None:
            region = self.analysis.regions.get(name, ())
            known = math.prod(_finite(i.extent, 1.0) for i in region) * self._element_bytes(name)
            self._bytes[name] = known
        return known

    def _bytes_of(self, name: str, box: Box) -> Bound:
        element = float(self._element_bytes(name))
        size: Bound = element
        for d, interval in enumerate(box):
            extent = interval.extent
            if d == 0:
                extent = extent + (64.0 / element - 1.0) / 2.0
            size = size * extent
        return size

    def _element_bytes(self, name: str) -> int:
        func = self.analysis.view.algorithm.by_name.get(name)
        if func is not None:
            return value_bytes(func.types)
        for parameter in self.analysis.view.algorithm.parameters:
            if parameter.name == name:
                return parameter.type.bytes
        for buffer in self.analysis.view.algorithm.buffers:
            if buffer.name == name:
                return buffer.type.bytes
        return 4


def _segments(tiles: Array, full: Array) -> Array:
    """Stretches of contiguous memory in a tile of each shape: where prefetching starts anew."""
    segments = np.ones(len(tiles))
    cut = np.zeros(len(tiles), dtype=bool)
    for d in range(len(full)):
        segments = np.where(cut, segments * tiles[:, d], segments)
        cut |= tiles[:, d] < full[d]
    return segments


def _rows_of(boxes: Mapping[str, Box], start: int, n: int) -> dict[str, Box]:
    """The part of stacked boxes that belongs to one shape of tile."""

    def part(bound: Bound) -> Bound:
        return bound if np.ndim(bound) == 0 else bound[start : start + n]  # type: ignore[index]

    return {
        name: tuple(Interval(part(i.lo), part(i.hi)) for i in box) for name, box in boxes.items()
    }


def _finite(bound: Bound, default: float = 1024.0) -> float:
    value = float(np.max(bound))
    return value if math.isfinite(value) else default
