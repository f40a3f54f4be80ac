"""What a schedule does, in cycles of a few kinds: the terms of the linear cost model.

The time of a schedule is modelled as a sum of terms with nonnegative coefficients, which are fitted
to measured times (`linear_model`). In Adams 2019, a network chooses such coefficients per stage.
Each term is a count of events, such as vectors of arithmetic or runs of a member, times a cost that
is given in `TERMS`; a fitted coefficient multiplies that cost. Work in parallel loops is divided by
the cores.

| symbol | meaning | shape, unit |
|---|---|---|
| N | rows of sizes | count |
| K | terms | count |
| `counts` | the terms of a part | (K, N), cycles |
| `share` | the share of an instance's work on the core that does most, at least 1 / cores | (N,) |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.halide.analysis.bounds import Bound, Box
from tilewright.halide.analysis.nest_parts import Allocation, LoopSize
from tilewright.halide.analysis.nest_structure import StageKey
from tilewright.halide.ir.algorithm import Variable
from tilewright.halide.schedulers.analytic.cpu import traffic
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH, CpuConstants
from tilewright.halide.schedulers.analytic.cpu.stage_loops import outside_registers
from tilewright.halide.schedulers.learned.instances import (
    IN_REGISTERS,
    Array,
    InstanceReader,
    StageInstance,
    count_of,
    dimensions_of,
)

Cost = Callable[[CpuConstants], float]


@dataclass(frozen=True, slots=True)
class Term:
    """A kind of event, and the cycles that it takes before fitting.

    Attributes:
        name: the name.
        event: what is counted.
        cycles: returns the cycles per event, given the constants of the analytic model.
    """

    name: str
    event: str
    cycles: Cost


def _one(_: CpuConstants) -> float:
    return 1.0


# Registers that a block may fill before values are spilled: of 32, some hold loads and constants.
BLOCK_REGISTERS = 24
# Cycles before fitting: of the loop around a vector (an addition and a branch, partly in parallel
# with arithmetic), of a vector that is narrower than a register, and of an iteration that goes to
# another row (a line from the second cache that is not prefetched).
ISSUE, NARROW, COLUMN = 0.3, 0.3, 20.0

TERMS = (
    Term("arithmetic", "cycles of operations", _one),
    Term("loads", "cycles of loads", _one),
    Term("gathered", "cycles of loads of scattered lanes", _one),
    Term("issue", "vectors, or points of scalar code", lambda c: ISSUE),
    Term("narrow", "vectors that do not fill a register", lambda c: NARROW),
    Term("stores", "registers stored", _one),
    Term("reduced", "registers of vectors along a reduction", _one),
    Term("strided stores", "lanes stored apart from each other", lambda c: c.scatter_cycles),
    Term("spill", "registers of a block that exceed the machine's", lambda c: c.spill_cycles),
    Term("second cache", "cycles of traffic from the second cache", _one),
    Term("third cache", "cycles of traffic from the third cache", _one),
    Term("memory", "cycles of traffic from memory", _one),
    Term("iterations", "iterations of loops in memory", _one),
    Term("starts", "starts of innermost loops", lambda c: c.row_cycles),
    Term("columns", "iterations that go to another row first", lambda c: COLUMN),
    Term("runs in blocks", "runs of members in innermost loops", lambda c: c.block_cycles),
    Term("runs in passes", "runs of members in other loops", lambda c: c.pass_cycles),
    Term("sliding blocks", "runs that slide in innermost loops", lambda c: c.pass_cycles),
    Term("heap", "allocations on the heap inside loops", lambda c: c.heap_cycles),
    Term("faults", "cycles of page faults of these", _one),
    Term("faults at root", "cycles of page faults of buffers of Funcs at root", _one),
    Term("regions", "starts of parallel loops", lambda c: c.region_cycles),
    Term("tasks", "iterations of parallel loops", lambda c: c.task_cycles),
    Term("nested regions", "starts of parallel loops in others", lambda c: c.region_cycles),
    Term("nested tasks", "iterations of parallel loops in others", lambda c: c.task_cycles),
)
TERM_COUNT = len(TERMS)


class TermCounts:
    """Counts the terms of one part: a Func at root with the Funcs in its loops."""

    def __init__(self, found: InstanceReader) -> None:
        self.found, self.model = found, found.model
        self.nest, self.n = found.nest, found.n
        c = self.model.constants
        self._cycles = {term.name: term.cycles(c) for term in TERMS}
        self._counts = {term.name: np.zeros(self.n) for term in TERMS}

    def of_part(
        self,
        instances: Sequence[StageInstance],
        moved: Mapping[StageKey, tuple[traffic.Traffic, Array]],
        stored: Bound,
    ) -> Array:
        """Return the terms of a part, shape (K, N).

        Args:
            instances: all instances in it.
            moved: the traffic and tasks of its stages at root.
            stored: bytes allocated at root for its Func; 0 for an output.
        """
        model, c = self.model, self.model.constants
        share: dict[StageKey, Array] = {}
        for key, (bytes_, tasks) in moved.items():
            share[key] = traffic.imbalance(tasks, model) / model.cores
            self._add("second cache", bytes_.l2 / model.l2_rate * share[key])
            self._add("third cache", bytes_.l3 / model.l3_rate * share[key])
            self._add("memory", traffic.memory_cycles(bytes_.memory, tasks, model))
        for instance in instances:
            own = share.get(instance.root, np.ones(self.n))
            runs = self.found.row(instance.around) * self._host_share(instance)
            self._work(instance, own)
            self._loops(instance, runs, own)
            if instance.path:
                self._member(instance, runs, own)
        fresh = self.found.row(stored)
        cycles = fresh * c.fault_cycles_per_byte / model.cores
        self._add("faults at root", np.where(fresh > c.fault_threshold, cycles, 0.0))
        return np.array([self._counts[term.name] for term in TERMS])

    def _add(self, name: str, events: Array) -> None:
        self._counts[name] = self._counts[name] + events * self._cycles[name]

    def _host_share(self, instance: StageInstance) -> Array:
        """Return the share of its runs that an instance has because its host slides."""
        host = self.found.host(instance)
        return np.ones(self.n) if host is None else self.found.kept(host)

    def _work(self, instance: StageInstance, share: Array) -> None:
        """Count what an instance does per vector, or per point in scalar code."""
        found, model, stage = self.found, self.model, instance.stage
        summary = found.analysis.summaries(stage.func.name)[stage.key[1]]
        variables, lanes, rows = found.block(instance)
        vector = variables[0] if variables else None
        points = np.maximum(found.points(instance) * found.kept(instance), 1.0) * share
        vectors = points / lanes
        loads, gathered = found.loads(instance, vector, lanes, rows)
        self._add("arithmetic", vectors * found.arithmetic(instance, vector, lanes, rows))
        self._add("loads", vectors * (loads - gathered))
        self._add("gathered", vectors * gathered)
        self._add("issue", vectors)
        size = max((t.bytes for t in summary.types), default=SEARCH.unknown_bytes)
        registers = math.ceil(lanes * size / model.vector_bytes)
        copies = math.prod(rows.values())
        if lanes > 1 and lanes * size < model.vector_bytes:
            self._add("narrow", vectors)
        excess = max(registers * copies - BLOCK_REGISTERS, 0.0)
        self._add("spill", vectors / copies * excess)
        along = _dimension(instance, vector)
        if vector is None:
            self._add("stores", points)
        elif along is None:
            self._add("reduced", vectors * registers)
        elif along == found.inner(stage.func.name):
            self._add("stores", vectors * registers)
        else:
            self._add("strided stores", points)

    def _loops(self, instance: StageInstance, runs: Array, share: Array) -> None:
        """Count iterations, starts and tasks of the loops of an instance that runs `runs` times."""
        found = self.found
        slid = found.kept(instance) / np.maximum(self._host_share(instance), 1e-30)
        loops = [loop for loop in instance.loops if loop.mapping not in IN_REGISTERS]
        counts = [found.row(count_of(loop.extent)) for loop in loops]
        nested = any(loop.mapping == "parallel" for loop in found.around(instance))
        times = runs
        for loop, count in zip(loops, counts, strict=True):
            if loop.mapping == "parallel":
                kind = "nested " if nested else ""
                self._add(f"{kind}regions", times * (share if nested else 1.0))
                self._add(f"{kind}tasks", times * count / self.model.cores)
                nested = True
            times = times * count
        total = times * slid * share
        self._add("iterations", total)
        last = np.maximum(counts[-1], 1.0) if counts else np.ones(self.n)
        self._add("starts", total / last)
        if len(loops) > 1 and self._to_other_rows(instance, loops):
            self._add("columns", total)

    def _to_other_rows(self, instance: StageInstance, loops: Sequence[LoopSize]) -> bool:
        """Return whether the innermost loop goes across the rows along which an outer one goes."""
        inner = self.found.inner(instance.stage.func.name)
        along = [dimensions_of(instance.stage, loop.name) for loop in loops]
        return bool(along[-1]) and inner not in along[-1] and any(inner in d for d in along[:-1])

    def _member(self, instance: StageInstance, runs: Array, share: Array) -> None:
        """Count runs and allocations of a Func that is computed in the loops of another."""
        func, c = instance.stage.key[0], self.model.constants
        key, name = instance.path[-1]
        host = self.nest.structure.stages[key]
        position = [loop for loop, _ in host.loops].index(name)
        if position < outside_registers(host) - 1:
            self._add("runs in passes", runs * share)
        else:
            sliding = self._slides_here(instance)
            self._add("sliding blocks", np.where(sliding, runs * share, 0.0))
            self._add("runs in blocks", np.where(sliding, 0.0, runs * share))
        if instance.stage.key[1]:
            return
        for size in self.nest.allocations:
            if size.func == func and size.path and size.path == instance.path[: len(size.path)]:
                times = self._times(size)
                bytes_ = _bytes(size, self.n)
                self._add("heap", np.where(bytes_ > c.stack_bytes, times, 0.0) * share)
                cycles = bytes_ * c.fault_cycles_per_byte
                cycles = np.where(bytes_ > c.fault_threshold, times * cycles, 0.0)
                self._add("faults", cycles * share)
                break

    def _times(self, size: Allocation) -> Array:
        """Return how often an allocation is made."""
        times: Bound = 1.0
        for at in range(len(size.path)):
            times = times * count_of(self.found.loops[size.path[:at], *size.path[at]].extent)
        return self.found.row(times)

    def _slides_here(self, instance: StageInstance) -> Array:
        """Return whether a Func slides over the loop at which it is computed; (N,) of booleans.

        Its loops then have extents that are not known at compile time.
        """
        no = np.zeros(self.n, dtype=bool)
        func = instance.stage.key[0]
        entry, name = self.nest.structure.entries[func], self.found.names[func]
        around = self.found.around(instance)
        if entry.store == entry.compute:
            return no
        inner = self.nest.touched_in(around[-1]).get(name)
        outer: Box | None
        if len(around) > 1:
            outer = self.nest.touched_in(around[-2]).get(name)
        else:
            outer = self.found.analysis.regions.get(name)
        if inner is None or outer is None:
            return no
        steps = self.found.row(count_of(around[-1].extent)) - 1.0
        for own, whole in zip(inner, outer, strict=True):
            least = self.found.row(count_of(own.extent))
            beyond = self.found.row(count_of(whole.extent)) - least
            # Values are shared if a step is shorter than what an iteration requires.
            no = no | ((steps > 0) & (beyond > 0) & (beyond <= steps * (least - 1.0)))
        return no


def _bytes(size: Allocation, n: int) -> Array:
    """Return the bytes of an allocation, shape (N,); 0 where they are unbounded."""
    return np.broadcast_to(np.nan_to_num(np.asarray(size.bytes, dtype=float), posinf=0.0), (n,))


def _dimension(instance: StageInstance, variable: str | None) -> int | None:
    """Return the dimension of a Func along which a variable of its stage runs; None if none."""
    stage = instance.stage
    if stage.key[1] == 0:
        return stage.func.args.index(variable) if variable in stage.func.args else None
    for d, at in enumerate(stage.stage.args):
        if isinstance(at, Variable) and at.name == variable:
            return d
    return None
