"""Pipelines that show what a device can do at best, and their schedules by hand.

Worker processes load this file by itself: it imports nothing beside Halide.
"""

from __future__ import annotations

from typing import Any

import halide as hl

# Multiply-adds a value.
CHAIN = 256


def copy(size: int) -> Any:
    """Copies `size` floats."""
    return _pointwise(size, lambda value: value + 1.0)


def chain(size: int) -> Any:
    """Of every float a chain of multiply-adds that nothing can shorten."""

    def compute(value: Any) -> Any:
        result = value
        for _ in range(CHAIN):
            result = result * value + 0.5
        return result

    return _pointwise(size, compute)


def _pointwise(size: int, compute: Any) -> Any:
    x = hl.Var("x")
    image = hl.ImageParam(hl.Float(32), 1, "input")
    image.set_estimates([(0, size)])
    out = hl.Func("output")
    out[x] = compute(image[x])
    out.set_estimates([(0, size)])
    return hl.Pipeline(out)


def copy_by_hand(target: Any, size: int) -> Any:
    """The copy, a thread an element."""
    return _by_hand(copy(size))


def chain_by_hand(target: Any, size: int) -> Any:
    """The chain, a thread an element."""
    return _by_hand(chain(size))


def _by_hand(pipeline: Any) -> Any:
    out = pipeline.outputs()[0]
    block, thread = hl.Var("block"), hl.Var("thread")
    out.gpu_tile(out.args()[0], block, thread, 256)
    return pipeline
