"""Partial results of reductions (``rfactor``), for all cores and for registers.

The tasks of a CPU's schedule are tiles of a Func. A sum of all pixels has a single result and runs
on one core, and so does a histogram, whose iterations add to places that depend on data. With
partial results, each task reduces a contiguous part of the domain::

    one core:         for r in 0..n:  f += g(r)

    in parallel t:    for r in 0..n / T:  p(t) += g(t * n / T + r)
    one core:         for t in 0..T:  f += p(t)

Reductions of an image accumulate in registers inside a wrapper (see `staging`), but an output
cannot be wrapped. Its partial results can, also if there is one per result, of the whole domain::

    for y, x0:  t[0..3] = 0;  for r:  t[0..3] += g(r)  # no loads or stores of t
                q[x0..x0+3, y] = t[0..3]
    for y, x0:  f[x0..x0+3, y] += q[x0..x0+3, y]

The search decides: it plans the pipeline with partial results, and the cheapest schedule is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.halide.analysis.bounds import stage_env
from tilewright.halide.analysis.reductions import only_reduces
from tilewright.halide.ir.algorithm import Algorithm, Func, Stage
from tilewright.halide.ir.associativity import Combiner, combiner
from tilewright.halide.ir.clones import Added
from tilewright.halide.ir.renumbering import with_added
from tilewright.halide.ir.schedule import Clone, Factored, Schedule, ScheduleError, Split
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.parallel_rvars import pays
from tilewright.halide.schedulers.analytic.cpu.register_block import natural_lanes
from tilewright.halide.schedulers.analytic.cpu.staging import gains_in_registers
from tilewright.halide.schedulers.analytic.reduction_parts import contiguous_parts


@dataclass(frozen=True, slots=True)
class _Update:
    """An update to split.

    Attributes:
        func: the position of its Func in the pipeline without added Funcs.
        stage: the number of the update.
        extents: the iterations of the reduction's loops, innermost first; none if the partial
            results are those of the whole domain.
        scatters: whether it stores at coordinates that depend on data or on the reduction.
    """

    func: int
    stage: int
    extents: tuple[int, ...] = ()
    scatters: bool = False


def split_reductions(
    algorithm: Algorithm, costs: CpuCosts, schedule: Schedule
) -> tuple[tuple[Added, ...], ...]:
    """Return the added Funcs of a schedule together with partial results of its reductions.

    There is one set of added Funcs for each number of parts: one part per core, or several, so that
    a late core costs less. There is none if no reduction gains.

    Args:
        algorithm: the pipeline without added Funcs.
        costs: the costs of the search that found the schedule.
        schedule: the schedule, whose other added Funcs are kept.
    """
    if any(isinstance(each, Factored) for each in schedule.clones):
        return ()
    updates = list(_updates(costs))
    cores = costs.model.cores
    found = []
    for number in dict.fromkeys((cores, SEARCH.tasks_per_core * cores)):
        split = schedule
        for each in updates:
            split = _split(split, algorithm, each, number)
        if split is not schedule:
            found.append(split.clones)
    return tuple(dict.fromkeys(found))


def _updates(costs: CpuCosts) -> Iterator[_Update]:
    """Yield the updates whose partial results may help: all cores, or registers."""
    analysis = costs.analysis
    base = analysis.view.algorithm.original or analysis.view.algorithm
    for func in base.funcs:
        if func.name not in analysis.regions or func.fixed or func.scheduled:
            continue
        place = base.order[func.name]
        staged = (
            func.name in base.outputs
            and only_reduces(analysis, func)
            and gains_in_registers(analysis, costs.model, func.name)
        )
        for stage in func.stages[1:]:
            if isinstance(combiner(stage), Combiner) and stage.rvars:
                serial = _serial(costs, place, func, stage)
                if serial or staged:
                    yield serial or _Update(place, stage.index)


def _serial(costs: CpuCosts, place: int, func: Func, stage: Stage) -> _Update | None:
    """Return an update that takes long and has too few results for all cores; else None.

    `place` is the position of its Func in the pipeline without added Funcs.
    """
    analysis, model = costs.analysis, costs.model
    if model.cores == 1 or any(loop.kind == "pure_rvar" for loop in stage.loops):
        return None  # its iterations can run in parallel as they are
    env = stage_env(func, stage, analysis.regions[func.name], analysis.bounder)
    extents = {loop.name: float(np.max(env[loop.name].extent)) for loop in stage.loops}
    if not all(map(math.isfinite, extents.values())):
        return None
    points = math.prod(extents[loop.name] for loop in stage.loops if loop.kind == "pure")
    summary = analysis.summaries(func.name)[stage.index]
    if points >= model.cores * natural_lanes(summary, model):
        return None  # tiles of its results run in parallel
    cycles = float(costs.stage_cycles(func.name, stage.index, extents, ()))
    if not pays(cycles, model.cores, costs):
        return None
    terms = tuple(int(extents[rvar.name]) for rvar in stage.rvars)
    return _Update(place, stage.index, terms, bool(summary.scatter))


def _split(schedule: Schedule, algorithm: Algorithm, update: _Update, number: int) -> Schedule:
    """Return a schedule with about `number` partial results per result, or as it was.

    A wrapper keeps partial results in registers until they are complete, except where their
    coordinates depend on data.
    """
    splits: tuple[Split, ...] = ()
    kept: tuple[str, ...] = ()
    if update.extents:
        # No part has a rest if a number close by divides the loop.
        dividing = (n for n in range(number, 2 * number) if update.extents[-1] % n == 0)
        parts = contiguous_parts(update.extents, next(dividing, number))
        if parts is None:
            return schedule
        splits, kept, _ = parts
    made = len(algorithm.funcs) + sum(isinstance(old, Factored) for old in schedule.clones)
    entry = Factored(update.func, update.stage, kept, splits)
    try:
        split, _ = with_added(schedule, algorithm, entry)
        if update.scatters:
            return split
        return with_added(split, algorithm, Clone(made, (update.func,), wrapper=True))[0]
    except ScheduleError:
        return schedule
