"""Check that parallel reductions on a GPU lose no updates."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.halide.analysis.atomic_additions import is_atomic_addition
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Algorithm, Func, Stage
from tilewright.halide.ir.nest import scheduled_loops
from tilewright.halide.ir.schedule import Schedule, StageSchedule
from tilewright.halide.legality.stages import GPU
from tilewright.halide.legality.violations import Violation


def addition_problems(
    schedule: Schedule, algorithm: Algorithm, analysis: Analysis
) -> Iterator[Violation]:
    """Yield reductions over GPU blocks or threads that Halide cannot make atomic additions.

    Args:
        schedule: A schedule in which every nest is legal by itself.
        algorithm: The algorithm with the schedule's clones.
        analysis: The same algorithm as the schedule inlines it.
    """
    reductions = [
        (func.name, stage.index)
        for entry in schedule.funcs
        for func in (algorithm.funcs[entry.func],)
        for stage, nest in zip(func.stages, entry.stages, strict=False)
        if nest.atomic and not nest.allow_races and _shared(func, stage, nest)
    ]
    for name, index in reductions:
        floats = "cuda" in schedule.target
        if is_atomic_addition(analysis, name, index, floats=floats) is False:
            reason = (
                "blocks or threads share its reduction, and Halide cannot use an atomic addition "
                "here; its fallback loses updates; keep the reduction's loops serial"
            )
            yield Violation("atomic", name, index, reason)


def _shared(func: Func, stage: Stage, nest: StageSchedule) -> bool:
    """Return whether a loop that carries the reduction runs over blocks or threads."""
    loops = scheduled_loops(func, stage, nest)
    return any(
        loop.kind == "impure_rvar" and mapped.mapping in GPU
        for loop, mapped in zip(loops, nest.loops, strict=True)
    )
