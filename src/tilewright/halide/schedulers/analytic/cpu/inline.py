"""Trivial inlining: Funcs that cost less recomputed at every use than kept.

| symbol | meaning | unit |
|---|---|---|
| together | the readers with the Func substituted, at root | cycles |
| apart | the Func at root, its readers, and its values to and from the second cache | cycles |
| bias | inlined where together <= apart x bias | 1 |
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.halide.analysis.inlining import TooLarge, may_inline
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts, KnownBlocks
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.register_block import value_bytes


def inline_trivial(
    base: Analysis, model: CpuModel, bias: float, known: KnownBlocks | None = None
) -> Analysis:
    """Funcs that cost less recomputed at every use than stored and loaded.

    Each Func's uses are costed with its definition substituted and common subexpressions
    shared, against computing it once and moving it through the second-level cache. A `bias`
    above 1 inlines more. Returns the analysis with those Funcs inlined; `known` has blocks
    that are known already.
    """
    algorithm = base.view.algorithm
    regions = base.regions
    known = KnownBlocks() if known is None else known
    cycles: dict[tuple[str, frozenset[str]], float] = {}

    def root_cycles(costs: CpuCosts, name: str) -> float:
        key = (name, costs.analysis.view.absorbed(name))
        if key not in cycles:
            cycles[key] = float(np.max(costs.func_cycles(name, regions[name])))
        return cycles[key]

    current = CpuCosts(base, model, {}, known=known)
    for func in algorithm.funcs:
        if func.name not in regions or not may_inline(algorithm, func):
            continue
        readers = current.analysis.view.consumers[func.name]
        if not readers:
            continue
        if hopeless(current, func.name, readers):
            continue
        proposal = CpuCosts(current.analysis.toggled(func.name), model, {}, known=known)
        try:
            together = sum(root_cycles(proposal, r) for r in readers)
            size = max(
                sum(op.count for op in s.ops) + len(s.loads)
                for r in readers
                for s in proposal.analysis.summaries(r)
            )
        except TooLarge:
            continue
        if size > SEARCH.largest_expression:
            continue
        apart = root_cycles(current, func.name)
        apart += sum(root_cycles(current, r) for r in readers)
        moved = value_bytes(func.types) * math.prod(
            float(np.max(i.extent)) for i in regions[func.name]
        )
        apart += model.constants.round_trips * moved / model.l2_rate
        if together <= apart * bias:
            current = proposal
    return current.analysis


def hopeless(costs: CpuCosts, name: str, readers: Sequence[str]) -> bool:
    """Whether a stencil is read by a stencil: not worth the time to write it out."""
    operations = max(sum(op.count for op in s.ops) for s in costs.analysis.summaries(name))
    return operations > SEARCH.hopeless_operations and any(
        sum(access.count for access in summary.reads(name)) > SEARCH.hopeless_reads
        for reader in readers
        for summary in costs.analysis.summaries(reader)
    )
