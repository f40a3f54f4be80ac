"""Resampling by separable kernels: source = (x + 1/2) / scale, taps weighted and normalised.

The number of taps follows from the scale, a run-time parameter, in strict arithmetic, as it
must be the same at compile time and at run time (Turkowski 1990 gives the kernels).
"""

from __future__ import annotations

import halide as hl
import numpy as np

from strangers.kit import F32, U8, Program, image, lanes, pipeline, scalar, single

UP = {"width": 768, "height": 512}
DOWN = {"width": 384, "height": 256}
SMALL = {"width": 21, "height": 14}
RADIUS = {"box": 0.5, "linear": 1.0, "cubic": 2.0, "lanczos": 3.0}


def _kernel(kind, x, m):
    """The kernel's value; `m` is Halide or NumPy with the functions it uses."""
    a = m.abs(x)
    if kind == "box":
        return m.select(a <= 0.5, 1.0, 0.0)
    if kind == "linear":
        return m.select(a < 1.0, 1.0 - a, 0.0)
    if kind == "cubic":
        near = 1.5 * a * a * a - 2.5 * a * a + 1.0
        far = -0.5 * a * a * a + 2.5 * a * a - 4.0 * a + 2.0
        return m.select(a < 1.0, near, m.select(a < 2.0, far, 0.0))
    angle = np.float32(np.pi) * a
    part = m.sin(angle) / angle
    part = part * m.sin(angle / 3.0) / (angle / 3.0)
    return m.select(a < 1e-4, 1.0, m.select(a < 3.0, part, 0.0))


def _weights(kind, scale, taps, x, name):
    """The weight of tap `k` of output `x`, and the first input that it reads."""
    k = hl.Var("k")
    shrink = hl.min(scale, hl.f32(1.0))
    source = (x + 0.5) / scale
    radius = RADIUS[kind] / shrink
    first = hl.i32(hl.ceil(source - 0.5 - radius))
    raw, total, kernel = (hl.Func(f"{n}_{name}") for n in ("raw", "total", "kernel"))
    raw[x, k] = _kernel(kind, (k + first + 0.5 - source) * shrink, hl)
    r = hl.RDom([(0, taps)], f"n_{name}")
    total[x] += raw[x, r]
    kernel[x, k] = raw[x, k] / total[x]
    return kernel, first


def _resize(target, kind, up, width, height, dtype=F32):
    """The image and a scale above or below one; the caller of the pipeline gives the scale."""
    x, y, c = hl.vars("x y c")
    factor = 1.7 if up else 0.37
    inner = (round(width / factor) + 1, round(height / factor) + 1)
    data = image("data", dtype, *inner, 3)
    scale = scalar("scale", F32, factor)
    shrink = hl.min(scale, hl.f32(1.0))
    taps = hl.i32(hl.ceil(hl.strict_float(hl.f32(2 * RADIUS[kind]) / shrink))) + 1
    edge = hl.BoundaryConditions.repeat_edge(data)
    kernel_x, begin_x = _weights(kind, scale, taps, x, "x")
    kernel_y, begin_y = _weights(kind, scale, taps, y, "y")
    wide, columns, rows, out = (hl.Func(n) for n in ("wide", "columns", "rows", "out"))
    wide[x, y, c] = hl.f32(edge[x, y, c])
    r = hl.RDom([(0, taps)], "r")
    columns[x, y, c] += kernel_y[y, r] * wide[x, r + begin_y, c]
    rows[x, y, c] += kernel_x[x, r] * columns[r + begin_x, y, c]
    if dtype == U8:
        out[x, y, c] = hl.u8_sat(hl.round(rows[x, y, c]))
    else:
        out[x, y, c] = rows[x, y, c]
    if target is not None:
        n = lanes(target, F32)
        for kernel in (kernel_x, kernel_y):
            kernel.compute_root()
        yo, yi = hl.vars("yo yi")
        out.split(y, yo, yi, 16, hl.TailStrategy.GuardWithIf).parallel(yo).vectorize(x, n)
        columns.compute_at(out, yo).vectorize(x, n)
        columns.update().reorder(x, r, y, c).vectorize(x, n)
        rows.compute_at(out, yi).vectorize(x, n).update().reorder(x, r, y, c).vectorize(x, n)
    return pipeline((out, (width, height, 3)))


