"""Schedules of the CPU's model as data small enough to keep, and their costs under any numbers.

A plan says which reductions are wrapped, what is inlined, which Funcs form groups, how each
group's output is tiled and which block of registers each stage has: all that the model's cost of
a schedule depends on, apart from its constants. Funcs are named by their place in the algorithm.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.halide.analysis.inlining import TooLarge, View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import clones_of, with_clones
from tilewright.halide.ir.schedule import Clone, Schedule
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.analytic.cpu.assemble import Tiling
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.constants import CpuConstants
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.nested import nest_reductions
from tilewright.halide.schedulers.analytic.cpu.regions import Window
from tilewright.halide.schedulers.analytic.cpu.scheduler import (
    POLICIES,
    InliningSearch,
    assembled,
    schedule_with,
)
from tilewright.halide.schedulers.analytic.cpu.staging import staged_reductions
from tilewright.halide.schedulers.analytic.cpu.tiling import (
    CpuPlan,
    Planner,
    Policy,
    candidate_tiles,
)
from tilewright.halide.schedulers.analytic.grouping import Group, Grouping
from tilewright.machines import CpuMachine

Data = dict[str, Any]
# Tilings are drawn with a chance that falls with their cost to this power, by turns.
GREED = (4.0, 2.0, 1.0)
PATIENCE = 8  # draws per schedule that is wanted


def analysed(algorithm: Algorithm) -> Analysis:
    """What the model reads, at the estimated sizes and with nothing inlined."""
    view = View(algorithm)
    return Analysis(view, estimated_boxes(view), algorithm.symbols, specialize=True)


def wrapped(
    algorithm: Algorithm, base: Analysis, machine: CpuMachine
) -> tuple[Algorithm, Analysis]:
    """The algorithm as the scheduler searches it: with wrappers of reductions."""
    extended = with_clones(algorithm, staged_reductions(base, model_of(machine)))
    return extended, base if extended is algorithm else analysed(extended)


def plan_data(algorithm: Algorithm, costs: CpuCosts, grouping: Grouping[CpuPlan]) -> Data:
    """A grouping as JSON data."""
    place = algorithm.order
    view = costs.analysis.view
    groups, blocks = [], []
    for group, plan in zip(grouping.groups, grouping.plans, strict=True):
        t = plan.tiling
        window = None if t.sliding is None else list(t.sliding)
        members = [place[name] for name in group.members]
        groups.append([members, list(t.sizes), list(t.order), window, int(t.deep)])
        for name in group.members:
            for stage in () if view.by_name[name].fixed else view.stages(name):
                b = costs.block(name, stage.index)
                shape = [b.vector, b.lanes, b.vectors, b.row, b.rows]
                blocks.append([place[name], stage.index, *shape])
    return {
        "clones": [[c.func, list(c.readers), c.wrapper] for c in clones_of(algorithm)],
        "inlined": sorted(place[name] for name in view.inlined),
        "transposed": int(costs.transposed),
        "groups": groups,
        "blocks": blocks,
    }


def recosted(
    algorithm: Algorithm,
    base: Analysis,
    machine: CpuMachine,
    constants: CpuConstants,
    data: Data,
) -> float:
    """Cycles of a plan under other numbers; `base` is the analysis of the bare algorithm."""
    extended, base, costs, grouping = _rebuilt(algorithm, base, machine, constants, data)
    search = InliningSearch(
        extended, machine, base.output_boxes, {}, Policy(), base, constants=constants
    )
    return search.total(costs, grouping)


def schedule_of(
    algorithm: Algorithm, base: Analysis, machine: CpuMachine, constants: CpuConstants, data: Data
) -> Schedule:
    """The schedule of a plan; `base` is the analysis of the bare algorithm."""
    extended, _, costs, grouping = _rebuilt(algorithm, base, machine, constants, data)
    return assembled(extended, costs, grouping, machine.cores)


def _rebuilt(
    algorithm: Algorithm,
    base: Analysis,
    machine: CpuMachine,
    constants: CpuConstants,
    data: Data,
) -> tuple[Algorithm, Analysis, CpuCosts, Grouping[CpuPlan]]:
    """The algorithm with a plan's clones, its analysis, the costs and the groups of the plan."""
    clones = tuple(Clone(func, tuple(readers), kind) for func, readers, kind in data["clones"])
    if clones:
        algorithm, base = _extended(algorithm, clones)
    names = [func.name for func in algorithm.funcs]
    analysis = base
    for i in data["inlined"]:
        analysis = analysis.toggled(names[i])
    costs = CpuCosts(
        analysis,
        model_of(machine, constants),
        nest_reductions(analysis),
        transposed=bool(data["transposed"]),
    )
    for func, stage, *block in data["blocks"]:
        costs.set_block(names[func], stage, Block(*block))
    planner = Planner(costs, Policy(), {})
    groups, plans = [], []
    for members, sizes, order, window, deep in data["groups"]:
        group = Group(tuple(names[i] for i in members))
        sliding = None if window is None else Window(*window)
        tiling = Tiling(tuple(sizes), tuple(order), sliding, bool(deep))
        groups.append(group)
        plans.append(planner.given(group, tiling))
    return algorithm, base, costs, Grouping(tuple(groups), tuple(plans))


