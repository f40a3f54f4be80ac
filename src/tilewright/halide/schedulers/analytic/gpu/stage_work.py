"""Count the work of one stage in a block: instructions, accesses and active threads.

The counts do not depend on fitted constants, so a fit computes them only once.

| symbol | meaning | unit |
|---|---|---|
| `runs` | times that a block runs the loops of the stage | count |
| `inner` | loops inside a thread, outermost first | |
| `live` | fraction of iterations in which the guards of split tails hold | 1 |
| `waits` | loads of a thread that wait for each other | count |
| `size` | strides of the dimensions of a Func or input | bytes |
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tilewright.halide.analysis.bounds import Bound
from tilewright.halide.analysis.instructions import MemoryAccess, StageInstructions
from tilewright.halide.analysis.loop_ranges import Change, Ranges, SizedSplit
from tilewright.halide.analysis.nest_parts import LoopSize
from tilewright.halide.analysis.nest_structure import StageNest
from tilewright.halide.ir.nest import GUARDED
from tilewright.halide.ir.schedule import Fuse
from tilewright.halide.schedulers.analytic.gpu.addressing import (
    NOTHING,
    Addressing,
    addressing,
)
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.gpu.operands import different_rows, held_words
from tilewright.halide.schedulers.analytic.gpu.thread_loops import (
    InnerLoop,
    executions,
    sectors_along,
    varying,
    vector_length,
)
from tilewright.halide.schedulers.analytic.gpu.warps import (
    SECTOR_BYTES,
    Array,
    Threads,
    TouchedLines,
    active_warps,
    addresses_of,
    gathered,
    threads_of,
    touched,
)

# Where a Func or input is stored: in registers, in shared memory or in global memory.
Place = Literal["registers", "shared", "memory"]
# Instructions per address: add up the terms, multiply by the element's size and, in global memory,
# add the pointer (counted in the PTX of Halide 21).
ADDRESS_INSTRUCTIONS: Mapping[Place, float] = {"shared": 2.0, "memory": 3.0}
# Instructions per row of folded storage: add the constant, take the remainder, multiply and add to
# the address (counted in the PTX of Halide 21).
FOLDED_INSTRUCTIONS = 3.0


@dataclass(frozen=True, slots=True)
class Activity:
    """The threads of a block that run a stage.

    Attributes:
        block, first: Threads per block in x, y and z, and the active ones if no guard excludes any.
        threads, warps: Active threads and warps with an active thread, on average.
        positions: For each loop of the definition (canonical name), the position of each thread.
    """

    block: Threads
    first: Threads
    threads: float
    warps: float
    positions: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class WarpAccess:
    """Loads or stores of a stage with the same access pattern: `count` per thread and block.

    `own` are loads of the Func that the stage computes.
    """

    place: Place
    store: bool
    count: float
    touched: TouchedLines
    own: bool = False


@dataclass(frozen=True, slots=True)
class Waits:
    """How often a thread waits for loads in one block.

    Attributes:
        memory, shared: Loads from global and from shared memory, besides `own`.
        own: Loads from global memory of the Func that the stage computes.
        first: Loads from sectors new to the block; they miss even a cache that keeps all its data.
        fresh: Loads from another sector than the load before; they miss a cache that keeps nothing.
    """

    memory: float
    shared: float
    first: float
    fresh: float
    own: float = 0.0


@dataclass(frozen=True, slots=True)
class StageWork:
    """The work of an active thread for a stage in one block, over all runs of the stage.

    Attributes:
        member: Whether the stage computes a member in shared memory, and so ends in a barrier.
        threads, warps, runs: Active threads and warps per block, and runs of the stage.
        plain, special: Instructions without accesses; special functions separately.
        iterations: Iterations of loops that are not unrolled.
        copies: Independent values that unrolled loops compute.
        steps: Terms that unrolled loops add to each value; for copies into registers, all loads.
        addresses: Rows in memory that unrolled loops access; 0 without `iterations`.
        held: Words of copied operands that a thread keeps in registers at once (`held_words`).
        accesses, waits: Loads and stores by pattern, and loads that the thread waits for.
        serial: Extents of the loops that are not unrolled, outermost first.
        dimensions: Dimensions of the Func.
        addressing: How its accesses are addressed.
    """

    member: bool
    threads: float
    warps: float
    runs: float
    plain: float
    special: float
    iterations: float
    copies: float
    steps: float
    addresses: float
    held: float
    accesses: tuple[WarpAccess, ...]
    waits: Waits
    serial: tuple[float, ...] = ()
    dimensions: int = 0
    addressing: Addressing = NOTHING


@dataclass(frozen=True)
class Storage:
    """The storage of Funcs and inputs, by name; names not in `places` are in global memory.

    In bytes, `size` gives the strides of the dimensions, `whole` the total size, and `footprint`
    the size of the part that one block loads (0 if the block computes the Func). `copied` are the
    Funcs that only copy operands into registers. `folded` has the dimension along which the storage
    of a Func is folded. `scanned` are the Funcs stored with the dimension innermost that they scan.
    """

    places: Mapping[str, Place]
    copied: Container[str]
    size: Callable[[str], tuple[float, ...]]
    whole: Callable[[str], float]
    footprint: Callable[[str], float]
    folded: Mapping[str, int] = field(default_factory=dict)
    scanned: Container[str] = ()

    def place(self, name: str) -> Place:
        """Return where a Func or input is stored."""
        return self.places.get(name, "memory")

    def in_memory(self, access: MemoryAccess) -> bool:
        """Return whether an access is to global memory."""
        return self.place(access.callee) == "memory"

    def copies(self, access: MemoryAccess) -> bool:
        """Return whether an access loads an operand from its copy in registers."""
        return not access.store and access.callee in self.copied


# --- loops ----------------------------------------------------------------------------------------


def inner_loops(
    stage: StageNest, changes: tuple[Change, ...], sizes: Iterable[LoopSize]
) -> tuple[InnerLoop, ...]:
    """Return the loops of a stage that a thread runs, outermost first."""
    found = []
    for loop in sizes:
        if loop.mapping in ("gpu_block", "gpu_thread"):
            continue
        one = {loop.name: np.ones(1)}
        moved = _positions(changes, loop.context.ranges, one, tuple(stage.variables))
        moves = {stage.variables[name]: float(step[0]) for name, step in moved.items()}
        # The step along the outer loop of a fusion is 0, but the fused loop still changes it.
        for source in _sources(stage, loop.name):
            moves.setdefault(stage.variables[source], 0.0)
        unrolled = loop.mapping in ("unrolled", "vectorized")
        vector = loop.mapping == "vectorized"
        found.append(InnerLoop(moves, count(loop.extent), unrolled, vector))
    return tuple(found)


def _sources(stage: StageNest, name: str) -> list[str]:
    """Return the loops of the definition from which a loop is split or fused."""
    sources: dict[str, list[str]] = {loop: [loop] for loop in stage.variables}
    for change in stage.splits:
        if isinstance(change, Fuse):
            sources[change.fused] = [*sources[change.inner], *sources[change.outer]]
        else:
            sources[change.inner] = sources[change.outer] = sources[change.old]
    return sources[name]


def count(extent: Bound) -> float:
    """Return the iterations of a loop, at least 1; a guess if the loop is unbounded."""
    # Most extents are numbers, which `np.max` is slow for.
    value = extent if isinstance(extent, float) else float(np.max(extent))
    return max(value, 1.0) if math.isfinite(value) else SEARCH.unknown_extent


# --- threads --------------------------------------------------------------------------------------


def activity(
    stage: StageNest,
    changes: tuple[Change, ...],
    ranges: Ranges,
    sizes: list[LoopSize],
    block: Threads,
    warp: int,
) -> tuple[Activity, float]:
    """Return the threads that run a stage, and the fraction of live iterations in other loops."""
    spread = [loop for loop in sizes if loop.mapping == "gpu_thread"][::-1][
        : SEARCH.thread_dimensions
    ]
    extents = [int(count(loop.extent)) for loop in spread]
    # Per thread loop: pairs of a fraction of the outer iterations and the active threads in these.
    patterns: list[list[tuple[float, int]]] = [[(1.0, extent)] for extent in extents]
    live = 1.0
    for change in changes:
        if isinstance(change, Fuse) or change.split.tail not in GUARDED or np.all(change.even):
            continue
        old, factor = count(ranges[change.split.old].extent), float(np.max(change.factor))
        outer = count(ranges[change.split.outer].extent)
        at = next((i for i, loop in enumerate(spread) if loop.name == change.split.inner), None)
        if at is None:
            live *= min(old / (outer * factor), 1.0)
        else:
            last = min(max(old - (outer - 1.0) * factor, 1.0), factor)
            patterns[at] = [((outer - 1.0) / outer, int(factor)), (1.0 / outer, int(last))]
    patterns += [[(1.0, 1)]] * (SEARCH.thread_dimensions - len(patterns))
    threads = warps = 0.0
    for x, y, z in itertools.product(*patterns):
        share = x[0] * y[0] * z[0]
        if share:
            threads += share * x[1] * y[1] * z[1]
            warps += share * active_warps(block, (x[1], y[1], z[1]), warp)
    at_loops = dict(zip((loop.name for loop in spread), threads_of(block, warp), strict=False))
    positions = _positions(changes, ranges, at_loops, tuple(stage.variables))
    first = [*extents, 1, 1, 1]
    return Activity(block, (first[0], first[1], first[2]), threads, warps, positions), live


def _positions(
    changes: tuple[Change, ...],
    ranges: Ranges,
    loops: Mapping[str, Array],
    wanted: tuple[str, ...],
) -> dict[str, Array]:
    """Return positions along the definition's loops, given positions along loops of the nest."""
    now = dict(loops)
    zero = np.zeros(1)
    for change in reversed(changes):
        if isinstance(change, SizedSplit):
            outer, inner = change.split.outer, change.split.inner
            if outer in now or inner in now:
                step = now.get(outer, zero) * float(np.max(change.factor))
                now[change.split.old] = step + now.get(inner, zero)
        elif change.fused in now:
            size = count(ranges[change.inner].extent)
            now[change.inner] = now[change.fused] % size
            now[change.outer] = now[change.fused] // size
    return {name: now[name] for name in wanted if name in now}


