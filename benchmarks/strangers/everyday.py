"""Short programs as users write them on their first day, mostly with a reduction as the output."""

from __future__ import annotations

import halide as hl
import numpy as np

from strangers.kit import F32, I16, I32, U8, U16, U32, Program, clamped, image, pipeline, single


def product(target, *, n):
    x, y = hl.vars("x y")
    a, b = image("a", F32, n, n), image("b", F32, n, n)
    k, out = hl.RDom([(0, n)], "k"), hl.Func("out")
    out[x, y] = 0.0
    out[x, y] += a[k, y] * b[x, k]
    return pipeline((out, (n, n)))


def _product(inputs, *, n):
    return single(np.einsum("ky,xk->xy", inputs["a"].astype(float), inputs["b"]))


def batched_product(target, *, n, batch):
    x, y, z = hl.vars("x y z")
    a, b = image("a", F32, n, n, batch), image("b", F32, n, n, batch)
    k, out = hl.RDom([(0, n)], "k"), hl.Func("out")
    out[x, y, z] = 0.0
    out[x, y, z] += a[k, y, z] * b[x, k, z]
    return pipeline((out, (n, n, batch)))


def _batched_product(inputs, *, n, batch):
    return single(np.einsum("kyz,xkz->xyz", inputs["a"].astype(float), inputs["b"]))


def conv_with_bias(target, *, channels, size):
    c, x, y = hl.vars("c x y")
    data = image("data", F32, channels, size + 2, size + 2)
    weights, bias = image("weights", F32, channels, 3, 3, channels), image("bias", F32, channels)
    r, out = hl.RDom([(0, channels), (0, 3), (0, 3)], "r"), hl.Func("out")
    out[c, x, y] = bias[c]
    out[c, x, y] += weights[c, r.y, r.z, r.x] * data[r.x, x + r.y, y + r.z]
    return pipeline((out, (channels, size, size)))


def fir(target, *, taps, n):
    x = hl.Var("x")
    data, taps_in = image("data", F32, n + taps), image("taps", F32, taps)
    r, out = hl.RDom([(0, taps)], "r"), hl.Func("out")
    out[x] += data[x + r] * taps_in[r]
    return pipeline((out, (n,)))


def _fir(inputs, *, taps, n):
    windows = np.lib.stride_tricks.sliding_window_view(inputs["data"].astype(float), taps)
    return single((windows @ inputs["taps"])[:n])


def argmax_rows(target, *, columns, rows):
    y = hl.Var("y")
    data = image("data", F32, columns, rows)
    r, out = hl.RDom([(0, columns)], "r"), hl.Func("out")
    out[y] = hl.argmax(data[r, y])[0]
    return pipeline((out, (rows,)))


def _argmax_rows(inputs, *, columns, rows):
    return (inputs["data"].argmax(axis=0).astype(np.int32),)


def running_sums(target, *, columns, rows):
    x, y = hl.vars("x y")
    data = image("data", F32, columns, rows)
    r, out = hl.RDom([(1, columns - 1)], "r"), hl.Func("out")
    out[x, y] = data[x, y]
    out[r, y] += out[r - 1, y]
    return pipeline((out, (columns, rows)))


def _running_sums(inputs, *, columns, rows):
    return single(inputs["data"].astype(float).cumsum(axis=0))


def running_columns(target, *, columns, rows):
    x, y = hl.vars("x y")
    data = image("data", F32, columns, rows)
    r, out = hl.RDom([(1, rows - 1)], "r"), hl.Func("out")
    out[x, y] = data[x, y]
    out[x, r] += out[x, r - 1]
    return pipeline((out, (columns, rows)))


def _running_columns(inputs, *, columns, rows):
    return single(inputs["data"].astype(float).cumsum(axis=1))


def pool2x2(target, *, size, channels):
    x, y, c = hl.vars("x y c")
    data = image("data", F32, 2 * size, 2 * size, channels)
    r, out = hl.RDom([(0, 2), (0, 2)], "r"), hl.Func("out")
    out[x, y, c] = hl.maximum(data[2 * x + r.x, 2 * y + r.y, c])
    return pipeline((out, (size, size, channels)))


def _pool2x2(inputs, *, size, channels):
    return single(inputs["data"].reshape(size, 2, size, 2, channels).max(axis=(1, 3)))


