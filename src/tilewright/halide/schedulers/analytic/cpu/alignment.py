"""Where vectors of a Func begin at multiples of a number by which its loads divide.

Vectors along x of ``f(x) = .. g(x // 8 * 8 + r) * t(x % 8, r)`` are gathered, lane by lane: how far
apart the lanes lie depends on where the vector begins. If the bounds of f are aligned to 8, all
vectors begin at multiples of 8, and Halide makes dense loads and shuffles. Where x is only used in
``x // 8`` and ``x % 8``, the widened bounds need nothing more of g and t.

| symbol | meaning | unit |
|---|---|---|
| divisor | the number d in ``x // d`` and ``x % d`` of an address | elements |
| modulus | what the first coordinate and the extent of a Func are multiples of | elements |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tilewright.halide.analysis.nest_structure import NestStructure
from tilewright.halide.analysis.summaries import Analysis, Load, StageSummary
from tilewright.halide.ir.algorithm import Variable
from tilewright.halide.ir.schedule import DimensionBounds
from tilewright.halide.legality.overreach import aligned_reads_further
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH

Moduli = Mapping[int, int]


class Alignment:
    """The moduli to which the bounds of Funcs are aligned, and what the cost model sees of them.

    `given` has the moduli of a schedule by Func and dimension; without it they are chosen.
    """

    def __init__(self, analysis: Analysis, given: Mapping[str, Moduli] | None = None) -> None:
        self._analysis = analysis
        self._given = given
        self._known: dict[str, Moduli] = {}

    def moduli(self, name: str) -> Moduli:
        """Return the modulus of each dimension along which the bounds of a Func are aligned."""
        if self._given is not None:
            return self._given.get(name, {})
        if name not in self._known:
            self._known[name] = moduli_of(self._analysis, name)
        return self._known[name]

    def summary(self, name: str, index: int, loops: Mapping[int, str]) -> StageSummary:
        """Return the summary of a stage whose pure loops are these, by dimension."""
        summary, moduli = self._analysis.summaries(name)[index], self.moduli(name)
        return aligned_summary(summary, loops, moduli) if moduli else summary

    def bounds(self, name: str, vector: int | None) -> tuple[DimensionBounds, ...]:
        """Return the directives for a Func that is computed in vectors along a dimension."""
        found = self.moduli(name).items()
        return tuple(DimensionBounds(d, 0, modulus, 0) for d, modulus in found if d == vector)


def moduli_of(analysis: Analysis, name: str) -> dict[int, int]:
    """Return the modulus to which the first dimension of a Func at root can be aligned, if any.

    The wider bounds need nothing more of other Funcs and inputs. A Func in the loops of another is
    not aligned: Halide then bounds the remainders of coordinates apart from these, and may demand
    more of inputs than there is.
    """
    view = analysis.view
    func = view.by_name[name]
    if (
        name in view.algorithm.outputs
        or func.fixed
        or func.scheduled
        or not func.args
        or func.bounds
    ):
        return {}
    modulus = 1
    for stage, summary in zip(view.stages(name), analysis.summaries(name), strict=True):
        along = stage.args[0]
        if not isinstance(along, Variable) or along.name != func.args[0]:
            return {}
        modulus = math.lcm(modulus, *(load.divisors.get(along.name, 1) for load in summary.loads))
    if not SEARCH.least_modulus <= modulus <= SEARCH.largest_modulus:
        return {}
    place = view.algorithm.order[name]
    return {} if aligned_reads_further(view.algorithm, place, 0, modulus) else {0: modulus}


def aligned_summary(
    summary: StageSummary, loops: Mapping[int, str], moduli: Moduli
) -> StageSummary:
    """Return the summary of a stage whose Func has bounds aligned to these moduli."""
    names = {loops[d]: modulus for d, modulus in moduli.items() if d in loops}

    def aligned(load: Load) -> Load:
        found = {
            loop
            for loop, modulus in names.items()
            if not load.indirect and modulus % load.divisors.get(loop, modulus + 1) == 0
        }
        return replace(load, aligned=frozenset(found)) if found else load

    loads = tuple(map(aligned, summary.loads))
    return replace(summary, loads=loads) if loads != summary.loads else summary


def moduli_in(structure: NestStructure) -> dict[str, Moduli]:
    """Return the moduli of a schedule's directives, by Func."""
    return {
        structure.names[i]: {b.dimension: b.modulus for b in e.bounds if b.remainder is not None}
        for i, e in structure.entries.items()
    }
