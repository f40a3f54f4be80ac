"""The predicted time of any schedule on a GPU: the roofline of every kernel of the loop nest.

The formulas are those of `roofline`; their inputs come from a `ScheduledNest` and its launches
instead of a planned tiling. A part is a kernel, or a stage that stays on the host.

| symbol | meaning | unit |
|---|---|---|
| `runs` | how often a kernel is launched, or a member computed in one block | count |
| `points` | iterations of a stage in one block | count |
| `outside` | the Funcs and inputs that a kernel reads but does not compute | |
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tilewright.halide.analysis.bounds import Bound, Box
from tilewright.halide.analysis.gpu_launches import Launch, launches
from tilewright.halide.analysis.nest_parts import LoopSize
from tilewright.halide.analysis.nest_structure import Body, StageKey, StageNest
from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.analysis.summaries import nothing_to_do
from tilewright.halide.ir.algorithm import Variable, walk
from tilewright.halide.ir.loops import dimension_of, pure_loop
from tilewright.halide.ir.plan import PartTime
from tilewright.halide.ir.schedule import Fuse
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH, GpuConstants
from tilewright.halide.schedulers.analytic.gpu.loads import LoadGroup, load_groups
from tilewright.halide.schedulers.analytic.gpu.occupancy import Residency
from tilewright.halide.schedulers.analytic.gpu.roofline import (
    LaunchWork,
    Place,
    StageWork,
    alone_seconds,
    host_seconds,
    kernel_seconds,
    kernel_terms,
    loads_of,
    memory_bytes,
)

Path = tuple[tuple[StageKey, str], ...]


def part_times(
    nest: ScheduledNest, resident: Residency, c: GpuConstants
) -> tuple[PartTime, ...] | None:
    """Return the predicted time of every kernel, and of every stage that stays on the host.

    None if the GPU's rates are not known. Extern stages, and Funcs with loops of the user's own,
    are left out.
    """
    machine = resident.machine
    if machine.clock_hz is None or machine.memory_bandwidth is None:
        return None
    costs = _NestCosts(nest, resident, c, machine.clock_hz)
    return tuple(costs.body(nest.structure.root, (), 1.0))


@dataclass(frozen=True)
class _Work:
    """A stage in one block: `points` iterations by `threads` threads.

    `extents` gives the iterations of its loops, by the names of the definition.
    """

    points: float
    threads: float
    arithmetic: float
    extents: Mapping[str, float]
    loads: tuple[LoadGroup, ...]


@dataclass
class _Gathered:
    """A kernel under construction.

    `places` has the memory of the Funcs that it computes, `bytes` the size of the largest element
    loaded of each Func and input.
    """

    places: dict[str, Place]
    stages: list[_Work] = field(default_factory=list)
    bytes: dict[str, float] = field(default_factory=dict)


class _NestCosts:
    """The roofline's terms for one nest."""

    def __init__(
        self, nest: ScheduledNest, resident: Residency, c: GpuConstants, clock: float
    ) -> None:
        self.nest = nest
        self.analysis = nest.analysis
        self.resident = resident
        self.machine = resident.machine
        self.constants = c
        self.clock = clock
        self.loops = {(loop.path, loop.stage, loop.name): loop for loop in nest.loops}
        self.launches: dict[StageKey, Launch] = {
            (launch.func, launch.stage): launch for launch in launches(nest)
        }

    def body(self, body: Body, path: Path, runs: float) -> Iterator[PartTime]:
        """Yield the parts computed at a point on the host, `runs` times."""
        for production in body.productions:
            for stage in production.stages:
                if stage.entry >= 0 and not nothing_to_do(stage.stage):
                    yield from self.stage(stage, path, runs)

    def stage(self, stage: StageNest, path: Path, runs: float) -> Iterator[PartTime]:
        """Yield the parts of one stage: a kernel, or the host's loops with kernels inside."""
        summary = self.analysis.summaries(stage.func.name)[stage.key[1]]
        each = (summary.arithmetic, len(summary.loads))
        sizes = self._sizes(stage, path)
        points = runs * math.prod(_count(loop.extent) for loop in sizes)
        launch = runs * self.constants.launch_seconds
        if stage.single_thread:
            alone = alone_seconds(points, *each, self.clock, self.constants)
            yield _part(stage, launch + alone, {"latency": alone, "launch": launch})
            return
        if any(loop.mapping == "gpu_block" for loop in sizes):
            at = next(i for i, loop in enumerate(sizes) if loop.mapping == "gpu_block")
            yield self._kernel(stage, sizes, runs * math.prod(_counts(sizes[:at])))
            return
        for at, loop in enumerate(sizes):
            runs *= _count(loop.extent)
            path = (*path, (stage.key, loop.name))
            if at in stage.bodies:
                yield from self.body(stage.bodies[at], path, runs)
        host = host_seconds(points, *each, self.constants)
        # A host's stage waits for the device as a kernel does.
        yield _part(stage, launch + host, {"host": host, "launch": launch})

    def _sizes(self, stage: StageNest, path: Path) -> list[LoopSize]:
        """Return the loops of a stage at a place, outermost first."""
        found = []
        for name, _ in stage.loops:
            found.append(self.loops[path, stage.key, name])
            path = (*path, (stage.key, name))
        return found

    # --- kernels --------------------------------------------------------------------------

    def _kernel(self, stage: StageNest, sizes: list[LoopSize], runs: float) -> PartTime:
        """Return a kernel that is launched `runs` times."""
        c = self.constants
        at = max(i for i, loop in enumerate(sizes) if loop.mapping == "gpu_block")
        block = sizes[at]
        blocks = math.prod(_count(loop.extent) for loop in sizes if loop.mapping == "gpu_block")
        name = stage.func.name
        scatters = self.analysis.summaries(name)[stage.key[1]].scatter
        gathered = _Gathered({name: "stored" if scatters else "memory"})
        stores = self.nest.values(stage, block.context.ranges, block.context.fixed).stores
        inner = sizes[at + 1 :]
        self._add(gathered, stage, inner, {k: v.extent for k, v in stores.items()}, 1.0, None)
        path = (*block.path, (stage.key, block.name))
        self._members(gathered, stage, at, path, 1.0, None)
        launch = self.launches[stage.key]
        threads = math.prod(_counted(extent) for extent in launch.block)
        shared = float(np.max(launch.shared_bytes))
        kernel = LaunchWork(
            blocks,
            threads,
            shared,
            tuple(self._steps(gathered)),
            self._memory(gathered, stage, block, blocks),
            self._atomics(stage, block),
        )
        terms = kernel_terms(kernel, self.resident, c)
        assert terms is not None
        named = {term: runs * seconds for term, seconds in terms.items() if seconds}
        return PartTime(
            name,
            stage.key[1],
            runs * kernel_seconds(terms, c),
            {**named, "launch": runs * c.launch_seconds},
            self._occupancy(threads, shared),
        )

    def _occupancy(self, threads: float, shared: float) -> float:
        """Return the share of an SM's warps that are resident."""
        count, resident = np.array([threads]), self.resident
        blocks = resident.blocks(count, resident.blocks_by_shared(np.array([shared])))
        warps = blocks * resident.warps(count)
        return min(float(warps[0]) / self.machine.max_warps_per_sm, 1.0)

    def _members(
        self,
        gathered: _Gathered,
        host: StageNest,
        first: int,
        path: Path,
        runs: float,
        threads: float | None,
    ) -> None:
        """Add the cost of all that is computed in the loops of `host` from position `first` on.

        `path` ends with the loop at `first`; `threads` run it, None if a block does.
        """
        for at in range(first, len(host.loops)):
            if at > first:
                loop = self.loops[path, host.key, host.loops[at][0]]
                runs *= _count(loop.extent)
                path = (*path, (host.key, loop.name))
                if loop.mapping == "gpu_thread":
                    threads = (threads or 1.0) * _count(loop.extent)
            body = host.bodies.get(at)
            for production in body.productions if body is not None else ():
                for stage in production.stages:
                    if not nothing_to_do(stage.stage):
                        self._member(gathered, stage, path, runs, threads)

    def _member(
        self,
        gathered: _Gathered,
        stage: StageNest,
        path: Path,
        runs: float,
        threads: float | None,
    ) -> None:
        """Add the cost of a stage of a Func computed inside a block, or inside each thread."""
        sizes = self._sizes(stage, path)
        gathered.places[stage.func.name] = "shared" if threads is None else "registers"
        extents: Mapping[str, Bound] = {}
        if sizes:
            around = sizes[0].context
            stores = self.nest.values(stage, around.ranges, {}).stores
            extents = {loop: part.extent for loop, part in stores.items()}
        self._add(gathered, stage, sizes, extents, runs, threads)
        if not sizes:
            return
        runs *= _count(sizes[0].extent)
        own = _count(sizes[0].extent) if sizes[0].mapping == "gpu_thread" else None
        inner = (*path, (stage.key, sizes[0].name))
        self._members(gathered, stage, 0, inner, runs, threads or own)

    def _add(
        self,
        gathered: _Gathered,
        stage: StageNest,
        sizes: list[LoopSize],
        extents: Mapping[str, Bound],
        runs: float,
        threads: float | None,
    ) -> None:
        """Note a stage that is run `runs` times in a block, over the loops of `sizes`.

        `threads` are those it is run inside of, None if it has threads of its own.
        """
        spread = [loop for loop in sizes if loop.mapping == "gpu_thread"]
        along = [_sources(stage, loop.name) for loop in spread]
        inside = {name for loop, name in stage.variables.items() if dimension_of(loop) is not None}
        inside -= {stage.variables[source] for sources in along for source in sources}
        if threads is None:
            x = next(iter(along[-1]), None) if along else None
            count = math.prod(_counts(spread))
        else:
            x, count = pure_loop(0), threads
        summary = self.analysis.summaries(stage.func.name)[stage.key[1]]
        loads = load_groups(summary, stage.variables.get(x or ""), frozenset(inside))
        for load in loads:
            gathered.bytes[load.callee] = max(gathered.bytes.get(load.callee, 0.0), load.bytes)
        points = runs * math.prod(_counts(sizes))
        named = {name: _count(extents.get(loop, 1.0)) for loop, name in stage.variables.items()}
        gathered.stages.append(_Work(points, count, summary.arithmetic, named, loads))

    def _steps(self, gathered: _Gathered) -> Iterator[StageWork]:
        warp, c = self.machine.warp_size, self.constants
        for work in gathered.stages:
            moved, waiting = loads_of(work.loads, work.extents, gathered.places, warp, c)
            yield StageWork(work.points, work.threads, work.arithmetic, moved, waiting)

    def _memory(
        self, gathered: _Gathered, stage: StageNest, block: LoopSize, blocks: float
    ) -> float:
        """Return bytes that a kernel moves through memory."""
        touched = self.nest.touched_in(block)
        read = {}
        for callee, element in gathered.bytes.items():
            if callee in gathered.places:
                continue
            whole = [_count(part.extent) for part in self.analysis.regions.get(callee, ())]
            tile = _tile(touched.get(callee), whole)
            read[callee] = (element * math.prod(tile), element * math.prod(whole))
        nodes = walk(*stage.stage.args)
        stored = {node.name for node in nodes if isinstance(node, Variable)}
        parallel = _parallel(stage, self._atomic(stage))
        written = stage.func.bytes * math.prod(
            _count(block.context.ranges[loop].extent)
            for loop, name in stage.variables.items()
            if name in stored and name in parallel
        )
        return memory_bytes(read, blocks, written, stage.key[1] > 0, self.constants)

    def _atomic(self, stage: StageNest) -> bool:
        stages = self.nest.schedule.funcs[stage.entry].stages
        return bool(stages) and stages[stage.key[1]].atomic

    def _atomics(self, stage: StageNest, block: LoopSize) -> float:
        """Return the atomic additions of a kernel."""
        if not self._atomic(stage):
            return 0.0
        return math.prod(_count(block.context.ranges[loop].extent) for loop in stage.variables)


