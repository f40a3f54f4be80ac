"""Buffers with known strides, such as images with interleaved colours.

A step along a dimension of stride 3 is a step of 3 elements along the contiguous dimension::

    data[x + 1, y, c]     # strides 3, unknown, 1:  the step (1, 0, 0) is (0, 0, 3) in memory
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.halide.ir.algorithm import Algorithm, Func, Span
from tilewright.halide.ir.schedule import KnownValue

if TYPE_CHECKING:
    from tilewright.halide.analysis.summaries import Load, StageSummary

Strides = tuple[int | None, ...]

# Up to this stride Halide 21 loads dense vectors and shuffles (`CpuConstants.longest_stride`).
_MOST_PLANES = 4

# A stage with more loads of one interleaved buffer, such as a stencil, shuffles the same values
# repeatedly: nine loads of 64 bytes took twice the time of a copy, and a minute to compile.
_MOST_LOADS = 4


def interleaved_planes(spans: Sequence[Span | None], strides: Strides) -> int | None:
    """Return how many planes are interleaved in a buffer with these estimates; None if none are.

    The buffer is assumed to be dense, unless the pipeline fixes its strides.
    """
    if len(spans) < 2 or spans[0] is None or not 2 <= spans[0].extent <= _MOST_PLANES:
        return None
    dense = (1, spans[0].extent)
    fits = all(s in (None, n) for s, n in zip(strides, dense, strict=False))
    return spans[0].extent if fits else None


def fixes(strides: Strides, dimension: int) -> bool:
    """Return whether the pipeline fixes the stride of a dimension."""
    return dimension < len(strides) and strides[dimension] is not None


def interleaved_output(algorithm: Algorithm, func: Func) -> Span | None:
    """Return the range of the planes that an output interleaves; None if it does not.

    Tuples are left out: conditions are on the first of their buffers only.
    """
    if func.name not in algorithm.outputs or len(func.types) > 1:
        return None
    spans = [func.estimates.get(arg) for arg in func.args]
    return spans[0] if interleaved_planes(spans, func.strides) else None


def known_strides(
    algorithm: Algorithm, known: Iterable[KnownValue], outputs: bool
) -> dict[str, Strides]:
    """Return the strides of inputs that the pipeline fixes or `known` values give.

    Only of inputs with a known stride other than 1. With `outputs`, also those of interleaved
    outputs, for which code is specialised.
    """
    found: dict[str, Strides] = {
        p.name: p.strides
        for p in algorithm.parameters
        if 1 in p.strides and any(stride not in (None, 1) for stride in p.strides)
    }
    for each in known:
        if each.field == "stride" and each.value > 1:
            parameter = algorithm.parameters[each.parameter]
            found[parameter.name] = (1, each.value, *[None] * (parameter.dimensions - 2))
    for name in algorithm.outputs if outputs else ():
        func = algorithm.by_name[name]
        planes = interleaved_output(algorithm, func)
        if planes is not None:
            found[name] = (1, planes.extent, *[None] * (len(func.args) - 2))
    return found


def contiguous_axes(algorithm: Algorithm, known: Iterable[KnownValue]) -> dict[str, int]:
    """Return the contiguous dimension of each input, where it is not the first one.

    The pipeline fixes it, or it is among the values that the code is specialised on.
    """
    fixed = {p.name: p.strides.index(1) for p in algorithm.parameters if 1 in p.strides}
    fixed |= {
        algorithm.parameters[each.parameter].name: each.dimension
        for each in known
        if each.field == "stride" and each.value == 1
    }
    return {name: dimension for name, dimension in fixed.items() if dimension}


def laid_out(summary: StageSummary, known: Mapping[str, Strides]) -> StageSummary:
    """Return a stage's summary with the known strides of what it reads and writes.

    Of interleaved planes that it reads more than `_MOST_LOADS` times, strides are left unknown, so
    that a copy of them is cheaper.
    """
    if summary.func not in known and not any(load.callee in known for load in summary.loads):
        return summary
    counts = Counter(load.callee for load in summary.loads)
    loads = []
    for load in summary.loads:
        strides = known.get(load.callee, ())
        few = strides[:1] != (1,) or counts[load.callee] <= _MOST_LOADS
        loads.append(replace(load, apart=strides if few else ()))
    return replace(summary, loads=tuple(loads), apart=known.get(summary.func, ()))


def steps_in_memory(load: Load, steps: tuple[float, ...]) -> tuple[float, ...]:
    """Return a load's step per dimension, with dimensions of known stride folded into one.

    A step along a dimension of stride n becomes n steps along the contiguous dimension.
    """
    if not load.apart or not steps:
        return steps
    known = [0 if stride is None else stride for stride in load.apart]
    found = [0.0 if stride else step for step, stride in zip(steps, known, strict=True)]
    found[load.apart.index(1)] = sum(a * b for a, b in zip(steps, known, strict=True))
    return tuple(found)
