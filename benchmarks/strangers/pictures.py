"""Packed pixels, masks, labels, exposures and motion: what programs do with photographs and video.

Images are (x, y) or (x, y, c), the latter planar or interleaved in memory; one is (c, x, y). The
sizes of ``unpack_nv12`` must be even.
"""

from __future__ import annotations

import halide as hl
import numpy as np

from strangers.kit import F32, I16, U8, U16, U32, Program, clamped, image, pipeline, scalar, single

PICTURE, PICTURE_SMALL = {"width": 1920, "height": 1080}, {"width": 46, "height": 22}
BOTH = {"width": 1280, "height": 960}


def interleaved(name, dtype, width, height, channels=3):
    """An input whose channels lie next to each other."""
    data = image(name, dtype, width, height, channels)
    data.dim(0).set_stride(channels)
    data.dim(2).set_stride(1)
    return data


def interleave(out):
    """Have three channels of an output next to each other."""
    out.output_buffer().dim(0).set_stride(3)
    out.output_buffer().dim(2).set_stride(1)


def masked_variance(target, *, width, height):
    c = hl.Var("c")
    data, mask = interleaved("data", U8, width, height), image("mask", U8, width, height)
    r = hl.RDom([(0, width), (0, height)], "r")
    r.where(mask[r.x, r.y] > 127)
    sums, out = hl.Func("sums"), hl.Func("out")
    value = hl.u64(data[r.x, r.y, c])
    sums[c] = (hl.u32(0), hl.u64(0), hl.u64(0))
    sums[c] = (sums[c][0] + hl.u32(1), sums[c][1] + value, sums[c][2] + value * value)
    count = hl.f64(hl.max(sums[c][0], hl.u32(1)))
    mean = hl.f64(sums[c][1]) / count
    out[c] = (hl.f32(mean), hl.f32(hl.f64(sums[c][2]) / count - mean * mean))
    return pipeline((out, (3,)))


def _masked_variance(inputs, **_):
    chosen = inputs["data"][inputs["mask"] > 127].astype(float)
    return single(chosen.mean(axis=0)) + single(chosen.var(axis=0))


def adaptive_threshold(target, *, width, height, radius):
    x, y = hl.vars("x y")
    data = image("data", U8, width, height)
    across, total, out = hl.Func("across"), hl.Func("total"), hl.Func("out")
    r, s = hl.RDom([(1, width)], "r"), hl.RDom([(1, height)], "s")
    across[x, y] = 0
    across[r, y] = across[r - 1, y] + hl.i32(data[r - 1, y])
    total[x, y] = 0
    total[x, s] = total[x, s - 1] + across[x, s - 1]
    left, right = hl.max(x - radius, 0), hl.min(x + radius + 1, width)
    top, bottom = hl.max(y - radius, 0), hl.min(y + radius + 1, height)
    area = (right - left) * (bottom - top)
    around = total[right, bottom] - total[left, bottom] - total[right, top] + total[left, top]
    out[x, y] = hl.select(hl.i32(data[x, y]) * area * 100 > around * 85, hl.u8(255), hl.u8(0))
    return pipeline((out, (width, height)))


def _adaptive_threshold(inputs, *, width, height, radius):
    data, total = inputs["data"].astype(int), np.zeros((width + 1, height + 1), int)
    total[1:, 1:] = data.cumsum(axis=0).cumsum(axis=1)
    x, y = np.arange(width)[:, None], np.arange(height)[None, :]
    left, right = np.maximum(x - radius, 0), np.minimum(x + radius + 1, width)
    top, bottom = np.maximum(y - radius, 0), np.minimum(y + radius + 1, height)
    around = total[right, bottom] - total[left, bottom] - total[right, top] + total[left, top]
    bright = data * (right - left) * (bottom - top) * 100 > around * 85
    return (np.where(bright, 255, 0).astype(np.uint8),)


