"""Filters, colour, morphology, pyramids: what image libraries do.

Images are (x, y) or (x, y, c).
"""

from __future__ import annotations

import halide as hl
import numpy as np

from strangers.kit import (
    F32,
    U8,
    U16,
    Program,
    clamped,
    image,
    lanes,
    padded,
    pipeline,
    scalar,
    single,
)

PICTURE, PICTURE_SMALL = {"width": 1536, "height": 1024}, {"width": 45, "height": 22}


def _strips(target, func, x, y, dtype, rows=32):
    """Vectors along x, parallel strips of rows; gives the loop over strips."""
    strip, inner = hl.vars("strip inner")
    func.split(y, strip, inner, rows, hl.TailStrategy.GuardWithIf).parallel(strip)
    func.vectorize(x, lanes(target, dtype))
    return strip


def median3x3(target, *, width, height):
    """The median of nine, from columns that are sorted first."""
    x, y = hl.vars("x y")
    edge = clamped(image("data", U8, width, height))
    low, mid, high, out = (hl.Func(n) for n in ("low", "mid", "high", "out"))
    a, b, c = (edge[x, y + k] for k in (-1, 0, 1))

    def middle(p, q, r):
        return hl.max(hl.min(p, q), hl.min(hl.max(p, q), r))

    low[x, y] = hl.min(hl.min(a, b), c)
    mid[x, y] = middle(a, b, c)
    high[x, y] = hl.max(hl.max(a, b), c)
    lows = hl.max(hl.max(low[x - 1, y], low[x, y]), low[x + 1, y])
    mids = middle(mid[x - 1, y], mid[x, y], mid[x + 1, y])
    highs = hl.min(hl.min(high[x - 1, y], high[x, y]), high[x + 1, y])
    out[x, y] = middle(lows, mids, highs)
    if target is not None:
        strip = _strips(target, out, x, y, U8)
        for f in (low, mid, high):
            f.store_at(out, strip).compute_at(out, x).vectorize(x, lanes(target, U8))
    return pipeline((out, (width, height)))


def _median3x3(inputs, **_):
    windows = np.lib.stride_tricks.sliding_window_view(padded(inputs["data"], 1), (3, 3))
    return (np.median(windows, axis=(2, 3)).astype(np.uint8),)


def dilate(target, *, width, height):
    """The largest of 5x5 pixels, by rows and columns."""
    x, y = hl.vars("x y")
    edge = clamped(image("data", U8, width, height))
    rows, out = hl.Func("rows"), hl.Func("out")
    r, s = hl.RDom([(-2, 5)], "r"), hl.RDom([(-2, 5)], "s")
    rows[x, y] = hl.maximum(edge[x + r, y])
    out[x, y] = hl.maximum(rows[x, y + s])
    return pipeline((out, (width, height)))


def _dilate(inputs, **_):
    windows = np.lib.stride_tricks.sliding_window_view(padded(inputs["data"], 2), (5, 5))
    return (windows.max(axis=(2, 3)),)


def opening(target, *, width, height):
    """The smallest of 3x3, then the largest of 3x3, without reductions."""
    x, y = hl.vars("x y")
    edge = clamped(image("data", U8, width, height))
    stages = []

    def three(f, op, name):
        rows, columns = hl.Func(f"rows_{name}"), hl.Func(f"columns_{name}")
        rows[x, y] = op(op(f[x - 1, y], f[x, y]), f[x + 1, y])
        columns[x, y] = op(op(rows[x, y - 1], rows[x, y]), rows[x, y + 1])
        stages.extend([rows, columns])
        return columns

    out = three(three(edge, hl.min, "erode"), hl.max, "dilate")
    if target is not None:
        strip = _strips(target, out, x, y, U8)
        for f in stages[:-1]:
            f.compute_at(out, strip).vectorize(x, lanes(target, U8))
    return pipeline((out, (width, height)))


def gradients(target, *, width, height):
    """Central differences: two outputs."""
    x, y = hl.vars("x y")
    edge = clamped(image("data", F32, width, height))
    dx, dy = hl.Func("dx"), hl.Func("dy")
    dx[x, y] = 0.5 * (edge[x + 1, y] - edge[x - 1, y])
    dy[x, y] = 0.5 * (edge[x, y + 1] - edge[x, y - 1])
    return pipeline((dx, (width, height)), (dy, (width, height)))


