"""Convert planned groups to a schedule, with a report on every kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.halide.analysis.scans import scanned_dimension
from tilewright.halide.analysis.specialization import known_values
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.clones import clones_of
from tilewright.halide.ir.plan import GroupReport, PlannedSchedule
from tilewright.halide.ir.schedule import ROOT, FuncSchedule, Schedule, ScheduledLoop
from tilewright.halide.ir.variants import Conditions, merged
from tilewright.halide.schedulers.analytic.entries import completed
from tilewright.halide.schedulers.analytic.gpu.cost import CostModel
from tilewright.halide.schedulers.analytic.gpu.launch import largest_regions, predicted_launch
from tilewright.halide.schedulers.analytic.gpu.loops import (
    member_schedule,
    output_schedule,
)
from tilewright.halide.schedulers.analytic.gpu.nested import thread_regions
from tilewright.halide.schedulers.analytic.gpu.plan import GroupPlan, KernelPlan, Options
from tilewright.halide.schedulers.analytic.gpu.staging import staged_operands, staged_schedule


def assemble(
    analysis: Analysis, model: CostModel, plans: Sequence[GroupPlan], options: Options
) -> PlannedSchedule:
    """Return the schedule of the groups' plans, with a report on every kernel."""
    reports = [
        _report(stage, options.any_size)
        for plan in plans
        for stage in plan.kernels
        if stage.kind != "nothing"
    ]
    schedule = unpartitioned(schedule_of(analysis, model, plans, options))
    return PlannedSchedule(schedule, tuple(reports), sum(plan.cost for plan in plans))


def schedule_of(
    analysis: Analysis, model: CostModel, plans: Sequence[GroupPlan], options: Options
) -> Schedule:
    """Return the schedule of the groups' plans; other Funcs that are not inlined are at root."""
    view = analysis.view
    algorithm = view.algorithm
    entries: list[FuncSchedule] = []
    for plan in plans:
        kernels = plan.kernels
        entry, nests = output_schedule(
            kernels,
            algorithm,
            unroll=options.unroll,
            any_size=options.any_size,
            scanned=options.scanned,
        )
        place = len(entries)
        entries.append(entry)
        done: set[str] = set()
        regions: dict[str, list[float]] = {}
        aligned: list[Conditions] = []
        for stage, nest in zip(kernels, nests, strict=True):
            extents = _member_extents(stage, options.any_size)
            regions |= extents
            for name in stage.kernel.members:
                if name in extents and name not in done:
                    done.add(name)
                    entries.append(
                        member_schedule(
                            stage, name, nest, extents[name], algorithm, unroll=options.unroll
                        )
                    )
        for stage in kernels:
            conditions: Conditions = ()
            for operand in staged_operands(analysis, stage):
                extents_read = regions.get(operand.reader, ())
                staged = staged_schedule(analysis, operand, entries, extents_read)
                if staged is not None:
                    entries.append(staged[0])
                    conditions += staged[1]
            aligned.append(conditions)
        entries[place] = _specialized(entry, kernels, aligned, analysis)
    complete = completed(entries, view)
    if options.scanned:
        complete = tuple(_along_scan(entry, analysis) for entry in complete)
    return Schedule(algorithm.digest, model.machine.halide_target, complete, clones_of(algorithm))


def _along_scan(entry: FuncSchedule, analysis: Analysis) -> FuncSchedule:
    """Return the schedule of a Func, stored with the dimension innermost that it scans, if any."""
    func = analysis.view.algorithm.funcs[entry.func]
    found = scanned_in_memory(analysis, func.name) if entry.compute == ROOT else None
    if not found:
        return entry
    return replace(entry, storage_order=(found, *(d for d in range(len(func.args)) if d != found)))


def scanned_in_memory(analysis: Analysis, name: str) -> int | None:
    """Return the dimension that updates of a Func in memory scan; None for outputs and others.

    The caller decides how outputs are stored.
    """
    view = analysis.view
    if name in view.algorithm.outputs or name in view.inlined or name not in view.by_name:
        return None
    return scanned_dimension(view.by_name[name], view.stages(name))