def distances(target, *, points, width):
    i, j = hl.vars("i j")
    a, b = image("a", F32, width, points), image("b", F32, width, points)
    r, out = hl.RDom([(0, width)], "r"), hl.Func("out")
    d = a[r, i] - b[r, j]
    out[i, j] = hl.sqrt(hl.sum(d * d))
    return pipeline((out, (points, points)))


def _distances(inputs, *, points, width):
    a, b = inputs["a"].astype(float), inputs["b"].astype(float)
    return single(np.sqrt(((a[:, :, None] - b[:, None, :]) ** 2).sum(axis=0)))


def nearest_centre(target, *, points, centres, width):
    i, k = hl.vars("i k")
    a, b = image("a", F32, width, points), image("b", F32, width, centres)
    r, s = hl.RDom([(0, width)], "r"), hl.RDom([(0, centres)], "s")
    d, out = hl.Func("d"), hl.Func("out")
    d[k, i] += (a[r, i] - b[r, k]) * (a[r, i] - b[r, k])
    out[i] = hl.argmin(d[s, i])[0]
    return pipeline((out, (points,)))


def _nearest_centre(inputs, *, points, centres, width):
    a, b = inputs["a"].astype(float), inputs["b"].astype(float)
    return (((a[:, :, None] - b[:, None, :]) ** 2).sum(axis=0).argmin(axis=1).astype(np.int32),)


def bodies(target, *, n):
    i = hl.Var("i")
    p, mass = image("p", F32, n, 3), image("mass", F32, n)
    r, out = hl.RDom([(0, n)], "r"), hl.Func("out")
    d = [p[r, k] - p[i, k] for k in range(3)]
    square = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + 0.01
    inverse = mass[r] / (square * hl.sqrt(square))
    out[i] = (hl.f32(0), hl.f32(0), hl.f32(0))
    out[i] = tuple(out[i][k] + d[k] * inverse for k in range(3))
    return pipeline((out, (n,)))


def _bodies(inputs, *, n):
    p = inputs["p"].astype(float)
    d = p[None, :, :] - p[:, None, :]
    weight = inputs["mass"] / ((d**2).sum(axis=2) + 0.01) ** 1.5
    return tuple((d * weight[:, :, None]).sum(axis=1).astype(np.float32).T)


def sparse_rows(target, *, rows, width):
    i = hl.Var("i")
    values, columns = image("values", F32, rows, width), image("columns", I32, rows, width)
    vector = image("vector", F32, rows)
    r, out = hl.RDom([(0, width)], "r"), hl.Func("out")
    out[i] += values[i, r] * vector[hl.clamp(columns[i, r], 0, rows - 1)]
    return pipeline((out, (rows,)))


def _sparse_rows(inputs, *, rows, width):
    columns = inputs["columns"].clip(0, rows - 1)
    return single((inputs["values"].astype(float) * inputs["vector"][columns]).sum(axis=1))


def jacobi3d(target, *, size, steps):
    x, y, z = hl.vars("x y z")
    data = image("data", F32, size, size, size)
    current = clamped(data)
    for step in range(steps):
        after = hl.Func(f"step_{step}")
        after[x, y, z] = (
            current[x - 1, y, z] + current[x + 1, y, z] + current[x, y - 1, z]
            + current[x, y + 1, z] + current[x, y, z - 1] + current[x, y, z + 1]
        ) * (1 / 6)  # fmt: skip
        current = after
    return pipeline((current, (size, size, size)))


def conv3d(target, *, size):
    x, y, z = hl.vars("x y z")
    data, weights = image("data", F32, size + 2, size + 2, size + 2), image("weights", F32, 3, 3, 3)
    r, out = hl.RDom([(0, 3), (0, 3), (0, 3)], "r"), hl.Func("out")
    out[x, y, z] += data[x + r.x, y + r.y, z + r.z] * weights[r.x, r.y, r.z]
    return pipeline((out, (size, size, size)))


def _conv3d(inputs, *, size):
    windows = np.lib.stride_tricks.sliding_window_view(inputs["data"].astype(float), (3, 3, 3))
    return single(np.einsum("xyzijk,ijk->xyz", windows, inputs["weights"]))


