"""Panels: copies of an operand that a reduction would otherwise read across distant rows.

A product of matrices sums over the rows of one operand: each step reads a few neighbours of another
row. If the rows are pages apart, few of their lines stay in a cache, because they map to few sets;
and no prefetcher follows them. Every block of the result then fetches its part of the operand
again. A panel is that part, as wide as a block and as long as the reduction, copied to contiguous
memory::

    parallel y:  x0:      for k:  t[0..15, 0..3] += A[x0..x0+15, k] * B[k, y..y+3]
    parallel yy: x0:      P[0..15, 0..K-1] = A[x0..x0+15, 0..K-1]
                     y:   for k:  t[0..15, 0..3] += P[0..15, k] * B[k, y..y+3]

The rows of a task (yy) become many, so that each copy is used often. Goto and van de Geijn 2008
("Anatomy of high-performance matrix multiplication", Section 4) pack operands for the same reasons.

| symbol | meaning | unit |
|---|---|---|
| block | points that one step of the reduction computes (`register_block`) | elements |
| steps | iterations of the reduction | count |
| lines | cache lines of the operand that one step of a block reads | count |
| chunk | rows of the result that a task computes | elements |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.halide.analysis.bounds import stage_env
from tilewright.halide.analysis.reductions import accumulates
from tilewright.halide.analysis.summaries import Load
from tilewright.halide.ir.algorithm import Algorithm, Call, Func, Variable
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.loops import part_of, pure_loop
from tilewright.halide.ir.plan import GroupReport, PlannedSchedule
from tilewright.halide.ir.schedule import (
    FuncSchedule,
    Level,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
    Tail,
)
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.cache_sets import distances, lines_that_stay
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.regions import finite
from tilewright.halide.schedulers.analytic.cpu.tiling import CpuPlan
from tilewright.halide.schedulers.analytic.grouping import Group, Grouping

# Blocks at the end of a loop overlap the ones before.
_TAIL: Tail = "shift_inwards"


@dataclass(frozen=True)
class Panel:
    """A copied operand of a group.

    Attributes:
        func: The inlined Func that reads the operand, and is to be computed as the panel.
        output: The output of the group.
        guest: Its reduction.
        width: Columns of the result.
        chunk: Rows of the result per task.
        tasks: Tasks.
        saved: Cycles saved, with all cores at work.
    """

    func: str
    output: str
    guest: str
    width: int
    chunk: int
    tasks: int
    saved: float


@dataclass(frozen=True)
class _Operand:
    """An operand: the inlined Func that reads it, its load, and the reduction's iterations."""

    func: str
    load: Load
    steps: float


def with_panels(
    planned: PlannedSchedule, costs: CpuCosts, grouping: Grouping[CpuPlan]
) -> PlannedSchedule | None:
    """Return the plan with operands copied to panels where that saves time; None if nowhere.

    Only groups of a reduction and the Func that stores its results are changed, whose results have
    two dimensions. The operand must be an input that the reduction reads once per step, through a
    Func without arithmetic.

    Args:
        planned: The plan.
        costs: The costs that it was found with.
        grouping: Its groups, in the order of its reports.
    """
    entries = {entry.func: entry for entry in planned.schedule.funcs}
    groups = list(planned.groups)
    saved = 0.0
    for i, (group, plan) in enumerate(zip(grouping.groups, grouping.plans, strict=True)):
        panel = _panel(group, plan, costs)
        if panel is not None:
            entries |= _changed(entries, panel, costs)
            groups[i] = _report(groups[i], panel)
            saved += panel.saved
    if not saved:
        return None
    schedule = replace(
        planned.schedule, funcs=tuple(entries[entry.func] for entry in planned.schedule.funcs)
    )
    return replace(planned, schedule=schedule, groups=tuple(groups), cost=planned.cost - saved)


def _panel(group: Group, plan: CpuPlan, costs: CpuCosts) -> Panel | None:
    """Return the panel of a group, if one saves time."""
    output = group.output
    if len(group.members) != 2 or output not in costs.analysis.regions:
        return None
    guest = group.members[0]
    nest = costs.nested.get(guest)
    args = costs.analysis.view.by_name[output].args
    if nest is None or nest.host != output or nest.whole is not None or len(args) != 2:
        return None
    block = costs.block(output, 0)
    operand = _operand(guest, costs) if (block.vector, block.row) == (0, 1) else None
    return None if operand is None else _worth(operand, group, plan, block, costs)


def _operand(guest: str, costs: CpuCosts) -> _Operand | None:
    """Return the operand of a reduction that is read across rows, if there is one."""
    view = costs.analysis.view
    stage = view.stages(guest)[-1]
    summary = costs.analysis.summaries(guest)[-1]
    pure = costs.pure_loops(guest, stage.index)
    reductions = [loop.name for loop in summary.loops if loop.kind != "pure"]
    if not accumulates(summary) or len(reductions) != 1 or len(pure) != 2:
        return None
    region = costs.analysis.regions.get(guest)
    if region is None:
        return None
    env = stage_env(view.by_name[guest], stage, region, costs.analysis.bounder)
    # One element per iteration along the rows, one row per iteration of the reduction.
    wanted = {pure[0]: (1.0, 0.0), reductions[0]: (0.0, 1.0)}
    for load in summary.loads:
        once = sum(other.callee == load.callee for other in summary.loads) == 1
        if once and not load.indirect and dict(load.strides) == wanted:
            func = _reader_of(load.callee, guest, costs)
            if func is not None:
                return _Operand(func, load, finite(env[reductions[0]].extent))
    return None


