"""Tile the groups of an existing GPU schedule again, for other output sizes."""

from __future__ import annotations

import numpy as np

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.scheduled_nest import UNKNOWN
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.group_times import GroupTimes, can_predict
from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
from tilewright.halide.schedulers.analytic.gpu.plan import Mode, Objective, Options
from tilewright.halide.schedulers.analytic.gpu.time_search import TimeSearch
from tilewright.halide.schedulers.analytic.grouping import Group
from tilewright.machines import GpuMachine


def suited_gpu(
    planned: PlannedSchedule,
    algorithm: Algorithm,
    machine: GpuMachine,
    mode: Mode,
    objective: Objective = "time",
    constants: GpuConstants | None = None,
) -> list[PlannedSchedule]:
    """Return schedules with the inlining and groups of `planned`, tiled for new sizes.

    Members may move between the blocks and the threads of their group.

    Args:
        planned: The schedule whose inlined Funcs and groups are kept.
        algorithm: The pipeline, with the estimates of the new sizes.
        machine: The GPU.
        mode: How members are fused.
        objective: What the search minimises.
        constants: The model's constants, by default `GpuConstants()`.

    Returns:
        The schedules. The list is empty if no tiling is found or the groups of `planned` are
        unknown, as in a schedule read from a file.
    """
    entries = planned.schedule.funcs
    inlined = frozenset(
        algorithm.funcs[entry.func].name for entry in entries if entry.compute.kind == "inline"
    )
    members: dict[str, Group] = {}
    for report in planned.groups:
        members.setdefault(report.output, Group(report.funcs))
    if not members:
        return []
    with np.errstate(invalid="ignore", over="ignore"):
        view = View(algorithm)
        base = Analysis(view, estimated_boxes(view), algorithm.symbols, specialize=True)
        search = GroupingSearch(base, machine, inlined, constants)
        groups = tuple(members.values())
        if objective == "time" and can_predict(machine):
            timed = TimeSearch(GroupTimes(search), Options(mode))
            try:
                best = timed.tiled(groups)
            except UNKNOWN:
                best = None
            return [] if best is None else [timed.planned(best)]
        modes: tuple[Mode, ...] = ("nested", "overlapped") if mode == "nested" else (mode,)
        found = [search.plan_groups(groups, Options(fused)) for fused in modes]
    return [each for each in found if np.isfinite(each.cost)]
