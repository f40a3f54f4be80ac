"""Alignment of a Func's bounds to the divisors in its loads' indices.

Vectors along x of ``f(x) = .. g(x // 8 * 8 + r) * t(x % 8, r)`` are gathered lane by lane, because
the distances between lanes depend on the first x of the vector. If the bounds of f are aligned to
8, all vectors start at multiples of 8, and Halide makes dense loads and shuffles. If x is only used
in ``x // 8`` and ``x % 8``, the wider bounds do not require more of g and t.

| symbol | meaning | unit |
|---|---|---|
| divisor | the d in ``x // d`` and ``x % d`` in an index | elements |
| modulus | a common divisor of the first coordinate and extent of a Func | elements |
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
    """The moduli to which the bounds of Funcs are aligned, and the stages with aligned loads.

    `given` holds the moduli of a schedule by Func and dimension; without it, they are chosen.
    """

    def __init__(self, analysis: Analysis, given: Mapping[str, Moduli] | None = None) -> None:
        self._analysis = analysis
        self._given = given
        self._known: dict[str, Moduli] = {}

    def moduli(self, name: str) -> Moduli:
        """Return the moduli of a Func by dimension; dimensions that are not aligned are missing."""
        if self._given is not None:
            return self._given.get(name, {})
        if name not in self._known:
            self._known[name] = moduli_of(self._analysis, name)
        return self._known[name]

    def summary(self, name: str, index: int, loops: Mapping[int, str]) -> StageSummary:
        """Return a stage's summary with its aligned loads; `loops` are its loops by dimension."""
        summary, moduli = self._analysis.summaries(name)[index], self.moduli(name)
        return aligned_summary(summary, loops, moduli) if moduli else summary

    def bounds(self, name: str, vector: int | None) -> tuple[DimensionBounds, ...]:
        """Return the bound directives of a Func that is vectorised along dimension `vector`."""
        found = self.moduli(name).items()
        return tuple(DimensionBounds(d, 0, modulus, 0) for d, modulus in found if d == vector)


def moduli_of(analysis: Analysis, name: str) -> dict[int, int]:
    """Return the modulus to which the first dimension of a Func at root can be aligned, if any.

    The wider bounds must not require more of other Funcs and inputs. Funcs computed at loops of
    others are not aligned: Halide then bounds coordinates and their remainders independently and
    may require more of inputs than there is.
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
    """Return a stage's summary with `Load.aligned` set for bounds aligned to `moduli`."""
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
    """Return the moduli in a schedule's bound directives, by Func."""
    return {
        structure.names[i]: {b.dimension: b.modulus for b in e.bounds if b.remainder is not None}
        for i, e in structure.entries.items()
    }
