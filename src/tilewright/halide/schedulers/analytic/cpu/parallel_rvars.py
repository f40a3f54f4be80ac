"""Parallel loops over the pure reduction variables of updates.

Halide calls a reduction variable pure if it proves that no iteration reads or writes a location
that another iteration writes. Parallel tasks over the outermost storage dimension then write
separate contiguous ranges. Tasks over tiles of an inner dimension would write adjacent cache
lines, and the cores' prefetchers would take these lines from each other.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from tilewright.halide.analysis.bounds import stage_env
from tilewright.halide.ir.algorithm import Variable, walk
from tilewright.halide.ir.loops import reduction_loop
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts


def parallel_rvar(
    costs: CpuCosts, name: str, index: int, tiled: Collection[int]
) -> tuple[str, int] | None:
    """Return the reduction loop to parallelise and its iterations per task, or None.

    Returns None in these cases:

    - no reduction variable is pure
    - a dimension in `tiled` is at least as far out in storage, so that its tasks are as good
    - the loop is already vectorised
    - the work does not cover the cost of starting the tasks
    """
    analysis, model = costs.analysis, costs.model
    func, stage = analysis.view.by_name[name], analysis.view.stages(name)[index]
    free = {loop.name for loop in stage.loops if loop.kind == "pure_rvar"}
    if costs.block(name, index).steps > 1:
        free.discard(next(loop.name for loop in stage.loops if loop.kind != "pure"))
    if not free or model.cores == 1:
        return None
    env = stage_env(func, stage, analysis.regions[name], analysis.bounder)
    extents = {loop.name: float(np.max(env[loop.name].extent)) for loop in stage.loops}
    if not all(math.isfinite(extent) for extent in extents.values()):
        return None
    place = {rvar.name: i for i, rvar in enumerate(stage.rvars)}
    for d in reversed(costs.loop_order(name, range(len(stage.args)))):
        if d in tiled:
            return None
        for node in walk(stage.args[d]):
            if isinstance(node, Variable) and node.name in free:
                extent = extents[node.name]
                task = max(1, math.ceil(extent / (SEARCH.tasks_per_core * model.cores)))
                cycles = float(costs.stage_cycles(name, index, extents, ()))
                if extent < model.cores or not pays(cycles, extent / task, costs):
                    return None
                return reduction_loop(place[node.name]), task
    return None


def pays(cycles: float, tasks: float, costs: CpuCosts) -> bool:
    """Return whether `cycles` on one core exceed the time on all cores, with start-up."""
    c, cores = costs.model.constants, costs.model.cores
    started = c.region_cycles + tasks * c.task_cycles / cores
    return cycles / cores + started < cycles