class _Numpy:
    abs, sin = staticmethod(np.abs), staticmethod(np.sin)

    @staticmethod
    def select(condition, yes, no):
        return np.where(condition, yes, no)


def _matrix(kind, factor, outputs, inputs):
    """The weights from inputs to outputs, borders repeated."""
    scale = np.float32(factor)
    shrink = min(scale, np.float32(1))
    radius = np.float32(RADIUS[kind]) / shrink
    taps = int(np.ceil(np.float32(2 * RADIUS[kind]) / shrink)) + 1
    result = np.zeros((outputs, inputs))
    for i in range(outputs):
        source = np.float32(i + 0.5) / scale
        first = int(np.ceil(source - np.float32(0.5) - radius))
        k = np.arange(first, first + taps)
        with np.errstate(invalid="ignore", divide="ignore"):
            raw = _kernel(kind, ((k + np.float32(0.5)) - source) * shrink, _Numpy)
        np.add.at(result[i], np.clip(k, 0, inputs - 1), raw / raw.sum())
    return result


def _expected(kind, up):
    def expected(inputs, *, width, height):
        data = inputs["data"].astype(np.float64)
        factor = 1.7 if up else 0.37
        across = _matrix(kind, factor, width, data.shape[0])
        down = _matrix(kind, factor, height, data.shape[1])
        return single(np.einsum("ox,py,xyc->opc", across, down, data, optimize=True))

    return expected


def resize_box_down(target, *, width, height):
    """Smaller, by a box."""
    return _resize(target, "box", False, width, height)


def resize_linear_up(target, *, width, height):
    """Larger, linearly."""
    return _resize(target, "linear", True, width, height)


def resize_linear_down(target, *, width, height):
    """Smaller, by a tent."""
    return _resize(target, "linear", False, width, height)


def resize_cubic_up(target, *, width, height):
    """Larger, by Catmull and Rom's cubic."""
    return _resize(target, "cubic", True, width, height)


def resize_cubic_down(target, *, width, height):
    """Smaller, by the cubic."""
    return _resize(target, "cubic", False, width, height)


def resize_lanczos_up(target, *, width, height):
    """Larger, by Lanczos's kernel of three lobes."""
    return _resize(target, "lanczos", True, width, height)


def resize_lanczos_down(target, *, width, height):
    """Smaller, by Lanczos's kernel, from 8 bits to 8 bits."""
    return _resize(target, "lanczos", False, width, height, U8)


def resize_nearest(target, *, width, height):
    """The nearest source pixel, in strict arithmetic."""
    x, y = hl.vars("x y")
    data = image("data", U8, 2 * width, 2 * height)
    scale = scalar("scale", F32, 0.61)
    out = hl.Func("out")

    def nearest(z, limit):
        at = hl.i32(hl.floor(hl.strict_float((hl.f32(z) + 0.5) / scale)))
        return hl.clamp(at, 0, limit - 1)

    out[x, y] = data[nearest(x, 2 * width), nearest(y, 2 * height)]
    return pipeline((out, (width, height)))


def _resize_nearest(inputs, *, width, height):
    def nearest(count):
        at = (np.arange(count, dtype=np.float32) + np.float32(0.5)) / np.float32(0.61)
        return np.minimum(np.floor(at).astype(int), 2 * count - 1)

    return (inputs["data"][np.ix_(nearest(width), nearest(height))],)


PROGRAMS = (
    Program(resize_box_down, DOWN, SMALL, _expected("box", False)),
    Program(resize_linear_up, UP, SMALL, _expected("linear", True), hand=True),
    Program(resize_linear_down, DOWN, SMALL, _expected("linear", False), hand=True),
    Program(resize_cubic_up, UP, SMALL, _expected("cubic", True)),
    Program(resize_cubic_down, DOWN, SMALL, _expected("cubic", False), hand=True),
    Program(resize_lanczos_up, UP, SMALL, _expected("lanczos", True)),
    Program(resize_lanczos_down, DOWN, SMALL),
    Program(resize_nearest, UP, SMALL, _resize_nearest),
)
