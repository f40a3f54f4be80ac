"""Retile the groups of a CPU schedule for other sizes of the outputs."""

from __future__ import annotations

import math

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.analytic.cpu.constants import CpuConstants
from tilewright.halide.schedulers.analytic.cpu.reports import reported
from tilewright.halide.schedulers.analytic.cpu.scheduler import InliningSearch, assembled
from tilewright.halide.schedulers.analytic.cpu.tiling import Planner, Policy
from tilewright.halide.schedulers.analytic.grouping import Group, Grouping
from tilewright.machines import CpuMachine

# Ways for members to slide; each leads to different compute levels.
_SLIDING = (
    Policy(),
    Policy(unprotected=True, always_slide=True, stepped=True),
    Policy(stepped=True),
    Policy(slide=False),
)


def suited_cpu(
    planned: PlannedSchedule,
    algorithm: Algorithm,
    machine: CpuMachine,
    constants: CpuConstants | None = None,
) -> list[PlannedSchedule]:
    """Return schedules with the inlining and groups of `planned`, tiled for `algorithm`'s sizes.

    Members of a group stay within the tiles of its output. The result is empty if `planned` has no
    groups, as for a schedule that another scheduler made.
    """
    schedule = planned.schedule
    chosen = with_clones(algorithm, schedule.clones)
    inlined = frozenset(
        chosen.funcs[entry.func].name for entry in schedule.funcs if entry.compute.kind == "inline"
    )
    if not planned.groups:
        return []
    view = View(chosen, inlined)
    boxes = estimated_boxes(View(chosen))
    base = Analysis(view, boxes, algorithm.symbols, specialize=True)
    groups = tuple(Group(report.funcs) for report in planned.groups)
    hosts = {
        chosen.funcs[entry.compute.func].name
        for entry in schedule.funcs
        if entry.compute.kind == "at"
    }
    transposed = any(entry.storage_order for entry in schedule.funcs)
    found: list[PlannedSchedule] = []
    for sliding in _SLIDING:
        for turned in (False, True) if transposed else (False,):
            policy = Policy(
                slide=sliding.slide,
                always_slide=sliding.always_slide,
                unprotected=sliding.unprotected,
                stepped=sliding.stepped,
                transposed=turned,
            )
            search = InliningSearch(
                chosen, machine, boxes, algorithm.symbols, policy, base, constants=constants
            )
            costs = search.costs(base)
            planner = Planner(costs, policy, {}, fine=True, cut=frozenset(hosts))
            grouping = Grouping(groups, tuple(planner.plan(group) for group in groups))
            if math.isfinite(grouping.cost):
                made = assembled(chosen, costs, grouping, machine.cores)
                found.append(reported(made, grouping, costs))
    return list({each.schedule: each for each in found}.values())
