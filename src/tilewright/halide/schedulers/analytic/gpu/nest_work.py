"""The kernels of a scheduled nest with the work of their stages: the input of the time model.

A part is a kernel, or a stage that stays on the host.

| symbol | meaning | unit |
|---|---|---|
| `runs` | how often a kernel is launched, or a member computed in one block | count |
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
from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.analysis.summaries import nothing_to_do
from tilewright.halide.ir.algorithm import Variable, walk
from tilewright.halide.ir.loops import pure_loop
from tilewright.halide.ir.schedule import Fuse
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


@dataclass(frozen=True, slots=True)
class KernelWork:
    """A kernel that is launched `runs` times with `blocks` blocks of `block` threads.

    `shared` are the bytes of a block, `registers` the words that a thread keeps of Funcs computed
    in it, without copies of what it loads, `read` the bytes of each Func and input outside that
    one block touches, and in all; `written` and `atomics` (additions) are those of all blocks.
    `dimensions` are those of all that is read or written, `fused` the loops of blocks and threads
    that are two loops in one.
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


@dataclass(frozen=True, slots=True)
class HostWork:
    """A stage that the host computes `runs` times.

    Each time it does `points` iterations of `arithmetic` operations and `loads`.
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

    `bytes` has the size of the largest element loaded of each Func and input. The work of the
    stages is `waiting` until it is known what else the kernel computes and reads. `staged` are the
    words of loads that wait in registers.
    """

    block: Threads
    places: dict[str, Place]
    bytes: dict[str, float] = field(default_factory=dict)
    staged: float = 0.0
    waiting: list[Callable[[], StageWork]] = field(default_factory=list)
    read: dict[str, tuple[float, float]] = field(default_factory=dict)

    def footprint(self, name: str) -> float:
        """Return the bytes that a block loads of a Func or input outside."""
        return self.read.get(name, (0.0, 0.0))[0]


def nest_work(
    nest: ScheduledNest, warp: int, *, quick: bool = False
) -> tuple[KernelWork | HostWork, ...]:
    """Return the parts of a schedule in the order in which they run.

    Extern stages, and Funcs with loops of the user's own, are left out. If `quick`, blocks are
    those in the middle (`middle_launches`).
    """
    gathering = _Gathering(nest, warp, quick)
    return tuple(gathering.body(nest.structure.root, (), 1.0))


