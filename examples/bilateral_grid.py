"""Bilateral grid: edge-preserving smoothing of a gray image through a coarse 3D histogram.

Chen, Paris and Durand 2007, as in ``apps/bilateral_grid/bilateral_grid_generator.cpp`` of Halide
v21.0.0: a grid cell is 8 x 8 pixels, ``r_sigma`` its size in intensity (a run-time parameter).

Usage: ``tilewright schedule examples/bilateral_grid.py:bilateral_grid``
"""

from types import SimpleNamespace

import halide as hl
import numpy as np
from halide import f32

S_SIGMA = 8
SMALL = {"width": 141, "height": 93}
HAND_SOURCE = {
    "cpu": "apps/bilateral_grid/bilateral_grid_generator.cpp at v21.0.0",
    "gpu": "apps/bilateral_grid/bilateral_grid_generator.cpp at v21.0.0",
}


def random_inputs(width=1536, height=2560, seed=0):
    rng = np.random.default_rng(seed)
    return {"input": rng.random((width, height), dtype=np.float32)}


def blur5(f, v, position):
    """The filter 1 4 6 4 1 of ``f`` along the Var ``v``, one of those in ``position``."""

    def at(offset):
        return f[tuple(p + offset if p is v else p for p in position)]

    return at(-2) + at(-1) * 4 + at(0) * 6 + at(1) * 4 + at(2)


