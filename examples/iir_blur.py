"""Recursive blur: a first-order low-pass filter run down and up the columns, then the rows.

As in ``apps/iir_blur/iir_blur_generator.cpp`` of Halide v21.0.0: the columns are filtered and
the result transposed, twice. ``alpha`` (a run-time parameter) is the weight of the input.

Usage: ``tilewright schedule examples/iir_blur.py:iir_blur``
"""

from types import SimpleNamespace

import halide as hl
import numpy as np

# The schedules for GPUs want multiples of 32, the one for CPUs at least 64.
SMALL = {"width": 96, "height": 128}
HAND_SOURCE = {
    "cpu": "apps/iir_blur/iir_blur_generator.cpp at v21.0.0",
    "gpu": "apps/iir_blur/iir_blur_generator.cpp at v21.0.0",
}


def random_inputs(width=1536, height=2560, seed=0):
    rng = np.random.default_rng(seed)
    return {"input": rng.random((width, height, 3), dtype=np.float32)}


def blur_columns_transpose(f, height, alpha, x, y, c):
    """Filters the columns of ``f``, which has ``height`` rows, and transposes the result."""
    blur, transpose = hl.Func("blur"), hl.Func("transpose")
    ry = hl.RDom([(1, height - 1)], "ry").x
    blur[x, y, c] = hl.undef(hl.Float(32))
    blur[x, 0, c] = f[x, 0, c]
    blur[x, ry, c] = (1 - alpha) * blur[x, ry - 1, c] + alpha * f[x, ry, c]
    up = height - ry - 1
    blur[x, up, c] = (1 - alpha) * blur[x, up + 1, c] + alpha * blur[x, up, c]
    transpose[x, y, c] = blur[y, x, c]
    return SimpleNamespace(blur=blur, transpose=transpose, ry=ry)


def build(width, height):
    """The algorithm: its two passes, each with its Funcs and RDom, and the Vars."""
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    image = hl.ImageParam(hl.Float(32), 3, "input")
    image.set_estimates([(0, width), (0, height), (0, 3)])
    alpha = hl.Param(hl.Float(32), "alpha", 0.1)
    alpha.set_estimate(0.1)

    first = blur_columns_transpose(image, image.height(), alpha, x, y, c)
    second = blur_columns_transpose(first.transpose, image.width(), alpha, x, y, c)
    second.transpose.set_estimates([(0, width), (0, height), (0, 3)])
    return SimpleNamespace(x=x, y=y, c=c, passes=[first, second], output=second.transpose)


def iir_blur(width=1536, height=2560):
    """The unscheduled pipeline; input and output are ``width`` x ``height`` x 3."""
    return hl.Pipeline(build(width, height).output)


def hand(target, width=1536, height=2560):
    """The same pipeline with the schedule of Halide's own application."""
    p = build(width, height)
    if not target.has_gpu_feature():
        schedule = _cpu
    elif target.has_feature(hl.TargetFeature.CUDA):
        schedule = _cuda
    else:
        schedule = _gpu
    for each in p.passes:
        schedule(p, each, target.natural_vector_size(hl.Float(32)))
    return hl.Pipeline(p.output)


def _cpu(p, f, vec):
    # Parallel over channels and strips of columns; within a strip, vectors across columns. The
    # channels are three, and no loop is cut at borders, of which there are none. Tiles are not
    # rounded up: the first pass reads the input as it is.
    x, y, c = p.x, p.y, p.c
    xo, yo = hl.Var("xo"), hl.Var("yo")
    f.transpose.compute_root().tile(x, y, xo, yo, x, y, vec, vec * 4).bound(c, 0, 3)
    f.transpose.vectorize(x).parallel(yo).parallel(c).never_partition_all()
    f.blur.compute_at(f.transpose, yo)
    f.blur.update(0).unscheduled()
    for stage in (1, 2):
        f.blur.update(stage).reorder(x, f.ry).vectorize(x)


def _cuda(p, f, _):
    # A warp filters 32 columns; the transposition goes through shared memory, whose rows are
    # padded against bank conflicts. Unrolling the scan lets loads be issued ahead.
    x, y, c = p.x, p.y, p.c
    xi, yi = hl.Var("xi"), hl.Var("yi")
    f.transpose.compute_root().tile(x, y, xi, yi, 32, 32).gpu_blocks(y, c).gpu_lanes(xi)
    f.blur.compute_at(f.transpose, y).store_in(hl.MemoryType.Heap).gpu_lanes(x)
    f.blur.update(0).gpu_lanes(x)
    for stage in (1, 2):
        f.blur.update(stage).unroll(f.ry, 8).gpu_lanes(x)
    f.blur.in_().align_storage(x, 33).compute_at(f.transpose, x).gpu_lanes(x)


def _gpu(p, f, _):
    x, c, xi = p.x, p.c, hl.Var("xi")
    f.blur.compute_root()
    for stage in (0, 1, 2):
        f.blur.update(stage).split(x, x, xi, 32).gpu_blocks(x, c).gpu_threads(xi)


def reference(inputs, alpha=0.1):
    """NumPy; arrays are indexed ``[x, y, c]``."""
    result = inputs["input"].astype(np.float64)
    for _ in range(2):
        # Filter along y, then swap x and y.
        for _ in range(2):
            for j in range(1, result.shape[1]):
                result[:, j] = (1 - alpha) * result[:, j - 1] + alpha * result[:, j]
            result = result[:, ::-1].copy()
        result = result.transpose(1, 0, 2).copy()
    return (result.astype(np.float32),)
