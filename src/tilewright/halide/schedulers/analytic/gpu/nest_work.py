"""Collect the kernels of a scheduled nest and the work of their stages, for the time model.

A part is a kernel or a stage that stays on the host. A member is a Func that a kernel computes
inside its blocks or threads.

| symbol | meaning | unit |
|---|---|---|
| `runs` | launches of a kernel, or times that one block computes a member | count |
| `outside` | the Funcs and inputs that a kernel reads but does not compute | |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.halide.analysis.bounds import Box
from tilewright.halide.analysis.gpu_launches import Launch, launches, middle_launches
from tilewright.halide.analysis.nest_parts import LoopSize
from tilewright.halide.analysis.nest_structure import Body, StageKey, StageNest
from tilewright.halide.analysis.rounds import independent_rvar
from tilewright.halide.analysis.scans import scanned_dimension
from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.analysis.summaries import nothing_to_do
from tilewright.halide.analysis.windows import loops_of
from tilewright.halide.ir.algorithm import Variable, walk
from tilewright.halide.ir.loops import pure_loop
from tilewright.halide.ir.schedule import Fuse, StageSchedule
from tilewright.halide.schedulers.analytic.gpu.stage_work import (
    Activity,
    Place,
    StageWork,
    Storage,
    activity,
    copies_only,
    count,
    inner_loops,
    stage_work,
)
from tilewright.halide.schedulers.analytic.gpu.warps import SECTOR_BYTES, Array, Threads

Path = tuple[tuple[StageKey, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class KernelWork:
    """The launches and the work of a kernel, compared by identity.

    Attributes:
        func, stage: The Func and the position of the stage whose loops are launched.
        runs: Number of launches.
        blocks: Number of blocks per launch.
        block: Threads per block in x, y and z.
        shared: Shared memory per block, in bytes.
        registers: Words per thread of Funcs kept in registers, without copies of loaded operands.
        stages: The work of each stage in one block.
        read: For each Func and input outside the kernel, the bytes that one block touches and the
            total bytes.
        written: Bytes that one launch writes.
        atomics: Atomic additions of one launch.
        dimensions: Number of dimensions of all Funcs and inputs that are read or written.
        fused: Number of fused loops.
        sectors: Number of sectors that atomic additions may go to.
        barriers: Barriers per block, besides one per run of a member.
    """

    func: str
    stage: int
    runs: float
    blocks: float
    block: Threads
    shared: float
    registers: float
    stages: tuple[StageWork, ...]
    read: Mapping[str, tuple[float, float]]
    written: float
    atomics: float
    dimensions: int
    fused: int
    sectors: float = math.inf
    barriers: float = 0.0


@dataclass(frozen=True, slots=True)
class HostWork:
    """A stage that the host computes `runs` times, with `points` iterations each.

    `arithmetic` and `loads` count the operations and loads per iteration.
    """

    func: str
    stage: int
    runs: float
    points: float
    arithmetic: float
    loads: int


@dataclass
class _Kernel:
    """A kernel under construction.

    Attributes:
        block: Threads per block in x, y and z.
        places: Where each Func that the kernel computes is stored.
        bytes: Size of the largest element loaded from each Func and input.
        staged: Words of loaded operands that are copied to registers.
        copied: The Funcs that copy them.
        waiting: Functions that compute the work of the stages. They are called at the end, when
            `places` and `read` are complete.
        read: As in `KernelWork`.
    """

    block: Threads
    places: dict[str, Place]
    bytes: dict[str, float] = field(default_factory=dict)
    staged: float = 0.0
    copied: set[str] = field(default_factory=set)
    waiting: list[Callable[[], StageWork]] = field(default_factory=list)
    read: dict[str, tuple[float, float]] = field(default_factory=dict)

    def footprint(self, name: str) -> float:
        """Return the bytes that a block loads from a Func or input outside the kernel."""
        return self.read.get(name, (0.0, 0.0))[0]


def nest_work(
    nest: ScheduledNest, warp: int, *, quick: bool = False
) -> tuple[KernelWork | HostWork, ...]:
    """Return the parts of a schedule in execution order.

    Extern stages and Funcs that the user scheduled are omitted.

    Args:
        nest: The scheduled nest.
        warp: Threads per warp.
        quick: Whether to evaluate only the block in the middle (`middle_launches`).
    """
    gathering = _Gathering(nest, warp, quick)
    return tuple(gathering.body(nest.structure.root, (), 1.0))


class _Gathering:
    """Collects the parts in one pass over a nest."""

    def __init__(self, nest: ScheduledNest, warp: int, quick: bool) -> None:
        self.nest = nest
        self.analysis = nest.analysis
        self.warp = warp
        self.loops = {(loop.path, loop.stage, loop.name): loop for loop in nest.loops}
        self.launches: dict[StageKey, Launch] = {
            (launch.func, launch.stage): launch
            for launch in (middle_launches(nest) if quick else launches(nest))
        }
        self.sliding = loops_of(nest.windows)
        self.folded = {nest.structure.names[i]: w.dimension for i, w in nest.windows.items()}
        entries = nest.structure.entries
        self.orders = {
            nest.structure.names[i]: entry.storage_order
            for i, entry in entries.items()
            if entry.storage_order
        }
        self.scanned = {name for name, order in self.orders.items() if self._scans(name, order[0])}
        self.stored: dict[str, tuple[float, ...]] = {}
        for item in nest.allocations:
            name = nest.structure.names[item.func]
            self.stored.setdefault(name, tuple(count(e) for e in item.extents))

    def body(self, body: Body, path: Path, runs: float) -> Iterator[KernelWork | HostWork]:
        """Yield the parts of a loop body on the host that runs `runs` times."""
        only = None if path else self.nest.only
        for production in body.productions:
            if only is not None and production.func not in only:
                continue
            for stage in production.stages:
                if stage.entry >= 0 and not nothing_to_do(stage.stage):
                    yield from self.stage(stage, path, runs)

    def stage(self, stage: StageNest, path: Path, runs: float) -> Iterator[KernelWork | HostWork]:
        """Yield the parts of one stage: a kernel, or host loops and the kernels inside them."""
        sizes = self._sizes(stage, path)
        blocks = [i for i, loop in enumerate(sizes) if loop.mapping == "gpu_block"]
        kernel = stage.single_thread or bool(blocks)
        launched, inside = runs, path
        for at, loop in enumerate(sizes[: next(iter(blocks), 0)] if kernel else sizes):
            launched *= count(loop.extent)
            inside = (*inside, (stage.key, loop.name))
            if at in stage.bodies:
                yield from self.body(stage.bodies[at], inside, launched)
        if kernel:
            yield self._kernel(stage, sizes, path, launched)
            return
        points = math.prod(count(loop.extent) for loop in sizes)
        found = self.analysis.summaries(stage.func.name)[stage.key[1]]
        key = stage.func.name, stage.key[1]
        yield HostWork(*key, runs, points, found.arithmetic, len(found.loads))

    def _sizes(self, stage: StageNest, path: Path) -> list[LoopSize]:
        """Return the loops of a stage computed at `path`, outermost first."""
        found = []
        for name, _ in stage.loops:
            found.append(self.loops[path, stage.key, name])
            path = (*path, (stage.key, name))
        return found

    def _kernel(
        self, stage: StageNest, sizes: list[LoopSize], path: Path, runs: float
    ) -> KernelWork:
        """Return the kernel of a stage, launched `runs` times."""
        at = max((i for i, loop in enumerate(sizes) if loop.mapping == "gpu_block"), default=-1)
        blocks = math.prod(count(loop.extent) for loop in sizes if loop.mapping == "gpu_block")
        launch = self.launches[stage.key]
        x, y, z = (int(count(extent)) for extent in launch.block)
        kernel = _Kernel((x, y, z), {stage.func.name: "memory"})
        inner = sizes[at + 1 :]
        self._add(kernel, stage, inner, 1.0, None)
        if at >= 0:
            path = (*sizes[at].path, (stage.key, sizes[at].name))
            self._members(kernel, stage, at, path, 1.0, None)
        read, written = self._memory(kernel, stage, sizes[at] if at >= 0 else None)
        kernel.read = read
        return KernelWork(
            stage.func.name,
            stage.key[1],
            runs,
            blocks,
            kernel.block,
            float(np.max(launch.shared_bytes)),
            max(float(np.max(launch.registers)) - kernel.staged, 0.0),
            tuple(make() for make in kernel.waiting),
            read,
            written,
            self._atomics(stage, sizes),
            sum(len(self._extents(name)) for name in (*read, stage.func.name)),
            sum(isinstance(change, Fuse) for change in stage.splits),
            max(stage.func.bytes * math.prod(self._extents(stage.func.name)) / SECTOR_BYTES, 1.0),
            # The threads wait before the next iteration overwrites what this one reads.
            sum(self._iterations(loop) for loop in inner if self._walked(loop)),
        )

    def _members(
        self,
        kernel: _Kernel,
        host: StageNest,
        first: int,
        path: Path,
        runs: float,
        around: Activity | None,
    ) -> None:
        """Add all Funcs computed in the loops of `host` from position `first` on.

        Args:
            kernel: The kernel to add to.
            host: The stage whose loops contain the Funcs.
            first: Position of the first loop to visit.
            path: The loops around, ending with the loop at `first`.
            runs: Times that one block runs the body of the loop at `first`.
            around: The threads that `host` is computed in, None at block level.
        """
        for at in range(first, len(host.loops)):
            if at > first:
                loop = self.loops[path, host.key, host.loops[at][0]]
                path = (*path, (host.key, loop.name))
                if self._walked(loop):
                    runs *= self._iterations(loop)
                elif loop.mapping == "gpu_thread":
                    around = around or self._active(kernel, host, self._sizes_of(host, path))[0]
                else:
                    runs *= count(loop.extent)
            body = host.bodies.get(at)
            for production in body.productions if body is not None else ():
                for stage in production.stages:
                    if not nothing_to_do(stage.stage):
                        inside = around and self._carried(host, stage, around)
                        self._member(kernel, stage, path, runs, inside)

    def _walked(self, loop: LoopSize) -> bool:
        """Return whether Funcs slide along a loop."""
        return (loop.stage, loop.name) in self.sliding

    def _iterations(self, loop: LoopSize) -> float:
        """Return the iterations of such a loop, with those that only fill the windows."""
        return count(loop.extent) + float(np.max(self.sliding[loop.stage, loop.name].start))

    def _carried(self, host: StageNest, stage: StageNest, around: Activity) -> Activity:
        """Return the threads of a member's reader, with their positions along the member.

        If the reads have no constant strides, the positions along the reader are returned.
        """
        loops = {variable: loop for loop, variable in host.variables.items()}
        reads = self.analysis.instructions(host.func.name)[host.key[1]].accesses
        strides = next((a.strides for a in reads if a.callee == stage.func.name), None)
        if strides is None or None in strides.values():
            return around
        found: dict[str, Array] = {}
        for variable, moved in strides.items():
            known = around.positions.get(loops.get(variable, ""))
            for d, step in enumerate(moved or ()):
                if step and known is not None:
                    found[pure_loop(d)] = found.get(pure_loop(d), np.zeros(1)) + step * known
        return replace(around, positions=found)

    def _sizes_of(self, host: StageNest, path: Path) -> list[LoopSize]:
        """Return all loops of `host`, given a path into them."""
        own = [i for i, (key, _) in enumerate(path) if key == host.key]
        return self._sizes(host, path[: own[0]])

    def _member(
        self,
        kernel: _Kernel,
        stage: StageNest,
        path: Path,
        runs: float,
        around: Activity | None,
    ) -> None:
        """Add a stage of a member, computed at block level or inside the threads `around`."""
        sizes = self._sizes(stage, path)
        kernel.places[stage.func.name] = "shared" if around is None else "registers"
        self._add(kernel, stage, sizes, runs, around)
        if not sizes:
            return
        inside = around
        if around is None and sizes[0].mapping == "gpu_thread":
            inside = self._active(kernel, stage, sizes)[0]
        elif sizes[0].mapping != "gpu_thread":
            runs *= count(sizes[0].extent)
        self._members(kernel, stage, 0, (*path, (stage.key, sizes[0].name)), runs, inside)

    def _active(
        self, kernel: _Kernel, stage: StageNest, sizes: list[LoopSize]
    ) -> tuple[Activity, float]:
        ranges = sizes[-1].context.ranges if sizes else {}
        changes = self.nest.changes(stage) if sizes else ()
        return activity(stage, changes, ranges, sizes, kernel.block, self.warp)

    def _add(
        self,
        kernel: _Kernel,
        stage: StageNest,
        sizes: list[LoopSize],
        runs: float,
        around: Activity | None,
    ) -> None:
        """Add the work of one stage over the loops `sizes`, run `runs` times in a block."""
        active, live = self._active(kernel, stage, sizes)
        if around is not None:
            # A nested stage has no thread loops: its positions follow from those of its reader.
            active = replace(around, positions={**around.positions, **active.positions})
        found = self.analysis.instructions(stage.func.name)[stage.key[1]]
        # A Func with updates accumulates values, so its loads are not copies of operands.
        alone = len(stage.func.stages) == 1 and kernel.places[stage.func.name] == "registers"
        if alone and copies_only(found):
            kernel.staged += math.prod(count(loop.extent) for loop in sizes)
            kernel.copied.add(stage.func.name)
        for access in found.accesses:
            if not access.store:
                known = kernel.bytes.get(access.callee, 0.0)
                kernel.bytes[access.callee] = max(known, float(access.bytes))
        window = self.nest.windows.get(stage.key[0])
        if window is not None:
            # In the first iterations, Funcs further ahead fill their windows, and this one waits.
            live *= min(float(np.max(window.planes / window.step)) / runs, 1.0)
        storage = Storage(
            kernel.places,
            kernel.copied,
            self._strides,
            self._bytes,
            kernel.footprint,
            self.folded,
            self.scanned,
        )
        kernel.waiting.append(
            lambda: stage_work(
                found,
                stage,
                inner_loops(stage, self.nest.changes(stage), sizes),
                active,
                live,
                runs,
                storage,
                self.warp,
            )
        )

    def _scans(self, name: str, innermost: int) -> bool:
        """Return whether updates of a Func scan the innermost dimension of its storage."""
        view = self.analysis.view
        known = name in view.by_name
        return known and scanned_dimension(view.by_name[name], view.stages(name)) == innermost

    def _extents(self, name: str) -> tuple[float, ...]:
        """Return the extents of the storage of a Func or input, innermost first."""
        found = self.stored.get(name)
        if found is None:
            region = self.analysis.regions.get(name, ())
            order = self.orders.get(name) or range(len(region))
            found = tuple(count(region[d].extent) for d in order)
        return found

    def _strides(self, name: str) -> tuple[float, ...]:
        """Return the strides of a Func's or input's dimensions, in bytes."""
        size = float(self.analysis.element_bytes[name])
        extents = self._extents(name)
        order = self.orders.get(name) or range(len(extents))
        found = {}
        for d, extent in zip(order, extents, strict=True):
            found[d] = size
            size *= extent
        return tuple(found[d] for d in sorted(found))

    def _bytes(self, name: str) -> float:
        """Return the total bytes of a Func or input."""
        return float(self.analysis.element_bytes[name]) * math.prod(self._extents(name))

    def _memory(
        self, kernel: _Kernel, stage: StageNest, block: LoopSize | None
    ) -> tuple[dict[str, tuple[float, float]], float]:
        """Return `KernelWork.read` and `KernelWork.written` of a kernel."""
        touched = self.nest.touched_in(block) if block is not None else {}
        read = {}
        for callee, element in kernel.bytes.items():
            if kernel.places.get(callee, "memory") != "memory" or callee == stage.func.name:
                continue
            whole = [count(part.extent) for part in self.analysis.regions.get(callee, ())]
            tile = _tile(touched.get(callee), whole)
            read[callee] = (_sectors(tile, element), element * math.prod(whole))
        nodes = walk(*stage.stage.args)
        stored = {node.name for node in nodes if isinstance(node, Variable)}
        parallel = self._parallel(stage)
        written = 1.0
        if block is not None:
            written = math.prod(
                count(block.context.ranges[loop].extent)
                for loop, name in stage.variables.items()
                if name in stored and name in parallel
            )
        return read, stage.func.bytes * written

    def _parallel(self, stage: StageNest) -> frozenset[str]:
        """Return the loops of a definition that may run in parallel."""
        scheduled = self._scheduled(stage)
        races = scheduled is not None and scheduled.allow_races
        independent = independent_rvar(stage.func, stage.stage) if races else None
        return frozenset(
            loop.name
            for loop in stage.stage.loops
            if self._atomic(stage) or loop.kind != "impure_rvar" or loop.name == independent
        )

    def _scheduled(self, stage: StageNest) -> StageSchedule | None:
        stages = self.nest.schedule.funcs[stage.entry].stages
        return stages[stage.key[1]] if stages else None

    def _atomic(self, stage: StageNest) -> bool:
        scheduled = self._scheduled(stage)
        return scheduled is not None and scheduled.atomic

    def _atomics(self, stage: StageNest, sizes: list[LoopSize]) -> float:
        """Return the atomic additions of one launch."""
        if not self._atomic(stage) or not sizes:
            return 0.0
        ranges = sizes[0].context.ranges
        return math.prod(count(ranges[loop].extent) for loop in stage.variables)


def _sectors(extents: list[float], element: float) -> float:
    """Return the expected bytes of the sectors that a box touches, for unknown alignment."""
    if not extents:
        return SECTOR_BYTES
    row = extents[0] * element
    return (row + SECTOR_BYTES - element) * math.prod(extents[1:])


def _tile(box: Box | None, whole: list[float]) -> list[float]:
    """Return the extents of a box, clipped to `whole`; `whole` if there is no box."""
    if box is None:
        return whole
    return [min(count(part.extent), most) for part, most in zip(box, whole, strict=True)]