def build(width, height):
    """The algorithm: its Funcs and Vars by name."""
    x, y, z, c = hl.Var("x"), hl.Var("y"), hl.Var("z"), hl.Var("c")
    image = hl.ImageParam(hl.Float(32), 2, "input")
    image.set_estimates([(0, width), (0, height)])
    r_sigma = hl.Param(hl.Float(32), "r_sigma", 0.1)
    r_sigma.set_estimate(0.1)

    # Every pixel is counted in its cell: the sum of the values (c = 0) and their number (c = 1).
    clamped = hl.BoundaryConditions.repeat_edge(image)
    r = hl.RDom([(0, S_SIGMA), (0, S_SIGMA)], "r")
    value = clamped[x * S_SIGMA + r.x - S_SIGMA // 2, y * S_SIGMA + r.y - S_SIGMA // 2]
    value = hl.clamp(value, f32(0.0), f32(1.0))
    zi = hl.i32(value * (f32(1.0) / r_sigma) + f32(0.5))
    histogram = hl.Func("histogram")
    histogram[x, y, z, c] = f32(0.0)
    histogram[x, y, zi, c] += hl.mux(c, [value, f32(1.0)])

    blurz, blurx, blury = hl.Func("blurz"), hl.Func("blurx"), hl.Func("blury")
    blurz[x, y, z, c] = blur5(histogram, z, (x, y, z, c))
    blurx[x, y, z, c] = blur5(blurz, x, (x, y, z, c))
    blury[x, y, z, c] = blur5(blurx, y, (x, y, z, c))

    # The output samples the smoothed grid at its own position and value.
    value = hl.clamp(image[x, y], f32(0.0), f32(1.0))
    zv = value * (f32(1.0) / r_sigma)
    zi = hl.i32(zv)
    zf = zv - zi
    xf, yf = f32(x % S_SIGMA) / S_SIGMA, f32(y % S_SIGMA) / S_SIGMA
    xi, yi = x // S_SIGMA, y // S_SIGMA

    def slice_at(zi):
        low = hl.lerp(blury[xi, yi, zi, c], blury[xi + 1, yi, zi, c], xf)
        high = hl.lerp(blury[xi, yi + 1, zi, c], blury[xi + 1, yi + 1, zi, c], xf)
        return hl.lerp(low, high, yf)

    interpolated, output = hl.Func("interpolated"), hl.Func("bilateral_grid")
    interpolated[x, y, c] = hl.lerp(slice_at(zi), slice_at(zi + 1), zf)
    output[x, y] = interpolated[x, y, 0] / interpolated[x, y, 1]

    # How deep the grid is depends on r_sigma.
    histogram.set_estimate(z, -2, 16)
    for f in (blurz, blurx, blury):
        f.set_estimate(z, 0, 12)
    output.set_estimates([(0, width), (0, height)])
    return SimpleNamespace(
        x=x,
        y=y,
        z=z,
        c=c,
        r=r,
        histogram=histogram,
        blurz=blurz,
        blurx=blurx,
        blury=blury,
        interpolated=interpolated,
        output=output,
    )


def bilateral_grid(width=1536, height=2560):
    """The unscheduled pipeline; input and output are ``width`` x ``height``."""
    return hl.Pipeline(build(width, height).output)


def hand(target, width=1536, height=2560):
    """The same pipeline with the schedule of Halide's own application."""
    p = build(width, height)
    x, y, z, c, r = p.x, p.y, p.z, p.c, p.r
    if target.has_gpu_feature():
        xi, yi, zi = hl.Var("xi"), hl.Var("yi"), hl.Var("zi")
        # One kernel makes 8 x 8 histograms in shared memory and blurs them along z.
        p.blurz.compute_root().reorder(c, z, x, y).gpu_tile(x, y, xi, yi, 8, 8)
        p.histogram.reorder(c, z, x, y).compute_at(p.blurz, x).gpu_threads(x, y)
        p.histogram.update().reorder(c, r.x, r.y, x, y).gpu_threads(x, y).unroll(c)
        round_up = hl.TailStrategy.RoundUp
        for f in (p.blurx, p.blury):
            f.compute_root().reorder(c, x, y, z).reorder_storage(c, x, y, z).vectorize(c)
            f.unroll(y, 2, round_up).gpu_tile(x, y, z, xi, yi, zi, 32, 8, 1, round_up)
        p.output.compute_root().gpu_tile(x, y, xi, yi, 32, 8)
        p.interpolated.compute_at(p.output, xi).vectorize(c)
    else:
        p.blurz.compute_at(p.blurx, y).reorder(c, z, x, y).vectorize(x, 8).unroll(c)
        p.histogram.compute_at(p.blurz, y)
        p.histogram.update().reorder(c, r.x, r.y, x, y).unroll(c)
        p.blurx.compute_root().reorder(c, x, z, y).parallel(y).vectorize(x, 8).unroll(c)
        p.blury.compute_at(p.output, y).store_in(hl.MemoryType.Stack)
        p.blury.reorder(c, x, y, z).reorder_storage(c, z, x, y).vectorize(x, 8).unroll(c)
        p.output.compute_root().parallel(y, 8).vectorize(x, 8)
    return hl.Pipeline(p.output)


def reference(inputs, r_sigma=0.1):
    """NumPy; arrays are indexed ``[x, y]``."""
    image = np.clip(inputs["input"], 0, 1)
    width, height = image.shape
    scale = np.float32(1) / np.float32(r_sigma)

    # Cells -2 to n // 8 + 3, so that the blur has its margin; along z too.
    margin = 2
    cells = [(n - 1) // S_SIGMA + 2 + 2 * margin for n in image.shape]
    depth = int(scale + 0.5) + 2 + 2 * margin
    rows, columns = (
        np.arange(-margin * S_SIGMA, (count - margin) * S_SIGMA) - S_SIGMA // 2 for count in cells
    )
    padded = image[np.clip(rows, 0, width - 1)][:, np.clip(columns, 0, height - 1)]
    gx = np.repeat(np.arange(cells[0]), S_SIGMA)[:, None]
    gy = np.repeat(np.arange(cells[1]), S_SIGMA)[None, :]
    gz = (padded * scale + np.float32(0.5)).astype(int) + margin
    grid = np.zeros((*cells, depth, 2))
    np.add.at(grid, (gx, gy, gz, 0), padded)
    np.add.at(grid, (gx, gy, gz, 1), 1)

    for axis in (2, 0, 1):
        n = grid.shape[axis] - 4
        grid = sum(
            weight * np.take(grid, np.arange(i, i + n), axis=axis)
            for i, weight in enumerate((1, 4, 6, 4, 1))
        )

    xs, ys = np.arange(width)[:, None], np.arange(height)[None, :]
    xi, xf = np.divmod(xs / S_SIGMA, 1)
    yi, yf = np.divmod(ys / S_SIGMA, 1)
    zv = image * scale
    zi = zv.astype(int)
    sample = 0
    for i, wx in ((0, 1 - xf), (1, xf)):
        for j, wy in ((0, 1 - yf), (1, yf)):
            for k, wz in ((0, 1 - (zv - zi)), (1, zv - zi)):
                corner = grid[xi.astype(int) + i, yi.astype(int) + j, zi + k]
                sample = sample + (wx * wy * wz)[..., None] * corner
    return ((sample[..., 0] / sample[..., 1]).astype(np.float32),)
