"""Local Laplacian filter: edge-aware detail enhancement with Gaussian and Laplacian pyramids.

Paris, Hasinoff and Kautz 2011 in the fast form of Aubry et al., as in
``apps/local_laplacian/local_laplacian_generator.cpp`` of Halide v21.0.0: eight pyramid levels,
``levels`` intensity levels (a run-time parameter, 8), 16-bit colour in and out.

Usage: ``tilewright schedule examples/local_laplacian.py:local_laplacian``
"""

from types import SimpleNamespace

import halide as hl
import numpy as np
from halide import f32

J = 8
SMALL = {"width": 203, "height": 155}
HAND_SOURCE = {
    "cpu": "apps/local_laplacian/local_laplacian_generator.cpp at v21.0.0",
    "gpu": "apps/local_laplacian/local_laplacian_generator.cpp at v21.0.0",
}


def random_inputs(width=1536, height=2560, seed=0):
    rng = np.random.default_rng(seed)
    return {"input": rng.integers(0, 65536, (width, height, 3), dtype=np.uint16)}


def downsample(f, x, y, *rest):
    """Half size in both dimensions with the filter 1 3 3 1."""
    downx, downy = hl.Func(f"{f.name()}_downx"), hl.Func(f"{f.name()}_downy")
    downx[(x, y, *rest)] = (
        f[(2 * x - 1, y, *rest)]
        + f32(3.0) * (f[(2 * x, y, *rest)] + f[(2 * x + 1, y, *rest)])
        + f[(2 * x + 2, y, *rest)]
    ) / f32(8.0)
    downy[(x, y, *rest)] = (
        downx[(x, 2 * y - 1, *rest)]
        + f32(3.0) * (downx[(x, 2 * y, *rest)] + downx[(x, 2 * y + 1, *rest)])
        + downx[(x, 2 * y + 2, *rest)]
    ) / f32(8.0)
    return downy


