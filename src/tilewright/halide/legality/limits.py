"""Find the limits on extents that a schedule sets by directives other than splits.

``bound_extent`` promises the number of coordinates of a Func that are computed. ``align_bounds``
and ``align_extent`` widen the computed region. ``bound_storage`` and ``fold_storage`` limit the
number of elements stored at a time. Halide checks promises and limits when the pipeline runs. A
limit that some output size violates is a requirement on the caller's sizes.
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

# Limits are checked at the estimated extents times each of these factors, in all dimensions.
_SCALES = (1.0, 2.0, 1024.0)
# The assumed range of an output's dimension without an estimate, in coordinates.
_UNKNOWN = Span(0, 64)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on one dimension of a Func.

    The meaning of `number` depends on `kind`: the computed extent (``promised``), a divisor of the
    extent (``aligned``), or the maximum number of elements stored at a time (``stored``). `func` is
    a position in realisation order, and `reason` quotes the directive.
    """

    func: int
    dimension: int
    kind: Literal["promised", "aligned", "stored"]
    number: int
    reason: str


def limited(schedule: Schedule, algorithm: Algorithm) -> Iterator[Limit]:
    """Yield the limits that the estimated output size, or a larger one, violates.

    Limits on outputs, alignments and limits that cannot be evaluated are always included.
    `algorithm` has the schedule's clones.
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
            wanted = np.asarray(computed.extents(limit.func)[limit.dimension])
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
    """Return the extents computed at a time, at each of the sizes to check."""
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
