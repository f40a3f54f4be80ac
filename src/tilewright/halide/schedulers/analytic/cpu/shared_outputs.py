"""Schedules in which outputs share their loops.

Outputs of one size that read the same Funcs and inputs read them once if they are computed in the
same loops, and only one parallel loop starts. The searches plan single outputs, so they plan the
outputs as one Func (`tilewright.halide.ir.joint`): a group then has its members, tiles and traffic
as any other. Which of both plans is used, the model of loop nests decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tilewright.halide.analysis.bounds import Box
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import estimated_boxes
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.joint import Joint, joinable, joint_of
from tilewright.halide.ir.plan import GroupReport, PlannedSchedule
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.panels import copies_in
from tilewright.halide.schedulers.analytic.cpu.retries import nest_seconds

# Plans an algorithm: returns at most the given number of schedules, the best first.
Planning = Callable[[Algorithm, int], list[PlannedSchedule]]


def with_shared_loops(
    plans: Sequence[PlannedSchedule],
    algorithm: Algorithm,
    model: CpuModel,
    planning: Planning,
    k: int,
) -> list[PlannedSchedule]:
    """Return `k` of the plans and of those in which outputs share loops, the best first.

    The best of the latter comes first if the model of loop nests expects it to be clearly faster
    than the best of `plans`, and otherwise last. Where outputs share loops, Funcs computed in these
    have no constant extents, as Halide does not know that all outputs begin at one coordinate.

    Args:
        plans: schedules without shared loops, the best first.
        algorithm: the pipeline; its outputs have estimates.
        model: the machine.
        planning: plans an algorithm in which outputs are one Func.
        k: the number of schedules.
    """
    boxes = estimated_boxes(View(algorithm))
    found = []
    for names in joinable(algorithm):
        joint = joint_of(algorithm, names)
        for planned in planning(joint.algorithm, SEARCH.joint_plans):
            separate = _separate(planned, joint)
            if separate is not None:
                inner = any(each.compute.kind == "at" for each in separate.schedule.funcs)
                longer = SEARCH.varying_extents if inner else 1.0
                found.append(
                    (longer * _ratio(separate, plans[0], algorithm, boxes, model), separate)
                )
    if not found:
        return list(plans)
    ratio, shared = min(found, key=lambda each: each[0])
    # The model does not know what copies of inputs save (`retries.fastest`).
    if ratio < SEARCH.shared_gain and not copies_in(plans[0].schedule, algorithm):
        return [shared, *plans][:k]
    return [*plans[: max(1, k - 1)], shared][:k]


def _ratio(
    one: PlannedSchedule,
    other: PlannedSchedule,
    algorithm: Algorithm,
    boxes: Mapping[str, Box],
    model: CpuModel,
) -> float:
    """Return the predicted time of a plan over that of another one; infinite if unknown.

    The data of each output may fit in the third cache where those of all together do not. They do
    not fit one after the other either, but the model looks at one output at a time. So the ratio
    counts that is smaller: with the cache as it is, or with one that holds everything.
    """
    found = [math.inf]
    for machine in (model, replace(model, l3_bytes=math.inf)):
        times = [nest_seconds(algorithm, plan, boxes, machine) for plan in (one, other)]
        if times[0] is not None and times[1] is not None:
            found.append(times[0] / times[1])
    return min(found)


def _separate(planned: PlannedSchedule, joint: Joint) -> PlannedSchedule | None:
    """Return the plan of a joint as one of its outputs; None if they cannot share the loops."""
    schedule = joint.separated(planned.schedule)
    if schedule is None:
        return None
    groups = tuple(_report(group, joint) for group in planned.groups)
    return replace(planned, schedule=schedule, groups=groups)


def _report(group: GroupReport, joint: Joint) -> GroupReport:
    host, *guests = joint.names
    if group.output != host:
        return group
    said = f"{', '.join(guests)} {'shares' if len(guests) == 1 else 'share'} the loops of {host}"
    return replace(group, funcs=(*guests, *group.funcs), notes=(*group.notes, said))
