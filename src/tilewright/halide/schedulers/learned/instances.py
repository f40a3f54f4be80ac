"""The instances of stages in a scheduled nest on a CPU: how often they run, and what that costs.

An instance is a stage with the loops around it: a stage computed at two loops has two instances.

| symbol | meaning | shape, unit |
|---|---|---|
| N | rows of sizes | count |
| `points` | evaluations of a stage's definition over the whole run | (N,), count |
| `around` | runs of an instance, if nothing slides | (N,), count |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.bounds import Bound, Box
from tilewright.halide.analysis.nest_parts import LoopSize
from tilewright.halide.analysis.nest_structure import StageKey, StageNest
from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.analysis.summaries import StageSummary, nothing_to_do
from tilewright.halide.ir.schedule import Fuse
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.operation_cycles import (
    across,
    load_cycles,
    op_cycles,
)
from tilewright.halide.schedulers.analytic.cpu.reuse import SLIDES_OVER, slides

Array: TypeAlias = npt.NDArray[np.float64]
Path: TypeAlias = tuple[tuple[StageKey, str], ...]
IN_REGISTERS = ("vectorized", "unrolled")


@dataclass(eq=False)
class StageInstance:
    """An instance of a stage: its loops, outermost first, and the iterations around it."""

    stage: StageNest
    path: Path
    loops: list[LoopSize]
    around: Bound = 1.0

    @property
    def root(self) -> StageKey:
        """The stage at root in whose loops it is."""
        return self.path[0][0] if self.path else self.stage.key


class InstanceReader:
    """The instances of a nest's stages at N rows of sizes, and how often each one runs."""

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

    def _read(self) -> list[StageInstance]:
        """Return the instances in the order of the nest."""
        self.found: dict[tuple[Path, StageKey], StageInstance] = {}
        self.loops = {(loop.path, loop.stage, loop.name): loop for loop in self.nest.loops}
        found = self.found
        structure = self.nest.structure
        for loop in self.nest.loops:
            own = len(loop.path)
            while own and loop.path[own - 1][0] == loop.stage:
                own -= 1
            path = loop.path[:own]
            stage = structure.stages[loop.stage]
            instance = found.setdefault((path, loop.stage), StageInstance(stage, path, []))
            instance.loops.append(loop)
        for instance in found.values():
            for at, (stage_key, name) in enumerate(instance.path):
                outer = self.loops[instance.path[:at], stage_key, name]
                instance.around = instance.around * count_of(outer.extent)
        return [instance for instance in found.values() if not nothing_to_do(instance.stage.stage)]

    def row(self, values: Bound) -> Array:
        """Return values as an array of shape (N,)."""
        if isinstance(values, float):
            return np.full(self.n, values)
        return np.broadcast_to(np.asarray(values, dtype=np.float64), (self.n,))

    def bytes_of(self, boxes: Mapping[str, Box]) -> tuple[Array, Array]:
        """Return bytes and cache lines of boxes of Funcs and inputs."""
        size, lines = np.zeros(self.n), np.zeros(self.n)
        line = self.model.constants.line_bytes
        for name, box in boxes.items():
            each = self.analysis.element_bytes.get(name, SEARCH.unknown_bytes)
            inner = self.inner(name)
            volume: Bound = 1.0
            rows: Bound = 1.0
            for d, part in enumerate(box):
                extent = count_of(part.extent)
                volume = volume * extent
                rows = rows * (np.ceil(extent * each / line) if d == inner else extent)
            size = size + self.row(volume) * each
            lines = lines + self.row(rows)
        return size, lines

    # --- one instance ------------------------------------------------------------------------

    def points(self, instance: StageInstance) -> Array:
        """Return evaluations of the stage if no values are reused between iterations, (N,)."""
        count: Bound = instance.around
        for loop in instance.loops:
            count = count * count_of(loop.extent)
        return self.row(count)

    def cycles(self, instance: StageInstance) -> tuple[float, dict[str, float]]:
        """Return cycles per point, and the features of `INSTANCE_NAMES` except ``trips``."""
        stage, model = instance.stage, self.model
        summary = self.analysis.summaries(stage.func.name)[stage.key[1]]
        variables, lanes, rows = self.block(instance)
        vector = variables[0] if variables else None
        arithmetic = self.arithmetic(instance, vector, lanes, rows)
        loads, gathered = self.loads(instance, vector, lanes, rows)
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

    def phases(
        self, instance: StageInstance, vector: str | None, lanes: int, rows: Mapping[str, float]
    ) -> tuple[StageSummary, ...]:
        """Return the summaries of a stage at the residues of its block (see `analysis.residues`).

        Without aligned bounds, it is the stage's summary.
        """
        func, index = instance.stage.func, instance.stage.key[1]
        summary = self.analysis.summaries(func.name)[index]
        sizes = {**rows} if vector is None else {**rows, vector: lanes}
        known = {}
        for bound in self.nest.structure.entries[instance.stage.key[0]].bounds:
            name = func.args[bound.dimension]
            period = summary.periods.get(name, 0)
            aligned = bound.remainder is not None and period and bound.modulus % period == 0
            if aligned and sizes.get(name, 1) % period == 0:
                known[name] = period
        return self.analysis.at_residues(func.name, index, known) if known else (summary,)

    def arithmetic(
        self, instance: StageInstance, vector: str | None, lanes: int, rows: Mapping[str, float]
    ) -> float:
        """Return cycles of the operations per vector, or per point in scalar code."""
        stage, model = instance.stage, self.model
        names = [
            name
            for loop in instance.loops
            if loop.mapping not in IN_REGISTERS
            for name in variables_of(stage, loop.name)
        ]
        total = 0.0
        phases = self.phases(instance, vector, lanes, rows)
        for op in (op for phase in phases for op in phase.vector_ops):
            # LLVM hoists operations that do not depend on the inner loops.
            hoisted = names and not {names[-1], vector} & op.loops
            share = model.constants.hoisted_share if hoisted else 1.0
            total += share * op.count * op_cycles(op, lanes if vector in op.loops else 1, model)
        return total / len(phases)

    def loads(
        self, instance: StageInstance, vector: str | None, lanes: int, rows: Mapping[str, float]
    ) -> tuple[float, float]:
        """Return cycles of all loads and of gathered loads, per vector."""
        loads = gathered = 0.0
        phases = self.phases(instance, vector, lanes, rows)
        for load in (load for phase in phases for load in phase.loads):
            each = load_cycles(load, vector, lanes, self.model, self.inner)
            each /= math.prod(count for name, count in rows.items() if name not in load.strides)
            loads += each
            if vector is not None and vector in load.strides:
                steps = load.strides[vector]
                if steps is None or across(load, steps, self.inner):
                    gathered += each
        return loads / len(phases), gathered / len(phases)

    def inner(self, name: str) -> int:
        """Return the contiguous dimension of a Func or input."""
        return self._innermost.get(name, 0)

    def block(self, instance: StageInstance) -> tuple[list[str], int, dict[str, float]]:
        """Return the vectorised variables, the lanes, and copies by unrolled variable."""
        vector: list[str] = []
        lanes, rows = 1, dict[str, float]()
        for loop in instance.loops:
            count = float(np.max(count_of(loop.extent)))
            names = variables_of(instance.stage, loop.name)
            if loop.mapping == "vectorized" and len(names) == 1:
                vector, lanes = names, lanes * int(count)
            elif loop.mapping == "unrolled":
                for name in names:
                    rows[name] = rows.get(name, 1.0) * count
        return vector, lanes, rows

    def around(self, instance: StageInstance) -> list[LoopSize]:
        """Return the loops of other stages around an instance, outermost first."""
        path = instance.path
        return [self.loops[path[:at], *path[at]] for at in range(len(path))]

    def host(self, instance: StageInstance) -> StageInstance | None:
        """Return the instance in whose loops another one is computed; None at root."""
        path = instance.path
        own = len(path)
        while own and path[own - 1][0] == path[-1][0]:
            own -= 1
        return self.found.get((path[:own], path[-1][0])) if path else None

    def kept(self, instance: StageInstance) -> Array:
        """Return the share of points that are computed, not reused from iterations before; (N,)."""
        key = instance.path, instance.stage.key
        if key not in self._shares:
            self._shares[key] = self._share_kept(instance)
        return self._shares[key]

    def _share_kept(self, instance: StageInstance) -> Array:
        """Return the result of `_kept`, which caches it.

        A sliding Func computes each value once per iteration of its store level. This reduces the
        runs of all its stages, and of the Funcs computed in its loops, by the same factor.
        """
        host = self.host(instance)
        share = np.ones(self.n) if host is None else self.kept(host)
        func = instance.stage.key[0]
        entry = self.nest.structure.entries[func]
        first = self.found.get((instance.path, (func, 0)))
        if entry.store == entry.compute or first is None:
            return share
        return share * self._new(instance, first)

    def _new(self, instance: StageInstance, first: StageInstance) -> Array:
        """Return the points that runs of a sliding Func compute, over those they require; (N,).

        Between its store and compute levels, a run computes what earlier ones did not, rounded up
        to whole blocks of its loops (``SlidingWindow.cpp`` of Halide 21).
        """
        func = instance.stage.key[0]
        entry, name = self.nest.structure.entries[func], self.names[func]
        blocks, sizes = self._blocks(first)
        share = np.ones(self.n)
        inside = entry.store.kind != "at"
        outer = self.analysis.regions.get(name)
        known: dict[int, Array] = {}
        slid: set[int] = set()
        for at, (key, loop_name) in enumerate(instance.path):
            loop = self.loops[instance.path[:at], key, loop_name]
            inner = self.nest.touched_in(loop).get(name)
            if inside and inner is not None and outer is not None:
                count = self.row(count_of(loop.extent))
                extents = [self.row(count_of(part.extent)) for part in inner]
                around = [self.row(count_of(part.extent)) for part in outer]
                pairs = zip(extents, around, strict=True)
                moving = [d for d, (own, all_) in enumerate(pairs) if np.any(own < all_)]
                if loop.mapping in SLIDES_OVER and slides(instance.stage.func, moving):
                    if not moving:
                        share = share / count
                    for d in moving:
                        fresh = (around[d] - extents[d]) / np.maximum(count - 1.0, 1.0)
                        fresh = np.clip(fresh, 1.0, extents[d])
                        again = _rounded(fresh, blocks.get(d, 1.0))
                        start = again if d in slid else _rounded(extents[d], blocks.get(d, 1.0))
                        known[d] = ((count - 1.0) * again + start) / count
                        slid.add(d)
                else:
                    for d in moving:
                        known.pop(d, None)
            if (key[0], loop_name) == (entry.store.func, entry.store.loop):
                inside = True
            outer = inner
        for d, points in known.items():
            share = share * np.minimum(1.0, points / self.row(sizes.get(d, 1.0)))
        return share

    def _blocks(self, instance: StageInstance) -> tuple[dict[int, Bound], dict[int, Bound]]:
        """Return, by dimension, iterations of the loops inside the outermost one, and of all."""
        stage = instance.stage
        blocks: dict[int, Bound] = {}
        sizes: dict[int, Bound] = {}
        for loop in instance.loops:
            for d in dimensions_of(stage, loop.name):
                blocks[d] = blocks[d] * count_of(loop.extent) if d in sizes else 1.0
                sizes[d] = sizes.get(d, 1.0) * count_of(loop.extent)
        return blocks, sizes


def variables_of(stage: StageNest, loop: str) -> list[str]:
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


def dimensions_of(stage: StageNest, loop: str) -> list[int]:
    """Return the dimensions of its Func that a loop of a stage runs over."""
    args = stage.func.args
    return [args.index(name) for name in variables_of(stage, loop) if name in args]


def _rounded(extent: Array, block: Bound) -> Array:
    """Return the extent rounded up to a multiple of the block."""
    return np.asarray(np.ceil(extent / block) * block)


def count_of(extent: Bound) -> Bound:
    """Return iterations of a loop, at least 1; a default where they are unbounded."""
    if isinstance(extent, float):  # much faster than an array of one element
        return max(extent, 1.0) if math.isfinite(extent) else float(SEARCH.unknown_extent)
    value = np.where(np.isfinite(extent), extent, float(SEARCH.unknown_extent))
    return np.maximum(value, 1.0)