def copies_only(found: StageInstructions) -> bool:
    """Return whether a stage only loads and stores, without arithmetic."""
    return not found.work and any(not access.store for access in found.accesses)


# --- one stage ------------------------------------------------------------------------------------


def stage_work(
    found: StageInstructions,
    stage: StageNest,
    inner: tuple[InnerLoop, ...],
    active: Activity,
    live: float,
    runs: float,
    storage: Storage,
    warp: int,
) -> StageWork:
    """Return the work of a stage in one block, over all `runs` of the stage."""
    plain = sum(item.plain * executions(item.loops, inner) for item in found.work)
    special = sum(item.special * executions(item.loops, inner) for item in found.work)
    plain += addresses(found.accesses, inner, storage)
    serial = [loop.extent for loop in inner if not loop.unrolled]
    iterations = sum(math.prod(serial[: i + 1]) for i in range(len(serial)))
    stored = frozenset[str]().union(*(a.moved for a in found.accesses if a.store))
    unrolled = [loop for loop in inner if loop.unrolled]
    copies = math.prod(loop.extent for loop in unrolled if loop.variables & stored)
    steps = math.prod(loop.extent for loop in unrolled if not loop.variables & stored)
    staged = storage.place(stage.func.name) == "registers" and copies_only(found)
    steps *= copies if staged else 1.0
    times = runs * live
    known = _Patterns(stage, active, storage, warp)
    accesses: dict[tuple[Place, bool, TouchedLines, bool], float] = {}
    for access in found.accesses:
        place = storage.place(access.callee)
        if place != "registers":
            own = access.callee == stage.func.name
            group = place, access.store, known(access), own and not access.store
            # The same holds in shared memory, but no schedule chosen with that was measured yet.
            summed = own and place == "memory"
            each = executions(varying(access, inner) if summed else access.loops, inner)
            each /= vector_length(access, inner) if staged else 1
            accesses[group] = accesses.get(group, 0.0) + times * each
    in_memory = filter(storage.in_memory, found.accesses)
    return StageWork(
        storage.place(stage.func.name) == "shared",
        active.threads,
        active.warps,
        runs,
        plain * times,
        special * times,
        iterations * times,
        copies,
        steps,
        different_rows(in_memory, unrolled) if serial else 0.0,
        sum(
            held_words(access, unrolled, stored)
            for access in found.accesses
            if storage.copies(access)
        ),
        tuple(WarpAccess(p, store, n, access, o) for (p, store, access, o), n in accesses.items()),
        _waits(found.accesses, inner, storage, known, times, active.warps, staged, stage.func.name),
        tuple(serial),
        len(stage.func.args),
        addressing(found.accesses, inner, storage.place),
    )