def _gradients(inputs, **_):
    p = padded(inputs["data"].astype(np.float64), 1)
    return single(0.5 * (p[2:, 1:-1] - p[:-2, 1:-1])) + single(0.5 * (p[1:-1, 2:] - p[1:-1, :-2]))


def sobel(target, *, width, height):
    """The magnitude of Sobel's gradients of an 8-bit image, saturated."""
    x, y = hl.vars("x y")
    edge = clamped(image("data", U8, width, height))
    wide, dx, dy, out = (hl.Func(n) for n in ("wide", "dx", "dy", "out"))
    wide[x, y] = hl.i16(edge[x, y])
    dx[x, y] = sum(
        (w * (wide[x + 1, y + k] - wide[x - 1, y + k]) for k, w in ((0, 2), (1, 1))),
        wide[x + 1, y - 1] - wide[x - 1, y - 1],
    )
    dy[x, y] = sum(
        (w * (wide[x + k, y + 1] - wide[x + k, y - 1]) for k, w in ((0, 2), (1, 1))),
        wide[x - 1, y + 1] - wide[x - 1, y - 1],
    )
    out[x, y] = hl.u8_sat(hl.abs(dx[x, y]) + hl.abs(dy[x, y]))
    if target is not None:
        _strips(target, out, x, y, U8)
    return pipeline((out, (width, height)))


def _sobel(inputs, **_):
    p = padded(inputs["data"].astype(np.int32), 1)
    smooth_y = p[:, :-2] + 2 * p[:, 1:-1] + p[:, 2:]
    smooth_x = p[:-2] + 2 * p[1:-1] + p[2:]
    total = np.abs(smooth_y[2:] - smooth_y[:-2]) + np.abs(smooth_x[:, 2:] - smooth_x[:, :-2])
    return (np.minimum(total, 255).astype(np.uint8),)


def canny_edges(target, *, width, height):
    """Gradients of a smoothed image, thinned across the edge, two thresholds."""
    x, y = hl.vars("x y")
    edge = clamped(image("data", F32, width, height))
    bx, by, dx, dy, mag, thin, out = (
        hl.Func(n) for n in ("bx", "by", "dx", "dy", "mag", "thin", "out")
    )
    bx[x, y] = 0.25 * edge[x - 1, y] + 0.5 * edge[x, y] + 0.25 * edge[x + 1, y]
    by[x, y] = 0.25 * bx[x, y - 1] + 0.5 * bx[x, y] + 0.25 * bx[x, y + 1]
    dx[x, y] = by[x + 1, y] - by[x - 1, y]
    dy[x, y] = by[x, y + 1] - by[x, y - 1]
    mag[x, y] = dx[x, y] * dx[x, y] + dy[x, y] * dy[x, y]
    steep = hl.abs(dy[x, y]) > hl.abs(dx[x, y])
    here = hl.f32(mag[x, y])
    before = hl.select(steep, hl.f32(mag[x, y - 1]), hl.f32(mag[x - 1, y]))
    after = hl.select(steep, hl.f32(mag[x, y + 1]), hl.f32(mag[x + 1, y]))
    thin[x, y] = hl.select((here >= before) & (here >= after), here, 0.0)
    strong, weak = thin[x, y] > 0.05, thin[x, y] > 0.01
    out[x, y] = hl.select(strong, hl.u8(255), hl.select(weak, hl.u8(128), hl.u8(0)))
    return pipeline((out, (width, height)))


def gray(target, *, width, height):
    """Luma of an interleaved 8-bit colour image, by integer weights."""
    x, y = hl.vars("x y")
    data = image("data", U8, width, height, 3)
    data.dim(0).set_stride(3)
    data.dim(2).set_stride(1)
    out = hl.Func("out")
    weights = (77, 150, 29)
    total = sum((w * hl.u16(data[x, y, c]) for c, w in enumerate(weights)), hl.u16(128))
    out[x, y] = hl.u8(total >> 8)
    if target is not None:
        out.vectorize(x, lanes(target, U8)).parallel(y, 16)
    return pipeline((out, (width, height)))


