"""Limits of extents that a schedule sets directly, apart from splits.

``bound_extent`` promises how many coordinates of a Func are computed, ``align_bounds`` and
``align_extent`` widen that, ``bound_storage`` and ``fold_storage`` limit the elements stored at a
time. Halide checks the promises and limits when the pipeline runs. One that depends on the sizes of
the outputs is a requirement; one that holds at every size is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tilewright.halide.analysis.bounds import Box, Interval
from tilewright.halide.analysis.computed import Computed
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Algorithm, Span
from tilewright.halide.ir.schedule import FuncSchedule, Schedule

# Limits are checked at the estimates and at this many times the extents, in all dimensions.
_SCALES = (1.0, 2.0, 1024.0)
# A dimension of an output without an estimate, in points.
_UNKNOWN = Span(0, 64)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on one dimension of a Func, by position: the `number`, and its kind.

    ``promised`` is the computed extent, ``aligned`` a divisor of the extent, and ``stored`` the
    maximum number of elements stored at a time.
    """

    func: int
    dimension: int
    kind: Literal["promised", "aligned", "stored"]
    number: int
    reason: str


def limited(schedule: Schedule, algorithm: Algorithm) -> Iterator[Limit]:
    """Yield the limits that some size of the outputs, as estimated or larger, does not meet.

    `algorithm` has the schedule's clones. Promises of outputs are always included, as are limits
    that cannot be computed.
    """
    limits = [limit for entry in schedule.funcs for limit in _written(entry)]
    if not limits:
        return
    computed = _computed(schedule, algorithm)
    outputs = {algorithm.order[name] for name in algorithm.outputs}
    for limit in limits:
        if limit.kind == "aligned" or limit.func in outputs:
            yield limit
            continue
        with np.errstate(invalid="ignore"):
            wanted = np.asarray(computed.wanted(limit.func)[limit.dimension])
            if not bool(np.all(wanted <= limit.number)):
                yield limit


def _written(entry: FuncSchedule) -> Iterator[Limit]:
    """Yield every limit that one Func's schedule sets."""
    for bounds in entry.bounds:
        if bounds.extent:
            reason = f"bound_extent promises {bounds.extent}"
            yield Limit(entry.func, bounds.dimension, "promised", bounds.extent, reason)
        if bounds.modulus > 1:
            start = "" if bounds.remainder is None else f" from {bounds.remainder}"
            reason = f"bounds aligned to {bounds.modulus}{start}"
            yield Limit(entry.func, bounds.dimension, "aligned", bounds.modulus, reason)
    for dim in entry.storage:
        if dim.bound:
            reason = f"storage bound to {dim.bound}"
            yield Limit(entry.func, dim.dimension, "stored", dim.bound, reason)
        if dim.fold:
            reason = f"storage folded to {dim.fold}"
            yield Limit(entry.func, dim.dimension, "stored", dim.fold, reason)


def _computed(schedule: Schedule, algorithm: Algorithm) -> Computed:
    """Return the extents computed at a time, at the sizes tried."""
    boxes: dict[str, Box] = {}
    scales = np.array(_SCALES)
    for name in algorithm.outputs:
        func = algorithm.by_name[name]
        box = []
        for arg in func.args:
            span = func.estimates.get(arg, _UNKNOWN)
            extent = span.extent * (np.ones_like(scales) if arg in func.bounds else scales)
            box.append(Interval(np.full_like(scales, span.min), span.min + extent - 1.0))
        boxes[name] = tuple(box)
    return Computed(schedule, Analysis(View(algorithm), boxes, algorithm.symbols))