def addresses(
    accesses: Iterable[MemoryAccess], inner: tuple[InnerLoop, ...], storage: Storage
) -> float:
    """Return the instructions that compute addresses in one run.

    In shared memory, strides are constants, so constant offsets cost nothing. Along a folded
    dimension they do, because each coordinate is taken modulo the extent.
    """
    bases: dict[object, float] = {}
    rows: dict[object, float] = {}
    for access in accesses:
        place = storage.place(access.callee)
        if place == "registers":
            continue
        shared = place == "shared"
        times = executions(access.loops, inner, access.bent if shared else access.outer)
        base = access.folded if shared else access.base
        bases[base] = max(bases.get(base, 0.0), ADDRESS_INSTRUCTIONS[place] * times)
        folded = storage.folded.get(access.callee)
        for d, terms, constant, loops in access.rows:
            exact = not shared or d == folded
            key = access.callee, d, terms, constant if exact else 0.0
            times = executions(loops, inner, loops if exact else loops & access.bent)
            if d == folded:
                times *= FOLDED_INSTRUCTIONS
            rows[key] = max(rows.get(key, 0.0), times)
    return sum(bases.values()) + sum(rows.values())


class _Patterns:
    """Computes what the accesses of a stage touch, once per access pattern."""

    def __init__(self, stage: StageNest, active: Activity, storage: Storage, warp: int) -> None:
        self._active = active
        self._storage = storage
        x, y, z = threads_of(active.block, warp)
        self._used = (x < active.first[0]) & (y < active.first[1]) & (z < active.first[2])
        self._env = {
            variable: active.positions[loop]
            for loop, variable in stage.variables.items()
            if loop in active.positions
        }
        self._known: dict[object, TouchedLines] = {}

    def __call__(self, access: MemoryAccess) -> TouchedLines:
        """Return what one access by a warp touches."""
        size = self._storage.size(access.callee)
        bent = access.indirect or None in access.strides.values()
        key: object = access.callee, access.args
        steps: dict[str, float] = {}
        if not bent:
            for variable, moved in access.strides.items():
                if variable in self._env and moved:
                    steps[variable] = sum(map(operator.mul, moved, size))
            key = access.bytes, frozenset(steps.items())
        known = self._known.get(key)
        if known is None:
            known = self._bent(access, size) if bent else self._straight(access.bytes, steps)
            self._known[key] = known
        return known

    def _straight(self, width: int, steps: Mapping[str, float]) -> TouchedLines:
        total = np.zeros(1)
        for variable, step in steps.items():
            total = total + self._env[variable] * step
        return touched(np.where(self._used, np.floor(total), np.nan), width)

    def _bent(self, access: MemoryAccess, size: tuple[float, ...]) -> TouchedLines:
        whole = self._storage.whole(access.callee)
        total, places = addresses_of(access.args, self._env, size, whole)
        where = np.where(self._used, np.floor(total), np.nan)
        if places <= 1.0:
            return touched(where, access.bytes)
        return gathered(where, access.bytes, places)


