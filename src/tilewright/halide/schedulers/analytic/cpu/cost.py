"""The cost of a group on a CPU, for an array of tilings at once.

The time of a group consists of the work of its tiles (vector kernels over the regions that a tile
requires, including recomputation at its borders) and of the traffic between levels of memory. A
sweep is a run of consecutive tiles or blocks. The traffic into a cache follows from the longest
sweep whose data fit in it: the data of one sweep are fetched once, and again in each other sweep.
Compute and traffic overlap: the largest term counts in full and the others in part.

| symbol | meaning | shape, unit |
|---|---|---|
| N | tilings costed at once | count |
| `tiles`, `counts` | size and number of tiles by dimension of the output | (N, dimensions) |
| `full` | extents of the output | (dimensions,), elements |
| `compute` | arithmetic of one tile, on one core | (N,), cycles |
| `l2`, `l3`, `memory` | traffic of the group | (N,), cycles |
| `overhead` | loops, allocations, tasks and fresh pages | (N,), cycles |

See `constants` for constants, `traffic` for bytes between caches, `register_block` for blocks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from tilewright.halide.analysis.bounds import Bound, Box, Interval, stage_env
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Variable
from tilewright.halide.schedulers.analytic.cpu import traffic
from tilewright.halide.schedulers.analytic.cpu.alignment import Alignment, Moduli
from tilewright.halide.schedulers.analytic.cpu.block_choice import best_block
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.cache_sets import most_rows
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.known_blocks import KnownBlocks
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.nested import NestedReduction
from tilewright.halide.schedulers.analytic.cpu.reduction_steps import run_extent, run_of, shortened
from tilewright.halide.schedulers.analytic.cpu.regions import (
    GroupCosts,
    Regions,
    Window,
    block_sweeps,
    finite,
    iterations,
    rows_of,
)
from tilewright.halide.schedulers.analytic.cpu.register_block import (
    block_cycles,
    border_share,
    companion,
    value_bytes,
)
from tilewright.halide.schedulers.analytic.cpu.stage_facts import StageFacts
from tilewright.halide.schedulers.analytic.cpu.storage import TileStorage, tile_storage
from tilewright.halide.schedulers.analytic.cpu.streams import (
    crossing_wait,
    innermost_loops,
    loop_starts,
)
from tilewright.halide.schedulers.analytic.cpu.traffic import Array, Sweep
from tilewright.halide.schedulers.analytic.grouping import Group
from tilewright.halide.schedulers.analytic.reduction_parts import dimensions_of_lanes


class CpuCosts:
    """Costs the groups of one analysis on one machine.

    `nested` holds the reductions computed in the innermost block of their only reader (nested
    fusion, Sioutas 2020, Section 4.3). Reductions use the `block_rank`-th best register block (0:
    the best). With `transposed`, intermediate Funcs are stored with their second dimension
    innermost. `rows` maps (Func, dimension) to the elements computed at a time, if not all.
    """

    def __init__(
        self,
        analysis: Analysis,
        model: CpuModel,
        nested: Mapping[str, NestedReduction],
        block_rank: int = 0,
        transposed: bool = False,
        known: KnownBlocks | None = None,
        stored: Mapping[str, int] | None = None,
        aligned: Mapping[str, Moduli] | None = None,
    ) -> None:
        # The contiguous dimension of a Func may depend on the nested members.
        self._known = KnownBlocks() if known is None or transposed else known
        self._stored = dimensions_of_lanes(analysis.view.algorithm) if stored is None else stored
        self.alignment = Alignment(analysis, model.constants.most_separated, aligned)
        self.block_rank, self.transposed = block_rank, transposed
        self.analysis = analysis
        self.model = model
        self.nested = nested
        self._hosts = {nest.host: guest for guest, nest in nested.items()}
        self._blocks: dict[tuple[str, int], Block] = {}
        self._pure_loops: dict[tuple[str, int], dict[int, str]] = {}
        self._bytes: dict[str, float] = {}
        self.rows: dict[tuple[str, int | None], float] = {}
        self.facts = StageFacts(analysis, model, self.innermost)
        self.kept_heap = math.inf  # bytes; see `storage`

    # --- stages ---------------------------------------------------------------------------

    def innermost(self, name: str) -> int:
        """Return the dimension of a Func or input that is contiguous in memory."""
        for known in (self.analysis.contiguous, self._stored):
            if name in known:
                return known[name]
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
        """Return dimensions of a Func in the order of loops within a tile, innermost first."""
        inner = self.innermost(name)
        return sorted(dimensions, key=lambda d: (d != inner, d))

    def pure_loops(self, name: str, index: int) -> dict[int, str]:
        """Return the stage's pure loops by dimension of the Func; others are missing."""
        found = self._pure_loops.get((name, index))
        if found is None:
            stage = self.analysis.view.stages(name)[index]
            pure = {loop.name for loop in stage.loops if loop.kind == "pure"}
            args = [a.name if isinstance(a, Variable) else "" for a in stage.args]
            found = self._pure_loops[name, index] = {
                d: arg for d, arg in enumerate(args) if arg in pure
            }
        return found

    def block(self, name: str, index: int) -> Block:
        """Return the innermost block of a stage.

        A nested reduction and its reader share the block that is best for the reduction's update.
        """
        key = (name, index)
        known = self._blocks.get(key)
        if known is None:
            guest = self._hosts.get(name)
            if guest is not None:
                known = self.block(guest, 0)
            elif name in self.nested and index < (last := len(self.analysis.view.stages(name)) - 1):
                known = shortened(self.block(name, last), run_extent(self.analysis, name, index))
            else:
                known = self._best_block(name, index)
            self._blocks[key] = known
        return known

    def set_block(self, name: str, index: int, block: Block) -> None:
        """Cost a stage with the given block instead of the best one."""
        self._blocks[name, index] = block

    def _extents(self, name: str) -> dict[int, float]:
        return {d: finite(i.extent) for d, i in enumerate(self.analysis.regions[name])}

    def _best_block(self, name: str, index: int) -> Block:
        loops = self.pure_loops(name, index)
        summary = self.alignment.summary(name, index, loops)
        nest = self.nested.get(name)
        whole = None if nest is None else nest.whole
        run = run_extent(self.analysis, name, index)
        most = most_rows(summary, loops, self.analysis, self.model, self.innermost)
        streams, ends = self.facts.streams(name, index), self.facts.ends(name, index)
        key = (summary, self.block_rank, whole, nest is not None, run, most, streams, ends)
        known = self._known.blocks.get(key)
        if known is None:
            extents = self._extents(name)
            form = self._known.form_of(summary, loops, self.innermost)
            alike = (form, tuple(extents.values()), *key[1:])
            known = self._known.blocks.get(alike)
            if known is None:
                given = (summary, loops, extents, self.model, self.innermost)
                known = self._known.blocks[alike] = best_block(
                    *given,
                    rank=self.block_rank,
                    whole=whole,
                    nested=nest is not None,
                    run=run,
                    most=most,
                    streams=streams,
                    ends=ends,
                )
            self._known.blocks[key] = known
        return known

    def block_cycles(self, name: str, index: int) -> float:
        """Return cycles of a stage's block per iteration of its reduction loops."""
        loops = self.pure_loops(name, index)
        summary = self.alignment.summary(name, index, loops)
        block = self.block(name, index)
        key = (summary, block, name in self.nested, self.rows.get((name, block.vector)))
        known = self._known.cycles.get(key)
        if known is None:
            ends = self.facts.ends(name, index)
            border = border_share(block, self._extents(name), self.model, ends, key[-1])
            alike = (self._known.form_of(summary, loops, self.innermost), *key[1:-1], border)
            known = self._known.cycles.get(alike)
            if known is None:
                given = (summary, loops, block, self.model, self.innermost)
                known = block_cycles(*given, nested=key[2], border=border)
                self._known.cycles[alike] = known
            self._known.cycles[key] = known
        return known

    @property
    def companion_bytes(self) -> float:
        """Bytes that a transposing stage reads of a row before it reads another row."""
        c = self.model.constants
        return min(c.transposed_bytes, self.model.l1_bytes / c.transposed_rows)

    def companion(self, name: str, index: int) -> int | None:
        """Return the dimension of the loop around a transposing stage's vectors, else None."""
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
        """Return cycles to run a stage once over loops of the given extents.

        `members` are Funcs whose values for the current tile are stored in a small buffer.
        """
        summary = self.analysis.summaries(name)[index]
        block = self.block(name, index)
        loops = self.pure_loops(name, index)
        vector = None if block.vector is None else loops.get(block.vector)
        row = None if block.row is None else loops.get(block.row)
        run = run_of(summary, self.innermost) if block.steps > 1 else None
        unrolled = {loops.get(d): size for d, size in block.unrolled}
        inner = {run} if run else innermost_loops(summary, block, vector, extents)
        steps: dict[str, Bound] = {}
        for loop, extent in extents.items():
            if loop in (vector, run):
                steps[loop] = np.ceil(extent / block.width)
            else:
                rows = block.rows if loop == row else unrolled.get(loop, 1)
                steps[loop] = extent if rows == 1 else np.ceil(extent / rows)
        blocks = math.prod(steps.values(), start=np.float64(1.0))
        lines = math.prod(steps[loop] for loop in steps if loop not in inner)
        starts = loop_starts(summary, steps, inner)
        c = self.model.constants
        jumps = lines if block.swept else blocks
        cycles: Bound = (
            blocks * self.block_cycles(name, index)
            + starts * c.row_cycles
            + (lines - starts) * c.single_block_cycles
            + jumps * c.jump_cycles * self.facts.streams(name, index)
        )
        for callee in self.facts.crossed(name, index, vector):
            lines_bytes = extents[vector or ""] * c.line_bytes
            if self.companion(name, index) is not None:
                lines_bytes = np.minimum(lines_bytes, block.lanes * self.companion_bytes)
            wait = crossing_wait(lines_bytes, callee in members, self.model)
            cycles = cycles + blocks * block.points * wait
        return cycles

    # --- groups ---------------------------------------------------------------------------

    def member_boxes(self, group: Group, box: Box) -> tuple[dict[str, Box], dict[str, Box]]:
        """Return the boxes that a tile `box` requires: of the group's Funcs, and of all others."""
        output = group.output
        found = self.analysis.needed({output: box}, group.members, exact=(output,))
        members = set(group.members)
        outside = {name: part for name, part in found.items() if name not in members}
        return {name: part for name, part in found.items() if name in members}, outside

    def regions(
        self, group: Group, tiles: Array, order: Sequence[int], windows: Sequence[Window] = ()
    ) -> Regions:
        """Return the regions that `group` requires for N tilings.

        `tiles` holds tile sizes, shape (N, dimensions of the output). `order` lists the output's
        dimensions from the innermost tile loop to the outermost. `windows` are the sliding windows
        to consider.
        """
        output = group.output
        region = self.analysis.regions[output]
        full = np.array([max(1.0, finite(i.extent)) for i in region])  # may be empty
        low = np.array([finite(i.lo, 0.0) for i in region])
        tiles = np.minimum(tiles, full)
        counts = np.ceil(full / tiles)
        # Infer the regions of all shapes at once: the tile, each sweep of consecutive tiles, one
        # step of each window, and each sweep of blocks within a tile.
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
        inner = self._block_sweeps(group, tiles)
        first_inner = len(shapes)
        shapes += [shape for shape, _ in inner]
        stacked = np.concatenate(shapes)
        # Take the middle tile. The last tile ends with the region, as shift_inwards does.
        start = low + np.minimum(
            stacked * np.floor(np.ceil(full / stacked) / 2.0), np.maximum(full - stacked, 0.0)
        )
        end = start + stacked - 1.0
        box = tuple(Interval(start[:, d], end[:, d]) for d in range(len(full)))
        inside, outside = self.member_boxes(group, box)
        n = len(tiles)
        whole = rows_of(inside, 0, n)
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
            | {w: rows_of(inside, (sweeps + i) * n, n) for i, w in enumerate(windows)},
            tuple(rows_of(outside, step * n, n) for step in range(sweeps)),
            tuple(
                (count, rows_of(outside, (first_inner + i) * n, n))
                for i, (_, count) in enumerate(inner)
            ),
        )

    def _block_sweeps(self, group: Group, tiles: Array) -> list[tuple[Array, Array]]:
        """Return (shape, count per tile) of the sweeps of blocks within a tile, shortest first.

        The blocks are the output's, or those of the wrapper of its partial results.
        """
        funcs, output = self.analysis.view.by_name, group.output
        alike = [m for m in group.members if len(funcs[m].args) == len(funcs[output].args)]
        hosts = alike if len(funcs[output].stages) > 1 else [output]
        host = next((name for name in reversed(hosts) if name in self._hosts), output)
        guest = self._hosts.get(host)
        # With data-dependent indices, a sweep touches less than its bounds say.
        if guest is None or any(
            load.indirect for s in self.analysis.summaries(guest) for load in s.loads
        ):
            return []
        order = self.loop_order(host, range(tiles.shape[1]))
        return block_sweeps(self.block(host, 0), order, tiles)

    def costs(
        self, group: Group, regions: Regions, sliding: Window | None = None, deep: bool = False
    ) -> GroupCosts:
        """Return cycles of `group` for each tiling of `regions`.

        With `sliding`, a window of `regions`, members are computed one step at a time along its
        dimension, and only rows that are still needed stay in memory. With `deep`, members are
        computed one block at a time within a row.
        """
        model, analysis = self.model, self.analysis
        output = group.output
        tiles, full = regions.tiles, regions.full
        n_tiles = regions.counts.prod(axis=1)
        slides = sliding is not None
        held, moved, heap = self._storage(group, regions.held[sliding], len(tiles), slides)
        types = analysis.view.by_name[output].types
        own = value_bytes(types)
        overhead = self._tile_overhead(group, regions, heap, sliding, deep)
        whole = float(full.prod()) * own
        stages = len(analysis.view.by_name[output].stages)
        bytes_moved = traffic.spilled(held, moved, model).times(n_tiles)
        bytes_moved = bytes_moved.plus(self._fetched(regions, held + tiles.prod(axis=1) * own))
        bytes_moved = bytes_moved.plus(traffic.written(whole, stages, model))
        root_bytes = 0.0 if output in analysis.view.algorithm.outputs else whole
        mapped = root_bytes > model.constants.fault_threshold * len(types)
        fault = self.fault_cycles(root_bytes) if mapped else 0.0
        split = traffic.imbalance(n_tiles, model) / model.cores
        compute = np.asarray(regions.compute * n_tiles * split)
        parts = (
            compute,
            bytes_moved.l2 / model.l2_rate * split,
            bytes_moved.l3 / model.l3_rate * split,
            traffic.memory_cycles(bytes_moved.memory, n_tiles, model),
        )
        extra = (overhead * n_tiles) * split + model.constants.region_cycles + fault
        extra = extra + traffic.parallel_cycles(n_tiles, model)
        cycles = traffic.combined(parts, model) + extra
        # A region without bounds gives inf - inf: it cannot be stored.
        cycles = np.where(np.isnan(cycles), np.inf, cycles)
        return GroupCosts(cycles, *parts, extra, held, n_tiles, root_bytes, fault)

    def _tile_overhead(
        self, group: Group, regions: Regions, heap: Array, sliding: Window | None, deep: bool
    ) -> Array:
        """Return cycles of the loops and allocations per tile, shape (N,)."""
        c, tiles = self.model.constants, regions.tiles
        members = len(group.members) - 1
        overhead: Array = (
            c.tile_cycles + heap + c.segment_cycles * traffic.segments(tiles, regions.full)
        )
        if deep:
            blocks = tiles.prod(axis=1) / self.block(group.output, 0).points
            overhead = overhead + blocks * c.block_cycles * members
        elif sliding is not None:
            passes = tiles[:, sliding.dimension] / sliding.step
            overhead = overhead + passes * c.pass_cycles * members
        else:
            overhead = overhead + c.tile_cycles * members
        return overhead

    def fault_cycles(self, size: float) -> float:
        """Return cycles of page faults of a new buffer of `size` bytes, spread over all cores."""
        return traffic.fault_cycles(size, self.model)

    def func_cycles(self, name: str, box: Box, members: Collection[str] = ()) -> Bound:
        """Return cycles to compute `box` of a Func once on one core, summed over its stages."""
        analysis = self.analysis
        total: Bound = 0.0
        func = analysis.view.by_name[name]
        for stage in analysis.view.stages(name):
            env = stage_env(func, stage, box, analysis.bounder)
            extents = {loop.name: iterations(env[loop.name].extent) for loop in stage.loops}
            total = total + self.stage_cycles(name, stage.index, extents, members)
        return total

    def _storage(self, group: Group, rows: Mapping[str, Box], n: int, slides: bool) -> TileStorage:
        view = self.analysis.view
        sizes: dict[str, Array] = {}
        for name in group.members[:-1]:
            if name in self.nested or name not in rows:
                continue
            size: Bound = float(value_bytes(view.by_name[name].types))
            for interval in rows[name]:
                size = size * interval.extent
            sizes[name] = np.asarray(size)
        # The members of a sliding window live as long as the tile.
        readers = {name: (group.output,) if slides else view.consumers[name] for name in sizes}
        stages = {name: len(view.by_name[name].stages) for name in sizes}
        return tile_storage(sizes, n, stages, readers, self.kept_heap, self.model.constants)

    def _fetched(self, regions: Regions, held: Array) -> traffic.Traffic:
        """Return bytes of other Funcs and inputs fetched into each cache, over all tiles."""
        counts = regions.counts
        repeats = counts.prod(axis=1)
        nothing = np.zeros(len(counts))
        sweeps = [self.sweep(repeats * n, outside, nothing) for n, outside in regions.block_sweeps]
        sweeps.append(self.sweep(repeats, regions.outside[0], held))
        for d, outside in zip(regions.swept, regions.outside[1:], strict=True):
            repeats = repeats / counts[:, d]
            sweeps.append(self.sweep(repeats, outside, nothing))
        return traffic.fetched(sweeps, self.model)

    def sweep(self, times: Array, outside: Mapping[str, Box], held: Array) -> Sweep:
        """Return the bytes that a sweep touches, of each buffer at most its size."""
        touched, cold = np.zeros(len(times)), np.zeros(len(times))
        for name, part in outside.items():
            whole = self.buffer_bytes(name)
            size = np.minimum(self._bytes_of(name, part), whole)
            touched = touched + size
            if traffic.is_cold(whole, self.model):
                cold = cold + size
        return Sweep(times, touched, cold, held)

    def buffer_bytes(self, name: str) -> float:
        """Return the total bytes of a Func or input at the sizes of the analysis."""
        known = self._bytes.get(name)
        if known is None:
            region = self.analysis.regions.get(name, ())
            known = math.prod(finite(i.extent, 1.0) for i in region) * self._element_bytes(name)
            self._bytes[name] = known
        return known

    def _bytes_of(self, name: str, box: Box) -> Bound:
        element = float(self._element_bytes(name))
        line = self.model.constants.line_bytes / element
        size: Bound = element
        for d, interval in enumerate(box):
            extent = interval.extent
            if d == 0:
                # A row starts anywhere in a cache line: on average half a line more.
                extent = extent + (line - 1.0) / 2.0
            size = size * extent
        return size

    def _element_bytes(self, name: str) -> int:
        return self.analysis.element_bytes.get(name, SEARCH.unknown_bytes)
