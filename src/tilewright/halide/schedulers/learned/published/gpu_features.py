"""The 73 schedule features of Anderson et al. 2021, for GPUs, per stage.

Words as in `cpu_features`; a *task* is a block. Sizes are in bytes, all other features are counts
or ratios without unit. Global, shared and register memory differ by where a Func is stored:
at root, in a block, or in a thread.

Source: `Halide's released code
<https://github.com/halide/Halide/tree/main/src/autoschedulers/anderson2021>`_, as of 2026-08, with
which the plugin of the ``halide`` 21.0.0 wheel agrees, and arXiv 2012.07145, appendix A.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.halide.analysis.bounds import Bound
from tilewright.halide.analysis.scheduled_nest import Factors
from tilewright.halide.ir.algorithm import Algorithm, Call, Const, Expr, Op, Variable, walk
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.schedulers.learned.published.canonical import counted_uses
from tilewright.halide.schedulers.learned.published.cpu_features import (
    Feature,
    StageFeatures,
    StageWalk,
    stage_keys,
)
from tilewright.halide.schedulers.learned.published.gpu_levels import GpuNest, without_copies
from tilewright.halide.schedulers.learned.published.gpu_loads import (
    MEMORIES,
    GpuLoads,
    GpuPlace,
    LoadWalk,
    memory_of,
)
from tilewright.halide.schedulers.learned.published.gpu_warps import MOST_THREADS, WARP
from tilewright.halide.schedulers.learned.published.levels import LevelNode
from tilewright.halide.schedulers.learned.published.pipeline import FuncNode, Pipeline, StageNode

# Each feature with its meaning, in the order of the plugin's file.
MEANINGS: dict[str, str] = {
    "num_realizations": "allocations: product of the loops outside the store level",
    "num_productions": "computations: product of the loops outside the compute level",
    "points_computed_per_realization": "iterations per allocation, reductions included",
    "points_computed_per_production": "iterations per computation",
    "points_computed_per_thread": "iterations of the serial loops of one thread",
    "points_computed_total": "iterations over the whole run",
    "points_computed_minimum": "iterations that any schedule needs: at root, or if inlined",
    "innermost_loop_extent": "iterations of the innermost serial loops",
    "innermost_pure_loop_extent": "the same without loops over reductions",
    "unrolled_loop_extent": "innermost_pure_loop_extent if these loops are unrolled, else 1",
    "inner_parallelism": "blocks of its own loops",
    "outer_parallelism": "blocks of the loops around its compute level",
    "bytes_at_realization": "bytes of the region required at the store level",
    "bytes_at_production": "bytes of the region required at the compute level",
    "bytes_at_root": "bytes of the region that it would have at root",
    "innermost_bytes_at_realization": "bytes along the innermost dimension of the first",
    "innermost_bytes_at_production": "bytes along the innermost dimension of the second",
    "innermost_bytes_at_root": "bytes along the innermost dimension of the third",
    "inlined_calls": "evaluations if it is inlined, over the whole run",
    **{
        f"unique_{memory}_{what}_read_per_{site}": f"distinct {what} of {memory} memory that it "
        f"reads per {where}"
        for site, where in (("realization", "allocation"), ("thread", "thread"))
        for what in ("bytes", "lines")
        for memory in MEMORIES
    },
    **{
        f"{memory}_allocation_bytes_read_per_realization": f"bytes of the allocations in {memory} "
        "memory that it reads"
        for memory in MEMORIES
    },
    "working_set": "bytes of all allocations alive during one computation",
    "num_scalars": "iterations; 0 by a defect of the released code for most stages",
    **{f"{memory}_bytes_at_task": f"bytes of {memory} memory per block" for memory in MEMORIES},
    **{
        f"{memory}_innermost_bytes_at_task": "bytes along the innermost dimension of these, "
        f"{memory} memory"
        for memory in MEMORIES
    },
    "unique_bytes_read_per_point": "distinct bytes read per iteration",
    "unique_lines_read_per_point": "lines of these bytes",
    "unique_bytes_read_per_task": "distinct bytes stored at root that one block reads",
    "unique_lines_read_per_task": "lines of these bytes",
    "working_set_at_task": "bytes of all allocations inside the block",
    "working_set_at_production": "bytes of all allocations inside the compute level",
    "working_set_at_realization": "bytes of all allocations inside the store level",
    "working_set_at_root": "bytes of all allocations",
    "num_blocks": "blocks of the launch",
    "num_warps_per_block": "warps of a block",
    "block_occupancy": "threads of the stage over 1024",
    "warp_lane_utilization": "active threads over the lanes of active warps",
    "num_active_warps_per_block": "warps with at least one thread of the stage",
    "warp_lane_utilization_at_block_y": "1 in the released code",
    "warp_lane_utilization_at_block_z": "1 in the released code",
    "idle_lane_wastage": "idle lanes of active warps over 1024",
    "num_shared_mem_loads_per_block": "transactions with shared memory for loads, per block",
    "num_global_mem_loads_per_block": "transactions with global memory for loads, per block",
    "num_shared_mem_stores_per_block": "transactions with shared memory for stores, per block",
    "num_global_mem_stores_per_block": "transactions with global memory for stores, per block",
    "shared_mem_store_efficiency": "bytes stored over bytes moved, shared memory",
    "shared_mem_load_efficiency": "bytes loaded over bytes moved, shared memory",
    "global_mem_store_efficiency": "bytes stored over bytes moved, global memory",
    "global_mem_load_efficiency": "bytes loaded over bytes moved, global memory",
    "working_set_at_thread": "bytes of all allocations inside the thread",
    "shared_mem_occupancy": "shared memory of the block over the limit of a block",
    "shared_mem_block_limit_factor": "blocks per SM by shared memory over the limit of blocks",
    "max_warp_occupancy": "resident warps per SM over the limit of warps",
    "max_block_occupancy": "resident blocks per SM over the limit of blocks",
    "num_threads_per_block": "threads of the stage in a block",
    "expr_branching": "registers to evaluate the definition with what it inlines (Strahler number)",
}
NAMES = tuple(MEANINGS)
DEFAULTS = {
    "num_blocks": 1.0,
    "block_occupancy": 1.0 / MOST_THREADS,
    "warp_lane_utilization": 1.0 / WARP,
    "warp_lane_utilization_at_block_y": 1.0,
    "warp_lane_utilization_at_block_z": 1.0,
    "shared_mem_store_efficiency": 1.0,
    "shared_mem_load_efficiency": 1.0,
    "global_mem_store_efficiency": 1.0,
    "global_mem_load_efficiency": 1.0,
    "shared_mem_block_limit_factor": 1.0,
}
# The released scheduler unrolls innermost loops of at most this many iterations.
UNROLL_LIMIT = 16.0


@dataclass(frozen=True)
class GpuLimits:
    """Limits of the GPU that features relate to; the defaults are the released scheduler's.

    Attributes:
        sms: Streaming multiprocessors.
        shared_per_block, shared_per_sm: Bytes of shared memory.
        blocks_per_sm, warps_per_sm: Resident at once.
    """

    sms: int = 16
    shared_per_block: int = 48 << 10
    shared_per_sm: int = 96 << 10
    blocks_per_sm: int = 32
    warps_per_sm: int = 64


def gpu_features(
    pipeline: Pipeline,
    schedule: Schedule,
    factors: Factors | None = None,
    *,
    limits: GpuLimits | None = None,
    as_released: bool = True,
) -> StageFeatures:
    """Return the 73 features of every stage, inlined ones included.

    Args:
        pipeline: The pipeline, for registers of 1 byte (`gpu_pipeline`).
        schedule: The schedule. Copies that only pass on values are left out.
        factors: Split factors that replace those of the schedule, as in `ScheduledNest`. Rows are
            evaluated one after the other.
        limits: Limits of the GPU.
        as_released: Whether to replicate three defects of the released code: a Func that is
            computed in the loops of another counts as stored at root, in global memory; iterations
            of stages that are not inlined are 0; and lines per point include bytes in registers.

    Returns:
        The features, with one row per row of `factors`.

    Raises:
        ScheduleError: The schedule has a nest that these features cannot describe.
    """
    rows = max([1, *map(np.size, (factors or {}).values())])
    schedule = without_copies(schedule, pipeline.algorithm)
    tables = []
    for row in range(rows):
        chosen = {
            key: float(np.ravel(value)[row if np.size(value) > 1 else 0])
            for key, value in (factors or {}).items()
        }
        nest = GpuNest(pipeline, schedule, chosen, as_released)
        walked = GpuWalk(nest, limits or GpuLimits(), as_released)
        walked.run()
        tables.append(walked.table(1))
    return StageFeatures(NAMES, stage_keys(pipeline), np.concatenate(tables))


class GpuWalk(StageWalk):
    """A walk over a nest for a GPU that collects the features of all stages in `found`."""

    names = NAMES
    defaults: Mapping[str, float] = DEFAULTS
    unroll_limit = UNROLL_LIMIT

    def __init__(self, nest: GpuNest, limits: GpuLimits, as_released: bool) -> None:
        super().__init__(nest, limits.sms, as_released)
        self.limits = limits
        self._place = GpuPlace()

    def _level(self, level: LevelNode, instances: Bound, parallelism: Bound) -> Bound:
        around, self._place = self._place, self._place.inside(level)
        total = super()._level(level, instances, parallelism)
        if level.stage is not None:
            self._launch(level, self.of(level.stage), total)
        self._place = around
        return total

    def _innermost_extents(self, level: LevelNode, feature: Feature) -> None:
        if not level.innermost:
            super()._innermost_extents(level, feature)

    def _set_task_bytes(
        self, node: FuncNode, feature: Feature, size: Bound, innermost: Bound
    ) -> None:
        memory = memory_of(self.nest, node)
        feature[f"{memory}_bytes_at_task"] = size
        feature[f"{memory}_innermost_bytes_at_task"] = innermost

    def _unrolled(self, level: LevelNode, feature: Feature) -> Bound:
        assert level.stage is not None
        # The released code never takes loops over reductions for unrolled.
        return 1.0 if any(level.stage.reduction) else super()._unrolled(level, feature)

    def _loads(
        self, level: LevelNode, feature: Feature, instances: Bound, inside: Bound, produced: bool
    ) -> None:
        assert level.stage is not None
        walked = LoadWalk(self.nest, level, self._place, float(instances), self.found)
        loads = walked.loads()
        if produced:
            self._per_realisation(level.stage, feature, loads)
        if level.innermost:
            feature["expr_branching"] = float(self._branching(level))
            self._per_thread(feature, loads, inside)

    def _per_realisation(self, stage: StageNode, feature: Feature, loads: GpuLoads) -> None:
        for memory in MEMORIES:
            feature[f"unique_{memory}_bytes_read_per_realization"] = loads.bytes[memory]
            feature[f"unique_{memory}_lines_read_per_realization"] = loads.lines[memory]
            feature[f"{memory}_allocation_bytes_read_per_realization"] = loads.allocated[memory]
        if stage.index:
            # An update is taken to read everything produced so far.
            memory = memory_of(self.nest, stage.node)
            own = feature["bytes_at_production"]
            rows = own / feature["innermost_bytes_at_production"]
            for name, more in (
                (f"unique_{memory}_bytes_read_per_realization", own),
                (f"unique_{memory}_lines_read_per_realization", rows),
                (f"{memory}_allocation_bytes_read_per_realization", own),
            ):
                feature[name] = feature[name] + more

    def _per_thread(self, feature: Feature, loads: GpuLoads, inside: Bound) -> None:
        feature["points_computed_per_thread"] = self._place.serial
        feature["points_computed_per_production"] = inside / feature["num_productions"]
        for memory in MEMORIES:
            feature[f"unique_{memory}_bytes_read_per_thread"] = loads.thread_bytes[memory]
            feature[f"unique_{memory}_lines_read_per_thread"] = loads.thread_lines[memory]
        feature["unique_bytes_read_per_point"] = sum(loads.bytes.values())
        lines = sum(loads.lines.values())
        if self.as_released:
            lines += loads.bytes["register"] - loads.lines["register"]
        feature["unique_lines_read_per_point"] = lines
        for memory, found in loads.loads.items():
            feature[f"num_{memory}_mem_loads_per_block"] = found.count
            feature[f"{memory}_mem_load_efficiency"] = found.efficiency
        if loads.stores is not None:
            memory, found = loads.stores
            feature[f"num_{memory}_mem_stores_per_block"] = found.count
            feature[f"{memory}_mem_store_efficiency"] = found.efficiency

    def _realisation(self, level: LevelNode, node: FuncNode, inside: Bound) -> None:
        super()._realisation(level, node, inside)
        if not self.as_released:
            for stage in node.stages:
                feature = self.of(stage)
                feature["num_scalars"] = feature["points_computed_total"]

    def _inlined(
        self, level: LevelNode, identifier: int, calls: float, inside: Bound, parallelism: Bound
    ) -> None:
        assert level.stage is not None
        super()._inlined(level, identifier, calls, inside, parallelism)
        reader = self.of(level.stage)
        feature = self.of(self.nest.pipeline.nodes[identifier].stages[0])
        feature["num_blocks"] = parallelism
        warps, count = calls, 1.0
        if level.stage.loops and self._place.threads is not None:
            warps *= self._place.serial * self._place.threads.warps * float(parallelism)
            count = float(self._place.threads.count)
        feature["num_warps_per_block"] = feature["num_warps_per_block"] + warps
        feature["num_threads_per_block"] = feature["num_threads_per_block"] + count
        points = calls * reader["points_computed_per_thread"]
        feature["points_computed_per_thread"] = feature["points_computed_per_thread"] + points

    # --- launches -------------------------------------------------------------------------

    def _launch(self, level: LevelNode, feature: Feature, total: Bound) -> None:
        limits, place = self.limits, self._place
        if level.label == "thread":
            feature["working_set_at_thread"] = total
        if level.label == "block":
            shared = self._shared(level)
            feature["shared_mem_occupancy"] = shared / limits.shared_per_block
            if shared:
                blocks = min(limits.blocks_per_sm, limits.shared_per_sm // shared)
                feature["shared_mem_block_limit_factor"] = blocks / limits.blocks_per_sm
        threads = place.threads
        if not level.innermost or threads is None or not level.size:
            return
        lanes = threads.active_warps * WARP
        feature["warp_lane_utilization"] = threads.active_threads / lanes
        feature["num_active_warps_per_block"] = float(threads.active_warps)
        feature["idle_lane_wastage"] = (lanes - threads.active_threads) / MOST_THREADS
        feature["num_warps_per_block"] = float(threads.warps)
        feature["num_blocks"] = place.blocks
        feature["block_occupancy"] = threads.count / MOST_THREADS
        feature["num_threads_per_block"] = float(threads.count)
        if place.block is not None and level.node is place.block.node:
            resident = min(limits.blocks_per_sm, math.ceil(place.blocks / limits.sms))
            warps = min(limits.warps_per_sm, resident * threads.warps)
            feature["max_warp_occupancy"] = warps / limits.warps_per_sm
            feature["max_block_occupancy"] = warps // threads.warps / limits.blocks_per_sm

    def _shared(self, level: LevelNode) -> float:
        """Return the bytes that are stored in the block itself."""
        total = 0.0
        for node in level.stored:
            size = float(node.bytes)
            for span in self.nest.region_at(level, node).computed:
                size *= float(span.extent)
            total += size
        return total

    def _branching(self, level: LevelNode) -> int:
        assert level.stage is not None
        nodes = self.nest.pipeline.nodes
        inlined = {nodes[i].func.name: nodes[i] for i in level.inlined}
        return strahler(level.stage.node, inlined)


def gpu_pipeline(algorithm: Algorithm, as_released: bool = True) -> Pipeline:
    """Return a pipeline for `gpu_features`: without vectors, and with lossy derivatives or not."""
    return Pipeline(algorithm, 1, lossy=as_released)


def strahler(node: FuncNode, inlined: Mapping[str, FuncNode]) -> int:
    """Return the Strahler number of a Func's pure definition with the Funcs that it inlines.

    It is the number of registers needed to evaluate the expression tree without storing
    intermediate values: that of an operator is one more than its operands' if these are equal, else
    the larger one.
    """
    stage = node.stages[0]
    values = [_of_tree(root, inlined) for root in stage.canonical_values]
    args = [_of_tree(root, inlined) for root in stage.canonical_args]
    return max(_of_many(values), _of_many(args))


def _of_many(numbers: list[int]) -> int:
    total = 0
    for number in numbers:
        if number:
            total = total + 1 if number == total else max(total, number)
    return total


def _pair(a: int, b: int) -> int:
    return a + 1 if a == b else max(a, b)


def _of_tree(root: Expr, inlined: Mapping[str, FuncNode]) -> int:
    """Return the number of one expression, common subexpressions named and evaluated once."""
    named = counted_uses(root)
    found: dict[int, int] = {}
    total: list[int] = []
    for node in walk(root):
        if isinstance(node, Const | Variable):
            number = 1
        else:
            number = _of_node(node, [_used(a, found, named) for a in node.args], inlined)
        found[id(node)] = number
        if id(node) in named:
            total.append(number)
    result = 1 if id(root) in named else found[id(root)]
    for number in reversed(total):
        result = _pair(number, result)
    return result


def _used(arg: Expr, found: Mapping[int, int], named: Mapping[int, int]) -> int:
    return 1 if id(arg) in named else found[id(arg)]


def _of_node(
    node: Op | Call,
    args: list[int],
    inlined: Mapping[str, FuncNode],
) -> int:
    if isinstance(node, Call):
        inner = inlined.get(node.name) if node.kind == "func" else None
        return strahler(inner, inlined) if inner is not None else _of_many(args)
    if node.name == "select":
        return max(_pair(args[0], args[1]), _pair(args[0], args[2]))
    if len(args) == 1:
        return args[0]
    return _pair(args[0], args[1]) if len(args) == 2 else _of_many(args)
