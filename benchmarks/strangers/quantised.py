"""8-bit tensor operations as TensorFlow Lite defines them: real = scale (stored - zero).

Tensors have the channel innermost: (c, x, y, b). Products of scales are fixed-point
multipliers of 31 fractional bits (Jacob et al. 2018, Section 2.2).
"""

from __future__ import annotations

import halide as hl
import numpy as np

from strangers.kit import F32, I32, U8, Program, image, lanes, pipeline, scalar, single

IMAGE = {"channels": 32, "width": 112, "height": 112}
IMAGE_SMALL = {"channels": 16, "width": 13, "height": 9}


def to_u8(value, zero):
    """A scaled sum as a stored value."""
    return hl.u8_sat(hl.i16_sat(value) + hl.i16(zero))


def scaled(value, multiplier, shift):
    """``value * multiplier / 2**(31 + shift)``, rounded."""
    high = hl.rounding_mul_shift_right(value, hl.i32(multiplier), hl.u32(31))
    return hl.rounding_shift_right(high, hl.u32(shift))


def _scaled(value, multiplier, shift):
    high = (value.astype(np.int64) * multiplier + (1 << 30)) >> 31
    return (high + (1 << (shift - 1) if shift else 0)) >> shift


def _u8(value, zero):
    return np.clip(np.clip(value, -32768, 32767) + zero, 0, 255).astype(np.uint8)


def quantised_add(target, *, channels, width, height):
    """The sum of two tensors with different scales."""
    c, x, y = hl.vars("c x y")
    a, b = (image(name, U8, channels, width, height) for name in ("a", "b"))
    add = hl.Func("add")
    left = scaled((hl.i32(a[c, x, y]) - 127) << 6, 1 << 30, 5)
    right = scaled((hl.i32(b[c, x, y]) - 120) << 6, 1 << 29, 5)
    add[c, x, y] = to_u8(left + right, 128)
    if target is not None:
        add.fuse(c, x, c).vectorize(c, lanes(target, U8)).parallel(y, 8)
    return pipeline((add, (channels, width, height)))


def _quantised_add(inputs, **_):
    a, b = inputs["a"].astype(np.int64), inputs["b"].astype(np.int64)
    total = _scaled((a - 127) << 6, 1 << 30, 5) + _scaled((b - 120) << 6, 1 << 29, 5)
    return (_u8(total, 128),)


def quantised_multiply(target, *, channels, width, height):
    """The product of two tensors."""
    c, x, y = hl.vars("c x y")
    a, b = (image(name, U8, channels, width, height) for name in ("a", "b"))
    product = hl.Func("product")
    wide = (hl.i32(a[c, x, y]) - 127) * (hl.i32(b[c, x, y]) - 120)
    product[c, x, y] = to_u8(scaled(wide, 1 << 30, 6), 128)
    if target is not None:
        product.fuse(c, x, c).vectorize(c, lanes(target, U8)).parallel(y, 8)
    return pipeline((product, (channels, width, height)))


def _quantised_multiply(inputs, **_):
    wide = (inputs["a"].astype(np.int64) - 127) * (inputs["b"].astype(np.int64) - 120)
    return (_u8(_scaled(wide, 1 << 30, 6), 128),)


def quantised_conv(target, *, channels, filters, width, height):
    """A 3x3 convolution with padding, then requantised and clamped as by ReLU6."""
    c, x, y = hl.vars("c x y")
    data = image("data", U8, channels, width, height)
    weights = image("weights", U8, filters, channels, 3, 3)
    bias = image("bias", I32, filters)
    zero = hl.u8(128)
    outside = hl.BoundaryConditions.constant_exterior(
        data, zero, [(hl.Expr(), hl.Expr()), (0, width), (0, height)]
    )
    shifted = hl.Func("shifted")
    shifted[c, x, y] = hl.i16(outside[c, x, y]) - hl.i16(128)
    r = hl.RDom([(0, channels), (0, 3), (0, 3)], "r")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[c, x, y] = bias[c]
    conv[c, x, y] += hl.i32(shifted[r.x, x + r.y - 1, y + r.z - 1]) * (
        hl.i32(weights[c, r.x, r.y, r.z]) - 121
    )
    out[c, x, y] = hl.clamp(to_u8(scaled(conv[c, x, y], 1 << 30, 10), 10), hl.u8(10), hl.u8(200))
    return pipeline((out, (filters, width, height)))


