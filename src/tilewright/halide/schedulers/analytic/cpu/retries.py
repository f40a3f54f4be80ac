"""Follow-up searches that a result suggests, and the choice among the schedules found.

A search costs groups tile by tile, and assumes more than it knows of the loops that a tiling
becomes. The model of loop nests (`nest_costs`) takes longer and knows them: among the schedules of
an analytic search, the one that it predicts to be fastest takes 1.085 times the time of the best of
them, and the search's own first one 1.12 (geometric means of 30 programs,
``benchmarks/halide_model.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.halide.analysis.bounds import Box
from tilewright.halide.analysis.running_nest import running_nest
from tilewright.halide.analysis.scheduled_nest import UNKNOWN
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import clone_problems
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import Clone, Schedule
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.nest_costs import part_times
from tilewright.halide.schedulers.analytic.cpu.panels import copies_in
from tilewright.halide.schedulers.analytic.cpu.tiling import Policy

FIXED = Policy(slide=False)
UNFUSED = Policy(fuse=False)
DEAR_MEMORY = Policy(memory_weight=SEARCH.dear_memory)
DEARER_MEMORY = Policy(memory_weight=SEARCH.dearer_memory)
LESS_INLINED = Policy(inline_bias=SEARCH.less_inlined)
MORE_INLINED = Policy(inline_bias=SEARCH.more_inlined)


def worth_cloning(costs: CpuCosts) -> tuple[Clone, ...]:
    """Return clones of Funcs that a scattering stage and other Funcs read.

    A scattering stage is not vectorised. A clone of the Func that it reads can be: it is computed
    row by row just before the stage. The other readers do not change.
    """
    view = costs.analysis.view
    base = view.algorithm.original or view.algorithm
    clones: list[Clone] = []
    for func in base.funcs:
        name = func.name
        readers = [f for f in base.funcs if name in base.producers[f.name]]
        if len(readers) < 2 or not func.args or not func.pure or func.fixed or func.scheduled:
            continue
        for reader in readers:
            if reader.name in view.inlined or reader.fixed:
                continue
            stages = costs.analysis.summaries(reader.name)
            if len(stages) > 1 and stages[-1].scatter:
                clone = Clone(base.order[name], (base.order[reader.name],))
                if not list(clone_problems(base, (*clones, clone))):
                    clones.append(clone)
    return tuple(sorted(clones, key=lambda clone: (clone.func, clone.readers)))


def gathers(costs: CpuCosts) -> bool:
    """Return whether transposed storage may be better.

    It may be if vectors gather values across rows. It may also be if a block has several reductions
    that are vectorised one by one: vectors across them would need no folds.
    """
    view = costs.analysis.view
    for func in view.funcs:
        if func.name not in costs.analysis.regions:
            continue  # only extern stages read it, so that its region is unknown
        for summary in costs.analysis.summaries(func.name):
            block = costs.block(func.name, summary.index)
            if block.steps > 1 and block.row is not None:
                return True
            if block.vector is None:
                continue
            loop = costs.pure_loops(func.name, summary.index).get(block.vector)
            for load in summary.loads:
                steps = load.strides.get(loop or "", ())
                if not load.indirect and steps is not None and any(steps[1:]):
                    return True
    return False


def is_doubtful(planned: PlannedSchedule, seconds: float | None, model: CpuModel) -> bool:
    """Return whether the search predicts far less than the model of loop nests (`seconds`).

    Then its windows, its traffic or its loops are not what it takes them for.
    """
    return seconds is not None and seconds > SEARCH.doubtful * model.seconds(planned.cost)


def rival_policies(
    algorithm: Algorithm, doubtful: bool, policies: Sequence[Policy]
) -> tuple[Policy, ...]:
    """Return the policies under which to search again for a schedule to use without measuring.

    A small pipeline is also searched with fewer and with more Funcs inlined at first: revisions
    then end in other local optima. If the result is `doubtful`, the search may be wrong about all
    that it preferred: small pipelines are searched under all `policies`, others without windows,
    with dear memory, and without fusion.
    """
    small = len(algorithm.funcs) <= SEARCH.rival_funcs
    rivals = [LESS_INLINED, MORE_INLINED] if small else []
    if doubtful:
        rivals += policies if small else [FIXED, DEAR_MEMORY, UNFUSED]
    return tuple(dict.fromkeys(rivals))


def fastest(
    algorithm: Algorithm,
    best: PlannedSchedule,
    found: Sequence[PlannedSchedule],
    boxes: Mapping[str, Box],
    model: CpuModel,
    faults: Mapping[Schedule, float],
) -> PlannedSchedule:
    """Return the schedule that the model of loop nests predicts to be fastest.

    It is `best`, the cheapest one of the searches, unless another one is clearly faster. `faults`
    has the cycles of page faults that the model does not know. Neither may have copies of inputs:
    the model knows what these cost, but not the cache lines they save. If `best` has added Funcs,
    another one must be much faster: of six programs with smaller gains, five take as long or longer
    by the model's choice.
    """

    def seconds(planned: PlannedSchedule) -> float | None:
        own = nest_seconds(algorithm, planned, boxes, model)
        return None if own is None else own + model.seconds(faults.get(planned.schedule, 0.0))

    known = seconds(best)
    if known is None or copies_in(best.schedule, algorithm):
        return best
    gain = SEARCH.large_gain if best.schedule.clones else SEARCH.clear_gain
    chosen, least = best, gain * known
    for planned in found:
        if planned is best or copies_in(planned.schedule, algorithm):
            continue
        other = seconds(planned)
        if other is not None and other < least:
            chosen, least = planned, other
    return chosen


def nest_seconds(
    algorithm: Algorithm, planned: PlannedSchedule, boxes: Mapping[str, Box], model: CpuModel
) -> float | None:
    """Return the time that the model of loop nests predicts; None if sizes cannot be determined."""
    with np.errstate(invalid="ignore", over="ignore"):
        try:
            nest = running_nest(algorithm, planned.schedule, boxes)
            return sum(part.seconds for part in part_times(nest, model))
        except UNKNOWN:
            return None
