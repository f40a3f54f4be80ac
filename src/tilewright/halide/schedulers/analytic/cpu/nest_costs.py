"""The predicted time of any schedule on a CPU: the cost model evaluated on the loop nest.

The formulas are those of the search (`cost`, `register_block`, `traffic`). Their inputs come from a
`ScheduledNest` instead of a tiling. A part is a Func at root with its members: the Funcs computed
in its loops. Its time is the sum over its stages.

| symbol | meaning | unit |
|---|---|---|
| `tile` | one iteration of the tile loops: the outermost loops of a stage, over tiles or parallel \
tasks | |
| `tiles` | iterations of all tile loops | count |
| `tasks` | iterations of the parallel loops | count |
| `runs` | computations of a member, over all tiles | count |
| `repeats` | computed points over required points of a member, at least 1 | 1 |

For a nest that the search has produced, the time differs from the search's in these ways:

- tasks are iterations of the parallel loops, not all tiles
- stages of an output run one after another
- a reducing stage is costed block by block if its tile does not fit in a cache
- vectors along a reduction are costed as scalar code
- members that do not fit in a cache are read again in the loops inside a tile
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tilewright.halide.analysis.bounds import Bound, Box, Interval
from tilewright.halide.analysis.nest_parts import LoopSize
from tilewright.halide.analysis.nest_structure import Production, StageKey, StageNest
from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.analysis.summaries import nothing_to_do
from tilewright.halide.ir.loops import dimension_of
from tilewright.halide.ir.plan import PartTime
from tilewright.halide.schedulers.analytic.cpu import traffic
from tilewright.halide.schedulers.analytic.cpu.alignment import moduli_in
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.nested import NestedReduction
from tilewright.halide.schedulers.analytic.cpu.parts import funcs_of, part_keys
from tilewright.halide.schedulers.analytic.cpu.register_block import value_bytes
from tilewright.halide.schedulers.analytic.cpu.reuse import repeats
from tilewright.halide.schedulers.analytic.cpu.stage_loops import (
    block_of,
    outside_registers,
    tile_depth,
)
from tilewright.halide.schedulers.analytic.cpu.traffic import Array, Sweep

Path = tuple[tuple[StageKey, str], ...]
Boxes = Mapping[str, Box]
TERMS = ("compute", "second cache", "third cache", "memory", "overhead")


def part_times(
    nest: ScheduledNest,
    model: CpuModel,
    known: dict[Hashable, PartTime] | None = None,
    rows: bool = False,
) -> tuple[PartTime, ...]:
    """Return the predicted time of each part: a Func at root with the Funcs computed in its loops.

    Extern stages and Funcs that the user scheduled are omitted. `known` caches the times of parts
    for other schedules of the same analysis at the same sizes and with the same `rows`: whether the
    borders of Funcs in loops are those of the rows computed there. The learned cost model uses
    these. Choices by the analytic model are worse with them (docs/decisions/cpu-borders.md).
    """
    known = {} if known is None else known
    keys = part_keys(nest)
    missing = {
        key: stages
        for key, production in keys.items()
        if key not in known and (stages := _costed_stages(production))
    }
    if missing:
        costs = _NestCosts(
            nest.limited(frozenset(s[0].key[0] for s in missing.values())), model, rows
        )
        for key, stages in missing.items():
            cycles = np.sum([costs.stage(stage) for stage in stages], axis=0)
            fresh = costs.fresh_pages(stages[-1])
            cycles += (fresh, 0.0, 0.0, 0.0, 0.0, fresh)
            total, *terms = (model.seconds(float(part)) for part in cycles)
            named = dict(zip(TERMS, terms, strict=True))
            known[key] = PartTime(stages[-1].func.name, stages[-1].key[1], total, named)
    return tuple(known[key] for key in keys if key in known)


def _costed_stages(production: Production) -> list[StageNest]:
    return [s for s in production.stages if s.entry >= 0 and not nothing_to_do(s.stage)]


class _Cycles(NamedTuple):
    """The cycles of a stage: the total, and its terms before they overlap."""

    total: float
    compute: float
    l2: float
    l3: float
    memory: float
    overhead: float


@dataclass(frozen=True)
class _Member:
    """A Func computed inside the loops of a stage at root.

    It is computed `runs` times, each time for a region `box`. The surrounding loop, over tiles or
    around them, has `times` iterations; an iteration requires the region `within`. If it is stored
    outside the loop at which it is computed, `slid` is the ratio of computed to required points,
    else 0.
    `blockwise`: that loop is the innermost one. `level` is the position of the loop of the stage at
    root in which it is computed.
    """

    name: str
    stages: int
    runs: float
    box: Box
    within: Box
    times: float
    slid: float
    blockwise: bool
    level: int

    @property
    def slides(self) -> bool:
        """Whether it is stored outside the loop at which it is computed."""
        return self.slid > 0.0

    @property
    def in_registers(self) -> bool:
        """Whether it is computed and stored for one block of its reader at a time."""
        return self.blockwise and not self.slides

    @property
    def raw(self) -> float:
        """Computed over required points, if no value were reused between runs."""
        return self.runs * _volume(self.box) / (self.times * _volume(self.within))

    @property
    def repeats(self) -> float:
        """Computed over required points, at least 1."""
        return self.slid if self.slides else max(1.0, self.raw)


class _Stage:
    """A stage at root with its loops and the boxes that an iteration of each touches."""

    def __init__(self, nest: ScheduledNest, stage: StageNest, loops: Sequence[LoopSize]) -> None:
        self.nest = nest
        self.stage = stage
        self.name = stage.func.name
        self.loops = loops
        self.depth = tile_depth(stage)
        self.counts = [_count(loop.extent) for loop in loops]
        self._touched: dict[int, Boxes] = {}

    @property
    def tiles(self) -> float:
        """Iterations of all tile loops."""
        return math.prod(self.counts[: self.depth])

    @property
    def tasks(self) -> float:
        """Iterations of the parallel loops."""
        pairs = zip(self.loops, self.counts, strict=True)
        return math.prod(count for loop, count in pairs if loop.mapping == "parallel")

    @property
    def parallel(self) -> bool:
        """Whether any loop is parallel."""
        return any(loop.mapping == "parallel" for loop in self.loops)

    def touched(self, at: int) -> Boxes:
        """Return the boxes touched by one iteration of loop `at`, or by all loops if `at` is -1."""
        found = self._touched.get(at)
        if found is None:
            loop = self.loops[max(at, 0)]
            if at < 0:
                around = replace(loop.context, depth=-1, fixed={}, body=None)
                loop = replace(loop, context=around)
            regions = self.nest.analysis.regions
            found = {
                name: _finite_box(box, regions.get(name, box))
                for name, box in self.nest.touched_in(loop).items()
            }
            self._touched[at] = found
        return found

    def extents(self, at: int) -> dict[str, float]:
        """Return iterations of the stage's variables within one iteration of loop `at`."""
        around = self.loops[max(at, 0)].context
        fixed = around.fixed if at >= 0 else {}
        stores = self.nest.values(self.stage, around.ranges, fixed).stores
        return {
            variable: _count(stores[loop].extent, pure=dimension_of(loop) is not None)
            for loop, variable in self.stage.variables.items()
        }