@functools.lru_cache(maxsize=8)
def _extended(algorithm: Algorithm, clones: tuple[Clone, ...]) -> tuple[Algorithm, Analysis]:
    extended = with_clones(algorithm, clones)
    return extended, analysed(extended)


def various(
    algorithm: Algorithm, machine: CpuMachine, count: int, seed: int
) -> Iterator[tuple[Schedule, Data]]:
    """Up to `count` distinct legal schedules: the policies' choices, then tilings by chance."""
    given = algorithm
    algorithm, base = wrapped(given, analysed(given), machine)
    boxes = base.output_boxes
    found: dict[Schedule, Data] = {}
    starts: list[tuple[CpuCosts, Grouping[CpuPlan]]] = []
    for policy in POLICIES:
        schedule, grouping, costs = schedule_with(
            algorithm, machine, boxes, algorithm.symbols, policy, base=base
        )
        if schedule not in found and not check(schedule, given):
            found[schedule] = plan_data(algorithm, costs, grouping)
            starts.append((costs, grouping))
        if len(found) > count // 2:
            break
    random = np.random.default_rng(seed)
    for i in range(PATIENCE * count):
        if len(found) >= count or not starts:
            break
        costs, grouping = starts[i % len(starts)]
        try:
            drawn = Grouping(
                grouping.groups,
                tuple(
                    _drawn(costs, group, plan, random, GREED[i % len(GREED)])
                    for group, plan in zip(grouping.groups, grouping.plans, strict=True)
                ),
            )
            schedule = assembled(algorithm, costs, drawn, machine.cores)
        except TooLarge:
            continue
        if schedule not in found and not check(schedule, given):
            found[schedule] = plan_data(algorithm, costs, drawn)
    yield from list(found.items())[:count]


def _drawn(
    costs: CpuCosts, group: Group, plan: CpuPlan, random: np.random.Generator, greed: float
) -> CpuPlan:
    """Another tiling of a group, a cheap one more likely than a dear one."""
    if not plan.tiling.sizes or random.random() < 1 / 4:
        return plan
    extents = [max(1, int(np.max(i.extent))) for i in costs.analysis.regions[group.output]]
    tiles = candidate_tiles(extents, costs.block(group.output, 0), False)
    order = tuple(range(len(extents)))
    cycles = costs.costs(group, costs.regions(group, tiles, order)).cycles
    weight = np.where(np.isfinite(cycles), -greed * np.log(np.maximum(cycles, 1.0)), -np.inf)
    # The largest of perturbed weights is a draw from their softmax.
    chosen = int(np.argmax(weight + random.gumbel(size=len(tiles))))
    tiling = Tiling(tuple(int(t) for t in tiles[chosen]), order)
    return Planner(costs, Policy(), {}).given(group, tiling)
