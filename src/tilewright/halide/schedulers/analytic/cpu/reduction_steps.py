"""Vectorisation of the innermost loop of reductions over contiguous values.

In a sum, each addition waits for the previous one. If the order of additions does not matter, an
atomic vectorised update adds whole vectors and folds them to one value per step. The same holds
for minima and maxima::

    for r: f += g[r]                                  # one addition at a time
    for ro: f += fold(g[16 ro : 16 ro + 8] + g[16 ro + 8 : 16 ro + 16])

| symbol | meaning | unit |
|---|---|---|
| `run` | the innermost reduction loop | |
| `steps` S | iterations of this loop per block | count |
| `lanes` L | elements of one vector; S / L vectors are added per step | elements |
| `rows` R | points of a pure dimension per block, each with a separate reduction | count |

Cycles per S iterations: operations and loads of S / L vectors and R rows, plus R folds of log2(L)
halvings each. The iterations after the last complete step run one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tilewright.halide.analysis.bounds import stage_env
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, Load, StageSummary
from tilewright.halide.ir.algorithm import Call, Expr, Op, Variable, walk
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.operation_cycles import (
    Innermost,
    load_cycles,
    op_cycles,
)


def run_of(summary: StageSummary, innermost: Innermost) -> str | None:
    """Return the reduction loop to vectorise; None if it cannot run in dense vectors."""
    reductions = [loop.name for loop in summary.loops if loop.kind != "pure"]
    if not summary.reorderable or not reductions or summary.scatter:
        return None
    run = reductions[0]
    along = [load for load in summary.loads if run in load.strides]
    if not along or not all(_is_contiguous(load, run, innermost) for load in along):
        return None
    # The loop of a Tuple is unrolled; LLVM then vectorises it only if values are not widened.
    width = summary.types[0].bytes
    tuple_ = len(summary.types) > 1
    return None if tuple_ and any(load.type.bytes != width for load in along) else run


def _is_contiguous(load: Load, run: str, innermost: Innermost) -> bool:
    steps = load.strides[run]
    if steps is None or load.indirect or run in load.clamped:
        return False
    inner = innermost(load.callee)
    return all(step == (1.0 if d == inner else 0.0) for d, step in enumerate(steps))


def run_extent(analysis: Analysis, name: str, index: int) -> float:
    """Return the iterations of the loop that `run_of` may choose; 0 if it cannot choose one."""
    stage = analysis.view.stages(name)[index]
    reductions = [loop.name for loop in stage.loops if loop.kind != "pure"]
    if not reductions or not analysis.summaries(name)[index].reorderable:
        return 0.0
    if any(_is_guarded(analysis.view, name, reader) for reader in analysis.view.consumers[name]):
        return 0.0
    func = analysis.view.by_name[name]
    env = stage_env(func, stage, analysis.regions[name], analysis.bounder)
    extent = float(np.max(env[reductions[0]].extent))
    return extent if math.isfinite(extent) else float(SEARCH.unknown_iterations)


def _is_guarded(view: View, name: str, reader: str) -> bool:
    """Return whether `reader` reads `name` only where a condition on its loops holds.

    Halide 21 then computes only the region where it holds, and vectorised reductions become serial.
    """
    for stage in view.stages(reader):
        for node in walk(*stage.values):
            if not (isinstance(node, Op) and node.name in ("select", "if_then_else")):
                continue
            condition = list(walk(node.args[0]))
            loops = any(isinstance(part, Variable) for part in condition)
            data = any(isinstance(part, Call) for part in condition)
            if loops and not data and any(_reads(branch, name) for branch in node.args[1:]):
                return True
    return False


def _reads(e: Expr, name: str) -> bool:
    return any(isinstance(node, Call) and node.name == name for node in walk(e))


def step_counts(lanes: int, extent: float, values: int = 1) -> Iterator[int]:
    """Yield the candidate iterations per step for a reduction loop of `extent` iterations.

    `values` is the number of values per point: more than one for a Tuple.
    """
    for vectors in SEARCH.step_vectors if values == 1 else SEARCH.tuple_vectors:
        if lanes * vectors * SEARCH.least_steps <= extent:
            yield lanes * vectors


def shortened(block: Block, extent: float) -> Block:
    """Return a block with at most `extent` iterations per step, for a shorter reduction.

    The updates of a reduction in registers share a block, whose steps suit the last one.
    """
    steps = block.steps
    while steps > extent >= 1 and steps % 2 == 0:
        steps //= 2
    return block if steps == block.steps else replace(block, steps=steps)


def with_rest(
    cycles: float, values: int, rows: int, steps: int, extent: float, model: CpuModel
) -> float:
    """Return the average cycles per iteration, including the iterations after the last step.

    Args:
        cycles: cycles per iteration within complete steps.
        values: values per point of the Func.
        rows: reductions per block.
        steps: iterations per step.
        extent: iterations of the loop.
        model: the machine.
    """
    if extent < 1:
        return cycles
    rest = extent % steps
    return ((extent - rest) * cycles + rest * model.constants.rest_cycles * values * rows) / extent


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
    neighbours: bool = False,
    alone: bool = False,
) -> float:
    """Return cycles of a block of `rows` reductions per iteration of the reduction loops.

    `row` is the loop over the rows. With `neighbours`, their results are adjacent in memory and
    LLVM combines them in a vector. With `in_registers`, accumulators stay in registers between
    steps; otherwise each step loads and stores them. If the reduction is `alone`, in no block of a
    reader, and has several results, its own loops may be parallel: Halide then makes each addition
    of a folded value atomic.
    """
    c = model.constants
    vectors = steps / lanes

    def copies(loops: frozenset[str]) -> int:
        return rows if row in loops else 1

    fold = c.fold_cycles * math.log2(lanes) + c.neighbour_cycles * (neighbours and rows > 1)
    if alone and model.cores > 1 and any(loop.kind == "pure" for loop in summary.loops):
        fold += c.atomic_cycles
    cycles = fold * rows * len(summary.types)
    for op in summary.vector_ops:
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