def _gray(inputs, **_):
    return (((inputs["data"].astype(np.int64) @ [77, 150, 29] + 128) >> 8).astype(np.uint8),)


def yuv420_to_rgb(target, *, width, height):
    """Luma and half-size chroma to interleaved colours."""
    x, y, c = hl.vars("x y c")
    luma = image("luma", U8, width, height)
    chroma = image("chroma", U8, (width + 1) // 2, (height + 1) // 2, 2)
    out = hl.Func("out")
    base = 298 * (hl.i32(luma[x, y]) - 16) + 128
    u, v = (hl.i32(chroma[x // 2, y // 2, k]) - 128 for k in (0, 1))
    colours = [base + 409 * v, base - 100 * u - 208 * v, base + 516 * u]
    out[x, y, c] = hl.u8_sat(hl.mux(c, colours) >> 8)
    out.output_buffer().dim(0).set_stride(3)
    out.output_buffer().dim(2).set_stride(1)
    return pipeline((out, (width, height, 3)))


def _yuv420_to_rgb(inputs, *, width, height):
    base = 298 * (inputs["luma"].astype(np.int64) - 16) + 128
    wide = inputs["chroma"].repeat(2, axis=0).repeat(2, axis=1)[:width, :height].astype(np.int64)
    u, v = wide[..., 0] - 128, wide[..., 1] - 128
    colours = np.stack([base + 409 * v, base - 100 * u - 208 * v, base + 516 * u], axis=2)
    return (np.clip(colours >> 8, 0, 255).astype(np.uint8),)


def rgb_to_hsv(target, *, width, height):
    """Hue, saturation and value as a Tuple, then three planes."""
    x, y, c = hl.vars("x y c")
    data = image("data", F32, width, height, 3)
    r, g, b = (data[x, y, k] for k in range(3))
    hsv, out = hl.Func("hsv"), hl.Func("out")
    high, low = hl.max(hl.max(r, g), b), hl.min(hl.min(r, g), b)
    span = hl.max(high - low, 1e-6)
    hue = hl.select(
        high == r, (g - b) / span, high == g, 2.0 + (b - r) / span, 4.0 + (r - g) / span
    )
    hsv[x, y] = (hl.select(hue < 0.0, hue + 6.0, hue) / 6.0, (high - low) / (high + 1e-6), high)
    out[x, y, c] = hl.mux(c, [hsv[x, y][k] for k in range(3)])
    return pipeline((out, (width, height, 3)))


def tone_curve(target, *, width, height):
    """A curve of 1024 entries, made for a gamma and a contrast, applied to 10-bit values."""
    x, y, c = hl.vars("x y c")
    data = image("data", U16, width, height, 3)
    gamma, contrast = scalar("gamma", F32, 0.45), scalar("contrast", F32, 1.2)
    curve, out = hl.Func("curve"), hl.Func("out")
    z = hl.pow(hl.f32(x) / 1023.0, gamma)
    curve[x] = hl.u8_sat(255.0 * (0.5 + contrast * (z - 0.5)) + 0.5)
    out[x, y, c] = curve[hl.clamp(hl.i32(data[x, y, c]), 0, 1023)]
    if target is not None:
        curve.compute_root().vectorize(x, 8)
        out.vectorize(x, lanes(target, U8)).parallel(y, 8)
    return pipeline((out, (width, height, 3)))


def gaussian_pyramid(target, *, width, height):
    """Five levels of halving by 1 3 3 1; the smallest, and the one before it."""
    x, y = hl.vars("x y")
    current = clamped(image("data", F32, 16 * width, 16 * height))
    levels = []
    for k in range(4):
        down_x, down = hl.Func(f"down_x_{k}"), hl.Func(f"down_{k}")
        down_x[x, y] = 0.125 * (
            current[2 * x - 1, y]
            + 3.0 * (current[2 * x, y] + current[2 * x + 1, y])
            + current[2 * x + 2, y]
        )
        down[x, y] = 0.125 * (
            down_x[x, 2 * y - 1]
            + 3.0 * (down_x[x, 2 * y] + down_x[x, 2 * y + 1])
            + down_x[x, 2 * y + 2]
        )
        levels.append((down_x, down))
        current = down
    if target is not None:
        for down_x, down in levels:
            if down is not levels[-1][1]:
                down.compute_root()
            strip = _strips(target, down, x, y, F32, 8)
            down_x.compute_at(down, strip).vectorize(x, lanes(target, F32))
    before = hl.Func("before")  # the last level reads beyond what is asked for of this one
    before[x, y] = levels[-2][1][x, y]
    return pipeline((levels[-1][1], (width, height)), (before, (2 * width, 2 * height)))


def composite_over(target, *, width, height):
    """Porter and Duff's over, premultiplied, 8 bits, rounded as by division by 255."""
    x, y, c = hl.vars("x y c")
    top, below = image("top", U8, width, height, 4), image("below", U8, width, height, 4)
    out = hl.Func("out")
    product = hl.u16(below[x, y, c]) * hl.u16(255 - top[x, y, 3]) + 128
    out[x, y, c] = hl.saturating_add(top[x, y, c], hl.u8((product + (product >> 8)) >> 8))
    if target is not None:
        out.bound(c, 0, 4).reorder(c, x, y).unroll(c).vectorize(x, lanes(target, U8)).parallel(
            y, 16
        )
    return pipeline((out, (width, height, 4)))


def _composite_over(inputs, **_):
    top, below = inputs["top"].astype(np.int64), inputs["below"].astype(np.int64)
    product = below * (255 - top[..., 3:]) + 128
    return (np.minimum(top + ((product + (product >> 8)) >> 8), 255).astype(np.uint8),)


def equalise(target, *, width, height):
    """Histogram equalisation: count, sum up, look up."""
    x, y = hl.vars("x y")
    data = image("data", U8, width, height)
    counts, summed, out = hl.Func("counts"), hl.Func("summed"), hl.Func("out")
    r, s = hl.RDom([(0, width), (0, height)], "r"), hl.RDom([(1, 255)], "s").x
    counts[x] = 0
    counts[hl.i32(data[r.x, r.y])] += 1
    summed[x] = counts[x]
    summed[s] = summed[s - 1] + counts[s]
    value = summed[hl.clamp(hl.i32(data[x, y]), 0, 255)]
    out[x, y] = hl.u8_sat(255.0 * hl.f32(value) / (width * height))
    return pipeline((out, (width, height)))


def summed_area(target, *, width, height):
    """Sums over all rectangles from the corner."""
    x, y = hl.vars("x y")
    data = image("data", U8, width, height)
    out = hl.Func("out")
    r, s = hl.RDom([(1, width - 1)], "r").x, hl.RDom([(1, height - 1)], "s").x
    out[x, y] = hl.i32(data[x, y])
    out[r, y] += out[r - 1, y]
    out[x, s] += out[x, s - 1]
    return pipeline((out, (width, height)))


def _summed_area(inputs, **_):
    return (inputs["data"].astype(np.int32).cumsum(axis=0).cumsum(axis=1).astype(np.int32),)


def box_by_sums(target, *, width, height):
    """A 17x17 mean from running sums along both dimensions."""
    x, y = hl.vars("x y")
    data = image("data", F32, width + 16, height + 16)
    rows, out = hl.Func("rows"), hl.Func("out")
    r, s = hl.RDom([(1, width - 1)], "r").x, hl.RDom([(1, height - 1)], "s").x
    k, m = hl.RDom([(0, 17)], "k"), hl.RDom([(0, 17)], "m")
    rows[x, y] = 0.0
    rows[0, y] = hl.sum(data[k, y])
    rows[r, y] = rows[r - 1, y] + data[r + 16, y] - data[r - 1, y]
    out[x, y] = 0.0
    out[x, 0] = hl.sum(rows[x, m])
    out[x, s] = out[x, s - 1] + rows[x, s + 16] - rows[x, s - 1]
    return pipeline((out, (width, height)))


def _box_by_sums(inputs, **_):
    windows = np.lib.stride_tricks.sliding_window_view(inputs["data"].astype(np.float64), (17, 17))
    return single(windows.sum(axis=(2, 3)))


def gaussian9(target, *, width, height):
    """A separable blur of nine taps over an 8-bit image in 16-bit fixed point."""
    x, y = hl.vars("x y")
    edge = clamped(image("data", U8, width, height))
    taps = (1, 8, 28, 56, 70, 56, 28, 8, 1)
    rows, out = hl.Func("rows"), hl.Func("out")
    total = sum((w * hl.u16(edge[x + k - 4, y]) for k, w in enumerate(taps)), hl.u16(128))
    rows[x, y] = hl.u8(total >> 8)
    total = sum((w * hl.u16(rows[x, y + k - 4]) for k, w in enumerate(taps)), hl.u16(128))
    out[x, y] = hl.u8(total >> 8)
    if target is not None:
        strip = _strips(target, out, x, y, U8)
        rows.store_at(out, strip).compute_at(out, hl.Var("inner")).vectorize(x, lanes(target, U8))
    return pipeline((out, (width, height)))


def convolve7x7(target, *, width, height):
    """A filter given at run time."""
    x, y = hl.vars("x y")
    data, kernel = image("data", F32, width + 6, height + 6), image("kernel", F32, 7, 7)
    r = hl.RDom([(0, 7), (0, 7)], "r")
    out = hl.Func("out")
    out[x, y] += data[x + r.x, y + r.y] * kernel[r.x, r.y]
    if target is not None:
        n = lanes(target, F32)
        out.vectorize(x, n).parallel(y, 16)
        out.update().vectorize(x, n).parallel(y, 16)
    return pipeline((out, (width, height)))


def _convolve7x7(inputs, *, width, height):
    total = np.zeros((width, height))
    for i in range(7):
        for j in range(7):
            total += inputs["data"][i : i + width, j : j + height] * float(inputs["kernel"][i, j])
    return single(total)


def binary_patterns(target, *, width, height):
    """Which of eight neighbours are larger, as bits."""
    x, y = hl.vars("x y")
    edge = clamped(image("data", U8, width, height))
    out = hl.Func("out")
    around = [(-1, -1), (0, -1), (1, -1), (1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0)]
    bits = hl.u8(0)
    for k, (dx, dy) in enumerate(around):
        bits = bits | hl.select(edge[x + dx, y + dy] > edge[x, y], hl.u8(1 << k), hl.u8(0))
    out[x, y] = bits
    return pipeline((out, (width, height)))


def block_match(target, *, width, height):
    """The shift of a 4x4 block that fits best, by absolute differences: argmin."""
    x, y = hl.vars("x y")
    here, there = (
        image("here", U8, 4 * width, 4 * height),
        image("there", U8, 4 * width, 4 * height),
    )
    edge = clamped(there)
    u, v = hl.vars("u v")
    cost, out = hl.Func("cost"), hl.Func("out")
    p, s = hl.RDom([(0, 4), (0, 4)], "p"), hl.RDom([(-4, 9), (-4, 9)], "s")
    difference = hl.absd(here[4 * x + p.x, 4 * y + p.y], edge[4 * x + p.x + u, 4 * y + p.y + v])
    cost[x, y, u, v] = hl.sum(hl.u16(difference))
    best = hl.argmin(cost[x, y, s.x, s.y])
    out[x, y] = (hl.i8(best[0]), hl.i8(best[1]), best[2])
    return pipeline((out, (width, height)))


def warp(target, *, width, height):
    """An affine map with bilinear interpolation: where to read is computed."""
    x, y = hl.vars("x y")
    edge = clamped(image("data", F32, width, height))
    angle = scalar("angle", F32, 0.1)
    out = hl.Func("out")
    u = hl.cos(angle) * x - hl.sin(angle) * y + 3.7
    v = hl.sin(angle) * x + hl.cos(angle) * y - 1.2
    left = hl.clamp(hl.i32(hl.floor(u)), 0, width - 2)
    top = hl.clamp(hl.i32(hl.floor(v)), 0, height - 2)
    a, b = u - left, v - top
    row0 = hl.lerp(edge[left, top], edge[left + 1, top], hl.clamp(a, 0.0, 1.0))
    row1 = hl.lerp(edge[left, top + 1], edge[left + 1, top + 1], hl.clamp(a, 0.0, 1.0))
    out[x, y] = hl.lerp(row0, row1, hl.clamp(b, 0.0, 1.0))
    return pipeline((out, (width, height)))


def error_diffusion(target, *, width, height):
    """Rows of one bit per pixel, the error carried along the row."""
    x, y = hl.vars("x y")
    data = image("data", F32, width, height)
    carry, out = hl.Func("carry"), hl.Func("out")
    r = hl.RDom([(1, width - 1)], "r")
    carry[x, y] = data[x, y]
    before = carry[r - 1, y]
    carry[r, y] = data[r, y] + 0.5 * (before - hl.select(before > 0.5, 1.0, 0.0))
    out[x, y] = hl.select(carry[x, y] > 0.5, hl.u8(255), hl.u8(0))
    return pipeline((out, (width, height)))


def heat(target, *, width, height):
    """Six steps of Jacobi's iteration for the heat equation."""
    x, y = hl.vars("x y")
    current = clamped(image("data", F32, width, height))
    for k in range(6):
        step = hl.Func(f"step_{k}")
        around = current[x - 1, y] + current[x + 1, y] + current[x, y - 1] + current[x, y + 1]
        step[x, y] = current[x, y] + 0.2 * (around - 4.0 * current[x, y])
        current = step
    return pipeline((current, (width, height)))


def hough(target, *, width, height):
    """Votes of edge pixels for lines: a scatter over 64 angles."""
    x, t = hl.vars("x t")
    data = image("data", U8, width, height)
    votes = hl.Func("votes")
    r = hl.RDom([(0, width), (0, height)], "r")
    votes[x, t] = 0
    far = width + height
    angle = t * float(np.pi / 64)
    at = hl.i32(hl.floor(r.x * hl.cos(angle) + r.y * hl.sin(angle))) + far
    edge = hl.select(data[r.x, r.y] > 250, 1, 0)
    votes[hl.clamp(at, 0, 2 * far - 1), t] += edge
    return pipeline((votes, (2 * far, 64)))


def nearest_colour(target, *, width, height):
    """The nearest of sixteen colours: argmin over a palette, then the palette's colour."""
    x, y, c = hl.vars("x y c")
    data, palette = image("data", U8, width, height, 3), image("palette", U8, 3, 16)
    nearest, out = hl.Func("nearest"), hl.Func("out")
    r, s = hl.RDom([(0, 16)], "r"), hl.RDom([(0, 3)], "s")
    distance, k = hl.Func("distance"), hl.Var("k")
    gap = hl.i32(data[x, y, s]) - hl.i32(palette[s, k])
    distance[x, y, k] = hl.sum(gap * gap)
    nearest[x, y] = hl.argmin(distance[x, y, r])[0]
    out[x, y, c] = palette[c, hl.clamp(nearest[x, y], 0, 15)]
    return pipeline((out, (width, height, 3)))


def auto_contrast(target, *, width, height):
    """Stretched between the smallest and the largest value: two reductions in a Tuple."""
    x, y = hl.vars("x y")
    data = image("data", U8, width, height)
    span, out = hl.Func("span"), hl.Func("out")
    r = hl.RDom([(0, width), (0, height)], "r")
    span[()] = (hl.u8(255), hl.u8(0))
    span[()] = (hl.min(span[()][0], data[r.x, r.y]), hl.max(span[()][1], data[r.x, r.y]))
    low, high = hl.f32(span[()][0]), hl.f32(span[()][1])
    out[x, y] = hl.u8_sat(255.0 * (hl.f32(data[x, y]) - low) / hl.max(high - low, 1.0))
    return pipeline((out, (width, height)))


def variance_filter(target, *, width, height):
    """Mean and variance in 5x5 windows as a Tuple of two outputs."""
    x, y = hl.vars("x y")
    edge = clamped(image("data", F32, width, height))
    sums, out = hl.Func("sums"), hl.Func("out")
    r = hl.RDom([(-2, 5), (-2, 5)], "r")
    value = edge[x + r.x, y + r.y]
    sums[x, y] = (hl.f32(0.0), hl.f32(0.0))
    sums[x, y] = (sums[x, y][0] + value, sums[x, y][1] + value * value)
    average = sums[x, y][0] / 25.0
    out[x, y] = (average, sums[x, y][1] / 25.0 - average * average)
    return pipeline((out, (width, height)))


def _variance_filter(inputs, **_):
    p = padded(inputs["data"].astype(np.float64), 2)
    windows = np.lib.stride_tricks.sliding_window_view(p, (5, 5))
    return single(windows.mean(axis=(2, 3))) + single(windows.var(axis=(2, 3)))


def mandelbrot(target, *, width, height):
    """Iterations until escape: a Tuple over a time dimension, then argmin of the first."""
    x, y, z = hl.vars("x y z")
    steps = 24
    orbit, out = hl.Func("orbit"), hl.Func("out")
    t = hl.RDom([(1, steps - 1)], "t")
    re, im = 3.0 * x / width - 2.0, 2.0 * y / height - 1.0
    orbit[x, y, z] = (hl.f32(0.0), hl.f32(0.0))
    a, b = orbit[x, y, t - 1][0], orbit[x, y, t - 1][1]
    orbit[x, y, t] = (a * a - b * b + re, 2.0 * a * b + im)
    escaped = orbit[x, y, t][0] * orbit[x, y, t][0] + orbit[x, y, t][1] * orbit[x, y, t][1] >= 4.0
    first = hl.argmin(hl.select(escaped, 0, 1))
    out[x, y] = hl.select(first[1] == 0, first[0], steps)
    return pipeline((out, (width, height)))


BOTH = {"width": 768, "height": 512}
PROGRAMS = (
    Program(median3x3, PICTURE, PICTURE_SMALL, _median3x3, hand=True),
    Program(dilate, PICTURE, PICTURE_SMALL, _dilate),
    Program(opening, PICTURE, PICTURE_SMALL, hand=True),
    Program(gradients, PICTURE, PICTURE_SMALL, _gradients),
    Program(sobel, PICTURE, PICTURE_SMALL, _sobel, hand=True),
    Program(canny_edges, PICTURE, PICTURE_SMALL),
    Program(gray, PICTURE, PICTURE_SMALL, _gray, hand=True),
    Program(yuv420_to_rgb, PICTURE, PICTURE_SMALL, _yuv420_to_rgb),
    Program(rgb_to_hsv, BOTH, PICTURE_SMALL),
    Program(tone_curve, PICTURE, PICTURE_SMALL, contents={"data": (0, 1024)}, hand=True),
    Program(gaussian_pyramid, {"width": 96, "height": 64}, {"width": 4, "height": 3}, hand=True),
    Program(composite_over, PICTURE, PICTURE_SMALL, _composite_over, hand=True),
    Program(equalise, PICTURE, PICTURE_SMALL),
    Program(summed_area, PICTURE, PICTURE_SMALL, _summed_area),
    Program(box_by_sums, PICTURE, PICTURE_SMALL, _box_by_sums),
    Program(gaussian9, PICTURE, PICTURE_SMALL, hand=True),
    Program(convolve7x7, BOTH, PICTURE_SMALL, _convolve7x7, hand=True),
    Program(binary_patterns, PICTURE, PICTURE_SMALL),
    Program(block_match, {"width": 96, "height": 64}, {"width": 6, "height": 4}),
    Program(warp, BOTH, PICTURE_SMALL),
    Program(error_diffusion, PICTURE, PICTURE_SMALL),
    Program(heat, PICTURE, PICTURE_SMALL),
    Program(hough, {"width": 192, "height": 128}, {"width": 20, "height": 14}),
    Program(nearest_colour, BOTH, PICTURE_SMALL),
    Program(auto_contrast, PICTURE, PICTURE_SMALL),
    Program(variance_filter, BOTH, PICTURE_SMALL, _variance_filter),
    Program(mandelbrot, {"width": 384, "height": 256}, {"width": 24, "height": 16}),
)