def _reader_of(callee: str, guest: str, costs: CpuCosts) -> str | None:
    """Return the inlined Func that has the values of an input and only this reader."""
    view = costs.analysis.view
    algorithm = view.algorithm
    for name in sorted(view.inlined):
        copied = copied_input(algorithm.by_name[name])
        if copied == callee and algorithm.consumers[name] == (guest,):
            return name
    return None


def copied_input(func: Func) -> str | None:
    """Return the input whose values a Func has, point by point; None if it has others."""
    value = func.stages[0].values[0] if len(func.stages) == 1 and func.extern is None else None
    if not isinstance(value, Call) or value.kind != "image":
        return None
    names = tuple(arg.name if isinstance(arg, Variable) else "" for arg in value.args)
    return value.name if names == func.args else None


def copies_in(
    schedule: Schedule, algorithm: Algorithm, at_root: bool = False
) -> frozenset[tuple[str, str]]:
    """Return the Funcs that are computed only to copy an input to other places.

    A Func is named together with the kind of the level at which it is computed: ``at`` a loop; with
    `at_root` also ``root``.
    """
    kinds = ("at", "root") if at_root else ("at",)
    funcs = with_clones(algorithm, schedule.clones).funcs
    found = ((funcs[entry.func], entry.compute.kind) for entry in schedule.funcs)
    return frozenset(
        (func.name, kind)
        for func, kind in found
        if kind in kinds and copied_input(func) is not None
    )


def _worth(
    operand: _Operand, group: Group, plan: CpuPlan, block: Block, costs: CpuCosts
) -> Panel | None:
    """Return the panel of an operand if it saves time: its lines do not stay in the caches."""
    model, c = costs.model, costs.model.constants
    region = costs.analysis.regions[group.output]
    width, rows = (finite(interval.extent) for interval in region)
    element = operand.load.type.bytes
    # The distance of neighbours in each dimension: there are two, as the load has two strides.
    _, apart = distances(costs.analysis, operand.load.callee) or (0.0, 0.0)
    lines = operand.steps * math.ceil(block.width * element / c.line_bytes)
    stay = lines_that_stay(apart, model.l2_bytes, model.l2_bytes / c.l2_ways, c.line_bytes)
    size = operand.steps * block.width * element
    if apart < c.way_bytes or lines <= stay or size > c.panel_l2_share * model.l2_bytes:
        return None
    if width < block.width or rows < block.rows:
        return None
    tasks = SEARCH.panel_tasks * model.cores
    chunk = math.ceil(rows / tasks / block.rows) * block.rows
    tasks = math.ceil(rows / chunk)
    columns = math.ceil(width / block.width)
    before = columns * math.ceil(rows / block.rows) * lines * c.far_line_cycles
    after = columns * tasks * lines * (c.far_line_cycles + c.copied_line_cycles)
    saved = (before - after) / model.cores
    if saved < SEARCH.least_panel_share * plan.cost:
        return None
    return Panel(operand.func, group.output, group.members[0], int(width), chunk, tasks, saved)


def _changed(
    entries: Mapping[int, FuncSchedule], panel: Panel, costs: CpuCosts
) -> dict[int, FuncSchedule]:
    """Return the new entries of the output, the reduction and the panel."""
    order = costs.analysis.view.algorithm.order
    output, guest, func = (order[name] for name in (panel.output, panel.guest, panel.func))
    block = costs.block(panel.output, 0)
    x, y = pure_loop(0), pure_loop(1)
    columns, rows, tasks = part_of(x, "b"), part_of(y, "b"), part_of(y, "t")
    across, vector, row = part_of(x, "w"), part_of(x, "w"), part_of(y, "u")
    splits = [Split(x, columns, across, block.width, _TAIL)]
    loops = []
    if block.vectors > 1:
        unrolled, vector = part_of(x, "u"), part_of(x, "v")
        splits.append(Split(across, unrolled, vector, block.lanes, _TAIL))
        loops.append(ScheduledLoop(unrolled, "unrolled"))
    within = part_of(y, "n")
    splits += [
        Split(y, tasks, within, panel.chunk, _TAIL),
        Split(within, rows, row, block.rows, _TAIL),
    ]
    loops = [
        ScheduledLoop(vector, "vectorized"),
        *loops,
        ScheduledLoop(row, "unrolled", "never"),
        ScheduledLoop(rows),
        ScheduledLoop(columns),
        ScheduledLoop(tasks, "parallel"),
    ]
    (nest,) = entries[output].stages
    nest = replace(nest, splits=tuple(splits), loops=tuple(loops))
    at_rows, at_columns = (Level("at", output, 0, loop) for loop in (rows, columns))
    copied = StageSchedule(
        (Split(x, columns, part_of(x, "v"), block.lanes, _TAIL),),
        (
            ScheduledLoop(part_of(x, "v"), "vectorized"),
            ScheduledLoop(columns),
            ScheduledLoop(y),
        ),
    )
    return {
        output: replace(entries[output], stages=(nest,)),
        guest: replace(entries[guest], compute=at_rows, store=at_rows),
        func: FuncSchedule(func, at_columns, at_columns, stages=(copied,)),
    }


def _report(report: GroupReport, panel: Panel) -> GroupReport:
    """Return the report of the group with its panel."""
    return replace(
        report,
        funcs=(panel.func, *report.funcs),
        tile=(panel.width, panel.chunk),
        parallel_tasks=panel.tasks,
        cost=report.cost - panel.saved,
        notes=(*report.notes, f"{panel.func} is copied to a panel for each column of blocks"),
    )