class _NestCosts:
    """The cost model's terms for one nest."""

    def __init__(self, nest: ScheduledNest, model: CpuModel, rows: bool) -> None:
        self.nest = nest
        self.model = model
        self.rows = rows
        self.structure = nest.structure
        names, entries = nest.structure.names, nest.structure.entries
        stored = {names[i]: e.storage_order[0] for i, e in entries.items() if e.storage_order}
        aligned = moduli_in(nest.structure)
        self.costs = CpuCosts(nest.analysis, model, self._nested(), stored=stored, aligned=aligned)
        self.loops = {(loop.path, loop.stage, loop.name): loop for loop in nest.loops}
        sizes = {(loop.stage, loop.name): _count(loop.extent) for loop in nest.loops}
        kept = nest.structure.root.productions
        kept = [p for p in kept if nest.only is None or p.func in nest.only]
        funcs = {i for production in kept for i in funcs_of(production)}
        for key, stage in nest.structure.stages.items():
            if key[0] in funcs:
                moduli = aligned.get(stage.func.name, {})
                self.costs.set_block(stage.func.name, key[1], block_of(stage, sizes, moduli))

    def _nested(self) -> dict[str, NestedReduction]:
        """Return the Funcs stored for one block of their reader at a time."""
        structure = self.structure
        found = {}
        left = [stage for p in structure.root.productions for stage in p.stages]
        while left:
            stage = left.pop()
            innermost = outside_registers(stage) - 1
            for at, body in stage.bodies.items():
                for production in body.productions:
                    left += production.stages
                    entry = structure.entries[production.func]
                    if at >= innermost and entry.store == entry.compute:
                        found[structure.names[production.func]] = NestedReduction(stage.func.name)
        return found

    def fresh_pages(self, stage: StageNest) -> float:
        """Return cycles of page faults of a Func at root, if its buffer is large."""
        name = stage.func.name
        size = self.costs.buffer_bytes(name)
        output = name in self.nest.analysis.view.algorithm.outputs
        # A Tuple has a block per value.
        if output or size <= self.model.constants.fault_threshold * len(stage.func.types):
            return 0.0
        return self.costs.fault_cycles(size)

    def stage(self, nest: StageNest) -> _Cycles:
        """Return cycles of a stage at root with the Funcs computed in its loops."""
        costs, model = self.costs, self.model
        loops: list[LoopSize] = []
        path: Path = ()
        for name, _ in nest.loops:
            loops.append(self.loops[path, nest.key, name])
            path = (*path, (nest.key, name))
        if not loops:
            cycles = float(costs.stage_cycles(nest.func.name, nest.key[1], {}))
            return _Cycles(cycles, cycles, 0.0, 0.0, 0.0, 0.0)
        stage = _Stage(self.nest, nest, loops)
        members = tuple(self._members(stage, nest, (), 1.0))
        names = {member.name for member in members}
        for m in members if self.rows else ():
            costs.rows |= {(m.name, d): float(np.max(i.extent)) for d, i in enumerate(m.box)}
        tiles, tasks = stage.tiles, np.full(1, stage.tasks)
        split = traffic.imbalance(tasks, model) / model.cores
        own = costs.stage_cycles(stage.name, nest.key[1], stage.extents(stage.depth - 1), names)
        compute = tiles * np.asarray(own)
        for member in members:
            each = costs.func_cycles(member.name, member.within, names)
            compute = compute + member.times * member.repeats * np.asarray(each)
        moved = self._traffic(stage, members)
        parts = (
            compute * split,
            moved.l2 / model.l2_rate * split,
            moved.l3 / model.l3_rate * split,
            traffic.memory_cycles(moved.memory, tasks, model),
        )
        extra = self._overhead(stage, members) * split
        if stage.parallel:
            extra = extra + model.constants.region_cycles + traffic.parallel_cycles(tasks, model)
        total = traffic.combined(parts, model) + extra
        return _Cycles(*(float(part[0]) for part in (total, *parts, extra)))

    # --- members --------------------------------------------------------------------------

    def _members(
        self, stage: _Stage, host: StageNest, path: Path, runs: float, level: int | None = None
    ) -> Iterator[_Member]:
        """Yield the Funcs computed inside the loops of `host`, which runs `runs` times.

        `level` is the loop of `stage` that contains `host`; None if `host` is the stage itself.
        """
        innermost = outside_registers(host) - 1
        for at, (name, _) in enumerate(host.loops):
            loop = self.loops[path, host.key, name]
            runs *= _count(loop.extent)
            path = (*path, (host.key, name))
            body = host.bodies.get(at)
            top = at if level is None else level
            for production in body.productions if body is not None else ():
                member = self._member(stage, production, path, runs, top, at >= innermost)
                if member is None:
                    continue
                yield member
                # A sliding Func and the Funcs in its loops run less often than the loops.
                share = min(1.0, member.slid / max(1.0, member.raw)) if member.slides else 1.0
                for inner in production.stages:
                    yield from self._members(stage, inner, path, runs * share, top)

    def _member(
        self,
        stage: _Stage,
        production: Production,
        path: Path,
        runs: float,
        level: int,
        blockwise: bool,
    ) -> _Member | None:
        i = production.func
        name = self.structure.names[i]
        around = min(level, stage.depth - 1)
        loops = [self.loops[path[:at], *path[at]] for at in range(len(path))]
        needed = loops[-1].context.boxes.get((i, 0))
        within = stage.touched(around).get(name)
        if needed is None or within is None:
            return None
        box = _finite_box(needed.box, within)
        entry = self.structure.entries[i]
        times = math.prod(stage.counts[: around + 1])
        slid = 0.0
        if entry.store != entry.compute:
            func = self.nest.analysis.view.by_name[name]

            def touched(loop: LoopSize) -> Box | None:
                found = self.nest.touched_in(loop).get(name)
                return None if found is None else _finite_box(found, within)

            slid = repeats(func, entry.store, loops, within, around + 1, touched)
        count = len(production.stages)
        return _Member(name, count, runs, box, within, times, slid, blockwise, level)

    # --- traffic and overheads --------------------------------------------------------------

    def _bytes(self, name: str, box: Box) -> float:
        return _volume(box) * value_bytes(self.nest.analysis.view.by_name[name].types)

    def _traffic(self, stage: _Stage, members: Sequence[_Member]) -> traffic.Traffic:
        """Return the traffic of all iterations of a stage into each cache and from memory."""
        model = self.model
        trips = model.constants.round_trips
        held = self._held(members)
        moved = sum(
            trips * self._bytes(m.name, m.within) * m.times * m.repeats * m.stages
            for m in members
            if not m.in_registers
        )
        found = traffic.spilled(np.full(1, held), np.full(1, moved), model)
        found = found.plus(traffic.fetched(list(self._sweeps(stage, members)), model))
        whole = self._bytes(stage.name, stage.touched(-1)[stage.name])
        return found.plus(traffic.written(whole, 1, model))

    def _held(self, members: Sequence[_Member]) -> float:
        """Return bytes of members stored at the same time."""
        return sum(self._bytes(m.name, m.box) for m in members if not m.in_registers)

    def _sweeps(self, stage: _Stage, members: Sequence[_Member]) -> Iterator[Sweep]:
        """Yield the sweeps over other Funcs and inputs, one per loop, shortest first.

        Members count as others in the loops inside the one at which they are computed.
        """
        tile, held = stage.depth - 1, self._held(members)
        for at in range(self._deepest(stage, members), -2, -1):
            boxes = stage.touched(at)
            # Loops inside the one at which a member is computed read it again and again.
            inside = {m.name for m in members if m.in_registers or at <= m.level}
            inside.add(stage.name)
            outside = {name: box for name, box in boxes.items() if name not in inside}
            times = np.full(1, math.prod(stage.counts[: at + 1]))
            kept = held + self._bytes(stage.name, boxes[stage.name]) if at == tile else 0.0
            sweep = self.costs.sweep(times, outside, np.full(1, kept))
            yield self._with_reads_around(sweep, stage, members, at)

    def _with_reads_around(
        self, sweep: Sweep, stage: _Stage, members: Sequence[_Member], at: int
    ) -> Sweep:
        """Return the sweep over loop `at` with its share of what members computed around it read.

        Of what both read, the larger amount counts.
        """
        levels = {m.level for m in members if not m.in_registers and m.level < at}
        own = {stage.name, *(m.name for m in members)}
        one, boxes = np.ones(1), stage.touched(at)
        more: dict[str, tuple[Array, Array]] = {}
        for level in levels:
            runs = math.prod(stage.counts[level + 1 : at + 1])
            for name, box in stage.touched(level).items():
                if name in own:
                    continue
                around = self.costs.sweep(one, {name: box}, one)
                inside = self.costs.sweep(one, {name: boxes[name]} if name in boxes else {}, one)
                touched = around.touched / runs - inside.touched
                cold = around.cold / runs - inside.cold
                known = more.get(name, (np.zeros(1), np.zeros(1)))
                more[name] = np.maximum(known[0], touched), np.maximum(known[1], cold)
        for touched, cold in more.values():
            sweep = replace(sweep, touched=sweep.touched + touched, cold=sweep.cold + cold)
        return sweep

    def _deepest(self, stage: _Stage, members: Sequence[_Member]) -> int:
        """Return the innermost loop whose iterations count as separate sweeps; -1 for none.

        It is the innermost tile loop. For reductions, which reread much data within a tile, it is
        further in, unless indices depend on data: a sweep then touches less than its bounds.
        """
        analysis = self.nest.analysis
        summaries = [analysis.summaries(stage.name)[stage.stage.key[1]]]
        for member in members:
            summaries += analysis.summaries(member.name)
        reduces = any(loop.kind != "pure" for s in summaries for loop in s.loops)
        if reduces and not any(load.indirect for s in summaries for load in s.loads):
            return max(stage.depth, outside_registers(stage.stage)) - 1
        return stage.depth - 1

    def _overhead(self, stage: _Stage, members: Sequence[_Member]) -> Array:
        """Return cycles of loops and allocations over all tiles on one core."""
        c = self.model.constants
        region = stage.touched(-1)[stage.name]
        tile = stage.touched(stage.depth - 1)[stage.name]
        sizes = np.array([[float(part.extent) for part in tile]])
        full = np.array([float(part.extent) for part in region])
        found = stage.tiles * (c.tile_cycles + c.segment_cycles * traffic.segments(sizes, full))
        for member in members:
            if member.runs <= member.times:
                found = found + c.tile_cycles * member.runs
            elif member.blockwise:
                found = found + c.tile_cycles * member.times + c.block_cycles * member.runs
            else:
                found = found + c.pass_cycles * member.runs
            size = self._bytes(member.name, member.box)
            if size > c.stack_bytes:
                allocations = member.times if member.slides else member.runs
                faults = size * c.fault_cycles_per_byte if size > c.fault_threshold else 0.0
                found = found + allocations * (c.heap_cycles + faults)
        return np.asarray(found, dtype=np.float64)


# --- sizes -----------------------------------------------------------------------------------


def _count(extent: Bound, pure: bool = True) -> float:
    """Return the iterations of a loop, at least 1; a default where it is unbounded."""
    value = extent if isinstance(extent, float) else float(np.max(extent))
    if math.isfinite(value):
        return max(value, 1.0)
    return float(SEARCH.unknown_extent if pure else SEARCH.unknown_iterations)


def _finite_box(box: Box, other: Box) -> Box:
    """Return the box; unbounded dimensions come from `other`, or get a default size."""
    return tuple(
        _finite(_finite(part, of), Interval(0.0, SEARCH.unknown_extent - 1.0))
        for part, of in zip(box, other, strict=True)
    )


def _finite(part: Interval, other: Interval) -> Interval:
    lo, hi = part
    known = Interval(
        lo if isinstance(lo, float) else float(np.min(lo)),
        hi if isinstance(hi, float) else float(np.max(hi)),
    )
    return known if math.isfinite(known.lo) and math.isfinite(known.hi) else other


def _volume(box: Box) -> float:
    """Return the elements of a box; an empty dimension counts as one element."""
    return math.prod(max(float(part.extent), 1.0) for part in box)
