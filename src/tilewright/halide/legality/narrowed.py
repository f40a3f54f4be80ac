"""Find Funcs whose required region Halide may narrow because they are read under conditions.

How many coordinates meet a condition may depend on loops further out. A split that fits in the
region without the condition may then reach beyond the one that Halide requires.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from tilewright.halide.analysis.bounds import Box
from tilewright.halide.analysis.certain_regions import CertainRegions
from tilewright.halide.analysis.guarded_reads import guarded_reads, narrowing_predicates
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Algorithm, Stage

# First coordinates of outputs and inputs to try, relative to the estimates: conditions may not hold
# there, and regions may depend on where an input begins.
FAR = (-100_003.0, 100_003.0)


@functools.lru_cache(maxsize=8)
def narrowed(algorithm: Algorithm) -> frozenset[int]:
    """Return the positions of the Funcs whose region a condition may narrow.

    These are Funcs that are read under a condition, unless the same stage also reads the same
    coordinates without it, and all that such Funcs read.
    """
    found: set[str] = set()
    for func in reversed(algorithm.funcs):
        for stage in func.stages:
            if func.name in found:
                found |= {call.name for call in stage.calls if call.name != func.name}
            else:
                found |= {name for name in _under_conditions(stage) if name != func.name}
    return frozenset(algorithm.order[name] for name in found if name in algorithm.order)


def least_regions(
    algorithm: Algorithm, boxes: Mapping[str, Box], symbols: Mapping[str, float]
) -> Analysis:
    """Return the analysis of the regions that Halide requires at least."""
    kind = CertainRegions if narrowed(algorithm) else Analysis
    return kind(View(algorithm), boxes, symbols)


def _under_conditions(stage: Stage) -> set[str]:
    """Return the Funcs and images that a stage reads somewhere only if a condition holds."""
    if narrowing_predicates(stage):
        return {call.name for call in stage.calls}
    return {call.name for call, _ in guarded_reads(stage)}