def upsample(f, x, y, *rest):
    """Twice the size in both dimensions by bilinear interpolation."""
    upx, upy = hl.Func(f"{f.name()}_upx"), hl.Func(f"{f.name()}_upy")
    weight_x = f32((x % 2) * 2 + 1) / f32(4.0)
    weight_y = f32((y % 2) * 2 + 1) / f32(4.0)
    upx[(x, y, *rest)] = hl.lerp(f[((x + 1) // 2, y, *rest)], f[((x - 1) // 2, y, *rest)], weight_x)
    upy[(x, y, *rest)] = hl.lerp(
        upx[(x, (y + 1) // 2, *rest)], upx[(x, (y - 1) // 2, *rest)], weight_y
    )
    return upy


def build(width, height):
    """The algorithm: its Funcs and Vars by name; pyramids are lists, finest level first."""
    x, y, c, k = hl.Var("x"), hl.Var("y"), hl.Var("c"), hl.Var("k")
    image = hl.ImageParam(hl.UInt(16), 3, "input")
    image.set_estimates([(0, width), (0, height), (0, 3)])
    levels = hl.Param(hl.Int(32), "levels", 8)
    alpha = hl.Param(hl.Float(32), "alpha", 1.0)
    beta = hl.Param(hl.Float(32), "beta", 1.0)
    levels.set_estimate(8)
    alpha.set_estimate(1.0)
    beta.set_estimate(1.0)

    # The remapping of detail, tabulated with 256 entries to an intensity level
    remap = hl.Func("remap")
    fx = f32(x) / f32(256.0)
    remap[x] = alpha * fx * hl.exp(-fx * fx / f32(2.0))

    clamped = hl.BoundaryConditions.repeat_edge(image)
    floating, gray = hl.Func("floating"), hl.Func("gray")
    floating[x, y, c] = f32(clamped[x, y, c]) / f32(65535.0)
    gray[x, y] = (
        f32(0.299) * floating[x, y, 0]
        + f32(0.587) * floating[x, y, 1]
        + f32(0.114) * floating[x, y, 2]
    )

    def pyramid(name):
        return [hl.Func(f"{name}_{j}") for j in range(J)]

    # Gaussian pyramids of the remapped image, one for each intensity level k
    gaussian = pyramid("gPyramid")
    level = k * (f32(1.0) / (levels - 1))
    idx = hl.clamp(hl.i32(gray[x, y] * f32(levels - 1) * f32(256.0)), 0, (levels - 1) * 256)
    gaussian[0][x, y, k] = beta * (gray[x, y] - level) + level + remap[idx - 256 * k]
    for j in range(1, J):
        gaussian[j][x, y, k] = downsample(gaussian[j - 1], x, y, k)[x, y, k]

    # Their Laplacian pyramids
    laplacian = pyramid("lPyramid")
    laplacian[J - 1][x, y, k] = gaussian[J - 1][x, y, k]
    for j in range(J - 2, -1, -1):
        upsampled = upsample(gaussian[j + 1], x, y, k)
        laplacian[j][x, y, k] = gaussian[j][x, y, k] - upsampled[x, y, k]

    # The Gaussian pyramid of the input
    in_gaussian = pyramid("inGPyramid")
    in_gaussian[0][x, y] = gray[x, y]
    for j in range(1, J):
        in_gaussian[j][x, y] = downsample(in_gaussian[j - 1], x, y)[x, y]

    # The Laplacian pyramid of the output: between the two nearest intensity levels
    out_laplacian = pyramid("outLPyramid")
    for j in range(J):
        position = in_gaussian[j][x, y] * f32(levels - 1)
        li = hl.clamp(hl.i32(position), 0, levels - 2)
        lf = position - f32(li)
        out_laplacian[j][x, y] = (f32(1.0) - lf) * laplacian[j][x, y, li] + lf * laplacian[j][
            x, y, li + 1
        ]

    # Collapsed from the coarsest level to the finest
    out_gaussian = pyramid("outGPyramid")
    out_gaussian[J - 1][x, y] = out_laplacian[J - 1][x, y]
    for j in range(J - 2, -1, -1):
        upsampled = upsample(out_gaussian[j + 1], x, y)
        out_gaussian[j][x, y] = upsampled[x, y] + out_laplacian[j][x, y]

    # Colour again; eps keeps noise in the dark from being scaled up
    color, output = hl.Func("color"), hl.Func("output")
    eps = f32(0.01)
    color[x, y, c] = out_gaussian[0][x, y] * (floating[x, y, c] + eps) / (gray[x, y] + eps)
    output[x, y, c] = hl.u16(hl.clamp(color[x, y, c], f32(0.0), f32(1.0)) * f32(65535.0))
    output.set_estimates([(0, width), (0, height), (0, 3)])
    return SimpleNamespace(
        x=x,
        y=y,
        c=c,
        k=k,
        remap=remap,
        gray=gray,
        gaussian=gaussian,
        in_gaussian=in_gaussian,
        out_gaussian=out_gaussian,
        output=output,
    )


def local_laplacian(width=1536, height=2560):
    """The unscheduled pipeline; input and output are ``width`` x ``height`` x 3."""
    return hl.Pipeline(build(width, height).output)


def hand(target, width=1536, height=2560):
    """The same pipeline with the schedule of Halide's own application."""
    p = build(width, height)
    x, y, c, k = p.x, p.y, p.c, p.k
    p.remap.compute_root()
    if target.has_gpu_feature():
        # Every pyramid level is a kernel; the coarse ones get small blocks.
        xi, yi = hl.Var("xi"), hl.Var("yi")
        p.output.compute_root().gpu_tile(x, y, xi, yi, 16, 8)
        for j in range(J):
            block = (2, 2) if j > 3 else (16, 8)
            if j > 0:
                p.in_gaussian[j].compute_root().gpu_tile(x, y, xi, yi, *block)
                p.gaussian[j].compute_root().reorder(k, x, y).gpu_tile(x, y, xi, yi, *block)
            p.out_gaussian[j].compute_root().gpu_tile(x, y, xi, yi, *block)
    else:
        # The pyramids down are computed whole; the fine levels of the pyramid up slide along
        # within strips of 64 rows of the output. What is stored whole is rounded up to vectors,
        # each strip allocates its row of the finest level once, and no loop of the output is cut
        # into a body and borders: the borders are in the pyramids down.
        yo = hl.Var("yo")
        up = hl.TailStrategy.RoundUp
        p.output.reorder(c, x, y).split(y, yo, y, 64).parallel(yo).vectorize(x, 8)
        p.output.bound(c, 0, 3).never_partition_all()
        p.gray.compute_root().parallel(y, 32, up).vectorize(x, 8, up)
        for j in range(1, 5):
            p.in_gaussian[j].compute_root().parallel(y, 32, up).vectorize(x, 8, up)
            p.gaussian[j].compute_root().reorder_storage(x, k, y)
            p.gaussian[j].reorder(k, y).parallel(y, 8, up).vectorize(x, 8, up)
            p.out_gaussian[j].store_at(p.output, yo).compute_at(p.output, y)
            p.out_gaussian[j].fold_storage(y, 4).vectorize(x, 8, up)
        p.out_gaussian[0].compute_at(p.output, y).hoist_storage(p.output, yo).vectorize(x, 8, up)
        for j in range(5, J):
            p.in_gaussian[j].compute_root()
            p.gaussian[j].compute_root().parallel(k)
            p.out_gaussian[j].compute_root()
    return hl.Pipeline(p.output)


def reference(inputs, levels=8, alpha=1.0, beta=1.0):
    """NumPy, in float32; arrays are indexed ``[x, y, c]``.

    A pyramid level extends over the border as far as the levels around it look, so each is held
    with the index of its first row and column.
    """
    image = inputs["input"]
    single = np.float32

    # What is needed of each level, [low, high) in x and in y: by the upsampling, then by the
    # downsampling.
    needs = [[(0, n) for n in image.shape[:2]]]
    for _ in range(J - 1):
        needs.append([((low - 1) // 2, high // 2 + 1) for low, high in needs[-1]])
    for j in range(J - 1, 0, -1):
        needs[j - 1] = [
            (min(low, 2 * a - 1), max(high, 2 * b + 1))
            for (low, high), (a, b) in zip(needs[j - 1], needs[j], strict=True)
        ]

    def take(a, axis, origin, index):
        return np.take(a, np.asarray(index) - origin, axis=axis)

    def down(a, j):
        for axis in (0, 1):
            origin = needs[j - 1][axis][0]
            i = 2 * np.arange(*needs[j][axis])
            outer = take(a, axis, origin, i - 1) + take(a, axis, origin, i + 2)
            inner = take(a, axis, origin, i) + take(a, axis, origin, i + 1)
            a = (outer + single(3) * inner) / single(8)
        return a

    def up(a, j):
        for axis in (0, 1):
            origin = needs[j + 1][axis][0]
            i = np.arange(*needs[j][axis])
            # Past this level's need the coarser one may be missing; those values are not used.
            last = needs[j + 1][axis][1] - 1
            near = take(a, axis, origin, np.clip((i + 1) // 2, origin, last))
            far = take(a, axis, origin, np.clip((i - 1) // 2, origin, last))
            w = ((i % 2) * 2 + 1).astype(single) / single(4)
            w = w.reshape([-1 if d == axis else 1 for d in range(a.ndim)])
            a = near * (1 - w) + far * w
        return a

    rows = np.clip(np.arange(*needs[0][0]), 0, image.shape[0] - 1)
    columns = np.clip(np.arange(*needs[0][1]), 0, image.shape[1] - 1)
    floating = image[rows][:, columns].astype(single) / single(65535)
    gray = (
        single(0.299) * floating[..., 0]
        + single(0.587) * floating[..., 1]
        + single(0.114) * floating[..., 2]
    )

    in_gaussian = [gray]
    k = np.arange(levels)
    level = (k * (single(1) / single(levels - 1))).astype(single)
    idx = np.clip((gray * single(levels - 1) * single(256)).astype(int), 0, (levels - 1) * 256)
    fx = ((idx[..., None] - 256 * k) / 256).astype(single)
    remapped = single(alpha) * fx * np.exp(-fx * fx / single(2))
    gaussian = [single(beta) * (gray[..., None] - level) + level + remapped]
    for j in range(1, J):
        in_gaussian.append(down(in_gaussian[-1], j))
        gaussian.append(down(gaussian[-1], j))

    result = None
    for j in range(J - 1, -1, -1):
        laplacian = gaussian[j] if j == J - 1 else gaussian[j] - up(gaussian[j + 1], j)
        position = in_gaussian[j] * single(levels - 1)
        li = np.clip(position.astype(int), 0, levels - 2)
        lf = position - li.astype(single)
        low = np.take_along_axis(laplacian, li[..., None], axis=2)[..., 0]
        high = np.take_along_axis(laplacian, li[..., None] + 1, axis=2)[..., 0]
        detail = (1 - lf) * low + lf * high
        result = detail if result is None else up(result, j) + detail

    eps = single(0.01)
    color = result[..., None] * (floating + eps) / (gray + eps)[..., None]
    width, height = image.shape[:2]
    x0, y0 = -needs[0][0][0], -needs[0][1][0]
    color = color[x0 : x0 + width, y0 : y0 + height]
    return ((np.clip(color, 0, 1) * single(65535)).astype(np.uint16),)
