"""The loop nest of a schedule as it runs at the estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.halide.analysis.bounds import Box
from tilewright.halide.analysis.scheduled_nest import ScheduledNest, nest_analysis
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.joint import joined
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.ir.variants import running_at


def running_nest(
    algorithm: Algorithm,
    schedule: Schedule,
    boxes: Mapping[str, Box] | None = None,
    like: ScheduledNest | None = None,
) -> ScheduledNest:
    """Return the loop nest of a schedule; specialised code has the values of its specialisation.

    Outputs without a box in `boxes` have the size of their estimates; those that share loops are
    one Func (`joined`). `like` is the nest of another schedule with the same Funcs inlined, added
    and in shared loops, and the same boxes: its analysis is used again. Raises one of
    `scheduled_nest.UNKNOWN` if sizes cannot be determined.
    """
    schedule, algorithm = joined(running_at(schedule, algorithm), algorithm)
    known = {name: box for name, box in (boxes or {}).items() if name in algorithm.outputs}
    found = nest_analysis(algorithm, schedule, known) if like is None else like.analysis
    if any(nest.specialize for entry in schedule.funcs for nest in entry.stages):
        if like is None:
            symbols = found.view.algorithm.symbols
            found = Analysis(found.view, found.output_boxes, symbols, specialize=True)
        funcs = (
            replace(entry, stages=tuple(replace(nest, specialize=()) for nest in entry.stages))
            for entry in schedule.funcs
        )
        schedule = replace(schedule, funcs=tuple(funcs))
    return ScheduledNest(found, schedule)
