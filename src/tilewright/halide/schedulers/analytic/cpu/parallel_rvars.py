"""Updates that write elsewhere in every iteration of a reduction variable run in parallel over it.

Halide calls such a variable a pure one: it proves that no iteration reads or writes what another
writes. Tasks over the slowest dimension of the storage each write a range of their own; tasks over
tiles of a faster dimension would write in turn to neighbouring lines, which each core's prefetches
take from the other.
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
    """Return the loop of a reduction variable to run in parallel, and the iterations of a task.

    None if none can be, if tasks over the `tiled` dimensions write ranges that are as long, if the
    loop runs in vectors already, or if the work is less than it takes to wake the other cores.
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
                if extent < model.cores or not _pays(cycles, extent / task, costs):
                    return None
                return reduction_loop(place[node.name]), task
    return None


def _pays(cycles: float, tasks: float, costs: CpuCosts) -> bool:
    """Return whether cycles on one core are more than those on all, with what it takes to start."""
    c, cores = costs.model.constants, costs.model.cores
    started = c.region_cycles + tasks * c.task_cycles / cores
    return cycles / cores + started < cycles
