"""Inputs whose strides the pipeline fixes, such as images with interleaved colours.

A step along a dimension of stride 3 is a step of 3 elements along the contiguous dimension::

    data[x + 1, y, c]     # strides 3, unknown, 1:  the step (1, 0, 0) is (0, 0, 3) in memory
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.halide.ir.algorithm import Parameter
from tilewright.halide.ir.schedule import KnownValue

if TYPE_CHECKING:
    from tilewright.halide.analysis.summaries import Load, StageSummary

Strides = tuple[int | None, ...]


def fixed_strides(parameters: Iterable[Parameter]) -> dict[str, Strides]:
    """Return the strides of inputs whose contiguous dimension is not the first one."""
    return {p.name: p.strides for p in parameters if 1 in p.strides[1:] and p.strides[0] != 1}


def contiguous_dimensions(
    parameters: Sequence[Parameter], known: Iterable[KnownValue]
) -> dict[str, int]:
    """Return the contiguous dimension of each input, where it is not the first one.

    The pipeline fixes it, or it is among the values that the code is specialised on.
    """
    fixed = {name: strides.index(1) for name, strides in fixed_strides(parameters).items()}
    return fixed | {
        parameters[each.parameter].name: each.dimension for each in known if each.field == "stride"
    }


def with_fixed_strides(summary: StageSummary, parameters: Iterable[Parameter]) -> StageSummary:
    """Return a stage's summary with the strides of its inputs where the pipeline fixes them."""
    fixed = fixed_strides(parameters)
    if not any(load.callee in fixed for load in summary.loads):
        return summary
    loads = (replace(load, apart=fixed.get(load.callee, ())) for load in summary.loads)
    return replace(summary, loads=tuple(loads))


def steps_in_memory(load: Load, steps: tuple[float, ...]) -> tuple[float, ...]:
    """Return a load's step per dimension, with dimensions of fixed stride folded into one.

    A step along a dimension of stride n becomes n steps along the contiguous dimension.
    """
    if not load.apart or not steps:
        return steps
    known = [0 if stride is None else stride for stride in load.apart]
    found = [0.0 if stride else step for step, stride in zip(steps, known, strict=True)]
    found[load.apart.index(1)] = sum(a * b for a, b in zip(steps, known, strict=True))
    return tuple(found)
