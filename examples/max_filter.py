"""Max filter over a disc of radius 26.

As in ``apps/max_filter/max_filter_generator.cpp`` of Halide v21.0.0: maxima over columns whose
heights are powers of two are built by doubling; two of them make a column of any height, and a
disc is a maximum over columns.

Usage: ``tilewright schedule examples/max_filter.py:max_filter``
"""

import math
from types import SimpleNamespace

import halide as hl
import numpy as np
from halide import f32

RADIUS = 26
SLICES = math.ceil(math.log2(RADIUS)) + 1
# The schedule for CPUs takes strips of 256 columns that shift inwards at the edge.
SMALL = {"width": 261, "height": 67}
HAND_SOURCE = {
    "cpu": "apps/max_filter/max_filter_generator.cpp at v21.0.0",
    "gpu": "apps/max_filter/max_filter_generator.cpp at v21.0.0",
}


def random_inputs(width=1536, height=2560, seed=0):
    rng = np.random.default_rng(seed)
    return {"input": rng.random((width, height, 3), dtype=np.float32)}


def build(width, height):
    """The algorithm: its Funcs, Vars and RDom by name."""
    x, y, c, t = hl.Var("x"), hl.Var("y"), hl.Var("c"), hl.Var("t")
    image = hl.ImageParam(hl.Float(32), 3, "input")
    image.set_estimates([(0, width), (0, height), (0, 3)])
    clamped = hl.BoundaryConditions.repeat_edge(
        image,
        [
            hl.Range(image.dim(0).min(), image.dim(0).extent()),
            hl.Range(image.dim(1).min(), image.dim(1).extent()),
        ],
    )

    # vert_log(.., t): the maximum of 2^t pixels, downwards
    vert_log = hl.Func("vert_log")
    r = hl.RDom([(-RADIUS, image.height() + RADIUS), (1, SLICES - 1)], "r")
    vert_log[x, y, c, t] = clamped[x, y, c]
    step = hl.clamp(hl.Expr(1) << (r.y - 1), 0, RADIUS * 2)
    vert_log[x, r.x, c, r.y] = hl.max(
        vert_log[x, r.x, c, r.y - 1], vert_log[x, r.x + step, c, r.y - 1]
    )

    # vert(.., t): the maximum of 2 t + 1 pixels, from two that overlap
    slice_for_radius = hl.Func("slice_for_radius")
    slice_for_radius[t] = hl.i32(hl.floor(hl.log(f32(2 * t + 1)) / f32(math.log(2))))
    part = hl.clamp(slice_for_radius[t], 0, SLICES)
    vert = hl.Func("vert")
    vert[x, y, c, t] = hl.max(
        vert_log[x, y - t, c, part],
        vert_log[x, y + t + 1 - hl.clamp(hl.Expr(1) << part, 0, 2 * RADIUS), c, part],
    )

    # How tall the disc is at a distance from its centre
    dy = hl.RDom([(0, RADIUS + 1)], "dy")
    filter_height = hl.Func("filter_height")
    inside = f32(x * x + dy * dy) < f32((RADIUS + 0.25) ** 2)
    filter_height[x] = hl.sum(dy, hl.select(inside, 1, 0))

    dx = hl.RDom([(-RADIUS, 2 * RADIUS + 1)], "dx")
    output = hl.Func("output")
    output[x, y, c] = hl.maximum(dx, vert[x + dx, y, c, hl.clamp(filter_height[dx], 0, RADIUS + 1)])
    output.set_estimates([(0, width), (0, height), (0, 3)])
    return SimpleNamespace(
        x=x,
        y=y,
        c=c,
        t=t,
        r=r,
        vert_log=vert_log,
        vert=vert,
        slice_for_radius=slice_for_radius,
        filter_height=filter_height,
        output=output,
    )


def max_filter(width=1536, height=2560):
    """The unscheduled pipeline; input and output are ``width`` x ``height`` x 3."""
    return hl.Pipeline(build(width, height).output)


def hand(target, width=1536, height=2560):
    """The same pipeline with the schedule of Halide's own application."""
    p = build(width, height)
    x, y, c, t, r = p.x, p.y, p.c, p.t, p.r
    p.slice_for_radius.compute_root()
    p.filter_height.compute_root()
    if target.has_gpu_feature():
        xo, xi, yi = hl.Var("xo"), hl.Var("xi"), hl.Var("yi")
        round_up = hl.TailStrategy.RoundUp
        p.output.gpu_tile(x, y, xi, yi, 32, 8).gpu_blocks(x, y, c)
        p.vert_log.compute_root().reorder(c, t, x, y).gpu_tile(x, y, xi, yi, 16, 16, round_up)
        p.vert_log.update().split(x, xo, xi, 32, round_up).reorder(r.x, r.y, xi, xo, c)
        p.vert_log.update().gpu_blocks(xo, c).gpu_threads(xi)
    else:
        # Each channel of each strip of 256 columns is a task of its own.
        tx = hl.Var("tx")
        p.output.compute_root().split(x, tx, x, 256).reorder(x, y, c, tx).fuse(c, tx, t)
        p.output.parallel(t).vectorize(x, 8)
        p.vert_log.compute_at(p.output, t).vectorize(x, 8)
        p.vert_log.update().reorder(x, r.x, r.y, c).vectorize(x, 8)
        p.vert.compute_at(p.output, y).vectorize(x, 8)
    return hl.Pipeline(p.output)


def reference(inputs):
    """NumPy; arrays are indexed ``[x, y, c]``."""
    image = inputs["input"]
    width, height, _ = image.shape
    dx = np.arange(-RADIUS, RADIUS + 1)
    dy = np.arange(RADIUS + 1)
    # The number of offsets dy >= 0 within the disc: a column reaches that far up and down.
    reach = (dx[:, None] ** 2 + dy**2 < (RADIUS + 0.25) ** 2).sum(axis=1)
    margin = int(reach.max())
    padded = np.pad(image, ((RADIUS, RADIUS), (margin, margin), (0, 0)), mode="edge")
    result = np.zeros_like(image)
    for i, t in enumerate(reach):
        rows = padded[i : i + width, margin - t : margin + height + t]
        windows = np.lib.stride_tricks.sliding_window_view(rows, 2 * t + 1, axis=1)
        np.maximum(result, windows.max(axis=-1), out=result)
    return (result,)
