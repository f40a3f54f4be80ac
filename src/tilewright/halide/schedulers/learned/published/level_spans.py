"""The representative iteration of a level of CPU loops, as the scheduler of Adams 2019 picks it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.halide.analysis.bounds import Bound
from tilewright.halide.schedulers.learned.published.pipeline import (
    Flag,
    LoopSpan,
    Spans,
    StageNode,
    both,
    ceil_div,
    floor_div,
)


def middle(around: Spans, vector_loop: int, lanes: Bound) -> Spans:
    """Return the middle iteration, and in the vectorised loop all lanes of the middle vector."""
    spans = []
    for i, span in enumerate(around):
        if i == vector_loop:
            lo = span.lo + lanes * floor_div(ceil_div(span.extent, lanes), 2.0)
            spans.append(LoopSpan(lo, lo + lanes - 1.0, True))
        else:
            lo = span.lo + floor_div(span.extent, 2.0)
            spans.append(LoopSpan(lo, lo, True))
    return tuple(spans)


def tile(outer: Spans, size: Sequence[Bound], stage: StageNode, parallel: bool) -> Spans:
    """Return the loops in the middle iteration of a level around further levels."""
    spans = []
    for i, (span, count) in enumerate(zip(outer, size, strict=True)):
        inner = ceil_div(span.extent, count)
        lo = span.lo + floor_div(count, 2.0) * inner
        constant: Flag = either(span.constant, count > 1.0)
        if parallel:
            constant = either(span.constant, both(count > 1.0, stage.pure[i]))
        elif stage.index:
            constant = both(constant, either(inner == 1.0, count == 1.0))
        spans.append(LoopSpan(lo, lo + inner - 1.0, constant))
    return tuple(spans)


def either(a: Flag, b: Flag) -> Flag:
    """Return where one of both holds."""
    if isinstance(a, bool) and isinstance(b, bool):
        return a or b
    return np.logical_or(a, b)
