"""Reductions along contiguous values, whose innermost loop runs in vectors.

A sum is a chain of additions: each waits for the one before. Where its order does not
count, Halide adds vectors of an atomic update, and folds them to one value per step; minima and
maxima likewise::

    for r: f += g[r]                                  # an addition at a time
    for ro: f += fold(g[16 ro : 16 ro + 8] + g[16 ro + 8 : 16 ro + 16])

| symbol | meaning | unit |
|---|---|---|
| `run` | the innermost reduction loop | |
| `steps` S | iterations of it in a block | count |
| `lanes` L | elements of one vector; S / L vectors are added | elements |
| `rows` R | points of a pure dimension in a block, each with its own reduction | count |

Cycles per S iterations: operations and loads of S / L vectors and R rows, and R folds of log2(L)
halvings each. Iterations left over after the last whole step run one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tilewright.halide.analysis.bounds import stage_env
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, Load, StageSummary
from tilewright.halide.ir.algorithm import Call, Expr, Op, Variable, walk
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.operation_cycles import (
    Innermost,
    load_cycles,
    op_cycles,
)


def run_of(summary: StageSummary, innermost: Innermost) -> str | None:
    """Return the reduction loop to run in vectors; None if that needs lanes one by one."""
    reductions = [loop.name for loop in summary.loops if loop.kind != "pure"]
    if not summary.reorderable or not reductions or summary.scatter:
        return None
    run = reductions[0]
    along = [load for load in summary.loads if run in load.strides]
    if not along or not all(_is_contiguous(load, run, innermost) for load in along):
        return None
    # A Tuple's loop is unrolled, in which LLVM finds vectors only of values that are not widened.
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
    """Return iterations of the loop that `run_of` may choose; 0 for other stages."""
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
    """Return whether a Func reads another only where a condition on its loops holds.

    Halide 21 narrows what is computed to that part; the vectors of a reduction then become a loop.
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
    """Yield how many iterations a step may have, of a loop of the given extent.

    `values` is the number of a Func's values, more than one for a Tuple.
    """
    for vectors in SEARCH.step_vectors if values == 1 else SEARCH.tuple_vectors:
        if lanes * vectors * SEARCH.least_steps <= extent:
            yield lanes * vectors


def with_rest(
    cycles: float, values: int, rows: int, steps: int, extent: float, model: CpuModel
) -> float:
    """Return cycles per iteration with the rest of the loop, up to a step, done one by one.

    `cycles` is what an iteration within steps takes, `extent` the loop's iterations and `values`
    those of the Func.
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
) -> float:
    """Return cycles of a block of `rows` reductions per iteration of the reduction loops.

    `row` is the loop of the rows, whose values may be `neighbours` in memory: LLVM then makes a
    vector of them. They are kept `in_registers` from step to step, or stored and loaded.
    """
    c = model.constants
    vectors = steps / lanes

    def copies(loops: frozenset[str]) -> int:
        return rows if row in loops else 1

    fold = c.fold_cycles * math.log2(lanes) + c.neighbour_cycles * (neighbours and rows > 1)
    cycles = fold * rows * len(summary.types)
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
