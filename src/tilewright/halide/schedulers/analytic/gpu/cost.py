"""The cost of a kernel (Sioutas 2020, Listing 1 and Table 1), for an array of tilings at once.

Where the listing contradicts the paper's text or published code, this module follows the text and
the code: the block is the maximum over the stages in each dimension, and memory cost is divided by
occupancy and active threads in the final pass only.

| symbol | meaning | shape, unit |
|---|---|---|
| N | tilings costed at once | count |
| `tiles`, `registers` | tile sizes, and iterations of a tile per thread | (N, parallel loops) |
| `blocks` | blocks of the launch | (N,), count |
| `threads` | threads of a block, by dimension x, y, z | 3 x (N,), count |
| `points` | iterations of a stage in one block | (N,), count |
| `row` | threads of a stage along x | (N,), count |
| `together` | accesses that share one transaction | (N,), count |
| `occupancy` | resident warps over an SM's maximum | (N,), 1 |
| `active` | resident threads of an SM that have work | (N,), count |
| `arithmetic`, `memory` | cost over all blocks | (N,), operations |
| `shared`, `words` | shared memory per block, registers per thread | (N,), bytes, words |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.bounds import Box
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH, GpuConstants
from tilewright.halide.schedulers.analytic.gpu.kernel import (
    Array,
    FusedKernel,
    Work,
    iterations,
    sizes,
)
from tilewright.halide.schedulers.analytic.gpu.loads import LoadGroup
from tilewright.halide.schedulers.analytic.gpu.nested import thread_regions
from tilewright.halide.schedulers.analytic.gpu.occupancy import Residency
from tilewright.halide.schedulers.analytic.gpu.packing import pack
from tilewright.halide.schedulers.analytic.gpu.tiling import Tiles

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Costs:
    """The model's results for one kernel under N tilings; arrays have shape (N,) if not noted.

    Attributes:
        constants: The model's constants.
        tiles: Tile sizes, shape (N, parallel loops).
        registers: Iterations of each tile per thread, shape (N, parallel loops).
        arithmetic: Arithmetic cost over all blocks, in operations.
        memory: Memory cost over all blocks, in operations.
        occupancy: The lowest occupancy of any stage, computed with that stage's threads (Listing
            1).
        launch_occupancy: Occupancy of the launched block.
        active_threads: The fewest active threads per SM of any stage (Listing 1).
        active_sms: SMs that have a block.
        blocks: Blocks of the launch.
        threads: Threads per block in x, y and z.
        shared: Shared memory per block, in bytes.
        legal: Whether the hardware can launch the tiling. The other masks are rules of the model.
        warps_full: Whether the threads per block are a multiple of the warp size.
        occupied: Whether the occupancy reaches the model's threshold.
        all_sms: Whether every SM has a block.
    """

    constants: GpuConstants
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
        """The threads per block, shape (N,)."""
        total = np.ones(len(self.tiles))
        for extent in self.threads:
            total = total * extent
        return total

    def total(self, final: bool) -> Array:
        """Return the cost in operations, shape (N,).

        In the final pass, memory cost is divided by occupancy times active threads, which hide its
        latency.
        """
        if not final:
            return self.arithmetic + self.memory + self.constants.launch_cost
        hiding = np.maximum(self.occupancy * self.active_threads, self.constants.least_hiding)
        return self.arithmetic + self.memory / hiding


def ramp(footprint: Array | float, most: float, size: float) -> Array:
    """Return a load's weight, rising from 1 to `most` as the footprint approaches `size` bytes."""
    weight: Array = np.minimum(1.0 + np.asarray(footprint) * (most / size), most)
    return weight


class CostModel:
    """Computes the costs of kernels on one GPU."""

    def __init__(self, resident: Residency, constants: GpuConstants | None = None) -> None:
        self.resident = resident
        self.constants = constants or GpuConstants()
        self.machine = resident.machine

    def costs(
        self,
        kernel: FusedKernel,
        tiles: Tiles,
        registers: Tiles | None = None,
        nested: Mapping[str, str] | None = None,
    ) -> Costs:
        """Return the costs of `kernel` under every tiling.

        Args:
            kernel: The stage and its members.
            tiles: Tile sizes, shape (N, parallel loops).
            registers: Iterations of each tile per thread, by default 1, shape (N, parallel loops).
            nested: For each member computed inside threads, the Func whose threads compute it.
        """
        return self.tally(kernel, tiles, registers, nested or {}).finish()

    def tally(
        self, kernel: FusedKernel, tiles: Tiles, registers: Tiles | None, nested: Mapping[str, str]
    ) -> Tally:
        """Return the tally that `costs` finishes; the arguments are the same."""
        n = len(tiles)
        regs = np.ones_like(tiles) if registers is None else registers
        env = kernel.block_env(tiles)
        boxes = kernel.regions(env)
        per_thread = thread_regions(kernel, env, boxes, regs, nested) if nested else {}
        tally = Tally(self, kernel, tiles, regs, boxes, nested)
        tally.blocks = np.ones(n)
        for i, extent in enumerate(kernel.extents):
            tally.blocks = tally.blocks * np.ceil(extent / tiles[:, i])
        tally.block_threads = [np.ones(n) for _ in range(SEARCH.thread_dimensions)]
        tally.find_shared()
        tally.add_output()
        # Consumers come first: a nested member needs the thread counts of its anchor.
        for name in reversed(kernel.members):
            if name in boxes:
                tally.add_member(name, sizes(per_thread.get(name, boxes[name]), n))
        return tally