def spread_labels(target, *, width, height, steps):
    x, y = hl.vars("x y")
    data = image("data", U8, width, height)
    none, current = hl.u32(0), hl.Func("start")
    current[x, y] = hl.select(data[x, y] > 140, hl.u32(y * width + x + 1), none)
    for step in range(steps):
        near = hl.BoundaryConditions.constant_exterior(current, none, [(0, width), (0, height)])
        r, after = hl.RDom([(-1, 3), (-1, 3)], f"r_{step}"), hl.Func(f"labels_{step}")
        label = near[x + r.x, y + r.y]
        lowest = hl.minimum(hl.select(label == 0, hl.u32(0xFFFFFFFF), label))
        after[x, y] = hl.select(near[x, y] == 0, none, lowest)
        current = after
    return pipeline((current, (width, height)))


def _spread_labels(inputs, *, width, height, steps):
    ink = inputs["data"] > 140
    labels = np.where(ink, np.arange(width)[:, None] + width * np.arange(height) + 1, 0)
    for _ in range(steps):
        p = np.pad(np.where(ink, labels, 1 << 40), 1, constant_values=1 << 40)
        windows = np.lib.stride_tricks.sliding_window_view(p, (3, 3))
        labels = np.where(ink, windows.min(axis=(2, 3)), 0)
    return (labels.astype(np.uint32),)


def blend_packed(target, *, width, height):
    x, y = hl.vars("x y")
    top, below = image("top", U32, width, height), image("below", U32, width, height)
    out = hl.Func("out")
    a, b = top[x, y], below[x, y]
    alpha = (a >> 24) + (a >> 31)
    rest = 256 - alpha
    outer = (((a & 0xFF00FF) * alpha + (b & 0xFF00FF) * rest) >> 8) & 0xFF00FF
    green = (((a >> 8) & 0xFF) * alpha + ((b >> 8) & 0xFF) * rest) & 0xFF00
    out[x, y] = hl.u32(0xFF000000) | outer | green
    return pipeline((out, (width, height)))


def _blend_packed(inputs, **_):
    a, b = inputs["top"].astype(np.int64), inputs["below"].astype(np.int64)
    alpha, found = (a >> 24) + (a >> 31), np.full(a.shape, 0xFF000000, np.int64)
    for shift in (0, 8, 16):
        mixed = (a >> shift & 255) * alpha + (b >> shift & 255) * (256 - alpha)
        found |= mixed >> 8 << shift
    return (found.astype(np.uint32),)


