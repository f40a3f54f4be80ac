"""Bilateral-guided upsampling.

An image and what some operator made of it are given at low resolution. For every cell of a
bilateral grid the affine colour transform that best maps one to the other is fitted by solving a
4x4 system; at full resolution the transforms are sampled where position and intensity say.
Published as ``apps/bgu`` of Halide (after Chen, Adams, Wadhwa and Hasinoff 2016); part of the
suites of Adams 2019 and Anderson 2021, at 192x320 upsampled to 1536x2560, in colour.

Reciprocals in the solver are true divisions. The application takes approximate ones, which on
x86 are exact in scalar code and good to 12 bits in vector code, so that results would depend on
the schedule.

Usage: ``tilewright schedule examples/bgu.py:bgu``
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import halide as hl
import numpy as np

SMALL: dict[str, Any] = {"width": 208, "height": 168}

HAND_SOURCE = {
    "cpu": "apps/bgu/bgu_generator.cpp at v21.0.0",
    "gpu": "apps/bgu/bgu_generator.cpp at v21.0.0",
}

# The low-resolution images are this much smaller.
FACTOR = 8


def _pack(c: hl.Expr, values: list[hl.Expr]) -> hl.Expr:
    """``values[c]``, the last one for c out of range."""
    packed = values[-1]
    for i in reversed(range(len(values) - 1)):
        packed = hl.select(c == i, values[i], packed)
    return packed


def _blur(at: Callable[[int], hl.Expr]) -> hl.Expr:
    """Seven taps that fall off with the cube of the distance: close to a membrane's response."""
    taps = [1 / 64, 1 / 27, 1 / 8, 1.0, 1 / 8, 1 / 27, 1 / 64]
    total = hl.f32(taps[0]) * at(-3)
    for offset, tap in zip(range(-2, 4), taps[1:], strict=True):
        total = total + hl.f32(tap) * at(offset)
    return total


def _fit(blurx: hl.Func, x: hl.Var, y: hl.Var, z: hl.Var) -> tuple[hl.Func, list[list[hl.Expr]]]:
    """Solve A X = B in every cell; gives the Func that does the work, and X by [row][column].

    A is symmetric, 4x4, in channels 0 to 9 of `blurx`; B is 4x3, in channels 10 to 21. A sum of
    squares is added that pulls the transform towards the mean gain of the cell.
    """
    upper = {(i, j): k for k, (i, j) in enumerate((i, j) for i in range(4) for j in range(i, 4))}
    a = [[blurx[x, y, z, upper[min(i, j), max(i, j)]] for j in range(4)] for i in range(4)]
    b = [[blurx[x, y, z, 10 + 4 * k + i] for k in range(3)] for i in range(4)]
    count = a[3][3]
    epsilon = hl.f32(1e-6) * (count + 1.0)
    gain = (b[3][0] + 2.0 * b[3][1] + b[3][2] + epsilon) / (
        a[3][0] + 2.0 * a[3][1] + a[3][2] + epsilon
    )
    weight = hl.f32(1e-6) * (count + 1.0)

    solve = hl.Func("solve")
    vi, vj = hl.vars("vi vj")
    solve[x, y, z, vi, vj] = hl.undef(hl.Float(32))

    def get(i: int, j: int) -> hl.Expr:
        return solve[x, y, z, i, j]

    for i in range(4):
        for j in range(4):
            solve[x, y, z, i, j] = a[i][j] + weight if i == j else a[i][j]
        for k in range(3):
            solve[x, y, z, i, 4 + k] = b[i][k] + weight * gain if i == k else b[i][k]
    # L D L' in place: L in the lower triangle, 1/D on the diagonal, D L' above it.
    for j in range(4):
        solve[x, y, z, j, j] = 1.0 / get(j, j)
        for i in range(j + 1, 4):
            solve[x, y, z, i, j] = get(i, j) * get(j, j)
        for i in range(j + 1, 4):
            for k in range(j + 1, 4):
                if k < i:
                    solve[x, y, z, i, k] = get(k, i) + 0.0
                else:
                    solve[x, y, z, i, k] = get(i, k) - get(k, j) * get(j, i)
    for k in range(4, 7):
        for j in range(4):
            for i in range(j):
                solve[x, y, z, j, k] = get(j, k) - get(j, i) * get(i, k)
        for j in range(4):
            solve[x, y, z, j, k] = get(j, k) * get(j, j)
        for j in reversed(range(4)):
            for i in range(j + 1, 4):
                solve[x, y, z, j, k] = get(j, k) - get(i, j) * get(i, k)
    return solve, [[get(i, 4 + k) for k in range(3)] for i in range(4)]


