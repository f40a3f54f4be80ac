"""Harris corner detection on an RGB image.

As in ``apps/harris/harris_generator.cpp`` of Halide v21.0.0 and the evaluations of Mullapudi et
al. 2016, Adams et al. 2019, Sioutas et al. 2020 and Anderson et al. 2021. The output leaves out
the border of three pixels, so no boundary condition is needed.

Usage: ``tilewright schedule examples/harris.py:harris``
"""

from types import SimpleNamespace

import halide as hl
import numpy as np
from halide import f32

SMALL = {"width": 149, "height": 83}
HAND_SOURCE = {
    "cpu": "apps/harris/harris_generator.cpp at v21.0.0",
    "gpu": "apps/harris/harris_generator.cpp at v21.0.0",
}


def random_inputs(width=1536, height=2560, seed=0):
    rng = np.random.default_rng(seed)
    return {"input": rng.random((width, height, 3), dtype=np.float32)}


def sum3x3(f, x, y):
    total = None
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            term = f[x + dx, y + dy]
            total = term if total is None else total + term
    return total


def build(width, height):
    """The algorithm: its Funcs and Vars by name."""
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.Float(32), 3, "input")
    image.set_estimates([(0, width), (0, height), (0, 3)])

    gray = hl.Func("gray")
    gray[x, y] = (
        f32(0.299) * image[x, y, 0] + f32(0.587) * image[x, y, 1] + f32(0.114) * image[x, y, 2]
    )

    # Sobel derivatives
    Iy, Ix = hl.Func("Iy"), hl.Func("Ix")
    Iy[x, y] = (
        gray[x - 1, y - 1] * f32(-1.0 / 12)
        + gray[x - 1, y + 1] * f32(1.0 / 12)
        + gray[x, y - 1] * f32(-2.0 / 12)
        + gray[x, y + 1] * f32(2.0 / 12)
        + gray[x + 1, y - 1] * f32(-1.0 / 12)
        + gray[x + 1, y + 1] * f32(1.0 / 12)
    )
    Ix[x, y] = (
        gray[x - 1, y - 1] * f32(-1.0 / 12)
        + gray[x + 1, y - 1] * f32(1.0 / 12)
        + gray[x - 1, y] * f32(-2.0 / 12)
        + gray[x + 1, y] * f32(2.0 / 12)
        + gray[x - 1, y + 1] * f32(-1.0 / 12)
        + gray[x + 1, y + 1] * f32(1.0 / 12)
    )

    # The structure tensor, summed over 3x3 windows
    Ixx, Iyy, Ixy = hl.Func("Ixx"), hl.Func("Iyy"), hl.Func("Ixy")
    Ixx[x, y] = Ix[x, y] * Ix[x, y]
    Iyy[x, y] = Iy[x, y] * Iy[x, y]
    Ixy[x, y] = Ix[x, y] * Iy[x, y]
    Sxx, Syy, Sxy = hl.Func("Sxx"), hl.Func("Syy"), hl.Func("Sxy")
    Sxx[x, y] = sum3x3(Ixx, x, y)
    Syy[x, y] = sum3x3(Iyy, x, y)
    Sxy[x, y] = sum3x3(Ixy, x, y)

    det, trace = hl.Func("det"), hl.Func("trace")
    det[x, y] = Sxx[x, y] * Syy[x, y] - Sxy[x, y] * Sxy[x, y]
    trace[x, y] = Sxx[x, y] + Syy[x, y]

    output = hl.Func("output")
    output[x, y] = det[x, y] - f32(0.04) * trace[x, y] * trace[x, y]
    output.set_estimates([(3, width - 6), (3, height - 6)])
    return SimpleNamespace(x=x, y=y, gray=gray, Ix=Ix, Iy=Iy, output=output)


def harris(width=1536, height=2560):
    """The unscheduled pipeline for an input of ``width`` x ``height`` x 3."""
    return hl.Pipeline(build(width, height).output)


def hand(target, width=1536, height=2560):
    """The same pipeline with the schedule of Halide's own application."""
    p = build(width, height)
    x, y, xi, yi = p.x, p.y, hl.Var("xi"), hl.Var("yi")
    if target.has_gpu_feature():
        # Threads load and compute several pixels each; the derivatives share one kernel, and
        # what a thread reads of gray, Ix and Iy is first brought into its registers.
        p.output.gpu_tile(x, y, xi, yi, 62, 14).unroll(xi, 2)
        p.gray.compute_at(p.output, x).gpu_threads(x, y)
        p.gray.tile(x, y, xi, yi, 3, 2).unroll(xi).unroll(yi)
        p.gray.in_().compute_at(p.Iy, x).vectorize(x, 2).unroll(x).unroll(y)
        p.Ix.compute_at(p.output, x).gpu_threads(x, y).unroll(x, 2)
        p.Iy.compute_at(p.output, x).gpu_threads(x, y).unroll(x, 2)
        p.Ix.compute_with(p.Iy, x)
        p.Ix.in_().compute_at(p.output, xi).vectorize(x, 2).unroll(x).unroll(y)
        p.Iy.in_().compute_at(p.output, xi).vectorize(x, 2).unroll(x).unroll(y)
    else:
        # Parallel strips of 32 rows, within which the three stencil inputs slide along.
        vec = target.natural_vector_size(hl.Float(32))
        p.output.split(y, y, yi, 32).parallel(y).vectorize(x, vec)
        for f in (p.gray, p.Ix, p.Iy):
            f.store_at(p.output, y).compute_at(p.output, yi).vectorize(x, vec)
        p.Ix.compute_with(p.Iy, x)
    return hl.Pipeline(p.output)


def reference(inputs):
    """NumPy; arrays are indexed ``[x, y]``. The result starts at pixel (3, 3)."""
    image = inputs["input"].astype(np.float64)
    gray = image @ np.array([0.299, 0.587, 0.114])

    def correlate(a, kernel):
        width, height = a.shape
        return sum(
            kernel[i][j] * a[i : width - 2 + i, j : height - 2 + j]
            for i in range(3)
            for j in range(3)
        )

    smooth = np.array([1, 2, 1]) / 12
    slope = np.array([-1, 0, 1])
    gx = correlate(gray, np.outer(slope, smooth))
    gy = correlate(gray, np.outer(smooth, slope))
    ones = np.ones((3, 3))
    sxx, syy, sxy = (correlate(a, ones) for a in (gx * gx, gy * gy, gx * gy))
    response = sxx * syy - sxy**2 - 0.04 * (sxx + syy) ** 2
    # Each correlation lost one pixel a side; the pipeline leaves out three.
    return (response[1:-1, 1:-1].astype(np.float32),)