def _quantised_conv(inputs, **_):
    data = np.pad(inputs["data"], ((0, 0), (1, 1), (1, 1)), constant_values=128).astype(np.int64)
    weights = inputs["weights"].astype(np.int64) - 121
    _, width, height = inputs["data"].shape
    total = np.zeros((weights.shape[0], width, height), np.int64) + inputs["bias"][:, None, None]
    for i in range(3):
        for j in range(3):
            part = data[:, i : i + width, j : j + height] - 128
            total += np.einsum("fc,cxy->fxy", weights[:, :, i, j], part)
    return (np.clip(_u8(_scaled(total, 1 << 30, 10), 10), 10, 200),)


def quantised_pointwise(target, *, channels, filters, width, height):
    """A 1x1 convolution: a matrix product per pixel."""
    c, x, y = hl.vars("c x y")
    data = image("data", U8, channels, width, height)
    weights = image("weights", U8, filters, channels)
    r = hl.RDom([(0, channels)], "r")
    total, sums, out = hl.Func("total"), hl.Func("sums"), hl.Func("out")
    # The filters' zero point is taken out of the sum: it only needs the sum of the inputs.
    sums[x, y] += hl.i32(data[r, x, y])
    total[c, x, y] += hl.i32(hl.u16(data[r, x, y]) * hl.u16(weights[c, r]))
    out[c, x, y] = to_u8(scaled(total[c, x, y] - 121 * sums[x, y], 1 << 30, 8), 3)
    if target is not None:
        n = lanes(target, I32)
        out.vectorize(c, n, hl.TailStrategy.GuardWithIf).parallel(y)
        sums.compute_at(out, y)
        total.compute_at(out, x).vectorize(c, n)
        total.update().reorder(c, r).vectorize(c, n)
    return pipeline((out, (filters, width, height)))


def _quantised_pointwise(inputs, **_):
    data = inputs["data"].astype(np.int64)
    products = np.einsum("fc,cxy->fxy", inputs["weights"].astype(np.int64), data)
    return (_u8(_scaled(products - 121 * data.sum(axis=0), 1 << 30, 8), 3),)


def quantised_depthwise(target, *, channels, width, height):
    """A depthwise 3x3 convolution of stride 2."""
    c, x, y = hl.vars("c x y")
    data = image("data", U8, channels, 2 * width + 1, 2 * height + 1)
    weights = image("weights", U8, channels, 3, 3)
    bias = image("bias", I32, channels)
    r = hl.RDom([(0, 3), (0, 3)], "r")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[c, x, y] = bias[c]
    conv[c, x, y] += (hl.i32(data[c, 2 * x + r.x, 2 * y + r.y]) - 128) * (
        hl.i32(weights[c, r.x, r.y]) - 121
    )
    out[c, x, y] = to_u8(scaled(conv[c, x, y], 1 << 30, 7), 100)
    if target is not None:
        n = lanes(target, I32)
        out.vectorize(c, n, hl.TailStrategy.GuardWithIf).parallel(y)
        conv.compute_at(out, x).vectorize(c, n)
        conv.update().reorder(c, r.x, r.y).vectorize(c, n).unroll(r.x).unroll(r.y)
    return pipeline((out, (channels, width, height)))


def _quantised_depthwise(inputs, *, width, height, **_):
    data, weights = inputs["data"].astype(np.int64) - 128, inputs["weights"].astype(np.int64) - 121
    total = np.zeros((data.shape[0], width, height), np.int64) + inputs["bias"][:, None, None]
    for i in range(3):
        for j in range(3):
            part = data[:, i : i + 2 * width : 2, j : j + 2 * height : 2]
            total += part * weights[:, i, j, None, None]
    return (_u8(_scaled(total, 1 << 30, 7), 100),)


def fully_connected(target, *, inputs, outputs, batch):
    """A matrix times a batch of vectors, requantised."""
    c, b = hl.vars("c b")
    data, weights = image("data", U8, inputs, batch), image("weights", U8, inputs, outputs)
    bias = image("bias", I32, outputs)
    r = hl.RDom([(0, inputs)], "r")
    total, out = hl.Func("total"), hl.Func("out")
    total[c, b] = bias[c]
    total[c, b] += (hl.i32(data[r, b]) - 128) * (hl.i32(weights[r, c]) - 121)
    out[c, b] = to_u8(scaled(total[c, b], 1 << 30, 9), 50)
    return pipeline((out, (outputs, batch)))


def _fully_connected(given, **_):
    data, weights = given["data"].astype(np.int64) - 128, given["weights"].astype(np.int64) - 121
    return (_u8(_scaled(weights.T @ data + given["bias"][:, None], 1 << 30, 9), 50),)


