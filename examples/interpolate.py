"""Multi-scale interpolation: fills in an image from sparse samples with an image pyramid.

As in ``apps/interpolate/interpolate_generator.cpp`` of Halide v21.0.0: ten levels, RGBA in (the
fourth channel says how much is known of a pixel), RGB out.

Usage: ``tilewright schedule examples/interpolate.py:interpolate``
"""

from types import SimpleNamespace

import halide as hl
import numpy as np
from halide import f32

LEVELS = 10
# The schedule for GPUs takes whole tiles of 32 x 32.
SMALL = {"width": 160, "height": 96}
HAND_SOURCE = {
    "cpu": "apps/interpolate/interpolate_generator.cpp at v21.0.0",
    "gpu": "apps/interpolate/interpolate_generator.cpp at v21.0.0",
}


def random_inputs(width=1536, height=2560, seed=0):
    rng = np.random.default_rng(seed)
    return {"input": rng.random((width, height, 4), dtype=np.float32)}


def build(width, height):
    """The algorithm: its Funcs and Vars by name; pyramids are lists, finest level first."""
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    image = hl.ImageParam(hl.Float(32), 3, "input")
    image.dim(2).set_bounds(0, 4)
    image.set_estimates([(0, width), (0, height), (0, 4)])

    def pyramid(name):
        return [hl.Func(f"{name}_{level}") for level in range(LEVELS)]

    downsampled, downx = pyramid("downsampled"), pyramid("downx")
    interpolated = pyramid("interpolated")
    upsampled, upsampledx = pyramid("upsampled"), pyramid("upsampledx")

    clamped = hl.BoundaryConditions.repeat_edge(image)
    downsampled[0][x, y, c] = hl.select(
        c < 3, clamped[x, y, c] * clamped[x, y, 3], clamped[x, y, 3]
    )
    for level in range(1, LEVELS):
        previous = downsampled[level - 1]
        if level == 4:
            # A second boundary condition half way down keeps the pyramid from looking
            # hundreds of pixels past the edges.
            w = image.width() // (1 << (level - 1))
            h = image.height() // (1 << (level - 1))
            edge = hl.Func("downsampled_edge")
            edge[x, y, c] = previous[hl.clamp(x, 0, w), hl.clamp(y, 0, h), c]
            previous = edge
        downx[level][x, y, c] = (
            previous[x * 2 - 1, y, c] + f32(2.0) * previous[x * 2, y, c] + previous[x * 2 + 1, y, c]
        ) * f32(0.25)
        fx = downx[level]
        downsampled[level][x, y, c] = (
            fx[x, y * 2 - 1, c] + f32(2.0) * fx[x, y * 2, c] + fx[x, y * 2 + 1, c]
        ) * f32(0.25)

    interpolated[-1][x, y, c] = downsampled[-1][x, y, c]
    for level in range(LEVELS - 2, -1, -1):
        coarse, ux = interpolated[level + 1], upsampledx[level]
        ux[x, y, c] = (coarse[x // 2, y, c] + coarse[(x + 1) // 2, y, c]) / f32(2.0)
        upsampled[level][x, y, c] = (ux[x, y // 2, c] + ux[x, (y + 1) // 2, c]) / f32(2.0)
        alpha = f32(1.0) - downsampled[level][x, y, 3]
        interpolated[level][x, y, c] = (
            downsampled[level][x, y, c] + alpha * upsampled[level][x, y, c]
        )

    normalize = hl.Func("normalize")
    normalize[x, y, c] = interpolated[0][x, y, c] / interpolated[0][x, y, 3]
    normalize.set_estimates([(0, width), (0, height), (0, 3)])
    return SimpleNamespace(
        x=x,
        y=y,
        c=c,
        image=image,
        downsampled=downsampled,
        downx=downx,
        interpolated=interpolated,
        upsampledx=upsampledx,
        normalize=normalize,
    )


def interpolate(width=1536, height=2560):
    """The unscheduled pipeline: ``width`` x ``height`` x 4 in, ``width`` x ``height`` x 3 out."""
    return hl.Pipeline(build(width, height).normalize)


def hand(target, width=1536, height=2560):
    """The same pipeline with the schedule of Halide's own application."""
    p = build(width, height)
    schedule = _gpu if target.has_gpu_feature() else _cpu
    schedule(p, target.natural_vector_size(hl.Float(32)))
    p.normalize.bound(p.x, 0, p.image.width()).bound(p.y, 0, p.image.height()).bound(p.c, 0, 3)
    return hl.Pipeline(p.normalize)


def _cpu(p, vec):
    x, y, c, normalize = p.x, p.y, p.c, p.normalize
    xo, xi, yo, yi = hl.Var("xo"), hl.Var("xi"), hl.Var("yo"), hl.Var("yi")
    # The way down is needed again on the way up, so it is computed whole ...
    for f in p.downsampled[1 : LEVELS - 1]:
        f.compute_root().never_partition([x]).reorder(x, c, y)
        f.split(y, yo, yi, 8).parallel(yo).vectorize(x, vec)
    # ... but for the finest level, which is cheaper to compute twice than to store.
    first = p.downsampled[0].clone_in(p.downx[1])
    first.store_at(p.downsampled[1], yo).compute_at(p.downsampled[1], yi)
    first.reorder(c, x, y).unroll(c).vectorize(x, vec).never_partition([y])
    # The way up slides along within strips of the output.
    normalize.never_partition([y]).split(x, xo, xi, vec).split(y, yo, yi, 32)
    normalize.reorder(xi, c, xo, yi, yo).bound(c, 0, 3).unroll(c).vectorize(xi).parallel(yo)
    for f in p.interpolated[1:]:
        f.store_at(normalize, yo).compute_at(normalize, yi).never_partition_all()
        f.vectorize(x, vec)


def _gpu(p, _):
    x, y, c, normalize = p.x, p.y, p.c, p.normalize
    xi, yi, xii, yii = hl.Var("xi"), hl.Var("yi"), hl.Var("xii"), hl.Var("yii")

    def blocks(f):
        # 16 x 16 threads, each of which computes 2 x 2 pixels
        f.never_partition_all().reorder(c, x, y)
        f.tile(x, y, xi, yi, 32, 32, hl.TailStrategy.RoundUp).tile(xi, yi, xii, yii, 2, 2)
        f.gpu_blocks(x, y).gpu_threads(xi, yi).unroll(xii).unroll(yii).unroll(c)

    normalize.bound(c, 0, 3)
    blocks(normalize)
    for f in p.downsampled[1:]:
        f.compute_root().never_partition_all().reorder(c, x, y).unroll(c)
        f.gpu_tile(x, y, xi, yi, 16, 16)
    for f in p.interpolated[3::2]:
        f.compute_root()
        blocks(f)
    # The finest two levels of the way up stay within the blocks of the output.
    for f, tile in ((p.upsampledx[1], (2, 1)), (p.interpolated[1], (2, 2))):
        f.compute_at(normalize, x).never_partition_all().reorder(c, x, y)
        f.tile(x, y, xi, yi, *tile).unroll(xi).unroll(yi).unroll(c).gpu_threads(x, y)
    f = p.interpolated[2]
    f.compute_at(normalize, x).never_partition_all().reorder(c, x, y).unroll(c).gpu_threads(x, y)


def reference(inputs):
    """NumPy; arrays are indexed ``[x, y, c]``.

    A pyramid level extends over the border as far as the levels around it look, so each is held
    with the index of its first row and column.
    """
    image = inputs["input"].astype(np.float64)
    size = image.shape[:2]
    middle = [(0, n // 8 + 1) for n in size]

    # What is needed of each level, [low, high) in x and in y: on the way up, then down.
    needs = [[(0, n) for n in size]]
    for _ in range(LEVELS - 1):
        needs.append([(low // 2, high // 2 + 1) for low, high in needs[-1]])
    for j in range(LEVELS - 1, 0, -1):
        looked_at = middle if j == 4 else [(2 * a - 1, 2 * b) for a, b in needs[j]]
        needs[j - 1] = [
            (min(low, a), max(high, b))
            for (low, high), (a, b) in zip(needs[j - 1], looked_at, strict=True)
        ]

    def down(a, j):
        for axis in (0, 1):
            i = 2 * np.arange(*needs[j][axis])
            taps = []
            for index in (i - 1, i, i + 1):
                if j == 4:
                    index = np.clip(index, 0, size[axis] // 8)
                taps.append(np.take(a, index - needs[j - 1][axis][0], axis=axis))
            a = (taps[0] + 2 * taps[1] + taps[2]) / 4
        return a

    def up(a, j):
        for axis in (0, 1):
            low, high = needs[j + 1][axis]
            i = np.arange(*needs[j][axis])
            # Past what the output needs of this level the coarser one may be missing; those
            # values are not used.
            pair = (np.clip(index, low, high - 1) - low for index in (i // 2, (i + 1) // 2))
            a = sum(np.take(a, index, axis=axis) for index in pair) / 2
        return a

    rows, columns = (
        np.clip(np.arange(*need), 0, n - 1) for need, n in zip(needs[0], size, strict=True)
    )
    image = image[rows][:, columns]
    image[..., :3] *= image[..., 3:]
    pyramid = [image]
    for j in range(1, LEVELS):
        pyramid.append(down(pyramid[-1], j))
    result = pyramid[-1]
    for j in range(LEVELS - 2, -1, -1):
        result = pyramid[j] + (1 - pyramid[j][..., 3:]) * up(result, j)
    x0, y0 = -needs[0][0][0], -needs[0][1][0]
    result = result[x0 : x0 + size[0], y0 : y0 + size[1]]
    return ((result[..., :3] / result[..., 3:]).astype(np.float32),)
