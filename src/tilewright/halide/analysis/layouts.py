"""Inputs whose strides the pipeline fixes, such as images with interleaved colours.

A step along a dimension of stride 3 is a step of 3 elements along the contiguous dimension. Loads
are described in these terms, so that all who read strides see what lies next to what::

    data[x + 1, y, c]     # strides 3, unknown, 1:  the step (1, 0, 0) is (0, 0, 3)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.halide.ir.algorithm import Parameter

if TYPE_CHECKING:
    from tilewright.halide.analysis.summaries import Load, StageSummary

Strides = tuple[int | None, ...]


def fixed_strides(parameters: Sequence[Parameter]) -> dict[str, Strides]:
    """Return the strides of the inputs of which a later dimension is the contiguous one."""
    return {p.name: p.strides for p in parameters if 1 in p.strides[1:] and p.strides[0] != 1}


def along_memory(summary: StageSummary, fixed: Mapping[str, Strides]) -> StageSummary:
    """Return a stage's summary with the loads of inputs of fixed strides as steps in memory."""
    if not any(load.callee in fixed for load in summary.loads):
        return summary
    loads = (_along(load, fixed[load.callee]) if load.callee in fixed else load
             for load in summary.loads)  # fmt: skip
    return replace(summary, loads=tuple(loads))


def _along(load: Load, strides: Strides) -> Load:
    inner = strides.index(1)
    found = {
        loop: None if steps is None else _steps(steps, strides, inner)
        for loop, steps in load.strides.items()
    }
    return replace(load, strides=found)


def _steps(steps: tuple[float, ...], strides: Strides, inner: int) -> tuple[float, ...]:
    known = [0 if stride is None else stride for stride in strides]
    apart = [0.0 if stride else step for step, stride in zip(steps, known, strict=True)]
    apart[inner] = sum(step * stride for step, stride in zip(steps, known, strict=True))
    return tuple(apart)
