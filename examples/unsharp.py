"""Unsharp mask: sharpen by adding the difference between the luminance and its Gaussian blur.

As in ``apps/unsharp/unsharp_generator.cpp`` of Halide v21.0.0 (sigma 1.5, a 7x7 separable kernel
that the pipeline itself computes, clamped at the edges).

Usage: ``tilewright schedule examples/unsharp.py:unsharp``
"""

import math
from types import SimpleNamespace

import halide as hl
import numpy as np
from halide import f32

SMALL = {"width": 101, "height": 75}
HAND_SOURCE = {
    "cpu": "apps/unsharp/unsharp_generator.cpp at v21.0.0",
    "gpu": "apps/unsharp/unsharp_generator.cpp at v21.0.0",
}
SIGMA = 1.5


def random_inputs(width=1536, height=2560, seed=0):
    # Away from zero: the pipeline divides by the luminance.
    rng = np.random.default_rng(seed)
    return {"input": 0.1 + 0.9 * rng.random((width, height, 3), dtype=np.float32)}


def build(width, height):
    """The algorithm: its Funcs and Vars by name."""
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    image = hl.ImageParam(hl.Float(32), 3, "input")
    image.set_estimates([(0, width), (0, height), (0, 3)])

    kernel = hl.Func("kernel")
    kernel[x] = hl.exp(-x * x / f32(2 * SIGMA**2)) / f32(math.sqrt(2 * math.pi) * SIGMA)

    bounded = hl.BoundaryConditions.repeat_edge(image)
    gray = hl.Func("gray")
    gray[x, y] = (
        f32(0.299) * bounded[x, y, 0]
        + f32(0.587) * bounded[x, y, 1]
        + f32(0.114) * bounded[x, y, 2]
    )

    blur_y, blur_x = hl.Func("blur_y"), hl.Func("blur_x")
    blur_y[x, y] = (
        kernel[0] * gray[x, y]
        + kernel[1] * (gray[x, y - 1] + gray[x, y + 1])
        + kernel[2] * (gray[x, y - 2] + gray[x, y + 2])
        + kernel[3] * (gray[x, y - 3] + gray[x, y + 3])
    )
    blur_x[x, y] = (
        kernel[0] * blur_y[x, y]
        + kernel[1] * (blur_y[x - 1, y] + blur_y[x + 1, y])
        + kernel[2] * (blur_y[x - 2, y] + blur_y[x + 2, y])
        + kernel[3] * (blur_y[x - 3, y] + blur_y[x + 3, y])
    )

    sharpen, ratio, output = hl.Func("sharpen"), hl.Func("ratio"), hl.Func("output")
    sharpen[x, y] = 2 * gray[x, y] - blur_x[x, y]
    ratio[x, y] = sharpen[x, y] / gray[x, y]
    output[x, y, c] = ratio[x, y] * image[x, y, c]
    output.set_estimates([(0, width), (0, height), (0, 3)])
    return SimpleNamespace(x=x, y=y, c=c, gray=gray, blur_y=blur_y, ratio=ratio, output=output)


def unsharp(width=1536, height=2560):
    """The unscheduled pipeline; input and output are ``width`` x ``height`` x 3."""
    return hl.Pipeline(build(width, height).output)


def hand(target, width=1536, height=2560):
    """The same pipeline with the schedule of Halide's own application."""
    p = build(width, height)
    x, y, c = p.x, p.y, p.c
    if target.has_gpu_feature():
        xi, yi = hl.Var("xi"), hl.Var("yi")
        p.output.compute_root().reorder(c, x, y).gpu_tile(x, y, xi, yi, 32, 32)
        p.output.bound(c, 0, 3).unroll(c)
        p.ratio.compute_at(p.output, xi)
        p.gray.compute_at(p.output, x).tile(x, y, xi, yi, 2, 2).unroll(xi).unroll(yi)
        p.gray.gpu_threads(x, y)
        p.blur_y.compute_at(p.output, x).unroll(x, 2).gpu_threads(x, y)
    else:
        yo, yi = hl.Var("yo"), hl.Var("yi")
        vec = target.natural_vector_size(hl.Float(32))
        p.output.split(y, yo, yi, 32).vectorize(x, vec).parallel(yo).reorder(x, c, yi, yo)
        for f in (p.gray, p.blur_y, p.ratio):
            f.store_at(p.output, yo).compute_at(p.output, yi).vectorize(x, vec)
    return hl.Pipeline(p.output)


def reference(inputs):
    """NumPy; arrays are indexed ``[x, y, c]``."""
    image = inputs["input"].astype(np.float64)
    width, height, _ = image.shape
    offsets = np.arange(-3, 4)
    kernel = np.exp(-(offsets**2) / (2 * SIGMA**2)) / (math.sqrt(2 * math.pi) * SIGMA)
    gray = image @ np.array([0.299, 0.587, 0.114])
    padded = np.pad(gray, 3, mode="edge")
    blurred = sum(k * padded[:, i : i + height] for i, k in enumerate(kernel))
    blurred = sum(k * blurred[i : i + width] for i, k in enumerate(kernel))
    ratio = (2 * gray - blurred) / gray
    return ((ratio[:, :, None] * image).astype(np.float32),)