def unpartitioned(schedule: Schedule) -> Schedule:
    """Return the schedule without loop partitioning inside kernels, but where it is asked for.

    By default, Halide makes a version of a serial loop without the conditions of borders. In a
    kernel, the threads of a warp then take turns in several versions, and all versions share the
    registers: without them, kernels are a third shorter and spill less.
    """
    return replace(schedule, funcs=tuple(map(_unpartitioned, schedule.funcs)))


def _unpartitioned(entry: FuncSchedule) -> FuncSchedule:
    inside = entry.compute.kind == "at"
    stages = tuple(
        replace(nest, loops=tuple(_never(loop) for loop in nest.loops))
        if inside or any(loop.mapping.startswith("gpu_") for loop in nest.loops)
        else nest
        for nest in entry.stages
    )
    return replace(entry, stages=stages)


def _never(loop: ScheduledLoop) -> ScheduledLoop:
    return replace(loop, partition="never") if loop.partition == "auto" else loop


def _member_extents(plan: KernelPlan, any_size: bool) -> dict[str, list[float]]:
    """Return the extents of each member's region in a thread if it is nested, else in a block."""
    kernel = plan.kernel
    if not kernel.members:
        return {}
    boxes = largest_regions(plan, any_size)
    tiles = np.array([plan.tile], dtype=np.float64)
    registers = np.array([plan.registers], dtype=np.float64)
    env = kernel.block_env(tiles)
    inside = thread_regions(kernel, env, kernel.regions(env), registers, plan.nested)
    return {
        name: [float(np.max(part.extent)) for part in inside.get(name, boxes[name])]
        for name in kernel.members
        if name in boxes
    }


def _specialized(
    entry: FuncSchedule,
    kernels: Sequence[KernelPlan],
    aligned: Sequence[Conditions],
    analysis: Analysis,
) -> FuncSchedule:
    """Return the output's schedule, with each kernel specialised for parameter values.

    The values are those that simplify a stage of the kernel or of its members, and those with which
    its vectors are aligned.
    """
    stages = []
    for plan, stage, conditions in zip(kernels, entry.stages, aligned, strict=True):
        computed = [plan.kernel.stage]
        for name in plan.kernel.members:
            computed += analysis.view.stages(name)
        known = known_values(computed, analysis.known) if plan.kind == "parallel" else ()
        stages.append(replace(stage, specialize=merged(*known, *conditions)))
    return replace(entry, stages=tuple(stages))


def _report(plan: KernelPlan, any_size: bool) -> GroupReport:
    kernel = plan.kernel
    notes = []
    if plan.kind == "host":
        notes.append(f"on the host: {plan.reason}")
    if plan.kind == "single_thread":
        notes.append(f"one thread: {plan.reason}")
    if kernel.atomic:
        notes.append("reduced in parallel with atomic additions")
    if kernel.in_rounds:
        named = ", ".join(kernel.rounds)
        notes.append(f"{kernel.launches:.0f} launches: one per iteration of {named}")
    if plan.nested:
        notes.append("inside threads: " + ", ".join(plan.nested))
    if plan.sliding:
        named = ", ".join(plan.sliding)
        notes.append(f"members slide along z in steps of {_planes(plan.planes)}: {named}")
    waived = ["", "threads are not a multiple of the warp size", "low occupancy", "too few blocks"]
    if plan.relaxed:
        notes.append(waived[plan.relaxed])
    launch = (
        predicted_launch(plan, any_size) if plan.kind in ("parallel", "single_thread") else None
    )
    return GroupReport(
        funcs=(*kernel.members, kernel.output),
        output=kernel.output,
        stage=kernel.stage.index,
        tile=plan.tile,
        loops=tuple(parallel.loop.name for parallel in kernel.loops),
        blocks=launch.blocks if launch else (),
        threads=launch.threads if launch else (),
        shared_bytes=launch.shared_bytes if launch else 0,
        occupancy=plan.occupancy,
        cost=plan.cost,
        notes=tuple(notes),
    )


def _planes(count: int) -> str:
    return f"{count} plane" + ("s" if count > 1 else "")