def blocks_dct(target, *, size):
    x, y = hl.vars("x y")
    data, basis = image("data", F32, size, size), image("basis", F32, 8, 8)
    r = hl.RDom([(0, 8)], "r")
    rows, out = hl.Func("rows"), hl.Func("out")
    rows[x, y] += data[x // 8 * 8 + r, y] * basis[r, x % 8]
    out[x, y] += rows[x, y // 8 * 8 + r] * basis[r, y % 8]
    return pipeline((out, (size, size)))


def stereo(target, *, width, height, shifts, window):
    x, y, d = hl.vars("x y d")
    left, right = image("left", U8, width, height), image("right", U8, width, height)
    a, b = clamped(left), clamped(right)
    cost, sums, out = hl.Func("cost"), hl.Func("sums"), hl.Func("out")
    w, s = hl.RDom([(-(window // 2), window)] * 2, "w"), hl.RDom([(0, shifts)], "s")
    cost[x, y, d] = hl.cast(U16, hl.absd(a[x, y], b[x - d, y]))
    sums[x, y, d] += cost[x + w.x, y + w.y, d]
    out[x, y] = hl.cast(U8, hl.argmin(sums[x, y, s])[0])
    return pipeline((out, (width, height)))


def joint_histogram(target, *, size, bins):
    i, j = hl.vars("i j")
    a, b = image("a", U8, size, size), image("b", U8, size, size)
    r, out = hl.RDom([(0, size), (0, size)], "r"), hl.Func("out")
    out[i, j] = hl.u32(0)
    scale = 256 // bins
    out[hl.i32(a[r.x, r.y]) // scale, hl.i32(b[r.x, r.y]) // scale] += hl.u32(1)
    return pipeline((out, (bins, bins)))


def _joint_histogram(inputs, *, size, bins):
    scale = 256 // bins
    found = np.zeros((bins, bins), np.uint32)
    np.add.at(found, (inputs["a"].ravel() // scale, inputs["b"].ravel() // scale), 1)
    return (found,)


def transposed(target, *, width, height):
    x, y = hl.vars("x y")
    data, out = image("data", U8, height, width), hl.Func("out")
    out[x, y] = data[y, x]
    return pipeline((out, (width, height)))


def _transposed(inputs, *, width, height):
    return (inputs["data"].T,)


def quarter_turn(target, *, width, height):
    x, y, c = hl.vars("x y c")
    data, out = image("data", U8, height, width, 3), hl.Func("out")
    out[x, y, c] = data[y, width - 1 - x, c]
    return pipeline((out, (width, height, 3)))


def _quarter_turn(inputs, *, width, height):
    return (inputs["data"].transpose(1, 0, 2)[::-1],)


def life(target, *, size, steps):
    x, y = hl.vars("x y")
    data = image("data", U8, size, size)
    start = hl.Func("start")
    start[x, y] = data[x, y] & 1
    current = hl.BoundaryConditions.repeat_image(start, [(0, size), (0, size)])
    for step in range(steps):
        r = hl.RDom([(-1, 3), (-1, 3)], f"r_{step}")
        around, after = hl.Func(f"around_{step}"), hl.Func(f"life_{step}")
        around[x, y] += current[x + r.x, y + r.y]
        alive = current[x, y]
        after[x, y] = hl.select(
            (around[x, y] == 3) | ((alive == 1) & (around[x, y] == 4)), hl.u8(1), hl.u8(0)
        )
        current = after
    return pipeline((current, (size, size)))


def bilateral5x5(target, *, width, height):
    x, y = hl.vars("x y")
    data = image("data", F32, width, height)
    source, out = clamped(data), hl.Func("out")
    r = hl.RDom([(-2, 5), (-2, 5)], "r")
    near = source[x + r.x, y + r.y]
    apart = near - source[x, y]
    weight = hl.exp(-(apart * apart) * 4.0 - hl.f32(r.x * r.x + r.y * r.y) * 0.1)
    sums = hl.Func("sums")
    sums[x, y] = (hl.f32(0), hl.f32(0))
    sums[x, y] = (sums[x, y][0] + weight * near, sums[x, y][1] + weight)
    out[x, y] = sums[x, y][0] / sums[x, y][1]
    return pipeline((out, (width, height)))


def thin_edges(target, *, width, height):
    x, y = hl.vars("x y")
    data = image("data", U8, width, height)
    source = clamped(data)
    a = hl.Func("a")
    a[x, y] = hl.cast(I16, source[x, y])
    gx, gy, size, out = (hl.Func(n) for n in ("gx", "gy", "size", "out"))
    gx[x, y] = (
        a[x + 1, y - 1]
        + 2 * a[x + 1, y]
        + a[x + 1, y + 1]
        - (a[x - 1, y - 1] + 2 * a[x - 1, y] + a[x - 1, y + 1])
    )
    gy[x, y] = (
        a[x - 1, y + 1]
        + 2 * a[x, y + 1]
        + a[x + 1, y + 1]
        - (a[x - 1, y - 1] + 2 * a[x, y - 1] + a[x + 1, y - 1])
    )
    size[x, y] = hl.cast(I16, hl.abs(gx[x, y])) + hl.cast(I16, hl.abs(gy[x, y]))
    along = hl.abs(gx[x, y]) > hl.abs(gy[x, y])
    one = hl.select(along, hl.Expr(size[x - 1, y]), hl.Expr(size[x, y - 1]))
    two = hl.select(along, hl.Expr(size[x + 1, y]), hl.Expr(size[x, y + 1]))
    peak = (hl.Expr(size[x, y]) >= one) & (hl.Expr(size[x, y]) > two) & (hl.Expr(size[x, y]) > 64)
    out[x, y] = hl.select(peak, hl.u8(255), hl.u8(0))
    return pipeline((out, (width, height)))


def colours_mixed(target, *, width, height):
    c, x, y = hl.vars("c x y")
    data, matrix = image("data", U8, 3, width, height), image("matrix", F32, 3, 3)
    r, mixed, out = hl.RDom([(0, 3)], "r"), hl.Func("mixed"), hl.Func("out")
    mixed[c, x, y] += matrix[r, c] * data[r, x, y]
    out[c, x, y] = hl.cast(U8, hl.clamp(mixed[c, x, y], 0, 255))
    return pipeline((out, (3, width, height)))


def halved(target, *, width, height):
    c, x, y = hl.vars("c x y")
    data, out = image("data", U8, 3, 2 * width, 2 * height), hl.Func("out")

    def at(i, j):
        return hl.cast(U16, data[c, 2 * x + i, 2 * y + j])

    out[c, x, y] = hl.cast(U8, (at(0, 0) + at(1, 0) + at(0, 1) + at(1, 1) + 2) // 4)
    return pipeline((out, (3, width, height)))


def _halved(inputs, *, width, height):
    blocks = inputs["data"].astype(np.uint16).reshape(3, width, 2, height, 2)
    return (((blocks.sum(axis=(2, 4), dtype=np.uint16) + 2) // 4).astype(np.uint8),)


def cube_lookup(target, *, width, height, side):
    x, y, c = hl.vars("x y c")
    data = image("data", U8, width, height, 3)
    cube = image("cube", F32, side, side, side, 3)
    out = hl.Func("out")
    at, part = [], []
    for k in range(3):
        v = hl.cast(F32, data[x, y, k]) * ((side - 1) / 255)
        low = hl.clamp(hl.cast(I32, v), 0, side - 2)
        at.append(low)
        part.append(v - low)

    def mix(t, a, b):
        return a + t * (b - a)

    def corner(i, j, k):
        return cube[at[0] + i, at[1] + j, at[2] + k, c]

    planes = []
    for k in range(2):
        lines = [mix(part[0], corner(0, j, k), corner(1, j, k)) for j in range(2)]
        planes.append(mix(part[1], *lines))
    out[x, y, c] = hl.cast(U8, hl.clamp(mix(part[2], *planes) * 255, 0, 255))
    return pipeline((out, (width, height, 3)))


def enlarge_and_add(target, *, size, channels):
    x, y, c = hl.vars("x y c")
    small, large = (
        image("small", F32, size, size, channels),
        image("large", F32, 2 * size, 2 * size, channels),
    )
    out = hl.Func("out")
    out[x, y, c] = hl.max(small[x // 2, y // 2, c] + large[x, y, c], 0.0)
    return pipeline((out, (2 * size, 2 * size, channels)))


def _enlarge_and_add(inputs, *, size, channels):
    large = inputs["small"].repeat(2, axis=0).repeat(2, axis=1) + inputs["large"].astype(float)
    return single(np.maximum(large, 0.0))


def polynomial(target, *, n, degree):
    x = hl.Var("x")
    data, out = image("data", F32, n), hl.Func("out")
    e = hl.f32(0.5)
    for k in range(degree):
        e = e * data[x] + (k % 7 - 3) * 0.1
    out[x] = e
    return pipeline((out, (n,)))


def complex_fir(target, *, taps, n):
    x = hl.Var("x")
    data, taps_in = image("data", F32, n + taps, 2), image("taps", F32, taps, 2)
    r, out = hl.RDom([(0, taps)], "r"), hl.Func("out")
    out[x] = (hl.f32(0), hl.f32(0))
    a, b, c, d = data[x + r, 0], data[x + r, 1], taps_in[r, 0], taps_in[r, 1]
    out[x] = (out[x][0] + a * c - b * d, out[x][1] + a * d + b * c)
    return pipeline((out, (n,)))


def _complex_fir(inputs, *, taps, n):
    data = inputs["data"].astype(float) @ (1.0, 1.0j)
    windows = np.lib.stride_tricks.sliding_window_view(data, taps)
    found = (windows @ (inputs["taps"].astype(float) @ (1.0, 1.0j)))[:n]
    return (found.real.astype(np.float32), found.imag.astype(np.float32))


def column_sums(target, *, width, height):
    x = hl.Var("x")
    data = image("data", U8, width, height)
    r, out = hl.RDom([(0, height)], "r"), hl.Func("out")
    out[x] = hl.u32(0)
    out[x] += hl.cast(U32, data[x, r])
    return pipeline((out, (width,)))


def _column_sums(inputs, *, width, height):
    return (inputs["data"].sum(axis=1, dtype=np.uint32),)


def row_means(target, *, width, height):
    y = hl.Var("y")
    data = image("data", F32, width, height)
    r, out = hl.RDom([(0, width)], "r"), hl.Func("out")
    out[y] = hl.sum(data[r, y]) / width
    return pipeline((out, (height,)))


def _row_means(inputs, *, width, height):
    return single(inputs["data"].astype(float).mean(axis=0))


def brightest15x15(target, *, width, height):
    x, y = hl.vars("x y")
    data = image("data", U8, width, height)
    source, out = clamped(data), hl.Func("out")
    r = hl.RDom([(-7, 15), (-7, 15)], "r")
    out[x, y] = hl.maximum(source[x + r.x, y + r.y])
    return pipeline((out, (width, height)))


def moving_average(target, *, columns, rows, window):
    x, y = hl.vars("x y")
    data = image("data", F32, columns + window, rows)
    r, sums, out = hl.RDom([(1, columns - 1)], "r"), hl.Func("sums"), hl.Func("out")
    w = hl.RDom([(0, window)], "w")
    sums[x, y] = 0.0
    sums[0, y] += data[w, y]
    sums[r, y] = sums[r - 1, y] + data[r + window - 1, y] - data[r - 1, y]
    out[x, y] = sums[x, y] * (1 / window)
    return pipeline((out, (columns, rows)))


def reordered(target, *, n):
    x = hl.Var("x")
    data, place = image("data", F32, n), image("place", I32, n)
    r, out = hl.RDom([(0, n)], "r"), hl.Func("out")
    out[x] = 0.0
    out[hl.clamp(place[r], 0, n - 1)] = data[r]
    return pipeline((out, (n,)))


def centred_rows(target, *, width, rows):
    x, y = hl.vars("x y")
    data = image("data", F32, width, rows)
    r, mean, out = hl.RDom([(0, width)], "r"), hl.Func("mean"), hl.Func("out")
    mean[y] += data[r, y] * (1 / width)
    out[x, y] = data[x, y] - mean[y]
    return pipeline((out, (width, rows)))


def _centred_rows(inputs, *, width, rows):
    data = inputs["data"].astype(float)
    return single(data - data.mean(axis=0))


def log_likelihood(target, *, points, centres, width):
    i = hl.Var("i")
    k = hl.Var("k")
    a, b = image("a", F32, points, width), image("b", F32, centres, width)
    r, s = hl.RDom([(0, width)], "r"), hl.RDom([(0, centres)], "s")
    d, out = hl.Func("d"), hl.Func("out")
    d[i, k] += (a[i, r] - b[k, r]) * (a[i, r] - b[k, r])
    out[i] = hl.log(hl.sum(hl.exp(-0.5 * d[i, s])))
    return pipeline((out, (points,)))


def covariance(target, *, width, samples):
    i, j = hl.vars("i j")
    data = image("data", F32, width, samples)
    r = hl.RDom([(0, samples)], "r")
    mean, out = hl.Func("mean"), hl.Func("out")
    mean[i] += data[i, r] * (1 / samples)
    out[i, j] += (data[i, r] - mean[i]) * (data[j, r] - mean[j])
    return pipeline((out, (width, width)))


def _covariance(inputs, *, width, samples):
    data = inputs["data"].astype(float)
    apart = data - data.mean(axis=1, keepdims=True)
    return single(apart @ apart.T)


PROGRAMS = (
    Program(product, {"n": 768}, {"n": 24}, _product),
    Program(batched_product, {"n": 96, "batch": 64}, {"n": 12, "batch": 3}, _batched_product),
    Program(conv_with_bias, {"channels": 64, "size": 56}, {"channels": 8, "size": 8}),
    Program(fir, {"taps": 127, "n": 1 << 20}, {"taps": 9, "n": 200}, _fir),
    Program(argmax_rows, {"columns": 1000, "rows": 2048}, {"columns": 30, "rows": 9}, _argmax_rows),
    Program(
        running_sums, {"columns": 2048, "rows": 1024}, {"columns": 40, "rows": 9}, _running_sums
    ),
    Program(
        running_columns,
        {"columns": 2048, "rows": 1024},
        {"columns": 40, "rows": 9},
        _running_columns,
    ),
    Program(pool2x2, {"size": 256, "channels": 32}, {"size": 12, "channels": 3}, _pool2x2),
    Program(distances, {"points": 1024, "width": 64}, {"points": 20, "width": 5}, _distances),
    Program(
        nearest_centre,
        {"points": 50000, "centres": 64, "width": 16},
        {"points": 40, "centres": 7, "width": 4},
        _nearest_centre,
    ),
    Program(bodies, {"n": 4096}, {"n": 40}, _bodies),
    Program(
        sparse_rows,
        {"rows": 100000, "width": 32},
        {"rows": 50, "width": 4},
        _sparse_rows,
        contents={"columns": (0, 99999)},
    ),
    Program(jacobi3d, {"size": 128, "steps": 4}, {"size": 12, "steps": 2}),
    Program(conv3d, {"size": 128}, {"size": 10}, _conv3d),
    Program(blocks_dct, {"size": 1024}, {"size": 16}),
    Program(
        stereo,
        {"width": 640, "height": 480, "shifts": 32, "window": 7},
        {"width": 40, "height": 20, "shifts": 4, "window": 3},
    ),
    Program(joint_histogram, {"size": 1536, "bins": 64}, {"size": 30, "bins": 8}, _joint_histogram),
    Program(transposed, {"width": 3000, "height": 2000}, {"width": 30, "height": 20}, _transposed),
    Program(
        quarter_turn, {"width": 2000, "height": 1500}, {"width": 30, "height": 20}, _quarter_turn
    ),
    Program(life, {"size": 1024, "steps": 6}, {"size": 20, "steps": 2}),
    Program(bilateral5x5, {"width": 1280, "height": 960}, {"width": 30, "height": 20}),
    Program(thin_edges, {"width": 1920, "height": 1080}, {"width": 30, "height": 20}),
    Program(colours_mixed, {"width": 1920, "height": 1080}, {"width": 30, "height": 20}),
    Program(halved, {"width": 1280, "height": 720}, {"width": 30, "height": 20}, _halved),
    Program(
        cube_lookup,
        {"width": 1280, "height": 720, "side": 17},
        {"width": 30, "height": 20, "side": 5},
    ),
    Program(
        enlarge_and_add,
        {"size": 128, "channels": 32},
        {"size": 10, "channels": 3},
        _enlarge_and_add,
    ),
    Program(polynomial, {"n": 1 << 20, "degree": 24}, {"n": 100, "degree": 5}),
    Program(complex_fir, {"taps": 64, "n": 1 << 18}, {"taps": 5, "n": 100}, _complex_fir),
    Program(
        column_sums, {"width": 4096, "height": 2048}, {"width": 40, "height": 20}, _column_sums
    ),
    Program(row_means, {"width": 2048, "height": 2048}, {"width": 40, "height": 20}, _row_means),
    Program(brightest15x15, {"width": 1280, "height": 960}, {"width": 40, "height": 20}),
    Program(
        moving_average,
        {"columns": 2048, "rows": 1024, "window": 16},
        {"columns": 40, "rows": 9, "window": 4},
    ),
    Program(reordered, {"n": 1 << 20}, {"n": 50}),
    Program(centred_rows, {"width": 1024, "rows": 2048}, {"width": 30, "rows": 9}, _centred_rows),
    Program(
        log_likelihood,
        {"points": 20000, "centres": 32, "width": 16},
        {"points": 30, "centres": 4, "width": 3},
    ),
    Program(covariance, {"width": 256, "samples": 2048}, {"width": 12, "samples": 30}, _covariance),
)
