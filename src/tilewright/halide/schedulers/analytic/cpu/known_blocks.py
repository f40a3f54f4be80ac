"""A cache of the innermost blocks of stages and of their costs, by all that these depend on."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from tilewright.halide.analysis.summaries import StageSummary
from tilewright.halide.schedulers.analytic.cpu.operation_cycles import Innermost
from tilewright.halide.schedulers.analytic.cpu.register_block import Block


@dataclass(frozen=True)
class KnownBlocks:
    """A cache of innermost blocks and their costs.

    Neither depends on the inlining of other Funcs. The `CpuCosts` of one model and one storage
    order at the same sizes share the cache. Entries are kept by stage, for fast look-up, and by
    `form`, which other stages may share.
    """

    blocks: dict[Hashable, Block] = field(default_factory=dict)
    cycles: dict[Hashable, float] = field(default_factory=dict)
    forms: dict[StageSummary, Hashable] = field(default_factory=dict)

    def form_of(
        self, summary: StageSummary, loops: Mapping[int, str], innermost: Innermost
    ) -> Hashable:
        """Return the `form` of a stage, computed once for each stage."""
        known = self.forms.get(summary)
        if known is None:
            known = self.forms[summary] = form(summary, loops, innermost)
        return known


def form(summary: StageSummary, loops: Mapping[int, str], innermost: Innermost) -> Hashable:
    """Return all that the cost of a stage's blocks depends on, without names.

    The layers of a network only differ in names: stages of equal form have equal costs. Loops are
    numbered by their position in the stage. Of a callee, only its contiguous dimension matters, and
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
            for op in summary.ops
        ),
        summary.types,
        summary.scatter,
        summary.scans,
        summary.reorderable,
        innermost(summary.func),
    )
