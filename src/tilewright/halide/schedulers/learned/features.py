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
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.bounds import Bound, Box
from tilewright.halide.analysis.nest_structure import Production, StageKey
from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.schedulers.analytic.cpu import traffic
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.parts import funcs_of, part_keys
from tilewright.halide.schedulers.learned.instances import (
    IN_REGISTERS,
    InstanceReader,
    StageInstance,
    count_of,
)
from tilewright.halide.schedulers.learned.part_features import (
    INSTANCE_NAMES,
    ROOT_NAMES,
    TERM_NAMES,
    NestFeatures,
    PartFeatures,
    assembled,
)
from tilewright.halide.schedulers.learned.term_counts import TermCounts

Array: TypeAlias = npt.NDArray[np.float64]


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


class _Reader(InstanceReader):
    """Reads the features of parts from a nest."""

    def __init__(self, nest: ScheduledNest, model: CpuModel) -> None:
        super().__init__(nest, model)
        self._cold: dict[str, bool] = {}

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
            points = np.maximum(self.points(instance) * self.kept(instance), 1.0)
            per_point, own = self.cycles(instance)
            cycles = points * per_point
            trips: Bound = 1.0
            for loop in instance.loops:
                if loop.mapping not in IN_REGISTERS:
                    trips = count_of(loop.extent)
            starts = points / np.maximum(trips * 2.0 ** own["lanes"] * 2.0 ** own["copies"], 1)
            extra = starts * c.row_cycles + self.row(instance.around) * (
                c.tile_cycles if instance.path else 0.0
            )
            compute[instance.root] = compute.get(instance.root, np.zeros(n)) + cycles
            overhead[instance.root] = overhead.get(instance.root, np.zeros(n)) + extra
            found.append((points, cycles + extra))
            named: dict[str, Bound] = {**own, "trips": np.log2(np.maximum(trips, 1.0))}
            facts.append([self.row(named[name]) for name in INSTANCE_NAMES])
        moved: dict[StageKey, tuple[traffic.Traffic, Array]] = {}
        roots = [self._root(i, compute, overhead, moved) for i in instances if not i.path]
        touched = self.nest.touched_by(production)
        return PartFeatures(
            np.array([points for points, _ in found]).reshape(-1, n),
            np.array([weight for _, weight in found]).reshape(-1, n),
            np.array(facts).reshape(-1, len(INSTANCE_NAMES), n),
            np.array(roots).reshape(-1, 1 + len(TERM_NAMES) + len(ROOT_NAMES), n),
            {key: self._least(key) for key in stages},
            touched,
            tuple(
                self.row(np.nan_to_num(allocation.bytes, posinf=0.0))
                for allocation in self.nest.allocations
                if allocation.path and allocation.path[0][0][0] == production.func
            ),
            TermCounts(self).of_part(instances, moved, self._fresh(production, touched)),
        )

    def _fresh(self, production: Production, touched: Mapping[str, Box]) -> Bound:
        """Return the bytes allocated at root for the Func of a part; 0 for an output."""
        name = self.names[production.func]
        box = touched.get(name)
        if box is None or name in self.analysis.view.algorithm.outputs:
            return 0.0
        return np.nan_to_num(self.nest.stored_bytes(production.func, box), posinf=0.0)

    def _least(self, key: StageKey) -> float:
        """Return the points in the region of a stage, without reduction loops."""
        region = self.analysis.regions.get(self.names[key[0]], ())
        return math.prod(float(np.max(count_of(part.extent))) for part in region)

    def _is_cold(self, name: str) -> bool:
        """Return whether a Func at root or an input does not stay in the last cache."""
        known = self._cold.get(name)
        if known is None:
            stored = {self.names[func] for func in self.nest.structure.root.stored}
            inputs = name not in self.analysis.view.by_name
            each = self.analysis.element_bytes.get(name, SEARCH.unknown_bytes)
            region = self.analysis.regions.get(name, ())
            whole = each * math.prod(float(np.max(count_of(part.extent))) for part in region)
            known = (inputs or name in stored) and traffic.is_cold(whole, self.model)
            self._cold[name] = known
        return known

    def _root(
        self,
        instance: StageInstance,
        compute: Mapping[StageKey, Array],
        overhead: Mapping[StageKey, Array],
        terms: dict[StageKey, tuple[traffic.Traffic, Array]],
    ) -> Array:
        """Return a stage's row of `PartFeatures.roots`; add its traffic and tasks to `terms`.

        In the roofline, all data come from memory; in `terms`, only what does not stay in a cache.
        """
        model, n = self.model, self.n
        key = instance.stage.key
        tasks: Bound = 1.0
        parallel = False
        for loop in instance.loops:
            if loop.mapping == "parallel":
                tasks, parallel = tasks * count_of(loop.extent), True
        many = self.row(tasks)
        split = traffic.imbalance(many, model) / model.cores
        moved, warm, innermost, lines = self._moved(instance)
        terms[key] = warm, many
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

    def _moved(
        self, instance: StageInstance
    ) -> tuple[traffic.Traffic, traffic.Traffic, Array, Array]:
        """Return traffic, bytes of an innermost iteration, and their share of its cache lines.

        The second traffic is without buffers that stay in the last cache between runs. For each
        cache, the outermost loop counts whose iteration touches less than the cache holds.
        """
        line = self.model.constants.line_bytes
        zeros = np.zeros(self.n)
        sweeps: list[traffic.Sweep] = []
        sizes, full = [], []
        outside = [loop for loop in instance.loops if loop.mapping not in IN_REGISTERS]
        times: list[Bound] = [1.0]
        for loop in outside:
            times.append(times[-1] * count_of(loop.extent))
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
            large = {name: box for name, box in boxes.items() if self._is_cold(name)}
            far = self.bytes_of(large)[1] * line if large else zeros
            sweeps.append(traffic.Sweep(self.row(times[at]), lines * line, far, zeros))
        if not sweeps:
            none = traffic.Traffic(zeros, zeros, zeros)
            return none, none, zeros, zeros + 1.0
        cold = [replace(sweep, cold=sweep.touched) for sweep in sweeps]
        found = traffic.fetched(cold, self.model), traffic.fetched(sweeps, self.model)
        return *found, sizes[0], full[0]
