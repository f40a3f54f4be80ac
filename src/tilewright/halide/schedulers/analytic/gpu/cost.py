"""The cost of a group of stages (Sioutas 2020, Listing 1 and Table 1), on arrays of tilings.

Where the listing and the paper's text or published code differ, the text and the code are
followed: the block is the maximum over the stages in each dimension, and memory cost is
divided by occupancy and active threads in the final pass only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.bounds import Box
from tilewright.halide.schedulers.analytic.gpu.kernel import Array, Kernel, Work, iterations, sizes
from tilewright.halide.schedulers.analytic.gpu.loads import LoadGroup
from tilewright.halide.schedulers.analytic.gpu.nested import thread_regions
from tilewright.halide.schedulers.analytic.gpu.occupancy import Residency
from tilewright.halide.schedulers.analytic.gpu.packing import pack
from tilewright.halide.schedulers.analytic.gpu.tiling import MAX_THREAD_DIMS, Tiles

# A load costs 1 from registers' neighbours up to this much as its footprint outgrows the cache.
GLOBAL_COST = 200.0
GLOBAL_BYTES = 64.0 * 1024.0
# Storing a value in global memory, which nobody waits for.
STORE_COST = 20.0
# The widest memory transaction that consecutive loads share.
TRANSACTION_BYTES = 64.0
OCCUPANCY_THRESHOLD = 0.1
# What launching a kernel costs beside running it, in loads: the gap between two kernels is some
# microseconds, in which a GPU moves a few megabytes.
LAUNCH_COST = 3e6
# What one thread may need of its 64 registers for members computed inside it; the rest goes to
# addresses. A reduction keeps its values, an operand a row and a column, and counters.
REGISTER_WORDS = 50.0
WORDS_A_REDUCTION_LOOP = 4.0
# Block counts beyond these do not fit a launch's second and third dimensions.
MAX_GRID_Y = 65535.0

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Costs:
    """Everything the model knows of one kernel under `n` tilings; all arrays of length n.

    `threads` has the block's extents by dimension (x, y, z). `occupancy` and `active_threads`
    are the least of any stage's, each with its own threads (Listing 1); `launch_occupancy` is
    that of the block as it is launched. `legal` says that the hardware
    can launch it; the other masks are the model's own rejections.
    """

    tiles: Tiles
    registers: Tiles
    arithmetic: Array
    memory: Array
    occupancy: Array
    launch_occupancy: Array
    active_threads: Array
    active_sms: Array
    blocks: Array
    threads: tuple[Array, ...]
    shared: Array
    legal: Mask
    warps_full: Mask
    occupied: Mask
    all_sms: Mask

    @property
    def thread_count(self) -> Array:
        """Threads of a block."""
        total = np.ones(len(self.tiles))
        for extent in self.threads:
            total = total * extent
        return total

    def total(self, final: bool) -> Array:
        """The cost: memory weighed by what hides its latency in the final pass only."""
        if not final:
            return self.arithmetic + self.memory + LAUNCH_COST
        hiding = np.maximum(self.occupancy * self.active_threads, 1e-9)
        return self.arithmetic + self.memory / hiding


def ramp(footprint: Array | float, most: float, size: float) -> Array:
    """The weight of a load: from 1 up to `most` as the footprint (bytes) approaches `size`."""
    weight: Array = np.minimum(1.0 + np.asarray(footprint) * (most / size), most)
    return weight


class CostModel:
    """Costs kernels on one GPU."""

    def __init__(self, resident: Residency) -> None:
        self.resident = resident
        self.machine = resident.machine

    def costs(
        self,
        kernel: Kernel,
        tiles: Tiles,
        registers: Tiles | None = None,
        nested: Mapping[str, str] | None = None,
    ) -> Costs:
        """Cost `kernel` under every row of `tiles`.

        `registers` says how many iterations of each tile one thread does (1 by default),
        `nested` where members live that are computed inside threads.
        """
        return self.tally(kernel, tiles, registers, nested or {}).finish()

    def tally(
        self, kernel: Kernel, tiles: Tiles, registers: Tiles | None, nested: Mapping[str, str]
    ) -> Tally:
        """What `costs` sums up."""
        n = len(tiles)
        regs = np.ones_like(tiles) if registers is None else registers
        env = kernel.block_env(tiles)
        boxes = kernel.regions(env)
        per_thread = thread_regions(kernel, env, boxes, regs, nested) if nested else {}
        tally = Tally(self, kernel, tiles, regs, boxes, nested)
        tally.blocks = np.ones(n)
        for i, extent in enumerate(kernel.extents):
            tally.blocks = tally.blocks * np.ceil(extent / tiles[:, i])
        tally.block_threads = [np.ones(n) for _ in range(MAX_THREAD_DIMS)]
        tally.find_shared()
        anchor_threads: dict[str, Array] = {}
        anchor_rows: dict[str, Array] = {}

        # The output's stage.
        count: Array = np.ones(n)
        for place, i in enumerate(kernel.roles.threads):
            across = tiles[:, i] / regs[:, i]
            tally.block_threads[place] = across
            count = count * across
        anchor_threads[kernel.output] = count
        anchor_rows[kernel.output] = tally.block_threads[0]
        extents = {loop.loop.name: tiles[:, i] for i, loop in enumerate(kernel.loops)} | {
            name: np.full(n, iterations(span)) for name, span in kernel.serial_env.items()
        }
        row = anchor_rows[kernel.output]
        tally.add(kernel.output, kernel.stage.index, extents, count, row, False)

        # Members at the block's level, then those inside threads.
        for name in reversed(kernel.members):
            if name not in boxes:
                continue
            inside = name in nested
            box = per_thread[name] if inside else boxes[name]
            spans = sizes(box, n)
            if inside:
                count = anchor_threads[nested[name]]
                row = anchor_rows[nested[name]]
            else:
                count = np.ones(n)
                for d in kernel.member_threads[name]:
                    count = count * spans[d]
                for stage in kernel.working_stages(name):
                    for place, d in enumerate(kernel.stage_threads(name, stage)):
                        widest = np.maximum(tally.block_threads[place], spans[d])
                        tally.block_threads[place] = widest
                anchor_threads[name] = count
                dims = kernel.member_threads[name]
                row = spans[dims[0]] if dims else np.ones(n)
                anchor_rows[name] = row
            func = kernel.analysis.view.by_name[name]
            for stage in kernel.working_stages(name):
                extents = {}
                for loop in stage.loops:
                    if loop.kind == "pure":
                        extents[loop.name] = spans[func.args.index(loop.name)]
                    else:
                        reductions = kernel.reduction_extents(name, stage.index)
                        extents[loop.name] = np.full(n, reductions[loop.name])
                tally.add(name, stage.index, extents, count, row, inside)
            if inside:
                words = sum(max(t.bytes, 4) / 4 for t in func.types) * _product(spans, n)
                tally.words = tally.words + words
                loops = sum(len(s.rvars) for s in kernel.working_stages(name))
                if loops:
                    tally.words = tally.words + sum(spans) + WORDS_A_REDUCTION_LOOP * loops
        return tally


def _product(arrays: list[Array], n: int) -> Array:
    total = np.ones(n)
    for array in arrays:
        total = total * array
    return total


def _thread_x(kernel: Kernel, member: str | None) -> str | None:
    """The innermost thread loop of a stage, by name."""
    if member is None:
        return kernel.thread_loops[0] if kernel.thread_loops else None
    dims = kernel.member_threads[member]
    return kernel.analysis.view.by_name[member].args[dims[0]] if dims else None


@dataclass(frozen=True)
class Step:
    """A stage as a kernel runs it: how often in a block, in so many threads, `row` in x."""

    name: str
    points: Array
    extents: Mapping[str, Array]
    threads: Array
    row: Array
    work: Work


class Tally:
    """Sums up one kernel's costs; see `CostModel.costs`."""

    def __init__(
        self,
        model: CostModel,
        kernel: Kernel,
        tiles: Tiles,
        registers: Tiles,
        boxes: Mapping[str, Box],
        nested: Mapping[str, str],
    ) -> None:
        self.model = model
        self.kernel = kernel
        self.tiles = tiles
        self.registers = registers
        n = self.n = len(tiles)
        self.steps: list[Step] = []
        self.boxes = boxes
        self.nested = nested
        self.blocks: Array = np.ones(n)
        self.block_threads: list[Array] = []
        self.arithmetic: Array = np.zeros(n)
        self.memory: Array = np.zeros(n)
        self.occupancy = np.ones(n)
        self.active = np.full(n, np.inf)
        self.words = np.zeros(n)
        self.bounded: Mask = np.ones(n, dtype=np.bool_)
        self.footprints: dict[str, Array] = {}
        self.coalesced: dict[str, Array] = {}

    def find_shared(self) -> None:
        """Shared memory of a block, as Halide packs members that do not live together."""
        self.shared, bounded = pack(self.kernel, self.boxes, self.nested, self.n)
        self.bounded &= bounded
        resident = self.model.resident
        self.by_shared = resident.blocks_by_shared(self.shared)

    def footprint(self, callee: str, element: int) -> Array:
        """Bytes of an input that one block touches."""
        known = self.footprints.get(callee)
        if known is None:
            whole = self.kernel.whole(callee)
            box = self.boxes.get(callee)
            spans = None if box is None else sizes(box, self.n)
            total = np.full(self.n, float(element))
            for d, limit in enumerate(whole):
                total = total * (limit if spans is None else np.minimum(spans[d], limit))
            known = self.footprints[callee] = total
        return known

    def add(
        self,
        name: str,
        stage: int,
        extents: Mapping[str, Array],
        threads: Array,
        row: Array,
        inside_thread: bool,
    ) -> None:
        """Add one stage of one Func, computed by so many threads of a block, `row` in x."""
        model, kernel = self.model, self.kernel
        thread_x = _thread_x(kernel, None if name == kernel.output else name)
        points = np.ones(self.n)
        for extent in extents.values():
            points = points * extent
        if inside_thread:
            points = points * threads
        # Listing 1, lines 21 to 29: a stage's occupancy and active threads.
        resident = model.resident.blocks(threads, self.by_shared)
        share = np.ceil(self.blocks / model.machine.sms)
        occupancy = resident * model.resident.warps(threads) / model.machine.max_warps_per_sm
        occupancy = np.minimum(occupancy, 1.0)
        active = np.minimum(resident, share) * threads
        work = kernel.work(name, stage, thread_x, inside_thread)
        self.steps.append(Step(name, points, extents, threads, row, work))
        hiding = np.maximum(occupancy * active, 1e-9)
        self.arithmetic = self.arithmetic + points * work.arithmetic / hiding
        self.occupancy = np.minimum(self.occupancy, occupancy)
        self.active = np.minimum(self.active, active)
        for group in work.loads:
            count = points * group.count
            for loop in group.hoisted:
                count = count / extents[loop]
            self._load(name, group, count, row)
        if name == kernel.output:
            self._store(points, extents, row)

    def _store(self, points: Array, extents: Mapping[str, Array], row: Array) -> None:
        """The output's values on their way to memory, once for all iterations that add to one."""
        count = points
        for loop, extent in extents.items():
            if loop not in self.kernel.stored_over:
                count = count / extent
        for t in self.kernel.func.types:
            together = np.minimum(row, TRANSACTION_BYTES / t.bytes) / self.kernel.store_step
            self.memory = self.memory + count * STORE_COST / np.maximum(together, 1.0)

    def _load(self, reader: str, group: LoadGroup, count: Array, row: Array) -> None:
        callee = group.callee
        if callee in self.nested:
            return
        if group.step == 0.0:
            together = np.full(self.n, TRANSACTION_BYTES / group.bytes)
        else:
            together = np.minimum(row, TRANSACTION_BYTES / group.bytes) / max(group.step, 1.0)
            together = np.maximum(together, 1.0)
        if callee != self.kernel.output and callee in self.kernel.members:
            # From shared memory, a row of threads at a time as from the cache.
            self.memory = self.memory + count / together
            return
        if callee == self.kernel.output:
            # The output's own values, read back by an update definition.
            self.memory = self.memory + count * GLOBAL_COST / together
            return
        footprint = self.footprint(callee, group.bytes)
        best = self.coalesced.get(callee)
        if best is None:
            whole = float(group.bytes)
            for extent in self.kernel.whole(callee):
                whole *= extent
            self.memory = self.memory + (
                footprint * ramp(whole, GLOBAL_COST, GLOBAL_BYTES) / group.bytes / together
            )
            self.coalesced[callee] = together
        self.memory = self.memory + count * ramp(footprint, GLOBAL_COST, GLOBAL_BYTES) / together

    def finish(self) -> Costs:
        """Scale by the number of tiles and judge every tiling."""
        tiles, registers = self.tiles, self.registers
        machine = self.model.machine
        threads = tuple(self.block_threads)
        total = threads[0] * threads[1] * threads[2]
        active_sms = np.minimum(self.blocks, machine.sms)
        resident = self.model.resident.blocks(total, self.by_shared)
        warps = self.model.resident.warps(total)
        fits = total <= machine.max_threads_per_block
        fits &= self.shared <= machine.shared_per_block
        fits &= self.bounded & (self.words <= REGISTER_WORDS)
        fits &= np.mod(tiles, registers).sum(axis=1) == 0
        fits &= threads[2] <= 64
        return Costs(
            tiles=tiles,
            registers=registers,
            arithmetic=self.arithmetic * self.blocks,
            memory=self.memory * self.blocks,
            occupancy=self.occupancy,
            launch_occupancy=np.minimum(resident * warps / machine.max_warps_per_sm, 1.0),
            active_threads=self.active,
            active_sms=active_sms,
            blocks=self.blocks,
            threads=threads,
            shared=self.shared,
            legal=fits,
            warps_full=np.mod(total, machine.warp_size) == 0,
            occupied=self.occupancy >= OCCUPANCY_THRESHOLD,
            all_sms=active_sms >= machine.sms,
        )