def _waits(
    accesses: Iterable[MemoryAccess],
    inner: tuple[InnerLoop, ...],
    storage: Storage,
    known: _Patterns,
    times: float,
    warps: float,
    staged: bool,
    func: str,
) -> Waits:
    """Return how often a thread waits for loads.

    Loads that are issued together wait only once, so the most frequent one counts. A load at a
    loaded address waits in addition. So does a load of the stage's own Func, `func`, after a store.
    """
    loads = [a for a in accesses if not a.store and storage.place(a.callee) == "memory"]
    # Of unrolled steps of a scan, only the first waits: the others have its value in a register.
    ahead = staged or func in storage.scanned
    steps = tuple(loop for loop in inner if not (func in storage.scanned and loop.unrolled))
    sums = [executions(varying(a, inner), steps) for a in loads if a.callee == func]
    own = max(sums, default=0.0)
    loads = [load for load in loads if load.callee != func]
    # Copies into registers are used later, so an unrolled loop has all its loads in flight.
    waited = tuple(loop for loop in inner if not (ahead and loop.unrolled))
    asked: dict[str, float] = {}  # bytes that a block requests, repeated ones included
    for load in loads:
        each = executions(load.loops, inner) * times * warps
        each /= vector_length(load, inner) if staged else 1.0
        bytes_each = known(load).sectors * SECTOR_BYTES
        asked[load.callee] = asked.get(load.callee, 0.0) + each * bytes_each
    waits, first, fresh = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
    for load in loads:
        each = executions(load.loops, waited)
        share, once = sectors_along(load, inner, storage.size(load.callee))
        footprint = storage.footprint(load.callee)
        if footprint and not load.indirect:
            new = footprint * known(load).sharing / asked[load.callee]
            once = min(once, each * new)
        at = int(load.indirect)
        waits[at] = max(waits[at], each)
        first[at] = max(first[at], min(each, once), 1.0)
        fresh[at] = max(fresh[at], each * share)
    shared = [
        executions(a.loops, inner)
        for a in accesses
        if not a.store and storage.place(a.callee) == "shared"
    ]
    totals = sum(waits), max(shared, default=0.0), sum(first), sum(fresh), own
    return Waits(*(times * total for total in totals))
