"""A cache of the best innermost blocks of stages, and of the costs of blocks and of Funcs."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from tilewright.halide.analysis.summaries import StageSummary
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.operation_cycles import Innermost


@dataclass(frozen=True)
class KnownBlocks:
    """A cache of innermost blocks and their costs, which do not depend on inlining elsewhere.

    `CpuCosts` objects with the same storage order and sizes share one cache; their models may have
    different transfer rates. Keys are stages, for fast look-up, and forms (see `form`), which
    several stages may share. `roots` has the cycles of Funcs computed at root, by name and the
    Funcs inlined into them.
    """

    blocks: dict[Hashable, Block] = field(default_factory=dict)
    cycles: dict[Hashable, float] = field(default_factory=dict)
    forms: dict[StageSummary, Hashable] = field(default_factory=dict)
    roots: dict[tuple[str, frozenset[str]], float] = field(default_factory=dict)

    def form_of(
        self, summary: StageSummary, loops: Mapping[int, str], innermost: Innermost
    ) -> Hashable:
        """Return the form of a stage; it is computed once per stage."""
        known = self.forms.get(summary)
        if known is None:
            known = self.forms[summary] = form(summary, loops, innermost)
        return known


def form(summary: StageSummary, loops: Mapping[int, str], innermost: Innermost) -> Hashable:
    """Return the properties of a stage that determine its block costs, without names.

    Stages with equal forms have equal costs, as layers of a network that differ only in names.
    Loops are numbered by position in the stage. A callee contributes its contiguous dimension and
    whether it is the Func itself.
    """
    place: dict[str, int | str] = {loop.name: i for i, loop in enumerate(summary.loops)}
    return (
        tuple(loop.kind for loop in summary.loops),
        tuple((d, place[loop]) for d, loop in loops.items()),
        tuple(
            (
                load.callee == summary.func,
                innermost(load.callee),
                load.type,
                load.indirect,
                frozenset(place.get(name, name) for name in load.clamped),
                frozenset((place.get(name, name), steps) for name, steps in load.strides.items()),
                frozenset((place.get(name, name), by) for name, by in load.divisors.items()),
                frozenset(place.get(name, name) for name in load.aligned),
                load.apart,
            )
            for load in summary.loads
        ),
        tuple(
            (
                op.name,
                op.type,
                frozenset(place.get(name, name) for name in op.loops),
                op.constant_operand,
                op.count,
            )
            for op in summary.vector_ops
        ),
        frozenset((place.get(name, name), by) for name, by in summary.remainders.items()),
        summary.types,
        summary.scatter,
        summary.scans,
        summary.reorderable,
        innermost(summary.func),
        summary.apart,
        summary.waits.chain,
        frozenset(place.get(name, name) for name in summary.waits.masked),
        summary.waits.doubtful,
        _form_of_phases(summary, loops, innermost),
    )


def _form_of_phases(
    summary: StageSummary, loops: Mapping[int, str], innermost: Innermost
) -> Hashable:
    """Return the forms of a stage at known residues, for each set of loops; None without phases."""
    if summary.phases is None:
        return None
    place = {loop.name: i for i, loop in enumerate(summary.loops)}
    periods = sorted((place[loop], loop, by) for loop, by in summary.phases.periods.items())
    names = [loop for _, loop, _ in periods]
    sets = [found for n in range(1, len(names) + 1) for found in itertools.combinations(names, n)]
    return tuple((at, by) for at, _, by in periods), tuple(
        tuple(form(phase, loops, innermost) for phase in summary.phases.along(known))
        for known in sets
    )