def average_pool(target, *, channels, width, height):
    """The mean of 3x3 windows, two apart, rounded."""
    c, x, y = hl.vars("c x y")
    data = image("data", U8, channels, 2 * width + 1, 2 * height + 1)
    r = hl.RDom([(0, 3), (0, 3)], "r")
    total, out = hl.Func("total"), hl.Func("out")
    total[c, x, y] += hl.u16(data[c, 2 * x + r.x, 2 * y + r.y])
    out[c, x, y] = hl.u8((total[c, x, y] + 4) // 9)
    if target is not None:
        out.vectorize(c, lanes(target, U8) // 2, hl.TailStrategy.GuardWithIf).parallel(y)
        total.compute_at(out, c).vectorize(c).update().reorder(c, r.x, r.y).vectorize(c)
    return pipeline((out, (channels, width, height)))


def _windows(data, width, height):
    found = np.lib.stride_tricks.sliding_window_view(data, (3, 3), axis=(1, 2))
    return found[:, : 2 * width : 2, : 2 * height : 2]


def _average_pool(inputs, *, width, height, **_):
    total = _windows(inputs["data"].astype(np.int64), width, height).sum(axis=(3, 4))
    return (((total + 4) // 9).astype(np.uint8),)


def max_pool(target, *, channels, width, height):
    """The largest of 3x3 windows, two apart."""
    c, x, y = hl.vars("c x y")
    data = image("data", U8, channels, 2 * width + 1, 2 * height + 1)
    r = hl.RDom([(0, 3), (0, 3)], "r")
    out = hl.Func("out")
    out[c, x, y] = hl.maximum(data[c, 2 * x + r.x, 2 * y + r.y])
    return pipeline((out, (channels, width, height)))


def _max_pool(inputs, *, width, height, **_):
    return (_windows(inputs["data"], width, height).max(axis=(3, 4)),)


def softmax(target, *, channels, rows):
    """Softmax of each row, from 8 bits to 8 bits."""
    c, y = hl.vars("c y")
    data = image("data", U8, channels, rows)
    beta = scalar("beta", F32, 0.05)
    r = hl.RDom([(0, channels)], "r")
    top, power, total, out = (hl.Func(n) for n in ("top", "power", "total", "out"))
    top[y] = hl.u8(0)
    top[y] = hl.max(top[y], data[r, y])
    power[c, y] = hl.exp(beta * (hl.f32(data[c, y]) - hl.f32(top[y])))
    total[y] += power[r, y]
    out[c, y] = hl.u8_sat(hl.round(256.0 * power[c, y] / total[y]))
    return pipeline((out, (channels, rows)))


def _softmax(inputs, **_):
    data = inputs["data"].astype(np.float64)
    power = np.exp(0.05 * (data - data.max(axis=0)))
    return (np.clip(np.round(256 * power / power.sum(axis=0)), 0, 255).astype(np.uint8),)


def l2_norm(target, *, channels, rows):
    """Each row divided by its length."""
    c, y = hl.vars("c y")
    data = image("data", U8, channels, rows)
    r = hl.RDom([(0, channels)], "r")
    square, out = hl.Func("square"), hl.Func("out")
    value = hl.i32(data[r, y]) - 128
    square[y] += value * value
    length = hl.fast_inverse_sqrt(hl.f32(hl.max(square[y], 1)))
    out[c, y] = hl.u8_sat(hl.round(128.0 + 128.0 * (hl.f32(data[c, y]) - 128.0) * length))
    return pipeline((out, (channels, rows)))


def mean(target, *, channels, width, height, batch):
    """The mean of each channel over the image."""
    c, b = hl.vars("c b")
    data = image("data", U8, channels, width, height, batch)
    r = hl.RDom([(0, width), (0, height)], "r")
    total, out = hl.Func("total"), hl.Func("out")
    total[c, b] += hl.u32(data[c, r.x, r.y, b])
    count = width * height
    out[c, b] = hl.u8((total[c, b] + count // 2) // count)
    return pipeline((out, (channels, batch)))


def _mean(inputs, *, width, height, **_):
    total = inputs["data"].astype(np.int64).sum(axis=(1, 2))
    return (((total + width * height // 2) // (width * height)).astype(np.uint8),)


def pad(target, *, channels, width, height):
    """A copy with a margin of zero points around it."""
    c, x, y = hl.vars("c x y")
    data = image("data", U8, channels, width, height)
    around = hl.BoundaryConditions.constant_exterior(
        data, hl.u8(7), [(0, channels), (0, width), (0, height)]
    )
    out = hl.Func("out")
    out[c, x, y] = around[c, x - 3, y - 2]
    return pipeline((out, (channels, width + 6, height + 4)))


def _pad(inputs, **_):
    return (np.pad(inputs["data"], ((0, 0), (3, 3), (2, 2)), constant_values=7),)


def table_lookup(target, *, channels, width, height):
    """An elementwise function through a table of 256 entries."""
    c, x, y = hl.vars("c x y")
    data, table = image("data", U8, channels, width, height), image("table", U8, 256)
    out = hl.Func("out")
    out[c, x, y] = table[hl.i32(data[c, x, y])]
    if target is not None:
        out.fuse(c, x, c).vectorize(c, lanes(target, U8)).parallel(y, 8)
    return pipeline((out, (channels, width, height)))


def _table_lookup(inputs, **_):
    return (inputs["table"][inputs["data"]],)


def logistic(target, *, channels, width, height):
    """The logistic function, dequantised, computed in floats and quantised again."""
    c, x, y = hl.vars("c x y")
    data = image("data", U8, channels, width, height)
    out = hl.Func("out")
    real = 0.04 * (hl.f32(data[c, x, y]) - 128.0)
    out[c, x, y] = hl.u8_sat(hl.round(256.0 / (1.0 + hl.exp(-real))))
    return pipeline((out, (channels, width, height)))


def dequantise_rows(target, *, channels, rows, picked):
    """Rows of a table picked by index, as floats: an embedding."""
    c, y = hl.vars("c y")
    table, index = image("table", U8, channels, rows), image("index", I32, picked)
    out = hl.Func("out")
    row = hl.clamp(index[y], 0, rows - 1)
    out[c, y] = 0.02 * (hl.f32(table[c, row]) - 128.0)
    return pipeline((out, (channels, picked)))


def _dequantise_rows(inputs, *, rows, **_):
    picked = inputs["table"][:, np.clip(inputs["index"], 0, rows - 1)]
    return single(0.02 * (picked.astype(np.float64) - 128))


PROGRAMS = (
    Program(quantised_add, IMAGE, IMAGE_SMALL, _quantised_add, hand=True),
    Program(quantised_multiply, IMAGE, IMAGE_SMALL, _quantised_multiply, hand=True),
    Program(
        quantised_conv,
        {"channels": 32, "filters": 64, "width": 56, "height": 56},
        {"channels": 8, "filters": 16, "width": 9, "height": 7},
        _quantised_conv,
    ),
    Program(
        quantised_pointwise,
        {"channels": 64, "filters": 128, "width": 56, "height": 56},
        {"channels": 16, "filters": 16, "width": 9, "height": 7},
        _quantised_pointwise,
        hand=True,
    ),
    Program(
        quantised_depthwise,
        {"channels": 64, "width": 56, "height": 56},
        {"channels": 16, "width": 7, "height": 5},
        _quantised_depthwise,
        hand=True,
    ),
    Program(
        fully_connected,
        {"inputs": 1024, "outputs": 1000, "batch": 4},
        {"inputs": 40, "outputs": 24, "batch": 2},
        _fully_connected,
    ),
    Program(
        average_pool,
        {"channels": 64, "width": 56, "height": 56},
        {"channels": 16, "width": 7, "height": 5},
        _average_pool,
        hand=True,
    ),
    Program(
        max_pool,
        {"channels": 64, "width": 56, "height": 56},
        {"channels": 16, "width": 7, "height": 5},
        _max_pool,
    ),
    Program(softmax, {"channels": 1001, "rows": 256}, {"channels": 21, "rows": 4}, _softmax),
    Program(l2_norm, {"channels": 512, "rows": 1024}, {"channels": 33, "rows": 5}),
    Program(
        mean,
        {"channels": 256, "width": 28, "height": 28, "batch": 4},
        {"channels": 16, "width": 5, "height": 3, "batch": 2},
        _mean,
    ),
    Program(pad, IMAGE, IMAGE_SMALL, _pad),
    Program(table_lookup, IMAGE, IMAGE_SMALL, _table_lookup, hand=True),
    Program(logistic, IMAGE, IMAGE_SMALL),
    Program(
        dequantise_rows,
        {"channels": 128, "rows": 10000, "picked": 2048},
        {"channels": 16, "rows": 50, "picked": 9},
        _dequantise_rows,
        contents={"index": (0, 50)},
    ),
)
