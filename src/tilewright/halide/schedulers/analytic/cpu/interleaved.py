"""Values of several planes that lie next to each other in memory, such as a pixel's colours.

Neighbouring pixels are 3 elements apart. Vectors along a row are dense loads and stores with
shuffles if this distance is known at compile time, and gathers and scatters otherwise; choices by
the colour (``select(c == 0, a, b)``) are made at compile time if its range is known, too. Code is
therefore specialised for interleaved inputs and outputs (`interleaved_conditions`)::

    out[c, x] = f[c, x]     # c in 0..3 unrolled, x in vectors

    before                                  after, if out has a stride of 3
    out[s * x + 0 for x in 0..8] = ..       out[3 * x .. 3 * x + 24] = interleave(.., .., ..)
    out[s * x + 1 for x in 0..8] = ..
    out[s * x + 2 for x in 0..8] = ..
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.halide.analysis.layouts import fixes, interleaved_output
from tilewright.halide.ir.algorithm import Func
from tilewright.halide.ir.schedule import CallCondition, OutputValue
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.register_block import interleaves
from tilewright.halide.schedulers.analytic.grouping import Group


def interleaved_conditions(costs: CpuCosts, group: Group) -> tuple[CallCondition, ...]:
    """Return the conditions under which a group's vectors of interleaved values are dense."""
    found = dict.fromkeys(_of_inputs(costs, group))
    return (*found, *_of_output(costs, costs.analysis.view.by_name[group.output]))


def _of_inputs(costs: CpuCosts, group: Group) -> Iterator[CallCondition]:
    """Yield the strides of inputs whose second dimension the vectors of some stage run along."""
    analysis = costs.analysis
    for name in group.members:
        for index, summary in enumerate(analysis.summaries(name)):
            along = costs.block(name, index).vector
            vector = "" if along is None else costs.pure_loops(name, index).get(along, "")
            for load in summary.loads:
                known = analysis.known.get(f"{load.callee}.stride.1")
                steps = load.strides.get(vector)
                if load.apart and known is not None and steps and steps[1]:
                    yield known


def _of_output(costs: CpuCosts, func: Func) -> Iterator[CallCondition]:
    """Yield the range of the planes that an output interleaves, and its stride, unless fixed."""
    algorithm = costs.analysis.view.algorithm
    span = interleaved_output(algorithm, func)
    if span is None or not any(
        interleaves(costs.block(func.name, summary.index), summary)
        for summary in costs.analysis.summaries(func.name)
    ):
        return
    me = algorithm.order[func.name]
    if func.args[0] not in func.bounds:
        yield OutputValue(me, "min", 0, span.min)
        yield OutputValue(me, "extent", 0, span.extent)
    if not fixes(func.strides, 1):
        yield OutputValue(me, "stride", 1, span.extent)
