"""The least that a pipeline must move and compute, whatever its schedule."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.halide.analysis.bounds import stage_env
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.ir.algorithm import Algorithm

# What becomes no instruction, or rarely one that counts.
FREE = frozenset(["cast", "reinterpret"])


def least_work(algorithm: Algorithm) -> dict[str, float]:
    """Bytes of all inputs and outputs, once each, and operations with every Func stored.

    A reduction's bounds that depend on data count as 16 iterations.
    """
    view = View(algorithm)
    analysis = Analysis(view, estimated_boxes(view), algorithm.symbols)
    moved = 0.0
    for parameter in algorithm.parameters:
        if parameter.is_buffer:
            extents = [span.extent for span in parameter.estimates if span is not None]
            moved += parameter.type.bytes * float(np.prod(extents))
    operations = 0.0
    for func in view.funcs:
        region = analysis.regions.get(func.name)
        if region is None:
            continue
        if func.name in algorithm.outputs:
            moved += func.bytes * float(np.prod([_count(part.extent) for part in region]))
        for stage, summary in zip(func.stages, analysis.summaries(func.name), strict=True):
            env = stage_env(func, stage, region, analysis.bounder)
            points = float(np.prod([_count(env[loop.name].extent) for loop in stage.loops]))
            each = sum(op.count for op in summary.ops if op.name not in FREE)
            operations += points * each
    return {"bytes": moved, "operations": operations}


def _count(extent: Any) -> float:
    value = float(np.max(extent))
    return value if np.isfinite(value) and value >= 1.0 else 16.0


def bound(work: dict[str, float], device: dict[str, Any] | None) -> float | None:
    """The seconds under which no schedule can be, on a device as `gpu.device` measured it."""
    if not device:
        return None
    moving = work["bytes"] / device["bytes_per_second"]
    return max(moving, work["operations"] / device["flops_per_second"])