def _part(stage: StageNest, seconds: float, terms: Mapping[str, float]) -> PartTime:
    return PartTime(stage.func.name, stage.key[1], seconds, terms)


def _parallel(stage: StageNest, atomic: bool) -> frozenset[str]:
    """Return the loops of a definition that may be run in parallel."""
    loops = stage.stage.loops
    return frozenset(loop.name for loop in loops if atomic or loop.kind != "impure_rvar")


def _sources(stage: StageNest, name: str) -> list[str]:
    """Return the loops of the definition that a loop is made of."""
    sources: dict[str, list[str]] = {loop: [loop] for loop in stage.variables}
    for change in stage.splits:
        if isinstance(change, Fuse):
            sources[change.fused] = [*sources[change.inner], *sources[change.outer]]
        else:
            sources[change.inner] = sources[change.outer] = sources[change.old]
    return sources[name]


def _tile(box: Box | None, whole: list[float]) -> list[float]:
    """Return the extents of a box, at most the whole."""
    if box is None:
        return whole
    return [min(_count(part.extent), most) for part, most in zip(box, whole, strict=True)]


def _counts(loops: list[LoopSize]) -> list[float]:
    return [_count(loop.extent) for loop in loops]


def _counted(extent: Bound) -> float:
    return max(float(np.max(extent)), 1.0)


def _count(extent: Bound) -> float:
    """Return iterations of a loop, at least 1; a guess where nothing bounds it."""
    value = float(np.max(extent))
    return max(value, 1.0) if math.isfinite(value) else SEARCH.unknown_extent
