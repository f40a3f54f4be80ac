"""Plan kernels whose blocks walk along z, so that members slide ("2.5-D blocking").

A serial loop between the loops over blocks and threads walks a tile in steps of a few planes.
Members that can slide (`FusedKernel.sliding`) are stored in the block's shared memory and computed
in that loop: only the new planes of each iteration, in storage that is folded to the few planes
that an iteration touches. A block then covers many planes with little shared memory.

| symbol | meaning | unit |
|---|---|---|
| `tile` | the tile along each parallel loop | iterations |
| `planes` | planes along z per iteration of the serial loop | count |
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tilewright.halide.analysis.windows import exact
from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
from tilewright.halide.schedulers.analytic.gpu.launch import predicted_launch
from tilewright.halide.schedulers.analytic.gpu.plan import (
    GroupPlan,
    KernelPlan,
    Options,
    given_tile,
)
from tilewright.halide.schedulers.analytic.grouping import Group


def sliding_plan(search: GroupingSearch, group: Group, options: Options) -> GroupPlan:
    """Return the plan of a group whose members slide, with the tile that the options give.

    The plan is empty if no member can slide, or if the tile does not fit.
    """
    why_not = search.unfusable(group)
    kernel = search.kernels.kernel(group, 0)
    given = given_tile(kernel, options)
    if why_not or given is None or not kernel.sliding or options.any_size:
        return GroupPlan((), np.inf, why_not or "no member can slide along z")
    if search.why_host(group.output, 0):
        return GroupPlan((), np.inf, f"{group.output} stays on the host")
    tile, each = (tuple(int(n) for n in row[0]) for row in given)
    z = kernel.roles.threads[-1]
    whole = tile[z] % options.planes == 0 and options.planes % each[z] == 0
    whole &= exact(kernel.sliding, float(options.planes))
    inside = all(n <= most for n, most in zip(tile, kernel.extents, strict=True))
    if not whole or not inside or tile[z] < 2 * options.planes:
        return GroupPlan((), np.inf, "the tile is not a whole number of steps")
    plan = KernelPlan(kernel, "parallel", tile, each, planes=options.planes)
    launch = predicted_launch(plan)
    threads = math.prod(launch.threads)
    machine, resident = search.machine, search.model.resident
    if threads > machine.max_threads_per_block or launch.shared_bytes > machine.shared_per_block:
        return GroupPlan((), np.inf, "the tile does not fit the hardware")
    shared = resident.blocks_by_shared(np.array([float(launch.shared_bytes)]))
    blocks = min(
        float(resident.blocks(np.array([float(threads)]), shared)[0]),
        math.ceil(math.prod(launch.blocks) / machine.sms),
    )
    warps = blocks * math.ceil(threads / machine.warp_size)
    planned = replace(
        plan,
        blocks=float(math.prod(launch.blocks)),
        threads=launch.threads,
        shared=launch.shared_bytes,
        occupancy=min(warps / machine.max_warps_per_sm, 1.0),
    )
    return GroupPlan((planned,), planned.cost)
