"""3x3 box blur: a horizontal average of three pixels, then a vertical one.

The first program of every Halide text: ``apps/blur/halide_blur_generator.cpp`` of Halide v21.0.0.
Sums are taken in ``uint16`` and wrap, as they do there.

Usage: ``tilewright schedule examples/blur.py:blur``
"""

from types import SimpleNamespace

import halide as hl
import numpy as np

SMALL = {"width": 133, "height": 71}
HAND_SOURCE = {
    "cpu": "apps/blur/halide_blur_generator.cpp at v21.0.0",
    "gpu": "apps/blur/halide_blur_generator.cpp at v21.0.0 (schedule=slide_vector)",
}


def random_inputs(width=1536, height=2560, seed=0):
    rng = np.random.default_rng(seed)
    return {"input": rng.integers(0, 65536, (width + 2, height + 2), dtype=np.uint16)}


def build(width, height):
    """The algorithm: its Funcs and Vars by name."""
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.UInt(16), 2, "input")
    image.set_estimates([(0, width + 2), (0, height + 2)])

    blur_x = hl.Func("blur_x")
    blur_x[x, y] = (image[x, y] + image[x + 1, y] + image[x + 2, y]) // 3
    blur_y = hl.Func("blur_y")
    blur_y[x, y] = (blur_x[x, y] + blur_x[x, y + 1] + blur_x[x, y + 2]) // 3
    blur_y.set_estimates([(0, width), (0, height)])
    return SimpleNamespace(x=x, y=y, blur_x=blur_x, blur_y=blur_y)


def blur(width=1536, height=2560):
    """The unscheduled pipeline; its output is ``width`` x ``height``."""
    return hl.Pipeline(build(width, height).blur_y)


def hand(target, width=1536, height=2560):
    """The same pipeline with the schedule of Halide's own application."""
    p = build(width, height)
    x, y = p.x, p.y
    if target.has_gpu_feature():
        # Each thread computes 2 x 8 outputs, so that neighbouring rows share loads.
        xi, yi, y_inner = hl.Var("xi"), hl.Var("yi"), hl.Var("y_inner")
        p.blur_y.vectorize(x, 2).split(y, y, y_inner, 8).reorder(y_inner, x).unroll(y_inner)
        p.blur_y.gpu_tile(x, y, xi, yi, 32, 1)
    else:
        # Parallel strips; within one, blur_x slides along in a circular buffer.
        yi = hl.Var("yi")
        p.blur_y.split(y, y, yi, 32).parallel(y).vectorize(x, 16)
        p.blur_x.store_at(p.blur_y, y).compute_at(p.blur_y, x).vectorize(x, 16)
    return hl.Pipeline(p.blur_y)


def reference(inputs):
    """NumPy; arrays are indexed ``[x, y]``."""
    image = inputs["input"]
    rows = (image[:-2] + image[1:-1] + image[2:]) // np.uint16(3)
    return ((rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) // np.uint16(3),)