def unpack_nv12(target, *, width, height):
    x, y = hl.vars("x y")
    data = image("data", U8, width, height * 3 // 2)  # luma, then rows of u v u v
    yuv, red, green, blue = (hl.Func(n) for n in ("yuv", "red", "green", "blue"))
    u, v = (hl.i32(data[x // 2 * 2 + k, height + y // 2]) - 128 for k in (0, 1))
    yuv[x, y] = (298 * (hl.i32(data[x, y]) - 16) + 128, u, v)
    light, u, v = (yuv[x, y][k] for k in range(3))
    red[x, y] = hl.u8_sat((light + 409 * v) >> 8)
    green[x, y] = hl.u8_sat((light - 100 * u - 208 * v) >> 8)
    blue[x, y] = hl.u8_sat((light + 516 * u) >> 8)
    return pipeline(*((f, (width, height)) for f in (red, green, blue)))


def _unpack_nv12(inputs, *, width, height):
    data = inputs["data"].astype(np.int64)
    light = 298 * (data[:, :height] - 16) + 128
    u, v = (data[k::2, height:].repeat(2, 0).repeat(2, 1) - 128 for k in (0, 1))
    planes = (light + 409 * v, light - 100 * u - 208 * v, light + 516 * u)
    return tuple(np.clip(p >> 8, 0, 255).astype(np.uint8) for p in planes)


def bin_bayer(target, *, width, height):
    x, y, c = hl.vars("x y c")
    raw, gains = image("raw", U16, 4 * width, 4 * height), image("gains", U16, 4)
    black = scalar("black", U16, 64)
    r, sums, out = hl.RDom([(0, 2), (0, 2)], "r"), hl.Func("sums"), hl.Func("out")
    value = raw[4 * x + c % 2 + 2 * r.x, 4 * y + c // 2 + 2 * r.y]
    sums[x, y, c] += hl.u32(hl.saturating_sub(value, black))
    out[x, y, c] = hl.u16_sat((sums[x, y, c] * hl.u32(gains[c])) >> 10)
    return pipeline((out, (width, height, 4)))


def _bin_bayer(inputs, *, width, height):
    value = np.maximum(inputs["raw"].astype(np.int64) - 64, 0)
    sums = value.reshape(width, 2, 2, height, 2, 2).sum(axis=(1, 4))
    scaled = sums.transpose(0, 2, 3, 1).reshape(width, height, 4) * inputs["gains"] >> 10
    return (np.minimum(scaled, 65535).astype(np.uint16),)


def projections(target, *, width, height):
    x, y = hl.vars("x y")
    data, level = image("data", U8, width, height), scalar("level", U8, 100)
    ink, columns, rows = hl.Func("ink"), hl.Func("columns"), hl.Func("rows")
    r, s = hl.RDom([(0, width)], "r"), hl.RDom([(0, height)], "s")
    ink[x, y] = hl.select(data[x, y] < level, hl.u16(1), hl.u16(0))
    columns[x] += ink[x, s]
    rows[y] += ink[r, y]
    return pipeline((columns, (width,)), (rows, (height,)))


def _projections(inputs, **_):
    ink = inputs["data"] < 100
    return tuple(ink.sum(axis=d, dtype=np.uint16) for d in (1, 0))


def distance_map(target, *, width, height, radius):
    x, y = hl.vars("x y")
    data = image("data", U8, width, height)
    across, out = hl.Func("across"), hl.Func("out")
    r, s = hl.RDom([(1, width - 1)], "r"), hl.RDom([(-radius, 2 * radius + 1)], "s")
    back = width - 1 - r
    across[x, y] = hl.select(data[x, y] > 250, hl.u16(0), hl.u16(10000))
    across[r, y] = hl.min(across[r, y], across[r - 1, y] + hl.u16(1))
    across[back, y] = hl.min(across[back, y], across[back + 1, y] + hl.u16(1))
    side = hl.i32(across[x, hl.clamp(y + s, 0, height - 1)])
    out[x, y] = hl.sqrt(hl.f32(hl.minimum(side * side + s * s)))
    return pipeline((out, (width, height)))


def _distance_map(inputs, *, width, height, radius):
    x = np.arange(width)
    apart = np.abs(x[:, None, None] - x[None, :, None])
    across = np.where(inputs["data"][None] > 250, apart, 10000).min(axis=1)
    squares = [
        across[:, (np.arange(height) + s).clip(0, height - 1)] ** 2 + s * s
        for s in range(-radius, radius + 1)
    ]
    return single(np.sqrt(np.min(squares, axis=0)))


def follow_flow(target, *, width, height):
    x, y, c = hl.vars("x y c")
    data = interleaved("data", U8, width, height)
    flow = interleaved("flow", F32, width, height, 2)
    out = hl.Func("out")
    u = hl.clamp(x + flow[x, y, 0], 0.0, float(width - 1))
    v = hl.clamp(y + flow[x, y, 1], 0.0, float(height - 1))
    left, top = hl.clamp(hl.i32(u), 0, width - 2), hl.clamp(hl.i32(v), 0, height - 2)
    four = [hl.f32(data[left + i, top + j, c]) for j in (0, 1) for i in (0, 1)]
    upper, lower = hl.lerp(four[0], four[1], u - left), hl.lerp(four[2], four[3], u - left)
    out[x, y, c] = hl.u8(hl.lerp(upper, lower, v - top) + 0.5)
    interleave(out)
    return pipeline((out, (width, height, 3)))


def _follow_flow(inputs, *, width, height):
    data, flow = inputs["data"].astype(float), inputs["flow"].astype(float)
    u = np.clip(np.arange(width)[:, None] + flow[..., 0], 0, width - 1)
    v = np.clip(np.arange(height) + flow[..., 1], 0, height - 1)
    i, j = u.astype(int).clip(0, width - 2), v.astype(int).clip(0, height - 2)
    a, b = (u - i)[..., None], (v - j)[..., None]
    upper = data[i, j] * (1 - a) + data[i + 1, j] * a
    lower = data[i, j + 1] * (1 - a) + data[i + 1, j + 1] * a
    return ((upper * (1 - b) + lower * b + 0.5).astype(np.uint8),)


def find_template(target, *, width, height, size):
    x, y = hl.vars("x y")
    data, patch = image("data", U8, width + size, height + size), image("patch", U8, size, size)
    r = hl.RDom([(0, size), (0, size)], "r")
    sums, own, out = hl.Func("sums"), hl.Func("own"), hl.Func("out")
    a, b = hl.i32(data[x + r.x, y + r.y]), hl.i32(patch[r.x, r.y])
    sums[x, y] = (0, 0, 0)
    sums[x, y] = (sums[x, y][0] + a, sums[x, y][1] + a * a, sums[x, y][2] + a * b)
    own[()] = (0, 0)
    own[()] = (own[()][0] + b, own[()][1] + b * b)
    s, t, area = sums[x, y], own[()], size * size
    spread = hl.f32(area * s[1] - s[0] * s[0]) * hl.f32(area * t[1] - t[0] * t[0])
    out[x, y] = hl.f32(area * s[2] - s[0] * t[0]) / hl.sqrt(hl.max(spread, 1.0))
    return pipeline((out, (width, height)))


def _find_template(inputs, *, width, height, size):
    data, patch = inputs["data"].astype(float), inputs["patch"].astype(float)
    windows = np.lib.stride_tricks.sliding_window_view(data, (size, size))[:width, :height]
    apart, own = windows - windows.mean(axis=(2, 3), keepdims=True), patch - patch.mean()
    spread = (apart**2).sum(axis=(2, 3)) * (own**2).sum()
    return single((apart * own).sum(axis=(2, 3)) / np.sqrt(spread))


def merge_exposures(target, *, width, height):
    x, y, c = hl.vars("x y c")
    shots = image("shots", U8, width, height, 3, 3)
    response, times = image("response", F32, 256), image("times", F32, 3)
    k, sums, out = hl.RDom([(0, 3)], "k"), hl.Func("sums"), hl.Func("out")
    value = shots[x, y, c, k]
    weight = hl.f32(hl.min(value, 255 - value)) + 0.5
    light = response[hl.i32(value)] / times[k]
    sums[x, y, c] = (hl.f32(0), hl.f32(0))
    sums[x, y, c] = (sums[x, y, c][0] + weight * light, sums[x, y, c][1] + weight)
    out[x, y, c] = sums[x, y, c][0] / sums[x, y, c][1]
    return pipeline((out, (width, height, 3)))


def _merge_exposures(inputs, **_):
    shots = inputs["shots"].astype(int)
    weight = np.minimum(shots, 255 - shots) + 0.5
    light = inputs["response"].astype(float)[shots] / inputs["times"]
    return single((weight * light).sum(axis=3) / weight.sum(axis=3))


def tone_map(target, *, width, height):
    x, y, c = hl.vars("x y c")
    data, key = image("data", F32, width, height, 3), scalar("key", F32, 0.18)
    light, total, out = hl.Func("light"), hl.Func("total"), hl.Func("out")
    r = hl.RDom([(0, width), (0, height)], "r")
    light[x, y] = 0.2126 * data[x, y, 0] + 0.7152 * data[x, y, 1] + 0.0722 * data[x, y, 2]
    total[()] = hl.f64(0)
    total[()] += hl.f64(hl.log(0.0001 + light[r.x, r.y]))
    scale = key / hl.exp(hl.f32(total[()] / (width * height)))
    shown = scale * (1.0 + scale * light[x, y] / 4.0) / (1.0 + scale * light[x, y])
    out[x, y, c] = hl.u8_sat(255.0 * hl.sqrt(shown * data[x, y, c]) + 0.5)
    return pipeline((out, (width, height, 3)))


def _tone_map(inputs, **_):
    data = inputs["data"].astype(float)
    light = data @ (0.2126, 0.7152, 0.0722)
    scale = 0.18 / np.exp(np.log(0.0001 + light).mean())
    shown = scale * (1 + scale * light / 4) / (1 + scale * light)
    return (np.clip(255 * np.sqrt(shown[..., None] * data) + 0.5, 0, 255).astype(np.uint8),)


def balance_white(target, *, width, height):
    c, x, y = hl.vars("c x y")
    data = image("data", U8, 3, width, height)
    r, k = hl.RDom([(0, width), (0, height)], "r"), hl.RDom([(0, 3)], "k")
    sums, gain, out = hl.Func("sums"), hl.Func("gain"), hl.Func("out")
    sums[c] += hl.u32(data[c, r.x, r.y])
    gain[c] = hl.sum(hl.f32(sums[k])) / (3.0 * hl.max(hl.f32(sums[c]), 1.0))
    out[c, x, y] = hl.u8_sat(gain[c] * data[c, x, y] + 0.5)
    return pipeline((out, (3, width, height)))


def _balance_white(inputs, **_):
    sums = inputs["data"].sum(axis=(1, 2), dtype=float)
    scaled = inputs["data"] * (sums.mean() / sums)[:, None, None] + 0.5
    return (np.clip(scaled, 0, 255).astype(np.uint8),)


def equalise_tiles(target, *, columns, rows, tile):
    x, y, b, i, j = hl.vars("x y b i j")
    data = image("data", U8, columns * tile, rows * tile)
    counts, excess, curve, out = (hl.Func(n) for n in ("counts", "excess", "curve", "out"))
    r, s = hl.RDom([(0, tile), (0, tile)], "r"), hl.RDom([(0, 256)], "s")
    t, limit = hl.RDom([(1, 255)], "t"), max(tile * tile // 64, 2)
    counts[b, i, j] = 0
    counts[hl.i32(data[i * tile + r.x, j * tile + r.y]), i, j] += 1
    excess[i, j] += hl.max(counts[s, i, j] - limit, 0)
    curve[b, i, j] = hl.f32(hl.min(counts[b, i, j], limit)) + hl.f32(excess[i, j]) / 256.0
    curve[t, i, j] += curve[t - 1, i, j]
    u = hl.clamp((x + 0.5) / float(tile) - 0.5, 0.0, columns - 1.0)
    v = hl.clamp((y + 0.5) / float(tile) - 0.5, 0.0, rows - 1.0)
    left, top = hl.clamp(hl.i32(u), 0, columns - 2), hl.clamp(hl.i32(v), 0, rows - 2)
    four = [curve[hl.i32(data[x, y]), left + i, top + j] for j in (0, 1) for i in (0, 1)]
    upper, lower = hl.lerp(four[0], four[1], u - left), hl.lerp(four[2], four[3], u - left)
    out[x, y] = hl.u8_sat(hl.lerp(upper, lower, v - top) * (255.0 / (tile * tile)))
    return pipeline((out, (columns * tile, rows * tile)))


def _equalise_tiles(inputs, *, columns, rows, tile):
    data, limit = inputs["data"], max(tile * tile // 64, 2)
    tiles = data.reshape(columns, tile, rows, tile).transpose(0, 2, 1, 3).reshape(-1, tile * tile)
    counts = np.array([np.bincount(t, minlength=256) for t in tiles]).reshape(columns, rows, 256)
    excess = np.maximum(counts - limit, 0).sum(axis=2, keepdims=True)
    curve = (np.minimum(counts, limit) + excess / 256).cumsum(axis=2)
    u = ((np.arange(columns * tile) + 0.5) / tile - 0.5).clip(0, columns - 1)[:, None]
    v = ((np.arange(rows * tile) + 0.5) / tile - 0.5).clip(0, rows - 1)[None, :]
    i, j = u.astype(int).clip(0, columns - 2), v.astype(int).clip(0, rows - 2)
    upper = curve[i, j, data] * (1 - u + i) + curve[i + 1, j, data] * (u - i)
    lower = curve[i, j + 1, data] * (1 - u + i) + curve[i + 1, j + 1, data] * (u - i)
    found = (upper * (1 - v + j) + lower * (v - j)) * 255 / tile**2
    return (np.clip(found, 0, 255).astype(np.uint8),)


def sharpen(target, *, width, height):
    x, y, c = hl.vars("x y c")
    data = interleaved("data", U8, width + 4, height + 4)
    weights = image("weights", I16, 5, 5)
    r, total, out = hl.RDom([(0, 5), (0, 5)], "r"), hl.Func("total"), hl.Func("out")
    total[x, y, c] = 32
    total[x, y, c] += hl.i32(weights[r.x, r.y]) * hl.i32(data[x + r.x, y + r.y, c])
    out[x, y, c] = hl.u8_sat(hl.i32(data[x + 2, y + 2, c]) + (total[x, y, c] >> 6))
    interleave(out)
    return pipeline((out, (width, height, 3)))


def _sharpen(inputs, **_):
    data = inputs["data"].astype(np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(data, (5, 5), axis=(0, 1))
    total = np.einsum("xycij,ij->xyc", windows, inputs["weights"].astype(np.int64)) + 32
    return (np.clip(data[2:-2, 2:-2] + (total >> 6), 0, 255).astype(np.uint8),)


def outline(target, *, width, height):
    x, y = hl.vars("x y")
    edge, out = clamped(image("data", U8, width, height)), hl.Func("out")
    r = hl.RDom([(-4, 9), (-4, 9)], "r")
    r.where(r.x * r.x + r.y * r.y <= 18)
    near = edge[x + r.x, y + r.y]
    out[x, y] = hl.maximum(near) - hl.minimum(near)
    return pipeline((out, (width, height)))


def _outline(inputs, **_):
    data = np.pad(inputs["data"], 4, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(data, (9, 9))
    i, j = np.mgrid[-4:5, -4:5]
    near = windows[:, :, i * i + j * j <= 18]
    return (near.max(axis=2) - near.min(axis=2),)


def guided_filter(target, *, width, height):
    x, y = hl.vars("x y")
    guide, data = (clamped(image(name, F32, width, height)) for name in ("guide", "data"))
    r, s = hl.RDom([(-4, 9)], "r"), hl.RDom([(-4, 9)], "s")

    def averaged(f, n, name):
        across, down = hl.Func(f"across_{name}"), hl.Func(f"down_{name}")
        across[x, y] = (hl.f32(0),) * n
        across[x, y] = tuple(across[x, y][k] + f[x + r, y][k] for k in range(n))
        down[x, y] = (hl.f32(0),) * n
        down[x, y] = tuple(down[x, y][k] + across[x, y + s][k] / 81.0 for k in range(n))
        return [down[x, y][k] for k in range(n)]

    products, line, out = hl.Func("products"), hl.Func("line"), hl.Func("out")
    g, p = guide[x, y], data[x, y]
    products[x, y] = (g, p, g * g, g * p)
    mean_g, mean_p, mean_gg, mean_gp = averaged(products, 4, "products")
    slope = (mean_gp - mean_g * mean_p) / (mean_gg - mean_g * mean_g + 0.01)
    line[x, y] = (slope, mean_p - slope * mean_g)
    slope, start = averaged(line, 2, "line")
    out[x, y] = slope * g + start
    return pipeline((out, (width, height)))


def halftone(target, *, width, height):
    x, y = hl.vars("x y")
    data, screen = image("data", U8, 8 * width, height), image("screen", U8, 8, 8)
    r, out = hl.RDom([(0, 8)], "r"), hl.Func("out")
    out[x, y] = hl.u8(0)
    bit = hl.u8(128) >> hl.u8(r)
    out[x, y] = out[x, y] | hl.select(data[8 * x + r, y] > screen[r, y % 8], bit, hl.u8(0))
    return pipeline((out, (width, height)))


def _halftone(inputs, *, width, height):
    screen = np.tile(inputs["screen"], (width, height // 8 + 1))[:, :height]
    return (np.packbits(inputs["data"] > screen, axis=0),)


def census_match(target, *, width, height, shifts):
    x, y = hl.vars("x y")
    r, s = hl.RDom([(-4, 9), (-3, 7)], "r"), hl.RDom([(0, shifts)], "s")
    codes, out = [], hl.Func("out")
    for name in ("left", "right"):
        edge, code = clamped(image(name, U8, width, height)), hl.Func(f"code_{name}")
        code[x, y] = hl.u64(0)
        brighter = hl.u64(edge[x + r.x, y + r.y] > edge[x, y])
        code[x, y] = (code[x, y] << 1) | brighter
        codes.append(code)
    best = hl.argmin(hl.u8(hl.popcount(codes[0][x, y] ^ codes[1][x - s, y])))
    out[x, y] = (hl.u8(best[0]), best[1])
    return pipeline((out, (width, height)))


def label_boxes(target, *, width, height):
    k = hl.Var("k")
    labels = image("labels", U8, width, height)
    r, out = hl.RDom([(0, width), (0, height)], "r"), hl.Func("out")
    at = hl.i32(labels[r.x, r.y])
    out[k] = (width, height, -1, -1, 0)
    left, top, right, bottom, count = (out[at][n] for n in range(5))
    out[at] = (
        hl.min(left, r.x), hl.min(top, r.y), hl.max(right, r.x), hl.max(bottom, r.y), count + 1
    )  # fmt: skip
    return pipeline((out, (256,)))


def _label_boxes(inputs, *, width, height):
    found = np.tile(np.array([width, height, -1, -1, 0], np.int32)[:, None], 256)
    for k in range(256):
        i, j = np.nonzero(inputs["labels"] == k)
        if len(i):
            found[:, k] = i.min(), j.min(), i.max(), j.max(), len(i)
    return tuple(found)


PROGRAMS = (
    Program(masked_variance, PICTURE, PICTURE_SMALL, _masked_variance),
    Program(
        adaptive_threshold, {**PICTURE, "radius": 12}, {**PICTURE_SMALL, "radius": 3},
        _adaptive_threshold,
    ),
    Program(spread_labels, {**BOTH, "steps": 4}, {**PICTURE_SMALL, "steps": 3}, _spread_labels),
    Program(blend_packed, PICTURE, PICTURE_SMALL, _blend_packed),
    Program(unpack_nv12, PICTURE, PICTURE_SMALL, _unpack_nv12),
    Program(
        bin_bayer, {"width": 640, "height": 480}, {"width": 14, "height": 9}, _bin_bayer,
        {"raw": (0, 1024), "gains": (900, 3000)},
    ),
    Program(projections, {"width": 2480, "height": 3508}, PICTURE_SMALL, _projections),
    Program(distance_map, {**BOTH, "radius": 10}, {**PICTURE_SMALL, "radius": 4}, _distance_map),
    Program(follow_flow, BOTH, PICTURE_SMALL, _follow_flow, {"flow": (-6, 6)}),
    Program(
        find_template, {"width": 480, "height": 360, "size": 12}, {**PICTURE_SMALL, "size": 5},
        _find_template,
    ),
    Program(merge_exposures, BOTH, PICTURE_SMALL, _merge_exposures, {"times": (0.5, 4.0)}),
    Program(tone_map, BOTH, PICTURE_SMALL, _tone_map),
    Program(balance_white, PICTURE, PICTURE_SMALL, _balance_white),
    Program(
        equalise_tiles, {"columns": 24, "rows": 16, "tile": 64},
        {"columns": 4, "rows": 3, "tile": 10}, _equalise_tiles,
    ),
    Program(sharpen, BOTH, PICTURE_SMALL, _sharpen, {"weights": (-9, 9)}),
    Program(outline, BOTH, PICTURE_SMALL, _outline),
    Program(guided_filter, BOTH, PICTURE_SMALL),
    Program(halftone, {"width": 512, "height": 2048}, {"width": 7, "height": 21}, _halftone),
    Program(
        census_match, {"width": 640, "height": 480, "shifts": 16}, {**PICTURE_SMALL, "shifts": 5}
    ),
    Program(label_boxes, PICTURE, PICTURE_SMALL, _label_boxes),
)  # fmt: skip
