"""A chain of 32 five-by-five stencils on 16-bit pixels.

Every stage reads a 5x5 window of the stage before it, so fusing stages trades locality for
recomputation (the output needs 128 more columns and rows of the input). Published as
``apps/stencil_chain`` of Halide; part of the suites of Adams 2019, Sioutas 2020 (1536x2560)
and Anderson 2021.

Usage: ``tilewright schedule examples/stencil_chain.py:stencil_chain``
"""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import halide as hl
import numpy as np

SMALL: dict[str, Any] = {"width": 160, "height": 131}

HAND_SOURCE = {
    "cpu": "apps/stencil_chain/stencil_chain_generator.cpp at v21.0.0",
    "gpu": "apps/stencil_chain/stencil_chain_generator.cpp at v21.0.0",
}


def _algorithm(width: int, height: int, stencils: int) -> SimpleNamespace:
    pixels = hl.ImageParam(hl.UInt(16), 2, "input")
    x, y = hl.vars("x y")
    stages = [hl.BoundaryConditions.repeat_edge(pixels)]
    for s in range(stencils):
        stage = hl.Func(f"stage_{s}")
        previous = stages[-1]
        total = hl.u16(0)
        for i in range(-2, 3):
            for j in range(-2, 3):
                total += hl.u16((i + 3) * (j + 3)) * previous[x + i, y + j]
        stage[x, y] = total
        stages.append(stage)
    output = hl.Func("output")
    output[x, y] = stages[-1][x, y]

    pixels.set_estimates([(0, width), (0, height)])
    output.set_estimates([(0, width), (0, height)])
    return SimpleNamespace(stages=stages, output=output, x=x, y=y)


def stencil_chain(width: int = 1536, height: int = 2560, stencils: int = 32) -> hl.Pipeline:
    """The pipeline, unscheduled."""
    return hl.Pipeline(_algorithm(width, height, stencils).output)


def hand(
    target: hl.Target, width: int = 1536, height: int = 2560, stencils: int = 32
) -> hl.Pipeline:
    """The pipeline with the schedule that an expert chose for `target`."""
    f = _algorithm(width, height, stencils)
    if target.has_gpu_feature():
        _schedule_gpu(f)
    else:
        _schedule_cpu(f, target, width, height)
    return hl.Pipeline(f.output)


def _schedule_cpu(f: SimpleNamespace, target: hl.Target, width: int, height: int) -> None:
    # Groups of eleven stencils slide down sixteen big tiles; only the groups' ends are stored.
    lanes = target.natural_vector_size(hl.UInt(16))
    group_size = 11
    last = len(f.stages) - 1
    xo, yo, xi, yi, t = hl.vars("xo yo xi yi t")
    for j in range(last, 0, -group_size):
        end = f.output if j == last else f.stages[j]
        expansion = 4 * (last - j)
        (
            end.compute_root()
            .tile(f.x, f.y, xo, yo, xi, yi, (width + expansion) // 4, (height + expansion) // 4)
            .fuse(xo, yo, t)
            .parallel(t)
            .vectorize(xi, lanes)
        )
        for stage in f.stages[max(0, j - group_size + 1) : j]:
            stage.store_at(end, t).compute_at(end, yi).vectorize(stage.args()[0], lanes)


def _schedule_gpu(f: SimpleNamespace) -> None:
    # Every stencil is a kernel: its window of the stage before is staged in shared memory, and
    # from there, for each 2x2 piece of a thread, in registers.
    stages = [*f.stages[:-1], f.output]
    xi, yi, xii, yii = hl.vars("xi yi xii yii")
    for previous, stage in pairwise(stages):
        (
            stage.compute_root()
            .gpu_tile(f.x, f.y, xi, yi, 60, 12)
            .tile(xi, yi, xii, yii, 2, 2)
            .unroll(xii)
            .unroll(yii)
        )
        px, py = previous.args()
        (
            previous.in_()
            .compute_at(stage, f.x)
            .tile(px, py, xi, yi, 2, 2)
            .vectorize(xi)
            .unroll(yi)
            .gpu_threads(px, py)
        )
        (previous.in_().in_().compute_at(stage, xi).vectorize(px, 2).unroll(px).unroll(py))


def random_inputs(
    width: int = 1536, height: int = 2560, stencils: int = 32, seed: int = 0
) -> dict[str, Any]:
    """Random inputs by name; arrays have x as their first axis."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 1 << 16, (width, height), dtype=np.uint16)
    return {"input": np.asfortranarray(pixels)}


def reference(inputs: dict[str, Any], stencils: int = 32) -> tuple[np.ndarray, ...]:
    """The result by NumPy, axes (x, y); arithmetic wraps at 16 bits."""
    halo = 2 * stencils
    image = np.pad(inputs["input"], halo, mode="edge")
    for _ in range(stencils):
        w, h = image.shape[0] - 4, image.shape[1] - 4
        total = np.zeros((w, h), np.uint16)
        for i in range(5):
            for j in range(5):
                total += np.uint16((i + 1) * (j + 1)) * image[i : i + w, j : j + h]
        image = total
    return (image,)
