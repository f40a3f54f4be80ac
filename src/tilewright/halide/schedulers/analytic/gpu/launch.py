"""Predict the launch that Halide will make for a planned kernel: blocks, threads, shared memory.

| symbol | meaning | unit |
|---|---|---|
| `tile` T_d, `registers` R_d | tile of parallel loop d, and its part per thread | iterations |
| `counts` | blocks along each parallel loop, ceil(extent N_d / T_d) | count |
| `threads` | per block in x, y, z: T_d / R_d, or a member's extent / R_d if larger | count |
| `boxes` | largest extents of each member over all blocks | elements |
| `shared` | packed size of all members that are not nested, folded if they slide | bytes |
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilewright.halide.analysis.bounds import Box, Interval
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.gpu.kernel import sizes
from tilewright.halide.schedulers.analytic.gpu.loops import output_tail
from tilewright.halide.schedulers.analytic.gpu.packing import pack
from tilewright.halide.schedulers.analytic.gpu.plan import KernelPlan
from tilewright.halide.schedulers.analytic.gpu.tiling import grid_dimensions


@dataclass(frozen=True, slots=True)
class PredictedLaunch:
    """One kernel launch: blocks and threads in x, y, z, and bytes of shared memory per block."""

    blocks: tuple[int, ...]
    threads: tuple[int, ...]
    shared_bytes: int


def block_counts(plan: KernelPlan) -> list[int]:
    """Return the number of blocks along each parallel loop."""
    return [
        int(np.ceil(extent / tile))
        for extent, tile in zip(plan.kernel.extents, plan.tile, strict=True)
    ]


def predicted_launch(plan: KernelPlan, any_size: bool = False) -> PredictedLaunch:
    """Return the launch at the estimated sizes.

    The region of a member may differ between blocks (at borders, or if a coordinate is divided).
    As Halide does, this takes the largest region over all blocks.

    Args:
        plan: The planned kernel.
        any_size: `Options.any_size` of the schedule.
    """
    kernel = plan.kernel
    if plan.kind == "single_thread":
        return PredictedLaunch((1, 1, 1), (1, 1, 1), 0)
    counts = block_counts(plan)
    threads = [1] * SEARCH.thread_dimensions
    for place, i in enumerate(kernel.roles.threads):
        tile = plan.planes if plan.planes and place == len(threads) - 1 else plan.tile[i]
        threads[place] = -(-tile // plan.registers[i])
    boxes = largest_regions(plan, any_size)
    each = kernel.points_each(np.array([plan.registers], dtype=np.float64))[0]
    for name in kernel.members:
        if name in plan.nested or name not in boxes:
            continue
        spans = [int(part.extent) for part in boxes[name]]
        if name in plan.sliding:
            spans[plan.sliding[name].dimension] = plan.planes
        for stage in kernel.working_stages(name):
            for place, d in enumerate(kernel.stage_threads(name, stage)):
                threads[place] = max(threads[place], math.ceil(spans[d] / each[place]))
    for name, reach in plan.sliding.items():
        d = reach.dimension
        folded = Interval(0.0, reach.folded(float(plan.planes)) - 1.0)
        boxes[name] = (*boxes[name][:d], folded, *boxes[name][d + 1 :])
    constant = constant_members(plan, any_size)
    shared, _ = pack(kernel, boxes, plan.nested, 1, constant, frozenset(plan.sliding))
    order = [*kernel.roles.threads, *(i for i in kernel.roles.others if plan.tile[i] == 1)]
    counted = [counts[i] for i in order]
    blocks = [math.prod(counted[at] for at in places) for places in grid_dimensions(counted)]
    blocks += [1] * (SEARCH.block_dimensions - len(blocks))
    return PredictedLaunch(tuple(blocks), tuple(threads), int(shared[0]))


def constant_members(plan: KernelPlan, any_size: bool) -> frozenset[str]:
    """Return the members whose allocation per block has a constant size.

    A member qualifies if it is read at affine coordinates, all blocks are complete, and its extent
    does not depend on a loop that runs completely inside threads, because the compiler does not
    know the extent of such a loop.
    """
    kernel = plan.kernel
    if output_tail(kernel, any_size) != "shift_inwards":
        return frozenset()
    whole = [i for i in kernel.roles.others if plan.tile[i] > 1]
    rows = np.array([plan.tile] * (1 + len(whole)), dtype=np.float64)
    for row, i in enumerate(whole):
        rows[1 + row, i] -= 1.0
    boxes = kernel.regions(kernel.block_env(rows))
    return frozenset(
        name
        for name in kernel.exact_members
        if name in boxes
        and all(bool(np.all(size == size[0])) for size in sizes(boxes[name], len(rows)))
    )


def largest_regions(plan: KernelPlan, any_size: bool) -> dict[str, Box]:
    """Return for each member a box, starting at 0, with its largest extents over all blocks."""
    kernel = plan.kernel
    if not kernel.members:
        return {}
    tile = np.array(plan.tile, dtype=np.float64)
    counts = block_counts(plan)
    # The block in the middle, then all blocks along each loop through it.
    middle = [(count - 1) // 2 for count in counts]
    at = np.tile(np.array(middle, dtype=np.float64), (1 + sum(counts), 1))
    first = 1
    for i, count in enumerate(counts):
        at[first : first + count, i] = np.arange(count)
        first += count
    env = dict(kernel.serial_env)
    shifted = output_tail(kernel, any_size) == "shift_inwards"
    for i, loop in enumerate(kernel.loops):
        lo = loop.lo + tile[i] * at[:, i]
        end = loop.lo + loop.extent - 1.0
        if shifted:
            lo = np.minimum(lo, end - tile[i] + 1.0)
        env[loop.loop.name] = Interval(lo, np.minimum(lo + tile[i] - 1.0, end))
    boxes = kernel.regions(env)
    return {
        name: tuple(
            Interval(0.0, float(np.max(size)) - 1.0) for size in sizes(boxes[name], len(at))
        )
        for name in kernel.members
        if name in boxes
    }
