"""The naive schedule: all Funcs at root, computed completely, one after another.

It is the baseline of speedups. (Halide's default inlines all pure Funcs and takes exponential time
on many pipelines.)
"""

from __future__ import annotations

import math
from operator import gt

from tilewright.halide.analysis.bounds import Box
from tilewright.halide.analysis.inlining import View, may_inline
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.ir.algorithm import Algorithm, Call, Func, Stage
from tilewright.halide.ir.loops import dimension_of, part_of
from tilewright.halide.ir.nest import original_loops
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    FuncSchedule,
    Fuse,
    Mapping,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.halide.ir.targets import is_gpu
from tilewright.halide.legality.violations import Limits
from tilewright.halide.schedulers.analytic.gpu.capability import host_only, read_by_externs
from tilewright.machines import CpuMachine, GpuMachine

_LARGEST = 2**31 - 1  # bytes of one allocation, unless the target has large_buffers
_BLOCK = (16, 16)  # threads in x and y


def naive_schedule(
    algorithm: Algorithm, target: str = "host", machine: CpuMachine | GpuMachine | None = None
) -> Schedule:
    """Return the naive schedule: serial loops on a CPU, a kernel per stage on a GPU.

    Kernels have 16x16 threads per block. Pure Funcs are inlined if they exceed the size of a Halide
    allocation (2 GiB) or only forward an input (Halide adds such a Func for each ImageParam).
    """
    gpu = machine if isinstance(machine, GpuMachine) else None
    view = View(algorithm)
    regions = Analysis(view, estimated_boxes(view), algorithm.symbols).regions
    large = _too_large(algorithm, regions)
    memoized = frozenset(func.name for func in algorithm.funcs if func.memoized)
    externs = read_by_externs(algorithm)
    funcs = []
    for i, func in enumerate(algorithm.funcs):
        if func.memoized or func.scheduled:
            continue
        if func.extern is not None:
            # Schedule it explicitly: Halide crashes on kernels that read unscheduled extern Funcs.
            funcs.append(FuncSchedule(i, ROOT, ROOT))
            continue
        if (func.name in large or _is_alias(func)) and may_inline(algorithm, func):
            funcs.append(FuncSchedule(i, INLINE, INLINE))
            continue
        stages: tuple[StageSchedule, ...] = ()
        # Halide cannot schedule dimensions with a dot in their names.
        dotted = any("." in loop.name for stage in func.stages for loop in stage.loops)
        if (
            is_gpu(target)
            and not dotted
            and not (
                gpu is not None
                and any(host_only(stage, func, gpu, memoized, externs) for stage in func.stages)
            )
        ):
            region = regions.get(func.name)
            stages = tuple(_kernel(func, stage, region) for stage in func.stages)
        funcs.append(FuncSchedule(i, ROOT, ROOT, stages=stages))
    return Schedule(algorithm.digest, target, tuple(funcs))


def _is_alias(func: Func) -> bool:
    """Return whether a Func is an input under another name."""
    if not func.pure or len(func.stages[0].values) != 1:
        return False
    value = func.stages[0].values[0]
    if not isinstance(value, Call) or value.kind != "image":
        return False
    return tuple(getattr(arg, "name", "") for arg in value.args) == func.args


def _too_large(algorithm: Algorithm, regions: dict[str, Box]) -> frozenset[str]:
    found = []
    for func in algorithm.funcs:
        region = regions.get(func.name)
        if not func.pure or func.fixed or func.name in algorithm.outputs or region is None:
            continue
        size = math.prod(float(interval.extent) for interval in region)
        size *= max((t.bytes for t in func.types), default=0)
        if math.isfinite(size) and size > _LARGEST:
            found.append(func.name)
    return frozenset(found)


def _kernel(func: Func, stage: Stage, region: Box | None) -> StageSchedule:
    """Return one kernel: threads over the two innermost pure loops, blocks over all pure loops.

    Block loops are fused from the outermost on until the grid for `region` is within CUDA's limits.
    """
    loops = original_loops(func, stage)
    pure = [loop for loop in loops if loop.kind == "pure"]
    if not pure:
        return StageSchedule((), tuple(ScheduledLoop(loop.name) for loop in loops), False, True)
    splits: list[Split | Fuse] = []
    threads: list[ScheduledLoop] = []
    blocks: list[str] = []
    counts: list[int] = []
    for loop, factor in zip(pure, (*_BLOCK, *(1,) * len(pure)), strict=False):
        counts.append(math.ceil(_extent(loop.name, region) / factor))
        if factor == 1:
            blocks.append(loop.name)
            continue
        outer, inner = part_of(loop.name, "_block"), part_of(loop.name, "_thread")
        splits.append(Split(loop.name, outer, inner, factor, "guard_with_if"))
        threads.append(ScheduledLoop(inner, "gpu_thread"))
        blocks.append(outer)
    grid = Limits().grid
    while len(blocks) > len(grid) or any(map(gt, counts[1:], grid[1:])):
        fused = f"blocks_{len(blocks)}"
        splits.append(Fuse(blocks[-2], blocks[-1], fused))
        blocks[-2:] = [fused]
        counts[-2:] = [counts[-2] * counts[-1]]
    inside = [ScheduledLoop(loop.name) for loop in loops if loop.kind != "pure"]
    mapped: Mapping = "gpu_block"
    outside = [ScheduledLoop(name, mapped) for name in blocks]
    return StageSchedule(tuple(splits), (*inside, *threads, *outside))


def _extent(loop: str, region: Box | None) -> int:
    """Return the iterations of a pure loop at the estimates; 1 if they are unknown."""
    dimension = dimension_of(loop)
    if region is None or dimension is None:
        return 1
    extent = float(region[dimension].extent)
    return int(extent) if math.isfinite(extent) else 1
