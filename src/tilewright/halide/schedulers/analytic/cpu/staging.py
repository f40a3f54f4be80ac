"""Reductions that are wrapped, so that they accumulate in registers.

An update that runs its reduction loops around a block of points adds to each point once per
iteration. LLVM keeps those points in registers only if it can tell that no two of them share an
address, and it cannot where rows of a stride known at run time lie between them: then each
iteration loads and stores every accumulator. Computed in the innermost block of a wrapper, the
reduction is a small array of constant size, which does become registers, and the wrapper stores
each finished value once::

    for y, x0:  for r:  f[x0..x0+3, y] += g(r)         # four loads and stores per iteration
    for y, x0:  t[0..3] = 0;  for r:  t[0..3] += g(r)  # none
                f[x0..x0+3, y] = t[0..3]

Notation: a wrapper is made if its cycles per point are less than `SEARCH.least_gain` (a share of
1) times those of the reduction in a block of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import clone_problems
from tilewright.halide.ir.schedule import Clone
from tilewright.halide.schedulers.analytic.cpu.alignment import moduli_of
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.nested import (
    NestedReduction,
    nest_reductions,
    only_reduces,
)


def staged_reductions(base: Analysis, model: CpuModel) -> tuple[Clone, ...]:
    """Return wrappers for reductions that are cheaper if they accumulate in registers.

    Outputs, which cannot be wrapped, and reductions in a reader's innermost block are left out.
    `base` is the analysis of an algorithm without clones and with nothing inlined.
    """
    algorithm = base.view.algorithm
    taken = nest_reductions(base)
    wrappers: list[Clone] = []
    for func in base.view.funcs:
        if func.name in taken or func.name in algorithm.outputs or func.name not in base.regions:
            continue
        if moduli_of(base, func.name):
            continue
        if not only_reduces(base, func) or not _gains(base, model, func.name):
            continue
        readers = tuple(algorithm.order[name] for name in algorithm.consumers[func.name])
        wrapper = Clone(algorithm.order[func.name], readers, wrapper=True)
        if readers and not list(clone_problems(algorithm, (*wrappers, wrapper))):
            wrappers.append(wrapper)
    return tuple(wrappers)


def _gains(base: Analysis, model: CpuModel, name: str) -> bool:
    """Return whether the last update takes fewer cycles per point in the block of a wrapper."""

    def per_point(nested: Mapping[str, NestedReduction]) -> float:
        costs = CpuCosts(base, model, nested)
        last = len(base.view.stages(name)) - 1
        return costs.block_cycles(name, last) / costs.block(name, last).points

    return per_point({name: NestedReduction(host="")}) < SEARCH.least_gain * per_point({})


def wrappers_of(algorithm: Algorithm) -> frozenset[str]:
    """Return the names of the wrappers in an algorithm, which are not inlined."""
    return frozenset(copy.name for copy in algorithm.copies if copy.wrapper)
