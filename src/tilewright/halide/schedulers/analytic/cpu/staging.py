"""Wrappers around reductions, so that they accumulate in registers.

An update with reduction loops around a block of points adds to each point once per iteration. LLVM
keeps the points in registers only if it can prove that they do not alias. It cannot prove this for
rows whose stride is only known at run time: each iteration then loads and stores all accumulators.
If the reduction is computed in the innermost block of a wrapper, it becomes a small array of
constant size that LLVM keeps in registers. The wrapper stores each result once::

    for y, x0:  for r:  f[x0..x0+3, y] += g(r)         # four loads and stores per iteration
    for y, x0:  t[0..3] = 0;  for r:  t[0..3] += g(r)  # no loads or stores of t
                f[x0..x0+3, y] = t[0..3]

A wrapper is added if the reduction takes less than `SEARCH.least_gain` times its cycles per point
without a wrapper.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.halide.analysis.reductions import only_reduces
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
)


def staged_reductions(base: Analysis, model: CpuModel) -> tuple[Clone, ...]:
    """Return wrappers for reductions that are cheaper if they accumulate in registers.

    Outputs get none, because they cannot be wrapped, nor do reductions that are already computed
    in a reader's innermost block. `base` analyses an algorithm without clones and inlined Funcs.
    """
    algorithm = base.view.algorithm
    taken = nest_reductions(base)
    wrappers: list[Clone] = []
    for func in base.view.funcs:
        if func.name in taken or func.name in algorithm.outputs or func.name not in base.regions:
            continue
        if moduli_of(base, func.name):
            continue
        if not only_reduces(base, func) or not gains_in_registers(base, model, func.name):
            continue
        readers = tuple(algorithm.order[name] for name in algorithm.consumers[func.name])
        wrapper = Clone(algorithm.order[func.name], readers, wrapper=True)
        if readers and not list(clone_problems(algorithm, (*wrappers, wrapper))):
            wrappers.append(wrapper)
    return tuple(wrappers)


def gains_in_registers(base: Analysis, model: CpuModel, name: str) -> bool:
    """Return whether the last update of a Func takes fewer cycles per point with a wrapper."""

    def per_point(nested: Mapping[str, NestedReduction]) -> float:
        costs = CpuCosts(base, model, nested)
        last = len(base.view.stages(name)) - 1
        return costs.block_cycles(name, last) / costs.block(name, last).points

    return per_point({name: NestedReduction(host="")}) < SEARCH.least_gain * per_point({})


def wrappers_of(algorithm: Algorithm) -> frozenset[str]:
    """Return the names of an algorithm's wrappers, which must not be inlined."""
    return frozenset(copy.name for copy in algorithm.copies if copy.wrapper)
