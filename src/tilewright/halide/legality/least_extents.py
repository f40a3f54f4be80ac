"""Find the smallest extents of Funcs that are computed at a time, over all output sizes.

Many extents between the inputs and outputs of a pipeline do not depend on the size of the outputs.
For example, a reduction over 64 channels reads 64 channels of its producer even for a single point.
A split of this dimension by at most 64 needs no second nest for small outputs.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from tilewright.halide.analysis.bounds import Interval
from tilewright.halide.analysis.computed import Computed
from tilewright.halide.ir.algorithm import Algorithm, Func, Parameter, Span, parameters_used
from tilewright.halide.ir.nest import guarded
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.legality.narrowed import FAR, least_regions, narrowed
from tilewright.halide.legality.sliding import partial_axes

# Offsets of the outputs' first coordinates to try: the regions of producers read at x / 2 depend on
# where the output starts.
_STARTS = np.arange(4.0)
_NEAR = 2 * len(_STARTS)  # from the first and from the last coordinates of the estimates
# Bounds of the inputs to try in addition to the estimates: first coordinates that are `FAR` away,
# and extents of a single element and of _LARGER times the estimate.
_LARGER = 4.0


@functools.lru_cache(maxsize=8)
def least_extents(schedule: Schedule, algorithm: Algorithm) -> Mapping[tuple[int, int], float]:
    """Return the smallest extents of Funcs that are computed at a time, over all output sizes.

    The result is the minimum over the outputs' starts and the parameter values that are tried. It
    is not proved for other parameter values. Funcs whose region a condition may narrow have the
    extents that are required for certain wherever the outputs start. Outputs, dimensions along
    which Funcs slide, and those without a known extent are omitted.

    Args:
        schedule: The schedule.
        algorithm: The algorithm with the schedule's clones.

    Returns:
        The extent by the Func's position and the dimension.
    """
    plain = replace(
        schedule,
        funcs=tuple(
            replace(entry, stages=tuple(guarded(nest) for nest in entry.stages))
            for entry in schedule.funcs
        ),
    )
    points = {
        name: tuple(_single_points(algorithm.by_name[name], arg))
        for name in algorithm.outputs
        for arg in (algorithm.by_name[name].args,)
    }
    conditional = narrowed(algorithm)
    found: dict[tuple[int, int], float] = {}
    with np.errstate(invalid="ignore", over="ignore"):
        for n, symbols in enumerate(_settings(algorithm)):
            analysis = least_regions(algorithm, points, symbols)
            for each, last in itertools.product(dict.fromkeys((schedule, plain)), (False, True)):
                computed = Computed(each, analysis, last=last)
                for entry in schedule.funcs:
                    if entry.compute.kind == "inline":
                        continue
                    tried = _NEAR + (len(FAR) if entry.func in conditional else 0)
                    for d, extent in enumerate(computed.extents(entry.func)):
                        at_points = np.broadcast_to(extent, (_NEAR + len(FAR),))
                        place, least = (entry.func, d), float(np.min(at_points[:tried]))
                        if n == 0 and each is schedule and not last:
                            found[place] = least
                        elif place in found:
                            found[place] = min(found[place], least)
    outputs = {algorithm.order[name] for name in algorithm.outputs}
    cut = partial_axes(schedule, algorithm)
    return {
        axis: least
        for axis, least in found.items()
        if axis[0] not in outputs and axis not in cut and least == least
    }


def _single_points(func: Func, args: tuple[str, ...]) -> Iterator[Interval]:
    """Yield, per dimension, the coordinates to try, or the promised bounds if any.

    They are the first and the last ones of the estimates: where coordinates are clamped, regions
    are smaller at the borders. The last ones are `FAR` away.
    """
    for arg in args:
        if arg in func.bounds:
            span = func.bounds[arg]
            count = _NEAR + len(FAR)
            yield Interval(np.full(count, float(span.min)), np.full(count, float(span.max)))
        else:
            span = func.estimates.get(arg, Span(0, len(_STARTS)))
            at = np.concatenate([span.min + _STARTS, span.max - _STARTS, span.min + np.array(FAR)])
            yield Interval(at, at)


def _settings(algorithm: Algorithm) -> Iterator[dict[str, float]]:
    """Yield the parameter values to try: the estimates, then changes of all used parameters."""
    estimated: dict[str, float] = dict(algorithm.symbols)
    yield estimated
    used = parameters_used(algorithm)
    if not used:
        return
    for first, share, value in ((FAR[0], 0.0, 0.0), (FAR[1], _LARGER, 0.5), (FAR[0], _LARGER, 2.0)):
        other = dict(estimated)
        for parameter in algorithm.parameters:
            _change(other, parameter, used, (first, share, value))
        yield other


def _change(
    symbols: dict[str, float],
    parameter: Parameter,
    used: frozenset[str],
    change: tuple[float, float, float],
) -> None:
    """Change the used bounds of an input, or a scalar, in `symbols`.

    `change` has the first coordinate, the factor of extents and the factor of scalars.
    """
    first, share, value = change
    if not parameter.is_buffer:
        if parameter.name in used and parameter.name in symbols:
            whole = parameter.type.code in ("int", "uint")
            scaled = symbols[parameter.name] * value + (1.0 if value > 1 else 0.0)
            symbols[parameter.name] = float(int(scaled)) if whole else scaled
        return
    for d in range(parameter.dimensions):
        if f"{parameter.name}.min.{d}" in used:
            symbols[f"{parameter.name}.min.{d}"] = first
        extent = f"{parameter.name}.extent.{d}"
        if extent in used:
            symbols[extent] = max(1.0, symbols.get(extent, 0.0) * share)
