"""Single-precision matrix multiplication.

``out(x, y) = sum over k of A(x, k) * B(k, y)``. Published as ``apps/cuda_mat_mul`` and as the
``sgemm`` of ``apps/linear_algebra`` of Halide; part of the suites of Mullapudi 2016, Adams 2019,
Sioutas 2020 (1536x2560x1536) and Anderson 2021.

Usage: ``tilewright schedule examples/matmul.py:matmul`` (or ``:square``)
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import halide as hl
import numpy as np

SMALL: dict[str, Any] = {"width": 128, "height": 192, "depth": 70}

HAND_SOURCE = {
    "cpu": "apps/linear_algebra/src/blas_l3_generators.cpp at v21.0.0",
    "gpu": "apps/cuda_mat_mul/mat_mul_generator.cpp at v21.0.0",
}


def _algorithm(width: int, height: int, depth: int, panel: int = 0) -> SimpleNamespace:
    """The Funcs; with `panel`, A is read from a copy in panels that are `panel` wide in x."""
    a = hl.ImageParam(hl.Float(32), 2, "A")
    b = hl.ImageParam(hl.Float(32), 2, "B")
    x, y, i, p = hl.vars("x y i p")
    k = hl.RDom([(0, depth)], "k")
    left, padded, panels = a, None, None
    if panel:
        left, padded, panels = (hl.Func(name) for name in ("left", "padded", "panels"))
        padded[x, y] = hl.BoundaryConditions.constant_exterior(a, 0.0)[x, y]
        panels[i, y, p] = padded[p * panel + i, y]
        left[x, y] = panels[x % panel, y, x // panel]
    prod = hl.Func("prod")
    prod[x, y] = 0.0
    prod[x, y] += left[x, k] * b[k, y]
    out = hl.Func("out")
    out[x, y] = prod[x, y]

    a.set_estimates([(0, width), (0, depth)])
    b.set_estimates([(0, depth), (0, height)])
    out.set_estimates([(0, width), (0, height)])
    return SimpleNamespace(
        a=a, b=b, padded=padded, panels=panels, prod=prod, out=out, x=x, y=y, k=k, i=i, p=p
    )


def matmul(width: int = 1536, height: int = 2560, depth: int = 1536) -> hl.Pipeline:
    """The pipeline, unscheduled."""
    return hl.Pipeline(_algorithm(width, height, depth).out)


def square(size: int = 2048) -> hl.Pipeline:
    """The pipeline for square matrices, unscheduled."""
    return matmul(size, size, size)


def hand(
    target: hl.Target, width: int = 1536, height: int = 2560, depth: int = 1536
) -> hl.Pipeline:
    """The pipeline with the schedule that an expert chose for `target`.

    The sizes are compiled in; width and height have to be multiples of its tiles (64 is enough).
    """
    if target.has_gpu_feature():
        f = _algorithm(width, height, depth)
        _schedule_gpu(f, width, height, depth)
    else:
        lanes = target.natural_vector_size(hl.Float(32))
        f = _algorithm(width, height, depth, panel=2 * lanes)
        _schedule_cpu(f, width, height, depth, 2 * lanes)
    return hl.Pipeline(f.out)


def _schedule_cpu(f: SimpleNamespace, width: int, height: int, depth: int, s: int) -> None:
    # A piece of s x 4 of the result (s is two vectors) lives in registers for the whole sum;
    # pieces are walked in tiles of 2s x 2s, and A is packed so that a piece reads it in order.
    x, y, i, p = f.x, f.y, f.i, f.p
    xi, yi, x0, y0, x1, y1, t, po, pi = hl.vars("xi yi x0 y0 x1 y1 t po pi")
    (
        f.out.tile(x, y, x1, y1, x, y, 2 * s, 2 * s, hl.TailStrategy.GuardWithIf)
        .tile(x, y, xi, yi, s, 4)
        .tile(x, y, x0, y0, x, y, 1, s // 4)
        .fuse(y1, x1, t)
        .parallel(t)
        .bound(f.x, 0, width)
        .bound(f.y, 0, height)
    )
    f.panels.compute_root().split(y, po, pi, s).reorder(i, pi, p, po).unroll(i).vectorize(pi)
    if width >= 256 and depth >= 256:
        f.panels.parallel(po, 4)
    f.padded.compute_at(f.panels, p).vectorize(x).unroll(y)
    (
        f.prod.compute_at(f.out, x)
        .bound_extent(y, 4)
        .unroll(y)
        .bound_extent(x, s)
        .vectorize(x)
        .update()
        .reorder(x, y, f.k)
        .unroll(y)
        .unroll(f.k, 2)
        .vectorize(x)
    )


def _schedule_gpu(f: SimpleNamespace, width: int, height: int, depth: int) -> None:
    # Blocks of 16x2 threads, each with 4x8 sums in registers.
    x, y = f.x, f.y
    xi, yi, xii, yii = hl.vars("xi yi xii yii")
    (
        f.out.bound(x, 0, width)
        .bound(y, 0, height)
        .tile(x, y, xi, yi, 64, 16)
        .tile(xi, yi, xii, yii, 4, 8)
        .gpu_blocks(x, y)
        .gpu_threads(xi, yi)
        .unroll(xii)
        .unroll(yii)
    )
    (
        f.prod.compute_at(f.out, xi)
        .vectorize(x)
        .unroll(y)
        .update()
        .reorder(x, y, f.k)
        .vectorize(x)
        .unroll(y)
        .unroll(f.k, 8)
    )
    for operand in (f.a, f.b):
        operand.in_().compute_at(f.prod, f.k).vectorize(hl._0).unroll(hl._1)
    # Aligned rows of known length let the loads be whole vectors.
    for parameter, row in ((f.a, width), (f.b, depth), (f.out.output_buffer(), width)):
        parameter.set_host_alignment(16)
        parameter.dim(0).set_bounds(0, row)
        parameter.dim(1).set_stride(row)


def random_inputs(
    width: int = 1536, height: int = 2560, depth: int = 1536, seed: int = 0
) -> dict[str, Any]:
    """Random inputs by name; arrays have x as their first axis."""
    rng = np.random.default_rng(seed)
    return {
        "A": np.asfortranarray(rng.random((width, depth), dtype=np.float32)),
        "B": np.asfortranarray(rng.random((depth, height), dtype=np.float32)),
    }


def reference(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """The result by NumPy, axes (x, y), summed in double precision."""
    product = inputs["A"].astype(np.float64) @ inputs["B"].astype(np.float64)
    return (product.astype(np.float32),)
