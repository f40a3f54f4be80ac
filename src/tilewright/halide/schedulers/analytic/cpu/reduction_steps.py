"""Sums along contiguous values, whose innermost reduction loop is unrolled into vectors.

A sum is a chain of additions, each of which waits for the one before. Where its order does not
count, LLVM turns the copies of an unrolled loop into vectors, and folds these to one value per
step::

    for r: f += g[r]                                  # an addition at a time
    for ro: f += g[16 ro] + ... + g[16 ro + 15]       # two vectors of 8, folded

| symbol | meaning | unit |
|---|---|---|
| `run` | the innermost reduction loop | |
| `steps` S | iterations of it that a block unrolls | count |
| `lanes` L | elements of one vector; S / L vectors are added | elements |
| `rows` R | points of a pure dimension in a block, each a sum of its own | count |

Cycles per S iterations: operations and loads of S / L vectors and R rows, and R folds, which wait
for one another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tilewright.halide.analysis.bounds import stage_env
from tilewright.halide.analysis.summaries import Analysis, Load, StageSummary
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.operation_cycles import (
    Innermost,
    load_cycles,
    op_cycles,
)


def run_of(summary: StageSummary, innermost: Innermost) -> str | None:
    """Return the reduction loop to unroll into vectors; None if that needs lanes one by one."""
    reductions = [loop.name for loop in summary.loops if loop.kind != "pure"]
    if not summary.sums or not reductions or summary.scatter:
        return None
    run = reductions[0]
    along = [load for load in summary.loads if run in load.strides]
    if not along or not all(_is_contiguous(load, run, innermost) for load in along):
        return None
    # Values that are widened first are slower in steps: measured with products of bytes.
    return run if all(load.type.bytes == summary.types[0].bytes for load in along) else None


def _is_contiguous(load: Load, run: str, innermost: Innermost) -> bool:
    steps = load.strides[run]
    if steps is None or load.indirect or run in load.clamped:
        return False
    inner = innermost(load.callee)
    return all(step == (1.0 if d == inner else 0.0) for d, step in enumerate(steps))


def run_extent(analysis: Analysis, name: str, index: int) -> float:
    """Return iterations of the innermost reduction loop of a sum; 0 for other stages."""
    stage = analysis.view.stages(name)[index]
    reductions = [loop.name for loop in stage.loops if loop.kind != "pure"]
    if not reductions or not analysis.summaries(name)[index].sums:
        return 0.0
    func = analysis.view.by_name[name]
    env = stage_env(func, stage, analysis.regions[name], analysis.bounder)
    extent = float(np.max(env[reductions[0]].extent))
    return extent if math.isfinite(extent) else float(SEARCH.unknown_iterations)


def step_counts(lanes: int, extent: float) -> Iterator[int]:
    """Yield how many iterations may be unrolled of a loop of the given extent."""
    for vectors in SEARCH.step_vectors:
        if lanes * vectors * SEARCH.least_steps <= extent:
            yield lanes * vectors


def step_cycles(
    summary: StageSummary,
    run: str,
    row: str | None,
    rows: int,
    steps: int,
    lanes: int,
    model: CpuModel,
    innermost: Innermost,
    in_registers: bool,
) -> float:
    """Return cycles of a block of `rows` sums per iteration of the reduction loops.

    `row` is the loop of the rows; sums are kept `in_registers` from step to step, or stored and
    loaded.
    """
    c = model.constants
    vectors = steps / lanes

    def copies(loops: frozenset[str]) -> int:
        return rows if row in loops else 1

    cycles = c.fold_cycles * rows
    for op in summary.ops:
        if run in op.loops:
            cycles += op.count * op_cycles(op, lanes, model) * vectors * copies(op.loops)
        else:
            cycles += op.count * op_cycles(op, 1, model) * copies(op.loops) * c.hoisted_share
    for load in summary.loads:
        depends = frozenset(load.strides)
        if run in depends:
            each = load_cycles(load, run, lanes, model, innermost) * vectors
        else:
            own = load.callee == summary.func and not in_registers
            each = c.scalar_load_cycles * (1.0 if own else c.hoisted_share)
        cycles += each * copies(depends)
    needed = rows + c.operand_registers * vectors
    spilled = max(0.0, needed - (model.registers - c.reserved_registers))
    cycles += c.spill_cycles * spilled
    stores = rows * len(summary.types) * (c.hoisted_share if in_registers else 1.0)
    return (cycles + stores + c.reduction_loop_cycles) / steps
