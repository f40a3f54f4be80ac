"""Constructs that few programs have: in place, extern, strict, without dimensions."""

from __future__ import annotations

import halide as hl
import numpy as np

from strangers.kit import F32, I32, U8, Program, image, pipeline, scalar, single

PICTURE, PICTURE_SMALL = {"width": 1024, "height": 768}, {"width": 37, "height": 22}


def invert_in_place(target, *, width, height):
    """The output is the input: read, changed, written back."""
    x, y = hl.vars("x y")
    out = hl.Func("out")
    out[x, y] = hl.undef(U8)
    out[x, y] = 255 - out[x, y]
    return pipeline((out, (width, height)))


def accumulate_in_place(target, *, width, height):
    """A picture added to the one that the output holds, for a part of the rows."""
    x, y = hl.vars("x y")
    data = image("data", F32, width, height)
    out = hl.Func("out")
    r = hl.RDom([(0, height // 2)], "r")
    out[x, y] = hl.undef(F32)
    out[x, 2 * r] = 0.5 * out[x, 2 * r] + data[x, 2 * r]
    return pipeline((out, (width, height)))


def extern_between(target, *, size):
    """A C function between two stages of Halide's, over the whole of both."""
    i = hl.Var("i")
    data = image("data", F32, size)
    before, middle, out = hl.Func("before"), hl.Func("middle"), hl.Func("out")
    before[i] = data[i] * 2.0
    arguments = [hl.ExternFuncArgument(before), hl.ExternFuncArgument(hl.i32(size))]
    middle.define_extern("stranger_reverse", arguments, F32, [i])
    out[i] = middle[i] + 1.0
    return pipeline((out, (size,)))


def _extern_between(inputs, **_):
    return single(2 * inputs["data"][::-1] + 1)


def extern_chain(target, *, size):
    """Two C functions, a Func that both a C function and Halide read, and a sum of all."""
    i = hl.Var("i")
    data = image("data", F32, size)
    before, first, second, between, out = (
        hl.Func(n) for n in ("before", "first", "second", "between", "out")
    )
    before[i] = data[i] * data[i] + 0.5
    arguments = [hl.ExternFuncArgument(before), hl.ExternFuncArgument(hl.i32(size))]
    first.define_extern("stranger_reverse", arguments, F32, [i])
    between[i] = first[i] + 0.5 * before[i]
    arguments = [hl.ExternFuncArgument(between), hl.ExternFuncArgument(hl.i32(size))]
    second.define_extern("stranger_reverse", arguments, F32, [i])
    out[i] = second[i] - between[i]
    return pipeline((out, (size,)))


def _extern_chain(inputs, **_):
    before = inputs["data"].astype(np.float64) ** 2 + 0.5
    between = before[::-1] + 0.5 * before
    return single(between[::-1] - between)


def strict_window(target, *, width, height):
    """A window whose extent comes from strict arithmetic with a run-time radius."""
    x, y = hl.vars("x y")
    data = image("data", F32, width, height)
    edge = hl.BoundaryConditions.repeat_edge(data)
    sigma = scalar("sigma", F32, 1.3)
    radius = hl.i32(hl.ceil(hl.strict_float(sigma * 2.0 - 0.25)))
    r = hl.RDom([(-radius, 2 * radius + 1)], "r")
    rows, out = hl.Func("rows"), hl.Func("out")
    weight = hl.exp(-hl.f32(r.x * r.x) / (2.0 * sigma * sigma))
    rows[x, y] = hl.sum(edge[x + r.x, y] * weight)
    out[x, y] = hl.sum(rows[x, y + r.x] * weight)
    return pipeline((out, (width, height)))


def _strict_window(inputs, *, width, height):
    radius = int(np.ceil(np.float32(1.3) * 2 - 0.25))
    weights = np.exp(-(np.arange(-radius, radius + 1) ** 2) / (2 * 1.3**2))
    p = np.pad(inputs["data"].astype(np.float64), radius, mode="edge")
    rows = sum(w * p[k : k + width] for k, w in enumerate(weights))
    return single(sum(w * rows[:, k : k + height] for k, w in enumerate(weights)))


def compensated_sum(target, *, rows, columns):
    """Kahan's sum of each row, which only strict arithmetic keeps."""
    y = hl.Var("y")
    data = image("data", F32, columns, rows)
    r = hl.RDom([(0, columns)], "r")
    state, out = hl.Func("state"), hl.Func("out")
    state[y] = (hl.f32(0.0), hl.f32(0.0))
    corrected = hl.strict_float(data[r, y] - state[y][1])
    total = hl.strict_float(state[y][0] + corrected)
    state[y] = (total, hl.strict_float((total - state[y][0]) - corrected))
    out[y] = state[y][0]
    return pipeline((out, (rows,)))


def _compensated_sum(inputs, **_):
    return single(inputs["data"].astype(np.float64).sum(axis=0))


def statistics(target, *, width, height):
    """Smallest, largest and mean of a picture: outputs without dimensions, inline sums."""
    data = image("data", F32, width, height)
    r = hl.RDom([(0, width), (0, height)], "r")
    low, high, average = hl.Func("low"), hl.Func("high"), hl.Func("average")
    low[()] = hl.minimum(data[r.x, r.y])
    high[()] = hl.maximum(data[r.x, r.y])
    average[()] = hl.sum(data[r.x, r.y]) / (width * height)
    return pipeline((low, ()), (high, ()), (average, ()))


def _statistics(inputs, **_):
    data = inputs["data"]
    return single(data.min()) + single(data.max()) + single(data.mean(dtype=np.float64))


def darkest_place(target, *, width, height):
    """Where the smallest value is: argmin without dimensions."""
    data = image("data", F32, width, height)
    r = hl.RDom([(0, width), (0, height)], "r")
    out = hl.Func("out")
    best = hl.argmin(data[r.x, r.y])
    out[()] = (best[0], best[1], best[2])
    return pipeline((out, ()))


def thumbnail_and_mean(target, *, width, height):
    """Outputs of different ranks that share a stage."""
    x, y, c = hl.vars("x y c")
    data = image("data", U8, 8 * width, 8 * height, 3)
    linear, small, average = hl.Func("linear"), hl.Func("small"), hl.Func("average")
    r = hl.RDom([(0, 8), (0, 8)], "r")
    s = hl.RDom([(0, width), (0, height)], "s")
    linear[x, y, c] = hl.pow(hl.f32(data[x, y, c]) / 255.0, 2.2)
    small[x, y, c] += linear[8 * x + r.x, 8 * y + r.y, c] / 64.0
    average[c] += small[s.x, s.y, c] / (width * height)
    return pipeline((small, (width, height, 3)), (average, (3,)))


def _thumbnail_and_mean(inputs, *, width, height):
    linear = (inputs["data"].astype(np.float64) / 255) ** 2.2
    small = linear.reshape(width, 8, height, 8, 3).mean(axis=(1, 3))
    return single(small) + single(small.mean(axis=(0, 1)))


def one_channel(target, *, width, height):
    """Interleaved buffers of one channel: strides on a dimension of extent one."""
    x, y, c = hl.vars("x y c")
    data = image("data", U8, width, height, 1)
    out = hl.Func("out")
    out[x, y, c] = 255 - data[x, y, c]
    for buffer in (data, out.output_buffer()):
        buffer.dim(0).set_stride(1)
        buffer.dim(2).set_stride(1)
    return pipeline((out, (width, height, 1)))


def _one_channel(inputs, **_):
    return (255 - inputs["data"],)


def choose_filter(target, *, width, height):
    """A run-time choice of one of four stages, a requirement, and a table that is embedded."""
    x, y = hl.vars("x y")
    data = image("data", F32, width, height)
    edge = hl.BoundaryConditions.mirror_image(data)
    which = scalar("which", I32, 2)
    table = hl.Buffer(hl.Float(32), [4], "table")
    np.asarray(table)[...] = np.array([0.5, 1.0, 1.5, 2.0], np.float32)
    stages = []
    for k in range(4):
        f = hl.Func(f"choice_{k}")
        f[x, y] = edge[x - k, y] + edge[x + k, y] + edge[x, y - k] + edge[x, y + k]
        stages.append(f)
    out = hl.Func("out")
    gain = table[hl.clamp(which, 0, 3)]
    out[x, y] = gain * hl.mux(which, [f[x, y] for f in stages])
    return pipeline((out, (width, height)))


def lucas_counts(target, *, size):
    """A serial recurrence without any parallel loop, and a parallel stage that reads it."""
    i = hl.Var("i")
    f, out = hl.Func("f"), hl.Func("out")
    r = hl.RDom([(2, size - 2)], "r").x
    f[i] = hl.u32(1)
    f[0] = hl.u32(2)
    f[r] = f[r - 1] + f[r - 2]
    out[i] = f[i] ^ (f[i] >> 16)
    return pipeline((out, (size,)))


def _lucas_counts(inputs, *, size):
    f = np.ones(size, np.uint32)
    f[0] = 2
    with np.errstate(over="ignore"):
        for i in range(2, size):
            f[i] = f[i - 1] + f[i - 2]
    return (f ^ (f >> np.uint32(16)),)


PROGRAMS = (
    Program(invert_in_place, PICTURE, PICTURE_SMALL),
    Program(accumulate_in_place, PICTURE, PICTURE_SMALL),
    Program(extern_between, {"size": 1 << 18}, {"size": 300}, _extern_between, extern=True),
    Program(extern_chain, {"size": 1 << 18}, {"size": 300}, _extern_chain, extern=True),
    Program(strict_window, PICTURE, PICTURE_SMALL, _strict_window),
    Program(
        compensated_sum,
        {"rows": 1024, "columns": 1024},
        {"rows": 9, "columns": 40},
        _compensated_sum,
    ),
    Program(statistics, PICTURE, PICTURE_SMALL, _statistics),
    Program(darkest_place, PICTURE, PICTURE_SMALL),
    Program(
        thumbnail_and_mean,
        {"width": 96, "height": 64},
        {"width": 7, "height": 4},
        _thumbnail_and_mean,
    ),
    Program(one_channel, PICTURE, PICTURE_SMALL, _one_channel),
    Program(choose_filter, PICTURE, PICTURE_SMALL),
    Program(lucas_counts, {"size": 1 << 16}, {"size": 50}, _lucas_counts),
)
