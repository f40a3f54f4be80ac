"""The 39 schedule features of Adams et al. 2019, for CPUs, per stage.

Words: a *realisation* is one allocation of the stage's Func, a *production* one computation of it
at its compute level, a *task* one iteration of the parallel loops at root, a *line* a contiguous
run of bytes in memory. Sizes are in bytes; all other features are counts without unit.

Source: `Halide's released code
<https://github.com/halide/Halide/tree/main/src/autoschedulers/adams2019>`_, as of 2026-08, with
which the plugin of the ``halide`` 21.0.0 wheel agrees, and *Learning to Optimize Halide with Tree
Search and Random Programs* (SIGGRAPH 2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.bounds import Bound, least
from tilewright.halide.analysis.scheduled_nest import Factors
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.schedulers.learned.published.cpu_loads import Loads, loads_of
from tilewright.halide.schedulers.learned.published.levels import LevelNode, PublishedNest, StageKey
from tilewright.halide.schedulers.learned.published.pipeline import (
    FuncNode,
    Pipeline,
    Spans,
    StageNode,
    both,
    floor_div,
    pick,
)

Floats: TypeAlias = npt.NDArray[np.float32]
Feature: TypeAlias = dict[str, Bound]

# Each feature with its meaning, in the order of the plugin's file.
MEANINGS: dict[str, str] = {
    "num_realizations": "allocations: product of the loops outside the store level",
    "num_productions": "computations: product of the loops outside the compute level",
    "points_computed_per_realization": "iterations per allocation, reductions included",
    "points_computed_per_production": "iterations per computation",
    "points_computed_total": "iterations over the whole run",
    "points_computed_minimum": "iterations that any schedule needs: at root, or if inlined",
    "innermost_loop_extent": "iterations of the loops around the vector and inside all others",
    "innermost_pure_loop_extent": "the same without loops over reductions",
    "unrolled_loop_extent": "innermost_pure_loop_extent if these loops are unrolled, else 1",
    "inner_parallelism": "parallel iterations of its own loops",
    "outer_parallelism": "parallel iterations of the loops around its compute level",
    "bytes_at_realization": "bytes of the region required at the store level",
    "bytes_at_production": "bytes of the region required at the compute level",
    "bytes_at_root": "bytes of the region that it would have at root",
    "innermost_bytes_at_realization": "bytes along the innermost dimension of the first",
    "innermost_bytes_at_production": "bytes along the innermost dimension of the second",
    "innermost_bytes_at_root": "bytes along the innermost dimension of the third",
    "inlined_calls": "evaluations if it is inlined, over the whole run",
    "unique_bytes_read_per_realization": "distinct bytes that it reads per allocation",
    "unique_lines_read_per_realization": "lines of these bytes",
    "allocation_bytes_read_per_realization": "bytes of the allocations that it reads",
    "working_set": "bytes of all allocations alive during one computation",
    "vector_size": "lanes of its vectors",
    "native_vector_size": "lanes of a register for its narrowest type",
    "num_vectors": "vectors computed over the whole run",
    "num_scalars": "single values computed over the whole run",
    "scalar_loads_per_vector": "scalar loads per vector (a gather counts all lanes)",
    "vector_loads_per_vector": "dense or strided loads per vector (stride 2 counts 2)",
    "scalar_loads_per_scalar": "loads per single value",
    "bytes_at_task": "bytes that one task computes",
    "innermost_bytes_at_task": "bytes along the innermost dimension of these",
    "unique_bytes_read_per_vector": "distinct bytes read per vector",
    "unique_lines_read_per_vector": "lines of these bytes",
    "unique_bytes_read_per_task": "distinct bytes stored at root that one task reads",
    "unique_lines_read_per_task": "lines of these bytes",
    "working_set_at_task": "bytes of all allocations inside the task",
    "working_set_at_production": "bytes of all allocations inside the compute level",
    "working_set_at_realization": "bytes of all allocations inside the store level",
    "working_set_at_root": "bytes of all allocations",
}
NAMES = tuple(MEANINGS)
# The released scheduler unrolls innermost loops of at most this many iterations.
UNROLL_LIMIT = 12.0


@dataclass(frozen=True, eq=False)
class StageFeatures:
    """Schedule features of all stages.

    Attributes:
        names: The features, in order.
        stages: The position of the Func in `Algorithm.funcs` and the stage, consumers first and
            last stages first, as in the plugins' files.
        values: Shape (N, stages, features), as 32-bit floats like those of the plugins.
    """

    names: tuple[str, ...]
    stages: tuple[tuple[int, int], ...]
    values: Floats


def cpu_features(
    pipeline: Pipeline,
    schedule: Schedule,
    factors: Factors | None = None,
    *,
    cores: int,
    as_released: bool = True,
) -> StageFeatures:
    """Return the 39 features of every stage, inlined ones included.

    Args:
        pipeline: The pipeline.
        schedule: The schedule; without clones.
        factors: Split factors that replace those of the schedule, as in `ScheduledNest`.
        cores: The tasks that run at once (the plugin's ``parallelism``).
        as_released: Whether to count loads as the released code does. It counts the loads of a
            Func again for every path of inlined Funcs that reaches it, and none on the later
            branches of an inlined Func that reads several.

    Returns:
        The features, with one row per row of `factors`.

    Raises:
        ScheduleError: The schedule has a nest that these features cannot describe.
    """
    nest = PublishedNest(pipeline, schedule, factors, cores)
    with np.errstate(invalid="ignore", divide="ignore"):
        walk = StageWalk(nest, cores, as_released)
        walk.run()
    rows = max([1, *map(np.size, (factors or {}).values())])
    return StageFeatures(NAMES, stage_keys(pipeline), walk.table(rows))


def stage_keys(pipeline: Pipeline) -> tuple[tuple[int, int], ...]:
    """Return `StageFeatures.stages` of a pipeline."""
    return tuple((stage.node.position, stage.index) for stage in pipeline.stages)


class StageWalk:
    """A walk over a nest that collects the features of all stages in `found`."""

    names: tuple[str, ...] = NAMES
    defaults: Mapping[str, float] = {}
    unroll_limit = UNROLL_LIMIT

    def __init__(self, nest: PublishedNest, cores: int, as_released: bool) -> None:
        self.nest = nest
        self.cores = float(cores)
        self.as_released = as_released
        self.found: dict[StageKey, Feature] = {}

    def run(self) -> None:
        """Walk over the whole nest."""
        nest = self.nest
        total = self._level(nest.root, 1.0, 1.0)
        self._at_root(total)

    def table(self, rows: int) -> Floats:
        """Return the features of all stages, shape (rows, stages, features)."""
        stages = self.nest.pipeline.stages
        # One feature of all rows is contiguous in memory.
        values = np.zeros((len(stages), len(self.names), rows), dtype=np.float32)
        for at, stage in enumerate(stages):
            found = self.of(stage)
            for f, name in enumerate(self.names):
                value = found[name]
                if not isinstance(value, float) or value:
                    values[at, f] = value
        return values.transpose(2, 0, 1)

    def of(self, stage: StageNode) -> Feature:
        """Return the features of a stage so far."""
        key = stage.node.id, stage.index
        found = self.found.get(key)
        if found is None:
            found = self.found[key] = {**dict.fromkeys(self.names, 0.0), **self.defaults}
        return found

    # --- one level ------------------------------------------------------------------------

    def _level(self, level: LevelNode, instances: Bound, parallelism: Bound) -> Bound:
        """Set the features of a level and of all inside; return its working set."""
        loops: Bound = 1.0
        for size in level.size:
            loops = loops * size
        inside = instances * loops
        tasks = self._tasks(level) if level.parent is not None else 1.0
        for node in level.stored:
            self._realisation(level, node, inside)
        if level.root:
            return self._children(level, inside, parallelism)
        assert level.stage is not None
        assert level.parent is not None
        stage, parent = level.stage, level.parent
        feature = self.of(stage)
        self._innermost_extents(level, feature)
        produced = parent.node is not stage.node
        if parent.root:
            self._task(level, feature)
        if produced:
            self._production(level, feature, instances, tasks, parallelism)
        total = self._children(level, inside, parallelism * tasks)
        if parent.root:
            self._set_task(level, total)
        if produced:
            feature["working_set"] = total
        if level.innermost:
            feature["unrolled_loop_extent"] = self._unrolled(level, feature)
        if level.innermost or produced:
            self._loads(level, feature, instances, inside, produced)
        for identifier, calls in level.inlined.items():
            self._inlined(level, identifier, float(calls), inside, parallelism)
        return total

    def _loads(
        self, level: LevelNode, feature: Feature, instances: Bound, inside: Bound, produced: bool
    ) -> None:
        """Set the features of loads at the outermost or innermost level of a stage."""
        assert level.stage is not None
        loads = loads_of(self.nest, level, instances, self.found, self.as_released)
        if produced:
            self._reads_at_production(level.stage, feature, loads)
        if level.innermost:
            self._reads_innermost(level.stage, feature, loads, inside)

    def _tasks(self, level: LevelNode) -> Bound:
        """Return the parallel iterations of a level."""
        assert level.stage is not None
        assert level.parent is not None
        tasks: Bound = 1.0
        impure: bool | npt.NDArray[np.bool_] = False
        if self.cores <= 1 or not (level.parallel or level.parent.root):
            return tasks
        for i in reversed(range(len(level.size))):
            size = level.size[i]
            if not level.stage.pure[i]:
                impure = np.logical_or(impure, size != 1.0)
                continue
            if level.parallel:
                grown = tasks * size
            else:
                grown = pick(tasks < self.cores, least(tasks * size, 8.0 * self.cores), tasks)
                grown = pick(tasks * size <= 8.0 * self.cores, tasks * size, grown)
                grown = pick(tasks < self.cores, grown, tasks)
            tasks = pick(impure, tasks, grown)
        return tasks

    def _children(self, level: LevelNode, inside: Bound, parallelism: Bound) -> Bound:
        """Walk the levels inside; set and return the working set of one iteration."""
        total: Bound = 0.0
        for child in level.children:
            total = total + self._level(child, inside, parallelism)
        for node in level.stored:
            total = total + self.of(node.stages[0])["bytes_at_production"]
        for node in level.stored:
            for stage in node.stages:
                self.of(stage)["working_set_at_realization"] = total
        for child in level.children:
            if child.stage is not None and child.node is not level.node:
                self.of(child.stage)["working_set_at_production"] = total
        return total

    def _realisation(self, level: LevelNode, node: FuncNode, inside: Bound) -> None:
        region = self.nest.region_at(level, node)
        size = _volume(node, region.computed)
        for stage in node.stages:
            feature = self.of(stage)
            site = self.nest.sites[node.id, stage.index]
            assert site.produce is not None
            points: Bound = 1.0
            vectors = scalars = inside
            for i, span in enumerate(region.loops[stage.index]):
                extent = span.extent
                points = points * extent
                if i == site.produce.vector_loop:
                    vectors = vectors * floor_div(extent, float(stage.lanes))
                    scalars = scalars * (extent % float(stage.lanes))
                else:
                    vectors, scalars = vectors * extent, scalars * extent
            feature["num_realizations"] = inside
            feature["points_computed_per_realization"] = points
            feature["points_computed_total"] = points * inside
            feature["num_vectors"] = vectors if site.produce.vector_loop >= 0 else 0.0
            feature["num_scalars"] = scalars
            feature["bytes_at_realization"] = size
            innermost = _innermost(node, region.computed, site.produce.vector_dim)
            feature["innermost_bytes_at_realization"] = innermost
            if not level.root:
                self._set_task_bytes(node, feature, size, innermost)

    def _set_task_bytes(
        self, node: FuncNode, feature: Feature, size: Bound, innermost: Bound
    ) -> None:
        feature["bytes_at_task"], feature["innermost_bytes_at_task"] = size, innermost

    def _innermost_extents(self, level: LevelNode, feature: Feature) -> None:
        """Set the features of the innermost loops, which levels further in set again."""
        assert level.stage is not None
        stage = level.stage
        if level.innermost:
            lanes = level.size[level.vector_loop] if level.vector_loop >= 0 else 1.0
            feature["vector_size"] = lanes
            scalar = np.equal(lanes, 1.0) if isinstance(lanes, np.ndarray) else lanes == 1.0
            vectors, scalars = feature["num_vectors"], feature["num_scalars"]
            feature["num_scalars"] = pick(scalar, scalars + vectors, scalars)
            feature["num_vectors"] = pick(scalar, 0.0, vectors)
            return
        every: Bound = 1.0
        pure: Bound = 1.0
        for i, size in enumerate(level.size):
            every = every * size
            if not stage.reduction[i]:
                pure = pure * size
        feature["innermost_loop_extent"], feature["innermost_pure_loop_extent"] = every, pure

    def _unrolled(self, level: LevelNode, feature: Feature) -> Bound:
        assert level.stage is not None
        assert level.parent is not None
        stage, parent = level.stage, level.parent
        if parent.node is not stage.node or parent.parent is None:
            return 1.0
        around = self.nest.region_at(parent.parent, stage.node).loops[stage.index]
        pure = feature["innermost_pure_loop_extent"]
        unrolled = pure <= self.unroll_limit
        for i, span in enumerate(around):
            if not stage.reduction[i]:
                unrolled = both(unrolled, span.constant)
        return pick(unrolled, pure, 1.0)

    # --- tasks and productions ------------------------------------------------------------

    def _task(self, level: LevelNode, feature: Feature) -> None:
        assert level.stage is not None
        stage, node = level.stage, level.stage.node
        if level.parallel:
            region = self.nest.region_at(level, node)
            size: Bound = float(node.bytes)
            innermost: Bound = 1.0
            for d, span in enumerate(region.computed):
                extent = span.extent
                if d in stage.dimension:
                    extent = floor_div(extent, level.size[stage.dimension.index(d)])
                size = size * extent
                if d == level.vector_dim:
                    innermost = extent
            self._set_task_bytes(node, feature, size, node.bytes * innermost)
        else:
            # Not rounded: the released code divides floats here.
            size = (feature["bytes_at_realization"] + self.cores - 1.0) / self.cores
            row = feature["innermost_bytes_at_realization"]
            self._set_task_bytes(node, feature, size, least(size, row))
        self._reads_of_task(level, feature)

    def _reads_of_task(self, level: LevelNode, feature: Feature) -> None:
        """Set what one task reads of Funcs and inputs that are stored at root."""
        assert level.stage is not None
        read: Bound = 0.0
        lines: Bound = 0.0
        pending = list(level.stage.edges)
        done: set[int] = set()
        while pending:
            edge = pending.pop()
            producer = edge.producer
            if producer.id in done:
                continue
            done.add(producer.id)
            site = self.nest.sites[producer.id, 0]
            if site.store.root:
                region = self.nest.region_at(level, producer)
                dim = 0 if producer.input or site.produce is None else site.produce.vector_dim
                read = read + _volume(producer, region.required)
                lines = lines + _lines(region.required, dim)
            elif site.produce is not None:
                for stage in producer.stages:
                    pending.extend(stage.edges)
        feature["unique_bytes_read_per_task"] = read
        feature["unique_lines_read_per_task"] = lines

    def _set_task(self, level: LevelNode, total: Bound) -> None:
        for child in level.children:
            if child.stage is not None:
                self.of(child.stage)["working_set_at_task"] = total
            self._set_task(child, total)

    def _production(
        self,
        level: LevelNode,
        feature: Feature,
        instances: Bound,
        tasks: Bound,
        parallelism: Bound,
    ) -> None:
        assert level.stage is not None
        assert level.parent is not None
        node = level.stage.node
        feature["num_productions"] = instances
        feature["inner_parallelism"] = tasks
        feature["outer_parallelism"] = parallelism
        feature["native_vector_size"] = float(level.stage.lanes)
        region = self.nest.region_at(level.parent, node)
        feature["bytes_at_production"] = _volume(node, region.computed)
        feature["innermost_bytes_at_production"] = _innermost(
            node, region.computed, level.vector_dim
        )

    def _reads_at_production(self, stage: StageNode, feature: Feature, loads: Loads) -> None:
        feature["allocation_bytes_read_per_realization"] = loads.allocated
        feature["unique_bytes_read_per_realization"] = loads.bytes
        feature["unique_lines_read_per_realization"] = loads.lines
        if stage.index:
            # An update is taken to read everything produced so far.
            own = feature["bytes_at_production"]
            feature["allocation_bytes_read_per_realization"] = loads.allocated + own
            feature["unique_bytes_read_per_realization"] = loads.bytes + own
            rows = own / feature["innermost_bytes_at_production"]
            feature["unique_lines_read_per_realization"] = loads.lines + rows

    def _reads_innermost(
        self, stage: StageNode, feature: Feature, loads: Loads, inside: Bound
    ) -> None:
        own = 1.0 if stage.index else 0.0  # an update is taken to load its own value
        feature["points_computed_per_production"] = inside / feature["num_productions"]
        strided = loads.dense + 2.0 * loads.stride_2 + 3.0 * loads.stride_3 + 4.0 * loads.stride_4
        feature["vector_loads_per_vector"] = strided + own
        gathered = feature["vector_size"] * loads.gathers
        feature["scalar_loads_per_vector"] = loads.broadcasts + gathered
        feature["scalar_loads_per_scalar"] = loads.count + own
        feature["unique_bytes_read_per_vector"] = loads.bytes
        feature["unique_lines_read_per_vector"] = loads.lines

    # --- inlined Funcs, and what is known at the end --------------------------------------

    def _inlined(
        self, level: LevelNode, identifier: int, calls: float, inside: Bound, parallelism: Bound
    ) -> None:
        assert level.stage is not None
        reader = self.of(level.stage)
        feature = self.of(self.nest.pipeline.nodes[identifier].stages[0])
        feature["inlined_calls"] = feature["inlined_calls"] + calls * inside
        feature["num_vectors"] = feature.get("num_vectors", 0.0) + calls * reader["num_vectors"]
        feature["num_scalars"] = feature["num_scalars"] + calls * reader["num_scalars"]
        feature["native_vector_size"] = float(level.stage.lanes)
        known, lanes = feature.get("vector_size", 0.0), float(level.stage.lanes)
        size = reader.get("vector_size", 0.0)
        feature["vector_size"] = pick(known > 0.0, least(known, lanes), size)
        known, pure = feature["innermost_pure_loop_extent"], reader["innermost_pure_loop_extent"]
        feature["innermost_pure_loop_extent"] = pick(
            known > 0.0,
            least(known, pure),
            pure,
        )
        feature["inner_parallelism"] = 1.0
        feature["outer_parallelism"] = parallelism

    def _at_root(self, total: Bound) -> None:
        for node in self.nest.pipeline.scheduled:
            region = self.nest.region_at(self.nest.root, node)
            for stage in node.stages:
                feature = self.of(stage)
                site = self.nest.sites[node.id, stage.index]
                feature["bytes_at_root"] = _volume(node, region.computed)
                feature["working_set_at_root"] = total
                if site.produce is not None:
                    dim = site.produce.vector_dim
                    feature["innermost_bytes_at_root"] = _innermost(node, region.computed, dim)
                points: Bound = 1.0
                for span in region.loops[stage.index]:
                    points = points * span.extent
                if len(node.stages) == 1 and not node.output:
                    inlined: Bound = 0.0
                    for edge in node.readers:
                        reader = self.of(edge.consumer)
                        inlined = inlined + reader["points_computed_minimum"] * edge.calls
                    points = least(points, inlined)
                feature["points_computed_minimum"] = points


def _volume(node: FuncNode, spans: Spans) -> Bound:
    size: Bound = float(node.bytes)
    for span in spans:
        size = size * span.extent
    return size


def _innermost(node: FuncNode, spans: Spans, dimension: int) -> Bound:
    if 0 <= dimension < len(spans):
        return node.bytes * spans[dimension].extent
    return float(node.bytes)


def _lines(spans: Spans, dimension: int) -> Bound:
    lines: Bound = 1.0
    for d, span in enumerate(spans):
        if d != dimension:
            lines = lines * span.extent
    return lines
