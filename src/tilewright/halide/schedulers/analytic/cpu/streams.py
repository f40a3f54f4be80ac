"""Waits for lines of cache that no prefetcher fetches: short segments, and vectors across rows.

Sums of columns and products with a transposed matrix read each value once, a short part of one row
after another. If the rows are pages apart, no prefetcher follows, and each segment of contiguous
values costs a wait::

    for x0:  for r:  t[0..15] += g[x0..x0+15, r]                        # a segment per 16 values
    for x0:  for r:  t[0..255] += g[x0..x0+255, r]                      # in registers, if they fit
    for xt:  for r:  for x0 in xt:  f[x0..x0+15] += g[x0..x0+15, r]     # swept

The first remedy is a block of more vectors. The second, to sweep the blocks of a tile inside the
reduction loops, loads and stores the results at each step, from the first cache. It is for loads
that cannot have many vectors per block, such as gathers.

A vector whose lanes lie in different rows loads one line per lane.

| symbol | meaning | unit |
|---|---|---|
| streams | loads of inputs that start a segment in each step of a block | count |
| segment | the contiguous values that one step, or one sweep, loads | |
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np

from tilewright.halide.analysis.bounds import Bound
from tilewright.halide.analysis.reductions import accumulates
from tilewright.halide.analysis.summaries import Analysis, Load, StageSummary
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.cache_sets import distances
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.operation_cycles import Innermost
from tilewright.halide.schedulers.analytic.cpu.traffic import Array


def streams_of(
    summary: StageSummary,
    extents: Mapping[str, float],
    analysis: Analysis,
    model: CpuModel,
    innermost: Innermost,
) -> int:
    """Return the number of loads of a reduction that start a segment in each step of a block.

    Only inputs count: a Func may be computed in the same tile, and is then in a cache.

    Args:
        summary: the stage.
        extents: the iterations of all its loops.
        analysis: the analysis, for the sizes of what is loaded.
        model: the machine.
        innermost: the contiguous dimension of a Func or input, given its name.
    """
    if not accumulates(summary) or not all(map(math.isfinite, extents.values())):
        return 0
    runs = [loop.name for loop in summary.loops if loop.kind != "pure" and extents[loop.name] > 1]
    if not runs:
        return 0
    streaming = (
        _starts_segments(load, runs[0], analysis, model, innermost(load.callee))
        and _is_read_once(load, extents, model)
        for load in summary.loads
        if load.kind == "image" and not load.indirect
    )
    return sum(streaming)


def _starts_segments(load: Load, run: str, analysis: Analysis, model: CpuModel, inner: int) -> bool:
    """Return whether an iteration of the reduction loop `run` moves a load to another page."""
    steps = load.strides.get(run)
    if not steps or steps[inner]:
        return False
    between = distances(analysis, load.callee)
    apart = sum(step * size for step, size in zip(steps, between, strict=False))
    return abs(apart) >= model.constants.followed_bytes


def _is_read_once(load: Load, extents: Mapping[str, float], model: CpuModel) -> bool:
    """Return whether a load reads most values only once, and more of them than a cache holds."""
    lengths: list[float] = []
    for loop, steps in load.strides.items():
        if steps is None:
            return False
        lengths = lengths or [1.0] * len(steps)
        for d, step in enumerate(steps):
            lengths[d] += abs(step) * (extents[loop] - 1.0)
    touched = math.prod(lengths)
    reads = math.prod(extents.values())
    large = touched * load.type.bytes > model.l2_bytes * model.constants.sweep_l2_share
    return large and reads < 2.0 * touched


def innermost_loops(
    summary: StageSummary, block: Block, vector: str | None, extents: Mapping[str, Bound]
) -> set[str | None]:
    """Return the innermost loop around the blocks of a stage, with those that LLVM unrolls.

    `vector` is the stage's loop along the vector dimension, None for scalar code. Reduction loops
    with few iterations are unrolled; the loop around them is then the innermost.
    """
    around_block = accumulates(summary) and not block.swept
    if not summary.loops or not (vector is None or around_block):
        return {vector}
    runs = [loop.name for loop in summary.loops if loop.kind != "pure"]
    found: set[str | None] = set()
    iterations = 1.0
    for name in runs:
        found.add(name)
        iterations *= float(np.max(extents.get(name, math.inf)))
        if iterations > SEARCH.unrolled_iterations:
            break
    return found or {summary.loops[0].name}


def loop_starts(
    summary: StageSummary, steps: Mapping[str, Bound], inner: Collection[str | None]
) -> Bound:
    """Return how often the innermost loop of a stage starts, given the iterations of all loops.

    `inner` are the loops around the blocks of a stage (`innermost_loops`). If there is one block,
    the next loop outwards is the innermost: a reduction loop if the stage has one.
    """
    outside = {loop: count for loop, count in steps.items() if loop not in inner}
    starts = math.prod(outside.values())
    if not outside:
        return starts
    runs = [loop.name for loop in summary.loops if loop.kind != "pure"]
    nearest = next((loop for loop in runs if loop in outside), next(iter(outside)))
    blocks = math.prod(count for loop, count in steps.items() if loop in inner)
    others = math.prod(count for loop, count in outside.items() if loop != nearest)
    return np.where(blocks == 1.0, others, starts)


def crossing_wait(lines_bytes: Bound, member: bool, model: CpuModel) -> Array:
    """Return cycles lost per point in loads whose lanes lie in different rows.

    With many lanes, their lines exceed the first cache. In a large buffer, each line also lies in
    a different page.

    Args:
        lines_bytes: the bytes of all lines that are in use at a time.
        member: whether the values are stored in the small buffer of a tile.
        model: the machine.
    """
    c = model.constants
    outgrown = lines_bytes > c.crossing_l1_share * model.l1_bytes
    far = lines_bytes > c.crossing_l2_share * model.l2_bytes
    wait = c.crossing_l1_cycles * outgrown + c.crossing_l2_cycles * (far & (not member))
    return np.asarray(wait, dtype=np.float64)