def _product(arrays: list[Array], n: int) -> Array:
    total = np.ones(n)
    for array in arrays:
        total = total * array
    return total


def _thread_x(kernel: FusedKernel, member: str | None) -> str | None:
    """Return the name of the innermost thread loop of a member, or of the output if None."""
    if member is None:
        return kernel.thread_loops[0] if kernel.thread_loops else None
    dims = kernel.member_threads[member]
    return kernel.analysis.view.by_name[member].args[dims[0]] if dims else None


@dataclass(frozen=True)
class Step:
    """A stage in a kernel; arrays have shape (N,).

    Attributes:
        name: The Func of the stage.
        points: Iterations in one block.
        extents: Iterations of each loop.
        threads: Threads per block that run the stage.
        row: Threads along x.
        work: Arithmetic and loads of one iteration.
    """

    name: str
    points: Array
    extents: Mapping[str, Array]
    threads: Array
    row: Array
    work: Work


class Tally:
    """Sums up the costs of one kernel over its stages; see `CostModel.costs`."""

    def __init__(
        self,
        model: CostModel,
        kernel: FusedKernel,
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
        self.fetched: set[str] = set()
        # Threads, and threads along x, of each Func in which members may be nested.
        self.anchor_threads: dict[str, Array] = {}
        self.anchor_rows: dict[str, Array] = {}

    def add_output(self) -> None:
        """Add the output's stage, with tile / registers threads along each thread loop."""
        kernel, n = self.kernel, self.n
        count: Array = np.ones(n)
        for place, i in enumerate(kernel.roles.threads):
            across = self.tiles[:, i] / self.registers[:, i]
            self.block_threads[place] = across
            count = count * across
        row = self.block_threads[0]
        self.anchor_threads[kernel.output], self.anchor_rows[kernel.output] = count, row
        extents = {loop.loop.name: self.tiles[:, i] for i, loop in enumerate(kernel.loops)} | {
            name: np.full(n, iterations(span)) for name, span in kernel.serial_env.items()
        }
        self.add(kernel.output, kernel.stage.index, extents, count, row, False)

    def add_member(self, name: str, spans: list[Array]) -> None:
        """Add the stages of a member.

        `spans` are the extents of its box: of one thread if it is nested, otherwise of one block.
        """
        kernel, n = self.kernel, self.n
        inside = name in self.nested
        if inside:
            count = self.anchor_threads[self.nested[name]]
            row = self.anchor_rows[self.nested[name]]
        else:
            count, row = self._widen(name, spans)
        args = kernel.analysis.view.by_name[name].args
        for stage in kernel.working_stages(name):
            reductions = kernel.reduction_extents(name, stage.index)
            extents = {
                loop.name: spans[args.index(loop.name)]
                if loop.kind == "pure"
                else np.full(n, reductions[loop.name])
                for loop in stage.loops
            }
            self.add(name, stage.index, extents, count, row, inside)
        if inside:
            self._keep(name, spans)

    def _widen(self, name: str, spans: list[Array]) -> tuple[Array, Array]:
        """Enlarge the block to a member's threads; return these, and those along x."""
        kernel = self.kernel
        dims = kernel.member_threads[name]
        each = kernel.points_each(self.registers)
        for stage in kernel.working_stages(name):
            for place, d in enumerate(kernel.stage_threads(name, stage)):
                wanted = np.ceil(spans[d] / each[:, place])
                self.block_threads[place] = np.maximum(self.block_threads[place], wanted)
        count = np.ones(self.n)
        across = [np.ceil(spans[d] / each[:, place]) for place, d in enumerate(dims)]
        for threads in across:
            count = count * threads
        row = across[0] if across else np.ones(self.n)
        self.anchor_threads[name], self.anchor_rows[name] = count, row
        return count, row

    def _keep(self, name: str, spans: list[Array]) -> None:
        """Add the registers that a nested member takes per thread."""
        c = self.model.constants
        types = self.kernel.analysis.view.by_name[name].types
        words = sum(max(t.bytes, c.word_bytes) / c.word_bytes for t in types)
        self.words = self.words + words * _product(spans, self.n)
        loops = sum(len(s.rvars) for s in self.kernel.working_stages(name))
        if loops:
            # A reduction also keeps one operand per row and per column, and loop counters.
            self.words = self.words + sum(spans) + c.reduction_words * loops

    def find_shared(self) -> None:
        """Compute the shared memory per block, in which Halide packs members by lifetime."""
        self.shared, bounded = pack(self.kernel, self.boxes, self.nested, self.n)
        self.bounded &= bounded
        resident = self.model.resident
        self.by_shared = resident.blocks_by_shared(self.shared)

    def footprint(self, callee: str, element: int) -> Array:
        """Return the bytes of an input that one block touches, for elements of `element` bytes."""
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
        """Add one stage of one Func.

        Args:
            name: The Func.
            stage: The position of the stage in the Func.
            extents: Iterations of each loop of the stage.
            threads: Threads per block that run the stage.
            row: Threads along x.
            inside_thread: Whether `extents` are those of one thread, rather than of a block.
        """
        model, kernel = self.model, self.kernel
        thread_x = _thread_x(kernel, None if name == kernel.output else name)
        points = np.ones(self.n)
        for extent in extents.values():
            points = points * extent
        if inside_thread:
            points = points * threads
        # Listing 1, lines 21 to 29: occupancy and active threads of the stage.
        resident = model.resident.blocks(threads, self.by_shared)
        share = np.ceil(self.blocks / model.machine.sms)
        occupancy = resident * model.resident.warps(threads) / model.machine.max_warps_per_sm
        occupancy = np.minimum(occupancy, 1.0)
        active = np.minimum(resident, share) * threads
        work = kernel.work(name, stage, thread_x, inside_thread)
        self.steps.append(Step(name, points, extents, threads, row, work))
        hiding = np.maximum(occupancy * active, model.constants.least_hiding)
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
        """Add the cost of storing the output, once per value that a reduction accumulates."""
        count = points
        for loop, extent in extents.items():
            if loop not in self.kernel.stored_over:
                count = count / extent
        c = self.model.constants
        for t in self.kernel.func.types:
            together = np.minimum(row, c.transaction_bytes / t.bytes) / self.kernel.store_step
            self.memory = self.memory + count * c.store_cost / np.maximum(together, 1.0)

    def _load(self, reader: str, group: LoadGroup, count: Array, row: Array) -> None:
        callee = group.callee
        if callee in self.nested:
            return
        c = self.model.constants
        together = self._together(group, row)
        if callee != self.kernel.output and callee in self.kernel.members:
            # From shared memory: one access serves `together` threads, as with the cache.
            self.memory = self.memory + count / together
            return
        if callee == self.kernel.output:
            # An update definition reads the output's own values back.
            self.memory = self.memory + count * c.global_cost / together
            return
        footprint = self.footprint(callee, group.bytes)
        if callee not in self.fetched:
            self.fetched.add(callee)
            whole = float(group.bytes)
            for extent in self.kernel.whole(callee):
                whole *= extent
            self.memory = self.memory + (
                footprint * ramp(whole, c.global_cost, c.global_bytes) / group.bytes / together
            )
        weight = ramp(footprint, c.global_cost, c.global_bytes)
        self.memory = self.memory + count * weight / together

    def _together(self, group: LoadGroup, row: Array) -> Array:
        """Return how many neighbouring threads' accesses one transaction serves, at least 1."""
        most = self.model.constants.transaction_bytes / group.bytes
        if group.step == 0.0:
            return np.full(self.n, most)
        shared: Array = np.minimum(row, most) / max(group.step, 1.0)
        return np.maximum(shared, 1.0)

    def finish(self) -> Costs:
        """Return the costs over all blocks, and which tilings are legal and pass each rule."""
        tiles, registers = self.tiles, self.registers
        machine = self.model.machine
        threads = tuple(self.block_threads)
        total = threads[0] * threads[1] * threads[2]
        active_sms = np.minimum(self.blocks, machine.sms)
        resident = self.model.resident.blocks(total, self.by_shared)
        warps = self.model.resident.warps(total)
        fits = total <= machine.max_threads_per_block
        fits &= self.shared <= machine.shared_per_block
        fits &= self.bounded & (self.words <= self.model.constants.register_words)
        fits &= np.mod(tiles, registers).sum(axis=1) == 0
        fits &= threads[2] <= SEARCH.most_z_threads
        return Costs(
            constants=self.model.constants,
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
            occupied=self.occupancy >= self.model.constants.occupancy_threshold,
            all_sms=active_sms >= machine.sms,
        )
