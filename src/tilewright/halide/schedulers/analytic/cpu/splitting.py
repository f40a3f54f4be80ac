"""Partial results of reductions (``rfactor``), for all cores and for registers.

The tasks of a CPU's schedule are tiles of a Func. A sum of all pixels has a single result and runs
on one core, and so does a histogram, whose iterations add to places that depend on data. With
partial results, each task reduces a contiguous part of the domain::

    one core:         for r in 0..n:  f += g(r)

    in parallel t:    for r in 0..n / T:  p(t) += g(t * n / T + r)
    one core:         for t in 0..T:  f += p(t)

Halide vectorises some reductions along the innermost loop, but not the sums that it simplifies to
another form, nor Tuples whose values are wider than what is loaded. The rest of a loop that vectors
do not divide runs one by one, which is all of a short loop. There, neighbouring iterations have a
partial result each, in the lanes of vectors::

    for r in 0..n / 32:  p[0..31] += g(32 * r + [0..31])
    for l in 0..32:      f += p(l)

Reductions of an image accumulate in registers inside a wrapper (see `staging`), but an output
cannot be wrapped. Its partial results can, also if there is one per result, of the whole domain::

    for y, x0:  t[0..3] = 0;  for r:  t[0..3] += g(r)  # no loads or stores of t
                q[x0..x0+3, y] = t[0..3]
    for y, x0:  f[x0..x0+3, y] += q[x0..x0+3, y]

The search decides: it plans the pipeline with partial results, and the cheapest schedule is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.halide.analysis.bounds import stage_env
from tilewright.halide.analysis.reductions import only_reduces
from tilewright.halide.analysis.summaries import StageSummary
from tilewright.halide.ir.algorithm import Algorithm, Func, Stage
from tilewright.halide.ir.associativity import Combiner, combiner
from tilewright.halide.ir.clones import Added
from tilewright.halide.ir.renumbering import with_added
from tilewright.halide.ir.schedule import Clone, Factored, Schedule, ScheduleError, Split
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.parallel_rvars import pays
from tilewright.halide.schedulers.analytic.cpu.reduction_steps import run_of
from tilewright.halide.schedulers.analytic.cpu.register_block import (
    crossings,
    fitting_lanes,
    is_dense,
    natural_lanes,
)
from tilewright.halide.schedulers.analytic.cpu.staging import gains_in_registers
from tilewright.halide.schedulers.analytic.reduction_parts import (
    contiguous_parts,
    guarded_split,
)


@dataclass(frozen=True, slots=True)
class _Update:
    """An update to split.

    Attributes:
        func: the position of its Func in the pipeline without added Funcs.
        stage: the number of the update.
        extents: the iterations of the reduction's loops, innermost first; none if the partial
            results are those of the whole domain.
        scatters: whether it stores at coordinates that depend on data or on the reduction.
        lanes: the neighbouring iterations of the innermost loop with a partial result each; 1 if
            the loop stays whole.
        parallel: whether there are too few results for all cores.
    """

    func: int
    stage: int
    extents: tuple[int, ...] = ()
    scatters: bool = False
    lanes: int = 1
    parallel: bool = True


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
            operator = combiner(stage)
            if isinstance(operator, Combiner) and stage.rvars:
                divided = _divided(costs, place, func, stage, operator)
                if divided or staged:
                    yield divided or _Update(place, stage.index)


def _divided(
    costs: CpuCosts, place: int, func: Func, stage: Stage, operator: Combiner
) -> _Update | None:
    """Return an update that takes long without parts or lanes, which it can have; else None.

    `place` is the position of its Func in the pipeline without added Funcs.
    """
    analysis, model = costs.analysis, costs.model
    env = stage_env(func, stage, analysis.regions[func.name], analysis.bounder)
    extents = {loop.name: float(np.max(env[loop.name].extent)) for loop in stage.loops}
    if any(loop.kind == "pure_rvar" and extents[loop.name] > 1 for loop in stage.loops):
        return None  # its iterations can run in parallel as they are
    if not all(map(math.isfinite, extents.values())):
        return None
    points = math.prod(extents[loop.name] for loop in stage.loops if loop.kind == "pure")
    summary = analysis.summaries(func.name)[stage.index]
    terms = tuple(int(extents[rvar.name]) for rvar in stage.rvars)
    scatters = bool(summary.scatter)
    lanes = 1 if operator.ordered or scatters else _lanes(costs, func, summary, extents)
    few = points < model.cores * natural_lanes(summary, model)
    cycles = float(costs.stage_cycles(func.name, stage.index, extents, ()))
    parallel = few and model.cores > 1 and pays(cycles, model.cores, costs)
    if not parallel and (lanes == 1 or cycles < model.constants.region_cycles):
        return None
    return _Update(place, stage.index, terms, scatters, lanes, parallel)


def _lanes(costs: CpuCosts, func: Func, summary: StageSummary, extents: Mapping[str, float]) -> int:
    """Return the neighbouring iterations that get a partial result each, 1 for none.

    They are for loops that Halide cannot run in vectors, or not to their ends, unless neighbouring
    results fill vectors. `extents` are the iterations of the update's loops.
    """
    if summary.scans:
        return 1
    lanes = natural_lanes(summary, costs.model)
    along = costs.block(func.name, summary.index).vector
    vector = None if along is None else costs.pure_loops(func.name, summary.index).get(along)
    fill = vector is not None and extents[vector] >= lanes
    if run_of(summary, costs.innermost) is not None:
        dense = fill and all(is_dense(load, vector, costs.innermost) for load in summary.loads)
        return 1 if dense else _rest_lanes(summary, extents, lanes)
    if fill and not crossings(summary, vector, costs.innermost):
        return 1
    run = next(loop.name for loop in summary.loops if loop.kind != "pure")
    if not any(load.strides.get(run) and not load.indirect for load in summary.loads):
        return 1
    for vectors in SEARCH.partial_vectors:
        if extents[run] >= SEARCH.least_steps * lanes * vectors:
            return lanes * vectors
    dense = all(is_dense(load, run, costs.innermost) for load in summary.loads)
    return _rest_lanes(summary, extents, lanes) if dense else 1


def _rest_lanes(summary: StageSummary, extents: Mapping[str, float], lanes: int) -> int:
    """Return the lanes with a partial result each of a loop that leaves a rest, 1 for none.

    Halide runs the rest one by one: all iterations if the loop is too short for vectors of `lanes`.
    With partial results, the last vector is masked. That pays if the rest takes longer than the
    vectors, and if the loops around have enough iterations to make up for adding up the lanes.
    """
    first, *others = (loop.name for loop in summary.loops if loop.kind != "pure")
    along, rows = extents[first], math.prod(extents[loop] for loop in others)
    short = along < SEARCH.least_steps * lanes
    if rows < SEARCH.least_rows or not (short or along % lanes >= along // lanes):
        return 1
    # More than half of the lanes are to be in use, and all of them under a condition on them.
    masked = first in summary.waits.masked
    if along < (SEARCH.least_lanes if masked else SEARCH.least_lanes // 2 + 1):
        return 1
    return min(fitting_lanes(along), max(SEARCH.partial_vectors) * lanes)


def _split(schedule: Schedule, algorithm: Algorithm, update: _Update, number: int) -> Schedule:
    """Return a schedule with about `number` partial results per result, or as it was.

    A wrapper keeps partial results in registers until they are complete, except where their
    coordinates depend on data.
    """
    splits: tuple[Split, ...] = ()
    kept: tuple[str, ...] = ()
    if update.extents:
        parts = _parts(update, number if update.parallel else 1)
        if parts is None:
            return schedule
        splits, kept = parts
    made = len(algorithm.funcs) + sum(isinstance(old, Factored) for old in schedule.clones)
    entry = Factored(update.func, update.stage, kept, splits)
    try:
        split, _ = with_added(schedule, algorithm, entry)
        if update.scatters:
            return split
        return with_added(split, algorithm, Clone(made, (update.func,), wrapper=True))[0]
    except ScheduleError:
        return schedule


def _parts(update: _Update, number: int) -> tuple[tuple[Split, ...], tuple[str, ...]] | None:
    """Return the splits of a reduction's loops, and the loops that become dimensions.

    None if the domain is too small for `number` parts.
    """
    splits: tuple[Split, ...] = ()
    kept: tuple[str, ...] = ()
    if number > 1:
        # No part has a rest if a number close by divides the loop.
        dividing = (n for n in range(number, 2 * number) if update.extents[-1] % n == 0)
        parts = contiguous_parts(update.extents, next(dividing, number))
        if parts is None:
            return None
        splits, kept, _ = parts
    if update.lanes > 1 and "r0" not in kept:
        loop = "r0i" if any(split.old == "r0" for split in splits) else "r0"
        splits += (guarded_split(loop, update.lanes),)
        kept = (f"{loop}i", *kept)
    return (splits, kept) if kept else None
