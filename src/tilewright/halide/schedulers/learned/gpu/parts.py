"""Features of one kernel with all that is computed or inlined in it: a *part* of a schedule.

The features of Anderson 2021 of a stage depend on its own kernel only, with three exceptions:

- an inlined Func adds up over the kernels that evaluate it;
- sizes of all allocations (`working_set_at_root` and, at root, the same of realisations and
  productions) are sums over the whole schedule;
- lines depend on the innermost dimensions in memory, which are fixed per Func here.

So the features of parts are kept and put together, and a move costs only the parts it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.halide.ir.schedule import FuncSchedule, Schedule
from tilewright.halide.schedulers.learned.published.cpu_features import Feature
from tilewright.halide.schedulers.learned.published.gpu_features import (
    DEFAULTS,
    NAMES,
    GpuLimits,
    GpuWalk,
    strahler,
)
from tilewright.halide.schedulers.learned.published.gpu_levels import GpuNest
from tilewright.halide.schedulers.learned.published.levels import LevelNode, StageSite
from tilewright.halide.schedulers.learned.published.pipeline import (
    FuncNode,
    Pipeline,
    Region,
    Spans,
)

Table = npt.NDArray[np.float32]
_AT = {name: i for i, name in enumerate(NAMES)}
# Features of an inlined Func over several parts: `_ADDED` are sums, `_LEAST` is the minimum.
_ADDED = [
    _AT[name]
    for name in (
        "inlined_calls",
        "num_scalars",
        "num_warps_per_block",
        "num_threads_per_block",
        "points_computed_per_thread",
    )
]
_LEAST = _AT["innermost_pure_loop_extent"]
_TOTAL = [_AT["working_set_at_root"]]
_TOTAL_STORED = [*_TOTAL, _AT["working_set_at_realization"]]
_TOTAL_AT_ROOT = [*_TOTAL_STORED, _AT["working_set_at_production"]]


@dataclass(frozen=True, eq=False)
class GpuPartFeatures:
    """Features of the stages of one part.

    Attributes:
        rows: The positions of its stages in `Pipeline.stages`, except those of inlined Funcs.
        values: Their features, shape (rows, features).
        at_root: For each row, whether its Func is at root.
        inlined: The features of each inlined Func as far as this part evaluates it, by the position
            of its stage.
        total: Bytes of all allocations in the part.
    """

    rows: npt.NDArray[np.intp]
    values: Table
    at_root: npt.NDArray[np.bool_]
    inlined: Mapping[int, Table]
    total: float

    def within(self, total: float) -> Table:
        """Return `values` in a schedule whose allocations have `total` bytes."""
        found = self.values.copy()
        found[:, _TOTAL_STORED] = total
        found[np.flatnonzero(self.at_root)[:, np.newaxis], _TOTAL_AT_ROOT] = total
        return found


def inlined_together(parts: Sequence[GpuPartFeatures], row: int, total: float) -> Table:
    """Return the features of an inlined Func that several parts evaluate.

    Args:
        parts: Parts that evaluate it, in the order of their Funcs at root, outputs first.
        row: The position of its stage in `Pipeline.stages`.
        total: Bytes of all allocations in the schedule.
    """
    first, *others = parts
    found: Table = first.inlined[row].copy()
    for part in others:
        before, values = found, part.inlined[row]
        found = values.copy()
        if before[_AT["inlined_calls"]]:
            found[_ADDED] += before[_ADDED]
            found[_LEAST] = min(before[_LEAST], values[_LEAST])
    found[_TOTAL] = total
    return found


class Parts:
    """Computes the features of parts of schedules for one pipeline and GPU.

    Args:
        pipeline: The pipeline (`gpu_pipeline`).
        limits: Limits of the GPU.
        first: The innermost dimension in memory of each Func, by its position.
    """

    def __init__(self, pipeline: Pipeline, limits: GpuLimits, first: Mapping[int, int]) -> None:
        self.pipeline, self.limits, self.first = pipeline, limits, first
        self.regions: dict[int, Region] = {}
        self.rows = {(s.node.id, s.index): i for i, s in enumerate(pipeline.stages)}
        self.numbers: dict[tuple[int, int, tuple[int, ...]], int] = {}
        self._fixed: dict[tuple[int, int], Feature] = {}
        whole = PartNest(self, (), ())
        for node in pipeline.scheduled:
            for stage in node.stages:
                self._at_root(whole, node, stage.index)

    def _at_root(self, whole: PartNest, node: FuncNode, index: int) -> None:
        """Set the features that are the same in all schedules."""
        region = whole.region_at(whole.root, node)
        size = points = 1.0
        for span in region.computed:
            size *= float(span.extent)
        for span in region.loops[index]:
            points *= float(span.extent)
        if len(node.stages) == 1 and not node.output:
            calls = (
                self._fixed[e.consumer.node.id, e.consumer.index]["points_computed_minimum"]
                * e.calls
                for e in node.readers
            )
            points = min(points, float(sum(calls)))
        fixed: Feature = {"bytes_at_root": node.bytes * size, "points_computed_minimum": points}
        self._fixed[node.id, index] = fixed

    def extents(self, node: FuncNode) -> tuple[float, ...]:
        """Return the extents of a Func at root."""
        return tuple(float(span.extent) for span in self.regions[node.id].computed)

    def nest(self, entries: Sequence[FuncSchedule], inlined: Iterable[int]) -> PartNest:
        """Return the nest of a part: the entries of its Funcs, and the nodes inlined in it."""
        return PartNest(self, entries, inlined)

    def features(self, nest: PartNest) -> GpuPartFeatures:
        """Return the features of a part."""
        walk = _PartWalk(nest, self.limits, self)
        total = walk.walked()
        rows, at_root, inlined = [], [], {}
        for node in nest.placed:
            for stage in node.stages:
                site = nest.sites[node.id, stage.index]
                feature = walk.of(stage)
                feature |= self._fixed[node.id, stage.index]
                dim = -1 if site.produce is None else site.produce.vector_dim
                spans = self.regions[node.id].computed
                feature["innermost_bytes_at_root"] = float(node.bytes) * _extent(spans, dim)
                row = self.rows[node.id, stage.index]
                if site.inlined:
                    if site.produce is not None:
                        inlined[row] = np.array([feature[n] for n in NAMES], dtype=np.float32)
                    continue
                rows.append(row)
                at_root.append(site.compute.root)
        values = np.zeros((len(rows), len(NAMES)), dtype=np.float32)
        for i, row in enumerate(rows):
            feature = walk.of(self.pipeline.stages[row])
            values[i] = [feature[name] for name in NAMES]
        return GpuPartFeatures(
            np.array(rows, dtype=np.intp), values, np.array(at_root, dtype=bool), inlined, total
        )

    def together(self, parts: Sequence[GpuPartFeatures]) -> Table:
        """Return the features of all stages, shape (stages, features).

        The parts are in the order of their Funcs at root, outputs first.
        """
        result = np.zeros((len(self.pipeline.stages), len(NAMES)), dtype=np.float32)
        for name, value in DEFAULTS.items():
            result[:, _AT[name]] = value
        total = sum(part.total for part in parts)
        for part in parts:
            result[part.rows] = part.within(total)
        evaluate: dict[int, list[GpuPartFeatures]] = {}
        for part in parts:
            for row in part.inlined:
                evaluate.setdefault(row, []).append(part)
        for row, among in evaluate.items():
            result[row] = inlined_together(among, row, total)
        return result


class PartNest(GpuNest):
    """The levels of one part; everything else that it reads is at root."""

    def __init__(
        self, parts: Parts, entries: Sequence[FuncSchedule], inlined: Iterable[int]
    ) -> None:
        pipeline = parts.pipeline
        self._kept = parts
        own = {entry.func for entry in entries}
        self._mine = {pipeline.by_position[position].id for position in own} | set(inlined)
        self.placed = [node for node in pipeline.nodes if node.id in self._mine]
        super().__init__(pipeline, Schedule("", "", tuple(entries)))

    def region_at(self, level: LevelNode, node: FuncNode) -> Region:
        """Return the region of a node; regions at root are the same in all parts."""
        if level.root:
            level.regions = self._kept.regions
        return super().region_at(level, node)

    def level_of(self, position: int, loop: str, stage: int = 0) -> LevelNode:
        """Return the level of a loop of a Func's stage."""
        return self._at[position, stage, loop]

    def _place(self, node: FuncNode) -> None:
        if node.id in self._mine or node.input:
            super()._place(node)
            return
        elsewhere = LevelNode(None, None, vector_dim=self._kept.first.get(node.position, 0))
        for stage in node.stages:
            site = StageSite(self.root, self.root, elsewhere, elsewhere)
            self.sites[node.id, stage.index] = site


class _PartWalk(GpuWalk):
    """A walk over a part."""

    def __init__(self, nest: PartNest, limits: GpuLimits, parts: Parts) -> None:
        super().__init__(nest, limits, as_released=True)
        self._kept, self._part = parts, nest
        for node in nest.pipeline.nodes:
            self.found.setdefault((node.id, 0), {**_BLANK, "num_realizations": 1.0})

    def walked(self) -> float:
        """Walk over the nest; return the bytes of its allocations."""
        for node in self._part.placed:
            self.found.pop((node.id, 0), None)
        return float(self._level(self.nest.root, 1.0, 1.0))

    def _branching(self, level: LevelNode) -> int:
        assert level.stage is not None
        stage = level.stage
        key = stage.node.id, stage.index, tuple(sorted(level.inlined))
        known = self._kept.numbers
        if key not in known:
            nodes = self.nest.pipeline.nodes
            known[key] = strahler(stage.node, {nodes[i].func.name: nodes[i] for i in level.inlined})
        return known[key]


_BLANK: Feature = dict.fromkeys(NAMES, 0.0)


def _extent(spans: Spans, dimension: int) -> float:
    return float(spans[dimension].extent) if 0 <= dimension < len(spans) else 1.0
