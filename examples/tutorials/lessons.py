"""The pipelines of Halide's Python tutorial, rewritten: one function a pipeline.

After ``python_bindings/tutorial/lesson_*.py`` of Halide v21.0.0. Every function gives an
unscheduled pipeline with estimates on all inputs and outputs.

Usage: ``tilewright schedule examples/tutorials/lessons.py:lesson_07_multi_stage``
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np

WIDTH, HEIGHT = 100, 52


def _grid(width: int = WIDTH, height: int = HEIGHT) -> tuple[np.ndarray, np.ndarray]:
    return np.meshgrid(np.arange(width), np.arange(height), indexing="ij")


def _image(channels: int = 3, dtype: hl.Type | None = None, name: str = "input") -> hl.ImageParam:
    image = hl.ImageParam(dtype or hl.UInt(8), 3 if channels else 2, name)
    image.set_estimates([(0, WIDTH), (0, HEIGHT)] + [(0, channels)] * bool(channels))
    return image


def lesson_01_basics() -> hl.Func:
    """A gradient: the sum of the coordinates."""
    x, y = hl.vars("x y")
    f = hl.Func("gradient")
    f[x, y] = x + y
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def lesson_02_input_image() -> hl.Func:
    """Brighten an image in colour."""
    image = _image()
    x, y, c = hl.vars("x y c")
    f = hl.Func("brighter")
    f[x, y, c] = hl.u8(hl.min(hl.f32(image[x, y, c]) * 1.5, 255.0))
    f.set_estimates([(0, WIDTH), (0, HEIGHT), (0, 3)])
    return f


def lesson_06_shifted_domain() -> hl.Func:
    """An output whose region does not begin at zero."""
    x, y = hl.vars("x y")
    f = hl.Func("gradient")
    f[x, y] = x + y
    f.set_estimates([(100, 50), (-30, 20)])
    return f


def lesson_07_multi_stage() -> hl.Func:
    """Two stages of blur behind a hand-made boundary condition."""
    image = _image()
    x, y, c = hl.vars("x y c")
    clamped, wide = hl.Func("clamped"), hl.Func("input_16")
    blur_x, blur_y, output = hl.Func("blur_x"), hl.Func("blur_y"), hl.Func("output")
    cx = hl.clamp(x, 0, image.width() - 1)
    cy = hl.clamp(y, 0, image.height() - 1)
    clamped[x, y, c] = image[cx, cy, c]
    wide[x, y, c] = hl.u16(clamped[x, y, c])
    blur_x[x, y, c] = (wide[x - 1, y, c] + hl.u16(2) * wide[x, y, c] + wide[x + 1, y, c]) // 4
    blur_y[x, y, c] = (blur_x[x, y - 1, c] + hl.u16(2) * blur_x[x, y, c] + blur_x[x, y + 1, c]) // 4
    output[x, y, c] = hl.u8(blur_y[x, y, c])
    output.set_estimates([(0, WIDTH), (0, HEIGHT), (0, 3)])
    return output


def _lesson_07(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a = np.pad(inputs["input"].astype(np.uint16), ((1, 1), (1, 1), (0, 0)), "edge")
    a = (a[:-2] + 2 * a[1:-1] + a[2:]) // 4
    a = (a[:, :-2] + 2 * a[:, 1:-1] + a[:, 2:]) // 4
    return (a.astype(np.uint8),)


def lesson_08_scheduling() -> hl.Func:
    """A producer of sines and a consumer that averages four of them."""
    x, y = hl.vars("x y")
    producer, consumer = hl.Func("producer"), hl.Func("consumer")
    producer[x, y] = hl.sin(hl.f32(x * y))
    consumer[x, y] = (
        producer[x, y] + producer[x, y + 1] + producer[x + 1, y] + producer[x + 1, y + 1]
    ) / 4.0
    consumer.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return consumer


def _lesson_08(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    x, y = _grid(WIDTH + 1, HEIGHT + 1)
    a = np.sin((x * y).astype(np.float32))
    return ((a[:-1, :-1] + a[:-1, 1:] + a[1:, :-1] + a[1:, 1:]) / 4,)


def lesson_09_updates() -> hl.Func:
    """Updates of a row and a column, one of them reading the other."""
    x, y = hl.vars("x y")
    f = hl.Func("f")
    f[x, y] = hl.f32(x + y)
    f[x, 3] = f[x, 0] * f[x, 10]
    f[0, y] = f[0, y] / (f[3, y] + 1.0)
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def _lesson_09_updates(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    x, y = _grid()
    f = (x + y).astype(np.float32)
    f[:, 3] = f[:, 0] * f[:, 10]
    f[0, :] = f[0, :] / (f[3, :] + 1)
    return (f,)


def lesson_09_recurrence() -> hl.Func:
    """A reduction domain that walks down the rows, each made from the one before."""
    x, y = hl.vars("x y")
    f = hl.Func("f")
    r = hl.RDom([(1, HEIGHT - 1)], "r")
    f[x, y] = x
    f[x, r] = f[x, r - 1] + r
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def _lesson_09_recurrence(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    x, y = _grid()
    return ((x + y * (y + 1) // 2).astype(np.int32),)


def lesson_09_histogram() -> hl.Func:
    """A scatter: how often each value occurs."""
    image = _image(0)
    i = hl.Var("i")
    f = hl.Func("histogram")
    r = hl.RDom([(0, WIDTH), (0, HEIGHT)], "r")
    f[i] = 0
    f[hl.i32(image[r.x, r.y])] += 1
    f.set_estimates([(0, 256)])
    return f


def lesson_09_spread() -> hl.Func:
    """A histogram, and the image equalised by its cumulative sum."""
    image = _image(0)
    x, y, i = hl.vars("x y i")
    histogram, cumulative, output = (hl.Func(n) for n in ("histogram", "cumulative", "output"))
    r = hl.RDom([(0, WIDTH), (0, HEIGHT)], "r")
    histogram[i] = 0
    histogram[hl.i32(image[r.x, r.y])] += 1
    s = hl.RDom([(1, 255)], "s")
    cumulative[i] = histogram[i]
    cumulative[s.x] = cumulative[s.x - 1] + histogram[s.x]
    output[x, y] = hl.u8(cumulative[hl.i32(image[x, y])] * 255 // (WIDTH * HEIGHT))
    output.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return output


def _lesson_09_spread(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    counts = np.bincount(inputs["input"].ravel(), minlength=256)
    return ((np.cumsum(counts)[inputs["input"]] * 255 // (WIDTH * HEIGHT)).astype(np.uint8),)


def lesson_09_inline_reductions() -> hl.Func:
    """A box blur by an inline sum, and the largest of its neighbours by an inline maximum."""
    image = _image(0)
    x, y = hl.vars("x y")
    bounded = hl.BoundaryConditions.repeat_edge(image)
    r = hl.RDom([(-2, 5), (-2, 5)], "r")
    mean, f = hl.Func("mean"), hl.Func("f")
    mean[x, y] = hl.sum(hl.i32(bounded[x + r.x, y + r.y]), "box") // 25
    f[x, y] = hl.maximum(mean[x + r.x, y + r.y], "largest")
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def _lesson_09_inline_reductions(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a = np.pad(inputs["input"].astype(np.int32), 4, "edge")
    windows = np.lib.stride_tricks.sliding_window_view(a, (5, 5))
    mean = windows.sum(axis=(2, 3)) // 25
    windows = np.lib.stride_tricks.sliding_window_view(mean, (5, 5))
    return (windows.max(axis=(2, 3)).astype(np.int32),)


def lesson_10_scalar_parameter() -> hl.Func:
    """Brighten by a number given when the pipeline runs, wrapping around at 8 bits."""
    image = _image(0)
    offset = hl.Param(hl.UInt(8), "offset", 37)
    offset.set_estimate(37)
    x, y = hl.vars("x y")
    f = hl.Func("brighter")
    f[x, y] = image[x, y] + offset
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def lesson_12_lookup_table() -> hl.Func:
    """Sharpen, then apply a curve that is computed once as a table."""
    image = _image()
    x, y, c, i = hl.vars("x y c i")
    lut, padded, wide, sharpen, curved = (
        hl.Func(n) for n in ("lut", "padded", "padded_16", "sharpen", "curved")
    )
    lut[i] = hl.u8(hl.clamp(hl.pow(hl.f32(i) / 255.0, hl.f32(1.2)) * 255.0, 0.0, 255.0))
    cx = hl.clamp(x, 0, image.width() - 1)
    cy = hl.clamp(y, 0, image.height() - 1)
    padded[x, y, c] = image[cx, cy, c]
    wide[x, y, c] = hl.u16(padded[x, y, c])
    ring = (wide[x - 1, y, c] + wide[x, y - 1, c] + wide[x + 1, y, c] + wide[x, y + 1, c]) // 4
    sharpen[x, y, c] = wide[x, y, c] * hl.u16(2) - ring
    curved[x, y, c] = lut[hl.i32(hl.u8(hl.min(sharpen[x, y, c], hl.u16(255))))]
    curved.set_estimates([(0, WIDTH), (0, HEIGHT), (0, 3)])
    return curved


def _lesson_12(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a = np.pad(inputs["input"].astype(np.uint16), ((1, 1), (1, 1), (0, 0)), "edge")
    ring = (a[:-2, 1:-1] + a[1:-1, :-2] + a[2:, 1:-1] + a[1:-1, 2:]) // 4
    sharpened = np.minimum(a[1:-1, 1:-1] * np.uint16(2) - ring, 255)
    curve = (np.arange(256, dtype=np.float32) / np.float32(255)) ** np.float32(1.2) * 255
    return (np.clip(curve, 0, 255).astype(np.uint8)[sharpened],)


def lesson_13_tuples() -> hl.Func:
    """Values of two types at once."""
    x, y = hl.vars("x y")
    f = hl.Func("multi_valued")
    f[x, y] = (x + y, hl.sin(hl.f32(x * y)))
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def _lesson_13_tuples(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    x, y = _grid()
    return (x + y).astype(np.int32), np.sin((x * y).astype(np.float32))


def lesson_13_argmax() -> hl.Func:
    """The largest value and its place, by an update of a Tuple with no dimensions."""
    values = hl.ImageParam(hl.Float(32), 1, "input")
    values.set_estimates([(0, WIDTH)])
    f = hl.Func("arg_max")
    r = hl.RDom([(1, WIDTH - 1)], "r")
    f[()] = (0, values[0])
    place, best = f[()][0], f[()][1]
    better = values[r] > best
    f[()] = (hl.select(better, r, place), hl.select(better, values[r], best))
    return f


def _lesson_13_argmax(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    place = np.argmax(inputs["input"])
    return np.array(place, np.int32), inputs["input"][place]


def lesson_13_mandelbrot() -> hl.Func:
    """Complex numbers as Tuples, iterated by a reduction domain over a third dimension.

    Numbers are kept finite, since Halide does not say how others compare.
    """
    iterations = 12
    x, y, t = hl.vars("x y t")
    cx = hl.f32(x) * hl.f32(3.0 / WIDTH) - hl.f32(2.1)
    cy = hl.f32(y) * hl.f32(2.0 / HEIGHT) - hl.f32(1.03)
    orbit = hl.Func("orbit")
    orbit[x, y, t] = (hl.f32(0.0), hl.f32(0.0))
    r = hl.RDom([(1, iterations)], "r")
    re, im = orbit[x, y, r - 1][0], orbit[x, y, r - 1][1]
    orbit[x, y, r] = (
        hl.clamp(re * re - im * im + cx, -9.0, 9.0),
        hl.clamp(2.0 * re * im + cy, -9.0, 9.0),
    )
    escape = hl.Func("escape")
    s = hl.RDom([(0, iterations)], "s")
    re, im = orbit[x, y, s][0], orbit[x, y, s][1]
    escape[x, y] = hl.sum(hl.select(re * re + im * im < 4.0, 1, 0), "inside")
    escape.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return escape


def _lesson_13_mandelbrot(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    x, y = _grid()
    cx, cy = x * (3.0 / WIDTH) - 2.1, y * (2.0 / HEIGHT) - 1.03
    re, im, inside = np.zeros(x.shape), np.zeros(x.shape), np.zeros(x.shape, np.int32)
    for _ in range(12):
        inside += re * re + im * im < 4
        re, im = re * re - im * im + cx, 2 * re * im + cy
        re, im = np.clip(re, -9, 9), np.clip(im, -9, 9)
    return (inside,)


def lesson_14_types() -> hl.Pipeline:
    """One output of every integer and float type."""
    image = _image(0)
    x, y = hl.vars("x y")
    types = [hl.Int(b) for b in (8, 16, 32, 64)] + [hl.UInt(b) for b in (8, 16, 32, 64)]
    outputs = []
    for t in [*types, hl.Float(32), hl.Float(64)]:
        f = hl.Func(f"as_{'f' if t.is_float() else 'i' if t.is_int() else 'u'}{t.bits()}")
        f[x, y] = hl.cast(t, image[x, y]) * hl.cast(t, 3) - hl.cast(t, x)
        f.set_estimates([(0, WIDTH), (0, HEIGHT)])
        outputs.append(f)
    return hl.Pipeline(outputs)


def _lesson_14(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    x, _ = _grid()
    kinds = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
    exact = inputs["input"].astype(np.int64) * 3 - x
    return tuple(exact.astype(k) for k in [*kinds, np.float32, np.float64])


def lesson_16_interleaved() -> hl.Func:
    """From planar to interleaved storage: channels become the first dimension."""
    image = _image()
    x, y, c = hl.vars("x y c")
    f = hl.Func("interleaved")
    f[c, x, y] = image[x, y, c] // hl.u8(2) + hl.u8(10)
    f.set_estimates([(0, 3), (0, WIDTH), (0, HEIGHT)])
    return f


def lesson_17_circle() -> hl.Func:
    """A reduction domain restricted to a circle."""
    x, y = hl.vars("x y")
    f = hl.Func("circle")
    r = hl.RDom([(0, 40), (0, 40)], "r")
    r.where((r.x - 20) * (r.x - 20) + (r.y - 20) * (r.y - 20) <= 196)
    f[x, y] = x + y
    f[r.x, r.y] *= 2
    f.set_estimates([(0, 40), (0, 40)])
    return f


def _lesson_17_circle(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    x, y = _grid(40, 40)
    return (((x + y) * np.where((x - 20) ** 2 + (y - 20) ** 2 <= 196, 2, 1)).astype(np.int32),)


def lesson_17_triangle() -> hl.Func:
    """A reduction domain restricted to a triangle, by several predicates."""
    x, y = hl.vars("x y")
    f = hl.Func("triangle")
    r = hl.RDom([(0, 30), (0, 24)], "r")
    r.where(r.x < r.y + 3)
    r.where(r.x + r.y <= 22)
    f[x, y] = 0
    f[r.x, r.y] += 2 * r.x - r.y
    f.set_estimates([(0, 30), (0, 24)])
    return f


def _lesson_17_triangle(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    x, y = _grid(30, 24)
    return (np.where((x < y + 3) & (x + y <= 22), 2 * x - y, 0).astype(np.int32),)


def lesson_17_data_dependent() -> hl.Func:
    """A predicate that reads a Func: only bright pixels are counted, by their column."""
    image = _image(0)
    x, i = hl.vars("x i")
    y = hl.Var("y")
    f, copy = hl.Func("bright"), hl.Func("copy")
    copy[x, y] = image[x, y]
    r = hl.RDom([(0, WIDTH), (0, HEIGHT)], "r")
    r.where(copy[r.x, r.y] > hl.u8(128))
    f[i] = 0
    f[r.x] += 1
    f.set_estimates([(0, WIDTH)])
    return f


def lesson_18_rfactor_histogram() -> hl.Func:
    """A histogram whose rows are counted apart and then added up."""
    image = _image(0)
    i, v = hl.vars("i v")
    f = hl.Func("histogram")
    r = hl.RDom([(0, WIDTH), (0, HEIGHT)], "r")
    f[i] = 0
    f[hl.i32(image[r.x, r.y]) // 8] += 1
    f.update().rfactor(r.y, v)
    f.set_estimates([(0, 32)])
    return f


def lesson_18_rfactor_argmin() -> hl.Func:
    """The least value and its place, rows first and then over the rows."""
    image = _image(0, hl.Float(32))
    v = hl.Var("v")
    f = hl.Func("argmin")
    r = hl.RDom([(0, WIDTH), (0, HEIGHT)], "r")
    f[()] = (hl.f32(2.0), 0, 0)
    best, fx, fy = (f[()][k] for k in range(3))
    value = image[r.x, r.y]
    less = best < value
    f[()] = (hl.min(best, value), hl.select(less, fx, r.x), hl.select(less, fy, r.y))
    f.update().rfactor(r.y, v)
    return f


def _lesson_18_argmin(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    image = inputs["input"]
    x, y = np.unravel_index(np.argmin(image), image.shape)
    return image[x, y], np.array(x, np.int32), np.array(y, np.int32)


def lesson_21_corners() -> hl.Func:
    """The corner detector that the lesson on autoscheduling uses."""
    image = hl.ImageParam(hl.Float(32), 3, "input")
    image.set_estimates([(0, WIDTH), (0, HEIGHT), (0, 3)])
    factor = hl.Param(hl.Float(32), "factor", 0.04)
    factor.set_estimate(0.04)
    x, y = hl.vars("x y")
    gray, ix, iy, f = (hl.Func(n) for n in ("gray", "ix", "iy", "corners"))
    bounded = hl.BoundaryConditions.repeat_edge(image)
    red, green, blue = (bounded[x, y, c] for c in range(3))
    gray[x, y] = hl.f32(0.299) * red + hl.f32(0.587) * green + hl.f32(0.114) * blue
    ix[x, y] = gray[x + 1, y] - gray[x - 1, y]
    iy[x, y] = gray[x, y + 1] - gray[x, y - 1]
    sums = []
    for name, a, b in (("xx", ix, ix), ("yy", iy, iy), ("xy", ix, iy)):
        r = hl.RDom([(-1, 3), (-1, 3)], f"r_{name}")
        s = hl.Func(f"s{name}")
        s[x, y] = 0.0
        s[x, y] += a[x + r.x, y + r.y] * b[x + r.x, y + r.y]
        sums.append(s)
    xx, yy, xy = (s[x, y] for s in sums)
    f[x, y] = xx * yy - xy * xy - factor * (xx + yy) * (xx + yy)
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def _lesson_21(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a = np.pad(inputs["input"].astype(np.float64), ((2, 2), (2, 2), (0, 0)), "edge")
    gray = a @ np.array([0.299, 0.587, 0.114])
    ix, iy = gray[2:, 1:-1] - gray[:-2, 1:-1], gray[1:-1, 2:] - gray[1:-1, :-2]

    def box(f: np.ndarray) -> np.ndarray:
        return np.lib.stride_tricks.sliding_window_view(f, (3, 3)).sum(axis=(2, 3))

    xx, yy, xy = box(ix * ix), box(iy * iy), box(ix * iy)
    trace = xx + yy
    return ((xx * yy - xy * xy - inputs["factor"] * trace * trace).astype(np.float32),)


# What each pipeline gives, by NumPy, axes in Halide's order.
EXPECTED: dict[str, Callable[[dict[str, Any]], tuple[np.ndarray, ...]]] = {
    "lesson_01_basics": lambda inputs: (sum(_grid()).astype(np.int32),),
    "lesson_02_input_image": lambda inputs: (
        np.minimum(inputs["input"].astype(np.float32) * np.float32(1.5), 255).astype(np.uint8),
    ),
    "lesson_06_shifted_domain": lambda inputs: ((sum(_grid(50, 20)) + 70).astype(np.int32),),
    "lesson_07_multi_stage": _lesson_07,
    "lesson_08_scheduling": _lesson_08,
    "lesson_09_updates": _lesson_09_updates,
    "lesson_09_recurrence": _lesson_09_recurrence,
    "lesson_09_histogram": lambda inputs: (
        np.bincount(inputs["input"].ravel(), minlength=256).astype(np.int32),
    ),
    "lesson_09_spread": _lesson_09_spread,
    "lesson_09_inline_reductions": _lesson_09_inline_reductions,
    "lesson_10_scalar_parameter": lambda inputs: (inputs["input"] + np.uint8(inputs["offset"]),),
    "lesson_12_lookup_table": _lesson_12,
    "lesson_13_tuples": _lesson_13_tuples,
    "lesson_13_argmax": _lesson_13_argmax,
    "lesson_13_mandelbrot": _lesson_13_mandelbrot,
    "lesson_14_types": _lesson_14,
    "lesson_16_interleaved": lambda inputs: (
        np.moveaxis(inputs["input"] // 2 + np.uint8(10), 2, 0),
    ),
    "lesson_17_circle": _lesson_17_circle,
    "lesson_17_triangle": _lesson_17_triangle,
    "lesson_17_data_dependent": lambda inputs: (
        (inputs["input"] > 128).sum(axis=1).astype(np.int32),
    ),
    "lesson_18_rfactor_histogram": lambda inputs: (
        np.bincount(inputs["input"].ravel() // 8, minlength=32).astype(np.int32),
    ),
    "lesson_18_rfactor_argmin": _lesson_18_argmin,
    "lesson_21_corners": _lesson_21,
}