def _algorithm(width: int, height: int) -> SimpleNamespace:
    r_sigma = hl.Param(hl.Float(32), "r_sigma", 1 / 8)
    s_sigma = hl.Param(hl.Int(32), "s_sigma", 16)
    splat_loc = hl.ImageParam(hl.Float(32), 3, "splat_loc")
    values = hl.ImageParam(hl.Float(32), 3, "values")
    slice_loc = hl.ImageParam(hl.Float(32), 3, "slice_loc")
    x, y, z, c = hl.vars("x y z c")
    clamped_values = hl.BoundaryConditions.repeat_edge(values)
    clamped_splat_loc = hl.BoundaryConditions.repeat_edge(splat_loc)
    factor_x = hl.i32(hl.ceil(hl.f32(slice_loc.width()) / hl.f32(splat_loc.width())))
    factor_y = hl.i32(hl.ceil(hl.f32(slice_loc.height()) / hl.f32(splat_loc.height())))
    factor = hl.max(factor_x, factor_y)

    def gray(image: Any, name: str) -> hl.Func:
        result = hl.Func(name)
        result[x, y] = 0.25 * image[x, y, 0] + 0.5 * image[x, y, 1] + 0.25 * image[x, y, 2]
        return result

    gray_splat_loc = gray(clamped_splat_loc, "gray_splat_loc")
    gray_slice_loc = gray(slice_loc, "gray_slice_loc")

    # Per cell, the sums of products that a least-squares fit needs.
    histogram = hl.Func("histogram")
    r = hl.RDom([(0, s_sigma), (0, s_sigma)], "r")
    sx = x * s_sigma + r.x - s_sigma // 2
    sy = y * s_sigma + r.y - s_sigma // 2
    position = hl.clamp(gray_splat_loc[sx, sy], 0.0, 1.0)
    bin_ = hl.i32(hl.round(position * (1.0 / r_sigma)))
    s = [clamped_splat_loc[sx, sy, i] for i in range(3)] + [hl.f32(1.0)]
    v = [clamped_values[sx, sy, i] for i in range(3)]
    products = [s[i] * s[j] for i in range(4) for j in range(i, 4)]
    products += [v[i] * s[j] for i in range(3) for j in range(4)]
    histogram[x, y, z, c] = 0.0
    histogram[x, y, bin_, c] += _pack(c, products)

    blurz, blury, blurx = hl.Func("blurz"), hl.Func("blury"), hl.Func("blurx")
    blurz[x, y, z, c] = _blur(lambda i: histogram[x, y, z + i, c])
    blury[x, y, z, c] = _blur(lambda i: blurz[x, y + i, z, c])
    blurx[x, y, z, c] = _blur(lambda i: blury[x + i, y, z, c])

    solve, solution = _fit(blurx, x, y, z)
    line = hl.Func("line")
    line[x, y, z, c] = _pack(c, [solution[i][k] for k in range(3) for i in range(4)])

    # Trilinear samples of the transforms, one direction after the other.
    cell = hl.f32(s_sigma * factor)
    matrix_y, matrix_x, matrix_z = (hl.Func(f"interpolated_matrix_{d}") for d in "yxz")
    yf, xf = hl.f32(y) / cell, hl.f32(x) / cell
    yi, xi = hl.i32(hl.floor(yf)), hl.i32(hl.floor(xf))
    matrix_y[x, y, z, c] = hl.lerp(line[x, yi, z, c], line[x, yi + 1, z, c], yf - hl.f32(yi))
    matrix_x[x, y, z, c] = hl.lerp(
        matrix_y[xi, y, z, c], matrix_y[xi + 1, y, z, c], xf - hl.f32(xi)
    )
    slice_loc_z = hl.Func("slice_loc_z")
    zv = hl.clamp(gray_slice_loc[x, y], 0.0, 1.0) * hl.f32(hl.i32(1.0 / r_sigma))
    zi = hl.i32(zv)
    slice_loc_z[x, y] = (zi, zv - hl.f32(zi))
    matrix_z[x, y, c] = hl.lerp(
        matrix_x[x, y, slice_loc_z[x, y][0], c],
        matrix_x[x, y, slice_loc_z[x, y][0] + 1, c],
        slice_loc_z[x, y][1],
    )
    interpolated = hl.Func("interpolated")
    interpolated[x, y, c] = (
        matrix_z[x, y, 4 * c] * slice_loc[x, y, 0]
        + matrix_z[x, y, 4 * c + 1] * slice_loc[x, y, 1]
        + matrix_z[x, y, 4 * c + 2] * slice_loc[x, y, 2]
        + matrix_z[x, y, 4 * c + 3]
    )
    output = hl.Func("slice")
    output[x, y, c] = hl.clamp(interpolated[x, y, c], 0.0, 1.0)

    r_sigma.set_estimate(1 / 8)
    s_sigma.set_estimate(16)
    for image in (splat_loc, values):
        image.set_estimates([(0, width // FACTOR), (0, height // FACTOR), (0, 3)])
    slice_loc.set_estimates([(0, width), (0, height), (0, 3)])
    output.set_estimates([(0, width), (0, height), (0, 3)])
    return SimpleNamespace(
        clamped_values=clamped_values,
        clamped_splat_loc=clamped_splat_loc,
        gray_splat_loc=gray_splat_loc,
        gray_slice_loc=gray_slice_loc,
        histogram=histogram,
        blurz=blurz,
        blury=blury,
        blurx=blurx,
        solve=solve,
        line=line,
        matrix_y=matrix_y,
        matrix_z=matrix_z,
        interpolated=interpolated,
        output=output,
        x=x,
        y=y,
        z=z,
        c=c,
        r=r,
    )


def bgu(width: int = 1536, height: int = 2560) -> hl.Pipeline:
    """The pipeline, unscheduled."""
    return hl.Pipeline(_algorithm(width, height).output)


def hand(target: hl.Target, width: int = 1536, height: int = 2560) -> hl.Pipeline:
    """The pipeline with the schedule that an expert chose for `target`.

    On a GPU, width has to be a multiple of 16 and height of 8.
    """
    f = _algorithm(width, height)
    f.solve.compute_at(f.line, f.x)
    if target.has_gpu_feature():
        _schedule_gpu(f, target)
    else:
        _schedule_cpu(f)
    return hl.Pipeline(f.output)


def _schedule_cpu(f: SimpleNamespace) -> None:
    # Vectors of eight, whatever the machine: wider ones were found to hurt.
    lanes = 8
    x, y, z, c, r = f.x, f.y, f.z, f.c, f.r
    # Fitting: histograms within rows of the blur in z, then, at each slice of the solution, the
    # blur in y, and within a vector of it the blur in x and the solver.
    f.histogram.compute_at(f.blurz, y)
    f.histogram.update().reorder(c, r.x, r.y, x, y).unroll(c)
    f.gray_splat_loc.compute_at(f.blurz, y).vectorize(x, lanes)
    f.blurz.compute_root().reorder(c, z, x, y).parallel(y).vectorize(x, lanes)
    f.blury.compute_at(f.line, z).store_in(hl.MemoryType.Stack).vectorize(x, lanes)
    f.blurx.compute_at(f.line, x).vectorize(x)
    for i in range(f.solve.num_update_definitions()):
        f.solve.update(i).vectorize(x)
    f.line.compute_root().parallel(y).vectorize(x, lanes).reorder(c, x, y).unroll(c)
    # Applying.
    f.matrix_y.compute_root().parallel(c).parallel(z).vectorize(x, lanes)
    (
        f.matrix_z.store_at(f.output, x)
        .compute_at(f.output, c)
        .reorder(c, x, y)
        .unroll(c)
        .vectorize(x)
    )
    (
        f.output.compute_root()
        .parallel(y)
        .vectorize(x, lanes)
        .reorder(c, x, y)
        .bound(c, 0, 3)
        .unroll(c)
    )


def _schedule_gpu(f: SimpleNamespace, target: hl.Target) -> None:
    x, y, z, c, r = f.x, f.y, f.z, f.c, f.r
    xi, yi, xo, yo = hl.vars("xi yi xo yo")
    round_up = hl.TailStrategy.RoundUp
    (
        f.histogram.compute_root()
        .reorder(c, x, y, z)
        .unroll(c)
        .tile(x, y, xo, yo, xi, yi, 16, 8)
        .gpu_threads(xi, yi)
        .gpu_blocks(xo, yo, z)
    )
    update = f.histogram.update()
    if target.has_feature(hl.TargetFeature.CUDA):
        # Rows of a cell's samples are added by different blocks, atomically.
        (
            update.atomic()
            .split(x, xo, xi, 16)
            .reorder(c, r.x, xi, r.y, xo, y)
            .unroll(c)
            .gpu_blocks(r.y, xo, y)
            .gpu_threads(xi)
        )
    else:
        (
            update.split(x, xo, xi, 16)
            .reorder(c, r.x, r.y, xi, xo, y)
            .unroll(c)
            .gpu_blocks(xo, y)
            .gpu_threads(xi)
        )
    f.clamped_values.compute_at(f.histogram, r.x).unroll(f.clamped_values.args()[2])
    f.clamped_splat_loc.compute_at(f.histogram, r.x).unroll(f.clamped_splat_loc.args()[2])
    f.gray_splat_loc.compute_at(f.histogram, r.x)
    for blur in (f.blurz, f.blurx, f.blury):
        (
            blur.compute_root()
            .tile(x, y, xi, yi, 16, 8, round_up)
            .gpu_threads(xi, yi)
            .gpu_blocks(y, z, c)
        )
    # The solver is computed at `x` of the line: the inner loop keeps that name.
    (
        f.line.compute_root()
        .split(x, xo, x, 32, round_up)
        .reorder(c, x, xo, y, z)
        .gpu_blocks(xo, y, z)
        .gpu_threads(x)
        .unroll(c)
    )
    (
        f.matrix_y.compute_root()
        .tile(x, y, xi, yi, 8, 8, round_up)
        .gpu_threads(xi, yi)
        .gpu_blocks(y, z, c)
    )
    (
        f.output.compute_root()
        .reorder(c, x, y)
        .bound(c, 0, 3)
        .unroll(c)
        .tile(x, y, xi, yi, 16, 8, round_up)
        .gpu_threads(xi, yi)
        .gpu_blocks(x, y)
    )
    f.matrix_z.compute_at(f.output, c).unroll(c)
    f.interpolated.compute_at(f.output, c)
    f.gray_slice_loc.compute_at(f.output, xi)


def random_inputs(width: int = 1536, height: int = 2560, seed: int = 0) -> dict[str, Any]:
    """Random images by name; the low-resolution result is a noisy transform of its source."""
    rng = np.random.default_rng(seed)
    low = rng.random((width // FACTOR, height // FACTOR, 3), dtype=np.float32)
    noise = rng.random(low.shape, dtype=np.float32)
    values = 0.6 * low**2 + 0.2 * np.roll(low, 1, axis=2) + 0.1 * noise
    return {
        "r_sigma": 1 / 8,
        "s_sigma": 16,
        "splat_loc": np.asfortranarray(low),
        "values": np.asfortranarray(values.astype(np.float32)),
        "slice_loc": np.asfortranarray(rng.random((width, height, 3), dtype=np.float32)),
    }


def reference(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """The result by NumPy, axes (x, y, c), with a general solver in double precision."""
    s, bins = inputs["s_sigma"], round(1 / inputs["r_sigma"])
    low, values, high = (inputs[k].astype(np.float64) for k in ("splat_loc", "values", "slice_loc"))
    (w, h), (width, height) = low.shape[:2], high.shape[:2]
    factor = max(-(-width // w), -(-height // h))
    cell = s * factor
    # Cells 0 to n are sampled; three more on each side feed the blur.
    nx, ny, nz = (width - 1) // cell + 2, (height - 1) // cell + 2, bins + 2

    def gray(image: np.ndarray) -> np.ndarray:
        return np.clip(image @ np.array([0.25, 0.5, 0.25]), 0, 1)

    grid = np.zeros((nx + 6, ny + 6, nz + 6, 22))
    px, py = np.arange((nx + 6) * s), np.arange((ny + 6) * s)
    cx = np.clip(px - 3 * s - s // 2, 0, w - 1)
    cy = np.clip(py - 3 * s - s // 2, 0, h - 1)
    source = low[np.ix_(cx, cy)]
    basis = np.concatenate([source, np.ones((*source.shape[:2], 1))], axis=2)
    result = values[np.ix_(cx, cy)]
    i, j = np.triu_indices(4)
    moments = [basis[..., i] * basis[..., j]]
    moments += [result[..., k : k + 1] * basis for k in range(3)]
    where = (
        (px // s)[:, None] + 0 * py[None, :],
        (py // s)[None, :] + 0 * px[:, None],
        np.rint(gray(source) * bins).astype(int) + 3,
    )
    np.add.at(grid, where, np.concatenate(moments, axis=2))
    taps = np.array([1 / 64, 1 / 27, 1 / 8, 1, 1 / 8, 1 / 27, 1 / 64])
    for axis in (2, 1, 0):
        grid = np.apply_along_axis(lambda f: np.convolve(f, taps, "valid"), axis, grid)

    a = np.empty((*grid.shape[:3], 4, 4))
    a[..., i, j] = a[..., j, i] = grid[..., :10]
    b = np.moveaxis(grid[..., 10:].reshape(*grid.shape[:3], 3, 4), -1, -2).copy()
    mix = np.array([1, 2, 1])
    extra = 1e-6 * (a[..., 3, 3] + 1)
    gain = (b[..., 3, :] @ mix + extra) / (a[..., 3, :3] @ mix + extra)
    a += extra[..., None, None] * np.eye(4)
    b += (extra * gain)[..., None, None] * np.eye(4, 3)
    lines = np.linalg.solve(a, b)

    def split(position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        index = np.floor(position).astype(int)
        return index, position - index

    (xi, xf), (yi, yf) = split(np.arange(width) / cell), split(np.arange(height) / cell)
    zi, zf = split(gray(high) * bins)
    matrix = np.zeros((width, height, 4, 3))
    for dx in (0, 1):
        for dy in (0, 1):
            for dz in (0, 1):
                weight = (xf if dx else 1 - xf)[:, None] * (yf if dy else 1 - yf)[None, :]
                weight = weight * (zf if dz else 1 - zf)
                corner = lines[(xi + dx)[:, None], (yi + dy)[None, :], zi + dz]
                matrix += weight[..., None, None] * corner
    colour = np.concatenate([high, np.ones((width, height, 1))], axis=2)
    return (np.clip(np.einsum("xyi,xyik->xyk", colour, matrix), 0, 1).astype(np.float32),)
