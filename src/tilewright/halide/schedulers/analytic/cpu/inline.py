"""Trivial inlining: inline Funcs that are cheaper to recompute at each use than to store.

| symbol | meaning | unit |
|---|---|---|
| `together` | the readers at root with the Func inlined | cycles |
| `apart` | the Func and its readers at root | cycles |
| `moved` | transfer of the Func's values to the second cache and back | cycles |
| `bias` | a Func is inlined if together <= (apart + moved) x bias | 1 |

Inlining a Func keeps its reader's innermost block from computing a reduction in registers, unless
the reader can do so itself (see `nested`). `together` then includes what the reduction loses.

The time to cost a reader is proportional to its reads. For readers of very many Funcs, only the
cycles added by inlining are estimated (`_substituted_cycles`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.halide.analysis.bounds import Box
from tilewright.halide.analysis.inlining import TooLarge, may_inline
from tilewright.halide.analysis.summaries import Analysis, StageSummary
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.known_blocks import KnownBlocks
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.nested import NestedReduction, nest_reductions
from tilewright.halide.schedulers.analytic.cpu.register_block import value_bytes
from tilewright.halide.schedulers.analytic.cpu.staging import wrappers_of
from tilewright.halide.schedulers.analytic.grouping import MOST_MEMBERS


def inline_trivial(
    base: Analysis, model: CpuModel, bias: float, known: KnownBlocks | None = None
) -> Analysis:
    """Return the analysis with those Funcs inlined that are cheaper to recompute than to store.

    The readers with the Func's definition substituted, and common subexpressions shared, are
    compared with computing it once and moving it through the second cache.

    Args:
        base: the analysis with nothing inlined.
        model: the machine.
        bias: above 1 inlines more, below 1 less.
        known: a cache of register blocks and of costs at root.
    """
    algorithm = base.view.algorithm
    regions = base.regions
    known = KnownBlocks() if known is None else known

    def root_cycles(costs: CpuCosts, name: str) -> float:
        key = (name, costs.analysis.view.absorbed(name))
        if key not in known.roots:
            known.roots[key] = float(np.max(costs.func_cycles(name, regions[name])))
        return known.roots[key]

    current = CpuCosts(base, model, {}, known=known)
    guests = nest_reductions(base)
    wrappers = wrappers_of(algorithm)
    for func in algorithm.funcs:
        if func.name not in regions or not may_inline(algorithm, func) or func.name in wrappers:
            continue
        readers = current.analysis.view.consumers[func.name]
        if not readers or hopeless(current, func.name, readers):
            continue
        moved = _moved_cycles(current, func.name, regions[func.name])
        producers = current.analysis.view.producers
        wide = any(len(producers[reader]) > MOST_MEMBERS for reader in readers)
        if wide:
            alone = root_cycles(current, func.name)
            if _substituted_cycles(current, func.name, readers, alone) > (alone + moved) * bias:
                continue
        proposal = CpuCosts(current.analysis.toggled(func.name), model, {}, known=known)
        if not _stays_small(proposal, readers):
            continue
        apart = together = 0.0
        if not wide:
            try:
                together = sum(root_cycles(proposal, r) for r in readers)
            except TooLarge:
                continue
            apart = root_cycles(current, func.name)
            apart += sum(root_cycles(current, r) for r in readers)
        hosted = nest_reductions(proposal.analysis)
        lost = [name for name, nest in guests.items() if nest.host == func.name != name]
        together += sum(_unnested_cycles(current, g, guests[g]) for g in lost if g not in hosted)
        if together <= (apart + moved) * bias:
            current, guests = proposal, hosted
    return current.analysis


def _stays_small(costs: CpuCosts, readers: Sequence[str]) -> bool:
    """Return whether the readers' expressions are below `SEARCH.largest_expression`."""
    try:
        sizes = [_size(s) for r in readers for s in costs.analysis.summaries(r)]
    except TooLarge:
        return False
    return max(sizes) <= SEARCH.largest_expression


def _unnested_cycles(costs: CpuCosts, name: str, nest: NestedReduction) -> float:
    """Return the cycles that a reduction takes more outside the innermost block of its reader."""
    analysis, region = costs.analysis, costs.analysis.regions[name]
    inside = CpuCosts(analysis, costs.model, {name: nest})
    lost = costs.func_cycles(name, region) - inside.func_cycles(name, region)
    return max(0.0, float(np.max(lost))) + _moved_cycles(costs, name, region)


def _moved_cycles(costs: CpuCosts, name: str, region: Box) -> float:
    """Return cycles to move a Func at root to the second-level cache and back."""
    types = costs.analysis.view.by_name[name].types
    moved = value_bytes(types) * math.prod(float(np.max(i.extent)) for i in region)
    return costs.model.constants.round_trips * moved / costs.model.l2_rate


def _size(summary: StageSummary) -> int:
    """Return the number of operations and loads of a stage."""
    return sum(op.count for op in summary.ops) + len(summary.loads)


def _substituted_cycles(costs: CpuCosts, name: str, readers: Sequence[str], alone: float) -> float:
    """Return cycles to recompute a Func at each read, without sharing between reads.

    The cost per value is that at root, where the whole Func takes `alone` cycles. The result is
    infinite if a reader would become too large.
    """
    analysis = costs.analysis
    size = max(_size(summary) for summary in analysis.summaries(name))
    each = alone / _points(analysis.regions[name])
    total = 0.0
    for reader in readers:
        for summary in analysis.summaries(reader):
            reads = sum(access.count for access in summary.reads(name))
            if _size(summary) + reads * size > SEARCH.largest_expression:
                return math.inf
            total += reads * each * _points(analysis.regions[reader])
    return total


def _points(region: Box) -> float:
    """Return the number of points in a region, at least 1."""
    return max(1.0, math.prod(float(np.max(interval.extent)) for interval in region))


def hopeless(costs: CpuCosts, name: str, readers: Sequence[str]) -> bool:
    """Return whether the Func and a reader are large stencils: inlining is not worth a trial."""
    operations = max(sum(op.count for op in s.ops) for s in costs.analysis.summaries(name))
    return operations > SEARCH.hopeless_operations and any(
        sum(access.count for access in summary.reads(name)) > SEARCH.hopeless_reads
        for reader in readers
        for summary in costs.analysis.summaries(reader)
    )
