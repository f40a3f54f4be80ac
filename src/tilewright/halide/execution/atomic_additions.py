"""Find out by lowering whether Halide turns a reduction on a GPU into atomic additions."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tilewright.halide.analysis import atomic_additions
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.execution.lowering import adds_atomically
from tilewright.halide.ir.algorithm import Algorithm, Stage
from tilewright.halide.ir.nest import default_stage
from tilewright.halide.ir.schedule import (
    ROOT,
    FuncSchedule,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)

# The number of cached results of lowering.
_REMEMBERED = 1024
_TARGET = "host-opencl-cl_doubles-cl_half-cl_atomics64"


def is_atomic_addition(analysis: Analysis, name: str, index: int, *, floats: bool) -> bool:
    """Return whether Halide makes one atomic addition of each iteration of a Func's update.

    `tilewright.halide.analysis.atomic_additions.is_atomic_addition` answers first. If it does not
    know, Halide lowers the update. `floats` says whether the device has atomic additions of floats.
    """
    found = atomic_additions.is_atomic_addition(analysis, name, index, floats=floats)
    if found is not None:
        return found
    algorithm = analysis.view.algorithm
    if algorithm.copies or algorithm.by_name[name].types[0].code == "float":
        return False  # clones have no names yet; OpenCL has no atomic additions of floats
    inlined = analysis.view.inlined & _upstream(algorithm, name)
    return _is_lowered_to_addition(algorithm, name, index, inlined)


def _upstream(algorithm: Algorithm, name: str) -> frozenset[str]:
    """Return the Funcs that a Func reads directly or indirectly."""
    found: set[str] = set()
    pending = [name]
    while pending:
        for callee in algorithm.producers[pending.pop()]:
            if callee not in found:
                found.add(callee)
                pending.append(callee)
    return frozenset(found)


@lru_cache(maxsize=_REMEMBERED)
def _is_lowered_to_addition(
    algorithm: Algorithm, name: str, index: int, inlined: frozenset[str]
) -> bool:
    """Return whether Halide makes atomic additions of an update in a kernel.

    The innermost reduction loop becomes the kernel. Funcs that are not inlined are at root.
    """
    entries = []
    for i, func in enumerate(algorithm.funcs):
        if func.fixed or func.scheduled or func.name in inlined:
            continue
        nests = [default_stage(func, stage) for stage in func.stages]
        if func.name == name:
            nests[index] = _as_kernel(func.stages[index], nests[index])
        entries.append(FuncSchedule(i, ROOT, ROOT, stages=tuple(nests)))
    return adds_atomically(Schedule(algorithm.digest, _TARGET, tuple(entries)), algorithm)


def _as_kernel(stage: Stage, nest: StageSchedule) -> StageSchedule:
    """Return the nest with its innermost reduction loop split into blocks and threads."""
    name = next(
        mapped.name
        for loop, mapped in zip(stage.loops, nest.loops, strict=True)
        if loop.kind == "impure_rvar"
    )
    block, thread = f"{name}_b", f"{name}_t"
    kernel = (ScheduledLoop(thread, "gpu_thread"), ScheduledLoop(block, "gpu_block"))
    rest = tuple(loop for loop in nest.loops if loop.name != name)
    split = Split(name, block, thread, 8, "guard_with_if")
    return replace(nest, splits=(split,), loops=kernel + rest, atomic=True)
