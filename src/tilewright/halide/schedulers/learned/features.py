"""Features of a scheduled pipeline on a CPU, as arrays over N rows of sizes.

Features come from a `ScheduledNest` and are relative to the machine: bytes over cache sizes, tasks
over cores, lanes over the lanes of a register. Most are means over the instances of stages,
weighted by cycles.

| symbol | meaning | shape, unit |
|---|---|---|
| instance | a stage and the loops around it: a stage computed at two loops has two instances | |
| `points` | evaluations of a stage's definition over the whole run | (N,), count |
| `cycles` | arithmetic and loads of an instance on one core | (N,), cycles |
| `footprint` | bytes touched by one iteration of a loop of a stage at root | (N,), bytes |
| `roofline` | cycles of the pipeline by the simple model in this module | (N,), cycles |
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.bounds import Bound, Box
from tilewright.halide.analysis.nest_parts import LoopSize
from tilewright.halide.analysis.nest_structure import Production, StageKey, StageNest
from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.analysis.summaries import StageSummary, nothing_to_do
from tilewright.halide.ir.schedule import Fuse
from tilewright.halide.schedulers.analytic.cpu import traffic
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.operation_cycles import (
    across,
    load_cycles,
    op_cycles,
)
from tilewright.halide.schedulers.analytic.cpu.parts import funcs_of, part_keys
from tilewright.halide.schedulers.learned.part_features import (
    INSTANCE_NAMES,
    ROOT_NAMES,
    TERM_NAMES,
    NestFeatures,
    PartFeatures,
    assembled,
)

Array: TypeAlias = npt.NDArray[np.float64]
Path: TypeAlias = tuple[tuple[StageKey, str], ...]
_IN_REGISTERS = ("vectorized", "unrolled")


@dataclass(eq=False)
class _Instance:
    """An instance of a stage: its loops, outermost first, and the iterations around it."""

    stage: StageNest
    path: Path
    loops: list[LoopSize]
    around: Bound = 1.0

    @property
    def root(self) -> StageKey:
        return self.path[0][0] if self.path else self.stage.key


def features(
    nest: ScheduledNest, model: CpuModel, known: dict[Hashable, PartFeatures] | None = None
) -> NestFeatures:
    """Return the features of a nest, one row per row of its sizes.

    `known` caches what the parts of schedules contribute, for other schedules of the same analysis
    at the same sizes.

    Raises one of `UNKNOWN` if its sizes cannot be known.
    """
    # Unbounded regions have infinite extents; differences of these are ignored.
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        return assembled(nest, model, _parts(nest, model, {} if known is None else known))


def _parts(
    nest: ScheduledNest, model: CpuModel, known: dict[Hashable, PartFeatures]
) -> list[PartFeatures]:
    """Return what each part contributes; parts with other factors are not kept in `known`."""
    keys = part_keys(nest)
    sized = {e for e, _, _ in nest.factors}
    given = {entry.func for e, entry in enumerate(nest.schedule.funcs) if e in sized}
    changed = {key for key, p in keys.items() if given and given & set(funcs_of(p))}
    fresh = [key for key in keys if key in changed or key not in known]
    if not fresh:
        return [known[key] for key in keys]
    reader = _Reader(nest.limited(frozenset(keys[key].func for key in fresh)), model)
    made = {key: reader.part(keys[key]) for key in fresh}
    if not nest.factors:
        known |= made
    return [made[key] if key in made else known[key] for key in keys]


class _Reader:
    def __init__(self, nest: ScheduledNest, model: CpuModel) -> None:
        self.nest, self.model = nest, model
        self.analysis = nest.analysis
        self.names = nest.structure.names
        self._shares: dict[tuple[Path, StageKey], Array] = {}
        entries = nest.structure.entries
        self._innermost = {
            self.names[i]: e.storage_order[0] for i, e in entries.items() if e.storage_order
        }
        self._innermost = {**self.analysis.contiguous, **self._innermost}
        self.instances = self._read()
        sizes = [np.size(loop.extent) for instance in self.instances for loop in instance.loops]
        # Factors may only affect allocations and no loop.
        self.n = max([1, *sizes, *map(np.size, nest.factors.values())])

    def _read(self) -> list[_Instance]:
        """Return the instances in the order of the nest."""
        self._found: dict[tuple[Path, StageKey], _Instance] = {}
        self._loops = {(loop.path, loop.stage, loop.name): loop for loop in self.nest.loops}
        found = self._found
        structure = self.nest.structure
        for loop in self.nest.loops:
            own = len(loop.path)
            while own and loop.path[own - 1][0] == loop.stage:
                own -= 1
            path = loop.path[:own]
            stage = structure.stages[loop.stage]
            instance = found.setdefault((path, loop.stage), _Instance(stage, path, []))
            instance.loops.append(loop)
        for instance in found.values():
            for at, (stage_key, name) in enumerate(instance.path):
                outer = self._loops[instance.path[:at], stage_key, name]
                instance.around = instance.around * _count(outer.extent)
        return [instance for instance in found.values() if not nothing_to_do(instance.stage.stage)]

    def row(self, values: Bound) -> Array:
        if isinstance(values, float):
            return np.full(self.n, values)
        return np.broadcast_to(np.asarray(values, dtype=np.float64), (self.n,))

    def bytes_of(self, boxes: Mapping[str, Box]) -> tuple[Array, Array]:
        """Return bytes and cache lines of boxes of Funcs and inputs."""
        size, lines = np.zeros(self.n), np.zeros(self.n)
        line = self.model.constants.line_bytes
        for name, box in boxes.items():
            each = self.analysis.element_bytes.get(name, SEARCH.unknown_bytes)
            inner = self._inner(name)
            volume: Bound = 1.0
            rows: Bound = 1.0
            for d, part in enumerate(box):
                extent = _count(part.extent)
                volume = volume * extent
                rows = rows * (np.ceil(extent * each / line) if d == inner else extent)
            size = size + self.row(volume) * each
            lines = lines + self.row(rows)
        return size, lines

    # --- one instance ------------------------------------------------------------------------

    def points(self, instance: _Instance) -> Array:
        """Return evaluations of the stage if no values are reused between iterations, (N,)."""
        count: Bound = instance.around
        for loop in instance.loops:
            count = count * _count(loop.extent)
        return self.row(count)

    def cycles(self, instance: _Instance) -> tuple[float, dict[str, float]]:
        """Return cycles per point, and the features of `INSTANCE_NAMES` except ``trips``."""
        stage, model = instance.stage, self.model
        summary = self.analysis.summaries(stage.func.name)[stage.key[1]]
        variables, lanes, rows = self._block(instance)
        vector = variables[0] if variables else None
        arithmetic = self._arithmetic(instance, vector, lanes)
        loads, gathered = self._loads(summary, vector, lanes, rows)
        total = max(arithmetic + loads, model.constants.simple_cycles)
        size = max((t.bytes for t in summary.types), default=SEARCH.unknown_bytes)
        return total / lanes, {
            "vectorised": float(lanes > 1),
            "lanes": math.log2(lanes),
            "registers": math.log2(max(lanes * size, 1) / model.vector_bytes),
            "gathered": gathered / total,
            "loads": loads / total,
            "copies": math.log2(math.prod(rows.values())),
            "size": math.log2(max(total, 1.0)),
            "indirect": float(any(load.indirect for load in summary.loads)),
            "clamped": float(vector is not None and any(
                vector in load.clamped for load in summary.loads)),
            "update": float(stage.key[1] > 0),
            "scatter": float(summary.scatter),
            "scan": float(summary.scans),
            "member": float(bool(instance.path)),
        }  # fmt: skip

    def _arithmetic(self, instance: _Instance, vector: str | None, lanes: int) -> float:
        """Return cycles of the operations per vector, or per point in scalar code."""
        stage, model = instance.stage, self.model
        names = [
            name
            for loop in instance.loops
            if loop.mapping not in _IN_REGISTERS
            for name in _variables(stage, loop.name)
        ]
        total = 0.0
        for op in self.analysis.summaries(stage.func.name)[stage.key[1]].ops:
            # LLVM hoists operations that do not depend on the inner loops.
            hoisted = names and not {names[-1], vector} & op.loops
            share = model.constants.hoisted_share if hoisted else 1.0
            total += share * op.count * op_cycles(op, lanes if vector in op.loops else 1, model)
        return total

    def _loads(
        self, summary: StageSummary, vector: str | None, lanes: int, rows: Mapping[str, float]
    ) -> tuple[float, float]:
        """Return cycles of all loads and of gathered loads, per vector."""
        loads = gathered = 0.0
        for load in summary.loads:
            each = load_cycles(load, vector, lanes, self.model, self._inner)
            each /= math.prod(count for name, count in rows.items() if name not in load.strides)
            loads += each
            if vector is not None and vector in load.strides:
                steps = load.strides[vector]
                if steps is None or across(load, steps, self._inner):
                    gathered += each
        return loads, gathered

    def _inner(self, name: str) -> int:
        return self._innermost.get(name, 0)

    def _block(self, instance: _Instance) -> tuple[list[str], int, dict[str, float]]:
        """Return the vectorised variables, the lanes, and copies by unrolled variable."""
        vector: list[str] = []
        lanes, rows = 1, dict[str, float]()
        for loop in instance.loops:
            count = float(np.max(_count(loop.extent)))
            names = _variables(instance.stage, loop.name)
            if loop.mapping == "vectorized" and len(names) == 1:
                vector, lanes = names, lanes * int(count)
            elif loop.mapping == "unrolled":
                for name in names:
                    rows[name] = rows.get(name, 1.0) * count
        return vector, lanes, rows

    # --- a part -----------------------------------------------------------------------------

    def part(self, production: Production) -> PartFeatures:
        """Return what a Func at root contributes, with the Funcs computed in its loops."""
        n, c = self.n, self.model.constants
        funcs = set(funcs_of(production))
        stages = [key for key in self.nest.structure.stages if key[0] in funcs]
        compute: dict[StageKey, Array] = {}
        overhead: dict[StageKey, Array] = {}
        found: list[tuple[Array, Array]] = []
        facts: list[list[Array]] = []
        instances = [i for i in self.instances if i.stage.key[0] in funcs]
        for instance in instances:
            points = np.maximum(self.points(instance) * self._kept(instance), 1.0)
            per_point, own = self.cycles(instance)
            cycles = points * per_point
            trips: Bound = 1.0
            for loop in instance.loops:
                if loop.mapping not in _IN_REGISTERS:
                    trips = _count(loop.extent)
            starts = points / np.maximum(trips * 2.0 ** own["lanes"] * 2.0 ** own["copies"], 1)
            extra = starts * c.row_cycles + self.row(instance.around) * (
                c.tile_cycles if instance.path else 0.0
            )
            compute[instance.root] = compute.get(instance.root, np.zeros(n)) + cycles
            overhead[instance.root] = overhead.get(instance.root, np.zeros(n)) + extra
            found.append((points, cycles + extra))
            named: dict[str, Bound] = {**own, "trips": np.log2(np.maximum(trips, 1.0))}
            facts.append([self.row(named[name]) for name in INSTANCE_NAMES])
        roots = [self._root(i, compute, overhead) for i in instances if not i.path]
        return PartFeatures(
            np.array([points for points, _ in found]).reshape(-1, n),
            np.array([weight for _, weight in found]).reshape(-1, n),
            np.array(facts).reshape(-1, len(INSTANCE_NAMES), n),
            np.array(roots).reshape(-1, 1 + len(TERM_NAMES) + len(ROOT_NAMES), n),
            {key: self._least(key) for key in stages},
            self.nest.touched_by(production),
            tuple(
                self.row(np.nan_to_num(allocation.bytes, posinf=0.0))
                for allocation in self.nest.allocations
                if allocation.path and allocation.path[0][0][0] == production.func
            ),
        )

    def _least(self, key: StageKey) -> float:
        """Return the points in the region of a stage, without reduction loops."""
        region = self.analysis.regions.get(self.names[key[0]], ())
        return math.prod(float(np.max(_count(part.extent))) for part in region)

    def _kept(self, instance: _Instance) -> Array:
        """Return the share of points that are computed, not reused from iterations before; (N,)."""
        key = instance.path, instance.stage.key
        if key not in self._shares:
            self._shares[key] = self._share_kept(instance)
        return self._shares[key]

    def _share_kept(self, instance: _Instance) -> Array:
        """Return the result of `_kept`, which caches it.

        A sliding Func computes each value once per iteration of its store level. This reduces the
        runs of all its stages, and of the Funcs computed in its loops, by the same factor.
        """
        host = instance.path[-1][0] if instance.path else None
        share = np.ones(self.n)
        if host is not None:
            own = len(instance.path)
            while own and instance.path[own - 1][0] == host:
                own -= 1
            around = self._found.get((instance.path[:own], host))
            share = share if around is None else self._kept(around)
        func = instance.stage.key[0]
        entry = self.nest.structure.entries[func]
        first = self._found.get((instance.path, (func, 0)))
        if entry.store == entry.compute or first is None:
            return share
        times: Bound = 1.0
        box = self.analysis.regions.get(self.names[func])
        for at, (key, name) in enumerate(instance.path if entry.store.kind == "at" else ()):
            times = times * _count(self._loops[instance.path[:at], key, name].extent)
            if (key[0], name) == (entry.store.func, entry.store.loop):
                outer = self._loops[instance.path[:at], key, name]
                box = self.nest.touched_in(outer).get(self.names[func])
                break
        for part in box or ():
            times = times * _count(part.extent)
        return share * np.minimum(1.0, self.row(times) / self.points(first))

    def _root(
        self,
        instance: _Instance,
        compute: Mapping[StageKey, Array],
        overhead: Mapping[StageKey, Array],
    ) -> Array:
        """Return a stage's row of `PartFeatures.roots`."""
        model, n = self.model, self.n
        key = instance.stage.key
        tasks: Bound = 1.0
        parallel = False
        for loop in instance.loops:
            if loop.mapping == "parallel":
                tasks, parallel = tasks * _count(loop.extent), True
        many = self.row(tasks)
        split = traffic.imbalance(many, model) / model.cores
        moved, innermost, lines = self._moved(instance)
        parts = (
            compute.get(key, np.zeros(n)) * split,
            moved.l2 / model.l2_rate * split,
            moved.l3 / model.l3_rate * split,
            traffic.memory_cycles(moved.memory, many, model),
        )
        extra = overhead.get(key, np.zeros(n)) * split
        if parallel:
            extra = extra + model.constants.region_cycles + traffic.parallel_cycles(many, model)
        whole = np.asarray(traffic.combined(parts, model) + extra)
        facts = {
            "tasks": np.log2(many / model.cores),
            "imbalance": split * model.cores,
            "serial": self.row(float(not parallel)),
            "innermost": np.log2(np.maximum(innermost, 1.0) / model.l1_bytes),
            "line use": lines,
            "parts": np.zeros(n),
        }
        of_root = [whole * facts[name] for name in ROOT_NAMES]
        return np.array([self.row(each) for each in (whole, *parts, extra, *of_root)])

    def _moved(self, instance: _Instance) -> tuple[traffic.Traffic, Array, Array]:
        """Return traffic, bytes of an innermost iteration, and their share of its cache lines.

        For each cache, the outermost loop counts whose iteration touches less than the cache holds.
        """
        line = self.model.constants.line_bytes
        zeros = np.zeros(self.n)
        sweeps: list[traffic.Sweep] = []
        sizes, full = [], []
        outside = [loop for loop in instance.loops if loop.mapping not in _IN_REGISTERS]
        times: list[Bound] = [1.0]
        for loop in outside:
            times.append(times[-1] * _count(loop.extent))
        for at in range(len(outside), -1, -1):
            if at:
                boxes = self.nest.touched_in(outside[at - 1])
            elif instance.loops:
                first = instance.loops[0]
                whole = replace(first.context, depth=-1, fixed={}, body=None)
                boxes = self.nest.touched_in(replace(first, context=whole))
            else:
                break
            size, lines = self.bytes_of(boxes)
            sizes.append(size)
            full.append(size / np.maximum(lines * line, 1.0))
            sweeps.append(traffic.Sweep(self.row(times[at]), lines * line, lines * line, zeros))
        if not sweeps:
            return traffic.Traffic(zeros, zeros, zeros), zeros, zeros + 1.0
        return traffic.fetched(sweeps, self.model), sizes[0], full[0]


def _variables(stage: StageNest, loop: str) -> list[str]:
    """Return the variables of the stage's definition that a loop runs over."""
    sources: dict[str, list[str]] = {}
    for change in stage.splits:
        if isinstance(change, Fuse):
            sources[change.fused] = [
                *sources.get(change.inner, [change.inner]),
                *sources.get(change.outer, [change.outer]),
            ]
        else:
            found = sources.get(change.old, [change.old])
            sources[change.outer] = sources[change.inner] = found
    found = sources.get(loop, [loop])
    return [stage.variables[name] for name in found if name in stage.variables]


def _count(extent: Bound) -> Bound:
    """Return iterations of a loop, at least 1; a default where they are unbounded."""
    if isinstance(extent, float):  # much faster than an array of one element
        return max(extent, 1.0) if math.isfinite(extent) else float(SEARCH.unknown_extent)
    value = np.where(np.isfinite(extent), extent, float(SEARCH.unknown_extent))
    return np.maximum(value, 1.0)
