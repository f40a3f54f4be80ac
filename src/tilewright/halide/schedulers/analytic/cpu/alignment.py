"""Alignment of a Func's bounds to the divisors in its loads' indices.

Vectors along x of ``f(x) = .. g(x // 8 * 8 + r) * t(x % 8, r)`` are gathered lane by lane, because
the distances between lanes depend on the first x of the vector. If the bounds of f are aligned to
8, all vectors start at multiples of 8, and Halide makes dense loads and shuffles. If x is only used
in ``x // 8`` and ``x % 8``, the wider bounds do not require more of g and t.

A stage that interleaves others, ``f(x) = select(x % 2 == 0, g(x // 2), h(x // 2))``, computes both
branches for every x, because Halide does not know where a vector or an unrolled pair of rows
begins. If the bounds of f are aligned to 2, each x computes one branch. The stage then has
*phases*: its definitions at each residue of x. Its cost is the mean over the phases.

| symbol | meaning | unit |
|---|---|---|
| divisor | the d in ``x // d`` and ``x % d`` in an index | elements |
| modulus | a common divisor of the first coordinate and extent of a Func | elements |
| period | the modulus of a Func that is aligned for its phases | elements |
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from tilewright.halide.analysis.nest_structure import NestStructure
from tilewright.halide.analysis.summaries import Analysis, Load, Phases, StageSummary
from tilewright.halide.ir.algorithm import Variable
from tilewright.halide.ir.schedule import DimensionBounds
from tilewright.halide.legality.overreach import aligned_reads_further, may_align_in_loops
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH

Moduli = Mapping[int, int]


class Alignment:
    """The moduli to which the bounds of Funcs are aligned, and the stages with aligned loads.

    `given` holds the moduli of a schedule by Func and dimension; without it, they are chosen.
    `most_separated` is the largest divisor by which Halide separates the lanes of a vector.
    """

    def __init__(
        self,
        analysis: Analysis,
        most_separated: int,
        given: Mapping[str, Moduli] | None = None,
    ) -> None:
        self._analysis = analysis
        self._most = most_separated
        self._given = given
        self._known: dict[str, Moduli] = {}
        self._periods: dict[str, Moduli] = {}
        self._summaries: dict[tuple[StageSummary, tuple[tuple[int, str], ...]], StageSummary] = {}

    def moduli(self, name: str) -> Moduli:
        """Return the moduli of a Func by dimension; dimensions that are not aligned are missing.

        These are for loads that divide by more than Halide separates, not for phases.
        """
        if self._given is not None:
            return self._given.get(name, {})
        if name not in self._known:
            self._known[name] = moduli_of(self._analysis, name)
        return self._known[name]

    def periods(self, name: str) -> Moduli:
        """Return the periods of a Func's phases by dimension."""
        if self._given is not None:
            return self._given.get(name, {})
        if name not in self._periods:
            found = {} if self.moduli(name) else periods_of(self._analysis, name, self._most)
            self._periods[name] = found
        return self._periods[name]

    def summary(self, name: str, index: int, loops: Mapping[int, str]) -> StageSummary:
        """Return a stage's summary with its aligned loads and its phases.

        `loops` are the stage's loops by dimension.
        """
        summary = self._analysis.summaries(name)[index]
        moduli, periods = self.moduli(name), self.periods(name)
        if not moduli and not periods:
            return summary
        key = summary, tuple(loops.items())
        found = self._summaries.get(key)
        if found is None:
            found = aligned_summary(summary, loops, moduli)
            divided = {loops[d]: m for d, m in periods.items() if d in loops}
            divided = {loop: m for loop, m in divided.items() if loop in summary.periods}
            if divided:
                found = replace(found, phases=self._phases(name, index, divided))
            self._summaries[key] = found
        return found

    def _phases(self, name: str, index: int, periods: Mapping[str, int]) -> Phases:
        return Phases(periods, partial(self._analysis.at_residues, name, index))

    def bounds(self, name: str, dimensions: Collection[int | None]) -> tuple[DimensionBounds, ...]:
        """Return the directives that align a Func's bounds along `dimensions`."""
        found = {**self.periods(name), **self.moduli(name)}.items()
        return tuple(DimensionBounds(d, 0, m, 0) for d, m in found if d in dimensions)


def moduli_of(analysis: Analysis, name: str) -> dict[int, int]:
    """Return the modulus to which the first dimension of a Func at root can be aligned, if any.

    The wider bounds must not require more of other Funcs and inputs. Funcs computed at loops of
    others are not aligned: Halide then bounds coordinates and their remainders independently and
    may require more of inputs than there is.
    """
    view = analysis.view
    func = view.by_name[name]
    if not func.args or not _has_free_bounds(analysis, name):
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


def periods_of(analysis: Analysis, name: str, most: int) -> dict[int, int]:
    """Return the dimensions along which a Func has phases with less work, and their periods.

    Periods are at most `most`. The wider bounds must not require more of inputs, wherever the Func
    is computed. Outputs are not aligned, because the caller's buffer may begin anywhere.
    """
    view = analysis.view
    func = view.by_name[name]
    if len(func.stages) != 1 or not _has_free_bounds(analysis, name):
        return {}
    (summary,) = analysis.summaries(name)
    place = view.algorithm.order[name]
    found = {d: summary.periods.get(arg, 1) for d, arg in enumerate(func.args)}
    found = {d: period for d, period in found.items() if 1 < period <= most}
    found = {
        d: period
        for d, period in found.items()
        if may_align_in_loops(view.algorithm, place, d)
        and not aligned_reads_further(view.algorithm, place, d, period)
    }

    def work(dimensions: Mapping[int, int]) -> float:
        """Return the work per point where these dimensions have known residues."""
        periods = {func.args[d]: period for d, period in dimensions.items()}
        phases = analysis.at_residues(name, 0, periods)
        return sum(map(_work, phases)) / len(phases)

    while found and work(found) <= SEARCH.work_of_phases * _work(summary):
        if len(found) == 1:
            return found
        fewer = [{d: n for d, n in found.items() if d != other} for other in found]
        rest = min(fewer, key=work)
        if work(rest) > work(found):
            return found
        found = rest
    return {}


def _has_free_bounds(analysis: Analysis, name: str) -> bool:
    """Return whether a schedule may widen the bounds of a Func."""
    func = analysis.view.by_name[name]
    output = name in analysis.view.algorithm.outputs
    return not (output or func.fixed or func.scheduled or func.bounds)


def _work(summary: StageSummary) -> float:
    """Return the operations and loads of a stage per point, in additions."""
    return summary.arithmetic + len(summary.loads)


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