class _Gathering:
    """One pass over a nest."""

    def __init__(self, nest: ScheduledNest, warp: int, quick: bool) -> None:
        self.nest = nest
        self.analysis = nest.analysis
        self.warp = warp
        self.loops = {(loop.path, loop.stage, loop.name): loop for loop in nest.loops}
        self.launches: dict[StageKey, Launch] = {
            (launch.func, launch.stage): launch
            for launch in (middle_launches(nest) if quick else launches(nest))
        }
        self.stored: dict[str, tuple[float, ...]] = {}
        for item in nest.allocations:
            name = nest.structure.names[item.func]
            self.stored.setdefault(name, tuple(count(e) for e in item.extents))

    def body(self, body: Body, path: Path, runs: float) -> Iterator[KernelWork | HostWork]:
        """Yield the parts computed at a point on the host, `runs` times."""
        only = None if path else self.nest.only
        for production in body.productions:
            if only is not None and production.func not in only:
                continue
            for stage in production.stages:
                if stage.entry >= 0 and not nothing_to_do(stage.stage):
                    yield from self.stage(stage, path, runs)

    def stage(self, stage: StageNest, path: Path, runs: float) -> Iterator[KernelWork | HostWork]:
        """Yield the parts of one stage: a kernel, or the host's loops with kernels inside."""
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
        """Return the loops of a stage at a place, outermost first."""
        found = []
        for name, _ in stage.loops:
            found.append(self.loops[path, stage.key, name])
            path = (*path, (stage.key, name))
        return found

    def _kernel(
        self, stage: StageNest, sizes: list[LoopSize], path: Path, runs: float
    ) -> KernelWork:
        """Return a kernel that is launched `runs` times."""
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
        """Add all that is computed in the loops of `host` from position `first` on.

        `path` ends with the loop at `first`. `around` are the threads that it is computed in, None
        if a block computes it.
        """
        for at in range(first, len(host.loops)):
            if at > first:
                loop = self.loops[path, host.key, host.loops[at][0]]
                path = (*path, (host.key, loop.name))
                if loop.mapping == "gpu_thread":
                    around = around or self._active(kernel, host, self._sizes_of(host, path))[0]
                else:
                    runs *= count(loop.extent)
            body = host.bodies.get(at)
            for production in body.productions if body is not None else ():
                for stage in production.stages:
                    if not nothing_to_do(stage.stage):
                        inside = around and self._carried(host, stage, around)
                        self._member(kernel, stage, path, runs, inside)

    def _carried(self, host: StageNest, stage: StageNest, around: Activity) -> Activity:
        """Return the threads of a member's reader, with their positions along the member.

        If it is not read at plain places, its dimensions are taken for those of the reader.
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
        """Return all loops of the stage that the end of `path` is a loop of."""
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
        """Add a stage of a Func computed inside a block, or inside each thread."""
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
        """Note a stage that is run `runs` times in a block, over the loops of `sizes`."""
        active, live = self._active(kernel, stage, sizes)
        if around is not None:
            # A position along a dimension moves with that of the Func that it is computed in.
            active = replace(around, positions={**around.positions, **active.positions})
        found = self.analysis.instructions(stage.func.name)[stage.key[1]]
        # The values that an update adds to are not copies of loaded operands.
        alone = len(stage.func.stages) == 1 and kernel.places[stage.func.name] == "registers"
        if alone and copies_only(found):
            kernel.staged += math.prod(count(loop.extent) for loop in sizes)
        for access in found.accesses:
            if not access.store:
                known = kernel.bytes.get(access.callee, 0.0)
                kernel.bytes[access.callee] = max(known, float(access.bytes))
        storage = Storage(kernel.places, self._strides, self._bytes, kernel.footprint)
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

    def _extents(self, name: str) -> tuple[float, ...]:
        """Return the extents of the storage of a Func or input, innermost first."""
        found = self.stored.get(name)
        if found is None:
            found = tuple(count(part.extent) for part in self.analysis.regions.get(name, ()))
        return found

    def _strides(self, name: str) -> tuple[float, ...]:
        """Return the strides of a Func's or input's dimensions in bytes."""
        size = float(self.analysis.element_bytes[name])
        found = []
        for extent in self._extents(name):
            found.append(size)
            size *= extent
        return tuple(found)

    def _bytes(self, name: str) -> float:
        """Return the bytes that a Func or input has in all."""
        return float(self.analysis.element_bytes[name]) * math.prod(self._extents(name))

    def _memory(
        self, kernel: _Kernel, stage: StageNest, block: LoopSize | None
    ) -> tuple[dict[str, tuple[float, float]], float]:
        """Return what a kernel reads of each Func and input outside, and the bytes it writes."""
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
        parallel = _parallel(stage, self._atomic(stage))
        written = 1.0
        if block is not None:
            written = math.prod(
                count(block.context.ranges[loop].extent)
                for loop, name in stage.variables.items()
                if name in stored and name in parallel
            )
        return read, stage.func.bytes * written

    def _atomic(self, stage: StageNest) -> bool:
        stages = self.nest.schedule.funcs[stage.entry].stages
        return bool(stages) and stages[stage.key[1]].atomic

    def _atomics(self, stage: StageNest, sizes: list[LoopSize]) -> float:
        """Return the atomic additions of a kernel."""
        if not self._atomic(stage) or not sizes:
            return 0.0
        ranges = sizes[0].context.ranges
        return math.prod(count(ranges[loop].extent) for loop in stage.variables)


def _parallel(stage: StageNest, atomic: bool) -> frozenset[str]:
    """Return the loops of a definition that may be run in parallel."""
    loops = stage.stage.loops
    return frozenset(loop.name for loop in loops if atomic or loop.kind != "impure_rvar")


def _sectors(extents: list[float], element: float) -> float:
    """Return the bytes of the sectors that a box touches, wherever its rows begin."""
    if not extents:
        return SECTOR_BYTES
    row = extents[0] * element
    return (row + SECTOR_BYTES - element) * math.prod(extents[1:])


def _tile(box: Box | None, whole: list[float]) -> list[float]:
    """Return the extents of a box, at most the whole."""
    if box is None:
        return whole
    return [min(count(part.extent), most) for part, most in zip(box, whole, strict=True)]
