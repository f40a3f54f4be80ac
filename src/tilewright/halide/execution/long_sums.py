"""Partial sums for long sums of floats, whose rounding one by one is larger than the tolerance.

A float32 that adds N values one by one loses up to about 0.15 N 2^-24 of the sum: 0.1% for squares
of two million values, several percent for eight million. Sums of partial sums lose far less
(Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., Section 4.2), as schedules with
vectors or parallel parts do. The plain reference adds one by one; a schedule whose answers differ
from it is right if they agree with those of partial sums.

A schedule with few parts still adds many values one by one. If its answers are close to those of
partial sums, both run again on inputs that are mostly zeros: sums of few values that are not zero
lose little in any order, and every one of these values counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import halide as hl

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.ir.algorithm import Algorithm, Const, Expr, Func, Stage, Variable
from tilewright.halide.ir.associativity import Combiner, combiner

# Values that are added one by one; more are added in parts (chosen: loses less than 1e-4 of the sum
# of float32, 6e-4 if all values are equal).
_MOST_TERMS = 1 << 16
_MOST_PARTS = 4096  # per value of a Func (chosen: 16 million values in sums of 4096)
_PARTIAL_VALUES = 1 << 22  # most partial sums of a Func, for the memory (chosen: 16 MB of float32)
# Relative differences below it may come from the rounding of long sums (chosen: a float32 that adds
# a million equal values one by one is 1% off).
CLOSE_ANSWERS = 1e-2
# Values that are not zero per sum of mostly zeros (chosen: in any order they lose 7e-5 at most).
_FEW_TERMS = 1 << 13


def has_long_sums(algorithm: Algorithm) -> bool:
    """Return whether `split_long_sums` changes a Func of the pipeline."""
    free = (func for func in algorithm.funcs if not (func.fixed or func.scheduled))
    return any(next(_long_sums(algorithm, func), None) for func in free)


def share_of_few_terms(algorithm: Algorithm) -> float:
    """Return the share of inputs at which the longest sum has few terms that are not zero."""
    sums = [sum_ for func in algorithm.funcs for sum_ in _long_sums(algorithm, func)]
    longest = max((math.prod(extents) for _, extents in sums), default=1.0)
    return min(1.0, _FEW_TERMS / longest)


def split_long_sums(algorithm: Algorithm, func: Func, live: Any) -> None:
    """Compute partial sums of a Func's long sums of floats, of contiguous parts of their domains.

    Args:
        algorithm: the pipeline; its estimates give the sizes.
        func: one of its Funcs.
        live: the same Func in Halide.
    """
    for stage, extents in _long_sums(algorithm, func):
        _split(live, stage.index - 1, extents, _parts(algorithm, func))


def _parts(algorithm: Algorithm, func: Func) -> int:
    """Return the number of partial sums per value of a Func."""
    view = View(algorithm)
    region = Analysis(view, estimated_boxes(view), algorithm.symbols).regions.get(func.name, ())
    values = math.prod(float(interval.extent) for interval in region)
    return int(max(2, min(_MOST_PARTS, _PARTIAL_VALUES / max(values, 1))))


def _long_sums(algorithm: Algorithm, func: Func) -> Iterator[tuple[Stage, list[float]]]:
    """Yield the updates to split, with the iterations of their reduction loops."""
    for stage in func.stages[1:]:
        extents = [_extent(rvar.extent, algorithm) for rvar in stage.rvars]
        if math.prod(extents) > _MOST_TERMS and _is_sum(stage):
            yield stage, extents


def _is_sum(stage: Stage) -> bool:
    """Return whether an update adds floats."""
    operator = combiner(stage)
    return isinstance(operator, Combiner) and any(
        name == "add" and kind.code in ("float", "bfloat")
        for name, kind in zip(operator.names, operator.types, strict=True)
    )


def _extent(e: Expr, algorithm: Algorithm) -> float:
    """Return the iterations of a loop, by the estimates; 1 if they are not known."""
    if isinstance(e, Const) and isinstance(e.value, int):
        return float(e.value)
    if isinstance(e, Variable):
        return float(algorithm.symbols.get(e.name, 1))
    return 1.0


def _split(live: Any, index: int, extents: list[float], parts: int) -> None:
    """Split the outermost long loop of update number `index` into at most `parts` parts."""
    place = max(i for i, extent in enumerate(extents) if extent > 1)
    loop = live.rvars(index)[place]
    if extents[place] > parts:
        outer, inner = hl.RVar("part_of_sum"), hl.RVar("in_part_of_sum")
        size = math.ceil(extents[place] / parts)
        live.update(index).split(loop, outer, inner, size, hl.TailStrategy.GuardWithIf)
        loop = outer
    partial = live.update(index).rfactor([(loop, hl.Var("partial_sum"))])
    partial.compute_root()
