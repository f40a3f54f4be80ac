"""Lens blur: a shallow depth of field from a stereo pair.

The cost of 32 disparities is computed, smoothed over the image by a pyramid that trusts
confident pixels more, and the cheapest taken as the pixel's depth. The image is then blurred by
sampling an aperture whose radius grows with the distance from the focal plane. Published as
``apps/lens_blur`` of Halide; part of the suites of Mullapudi 2016, Adams 2019, Sioutas 2020
(1536x2560x3) and Anderson 2021.

Samples come from an integer hash of pixel and sample number rather than from Halide's
``random_float``, whose values depend on how many Funcs the process has defined before; the same
pipeline built twice is the same.

Usage: ``tilewright schedule examples/lens_blur.py:lens_blur``
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import halide as hl
import numpy as np

SMALL: dict[str, Any] = {"width": 71, "height": 53}

HAND_SOURCE = {
    "cpu": "apps/lens_blur/lens_blur_generator.cpp at v21.0.0",
    "gpu": "apps/lens_blur/lens_blur_generator.cpp at v21.0.0",
}

LEVELS = 8


def _downsample(f: hl.Func, name: str) -> hl.Func:
    """Halve x and y with the filter 1 3 3 1."""
    x, y, z, c = hl.vars("x y z c")
    dx, dy = hl.Func(f"{name}_down_x"), hl.Func(f"{name}_down_y")
    x2, y2 = 2 * x, 2 * y
    dx[x, y, z, c] = (
        f[x2 - 1, y, z, c] + 3.0 * (f[x2, y, z, c] + f[x2 + 1, y, z, c]) + f[x2 + 2, y, z, c]
    ) / 8.0
    dy[x, y, z, c] = (
        dx[x, y2 - 1, z, c] + 3.0 * (dx[x, y2, z, c] + dx[x, y2 + 1, z, c]) + dx[x, y2 + 2, z, c]
    ) / 8.0
    return dy


def _upsample(f: hl.Func, name: str) -> hl.Func:
    """Double x and y by linear interpolation."""
    x, y, z, c = hl.vars("x y z c")
    ux, uy = hl.Func(f"{name}_up_x"), hl.Func(f"{name}_up_y")
    ux[x, y, z, c] = 0.25 * f[x // 2 - 1 + 2 * (x % 2), y, z, c] + 0.75 * f[x // 2, y, z, c]
    uy[x, y, z, c] = 0.25 * ux[x, y // 2 - 1 + 2 * (y % 2), z, c] + 0.75 * ux[x, y // 2, z, c]
    return uy


def _noise(x: hl.Expr, y: hl.Expr, z: hl.Expr, seed: int) -> hl.Expr:
    """A number in [-0.5, 0.5) by hashing the arguments (see `_hash` for the same in NumPy)."""
    h = hl.u32(x) * hl.u32(0x9E3779B1) + hl.u32(y) * hl.u32(0x85EBCA6B)
    h = h + hl.u32(z) * hl.u32(0xC2B2AE35) + hl.u32(seed)
    h = (h ^ (h >> hl.u32(16))) * hl.u32(0x7FEB352D)
    h = (h ^ (h >> hl.u32(15))) * hl.u32(0x846CA68B)
    return hl.f32(hl.i32(h >> hl.u32(8))) * hl.f32(2.0**-24) - 0.5


def _algorithm(width: int, height: int) -> SimpleNamespace:
    left_im = hl.ImageParam(hl.UInt(8), 3, "left_im")
    right_im = hl.ImageParam(hl.UInt(8), 3, "right_im")
    slices = hl.Param(hl.Int(32), "slices", 32)
    focus_depth = hl.Param(hl.Int(32), "focus_depth", 13)
    blur_radius_scale = hl.Param(hl.Float(32), "blur_radius_scale", 0.5)
    aperture_samples = hl.Param(hl.Int(32), "aperture_samples", 32)
    slices.set_range(1, 64)
    focus_depth.set_range(1, 32)
    blur_radius_scale.set_range(0.0, 1.0)
    aperture_samples.set_range(1, 64)
    x, y, z, c = hl.vars("x y z c")
    most = hl.i32(hl.f32(hl.max(slices - focus_depth, focus_depth)) * blur_radius_scale)

    left = hl.BoundaryConditions.repeat_edge(left_im)
    right = hl.BoundaryConditions.repeat_edge(right_im)
    diff = hl.Func("diff")
    diff[x, y, z, c] = hl.min(
        hl.absd(left[x, y, c], right[x + 2 * z, y, c]),
        hl.absd(left[x, y, c], right[x + 2 * z + 1, y, c]),
    )
    cost = hl.Func("cost")
    squares = [hl.f32(diff[x, y, z, i]) * hl.f32(diff[x, y, z, i]) for i in range(3)]
    cost[x, y, z] = squares[0] + squares[1] + squares[2]

    # Where the cost varies over the slices, the match can be trusted.
    cost_confidence = hl.Func("cost_confidence")
    r = hl.RDom([(0, slices)], "r")
    mean_of_squares = hl.sum(cost[x, y, r] * cost[x, y, r], "sum_squares") / hl.f32(slices)
    mean = hl.sum(cost[x, y, r] / hl.f32(slices), "sum_cost")
    cost_confidence[x, y] = mean_of_squares - mean * mean

    # Push and pull through a pyramid, of cost times confidence and of confidence.
    push = [hl.Func("push_0")]
    push[0][x, y, z, c] = hl.mux(c, [cost[x, y, z] * cost_confidence[x, y], cost_confidence[x, y]])
    w, h = left_im.dim(0).extent(), left_im.dim(1).extent()
    for level in range(1, LEVELS):
        w, h = w // 2, h // 2
        smaller = hl.Func(f"push_{level}")
        smaller[x, y, z, c] = _downsample(push[-1], f"push_{level}")[x, y, z, c]
        push.append(hl.BoundaryConditions.repeat_edge(smaller, [(0, w), (0, h)]))
    pull = [hl.Func(f"pull_{level}") for level in range(LEVELS)]
    pull[-1][x, y, z, c] = push[-1][x, y, z, c]
    for level in reversed(range(LEVELS - 1)):
        up = _upsample(pull[level + 1], f"pull_{level}")
        pull[level][x, y, z, c] = hl.lerp(up[x, y, z, c], push[level][x, y, z, c], 0.5)
    filtered_cost = hl.Func("filtered_cost")
    filtered_cost[x, y, z] = pull[0][x, y, z, 0] / pull[0][x, y, z, 1]

    depth = hl.Func("depth")
    slice_ = hl.RDom([(0, slices)], "slice")
    depth[x, y] = hl.argmin(filtered_cost[x, y, slice_], "cheapest")[0]
    bokeh_radius = hl.Func("bokeh_radius")
    bokeh_radius[x, y] = hl.f32(hl.abs(depth[x, y] - focus_depth)) * blur_radius_scale
    bokeh_radius_squared = hl.Func("bokeh_radius_squared")
    bokeh_radius_squared[x, y] = bokeh_radius[x, y] * bokeh_radius[x, y]

    # The largest radius nearby bounds where samples can come from.
    worst_y, worst = hl.Func("worst_radius_y"), hl.Func("worst_radius")
    m = hl.RDom([(-most, 2 * most + 1)], "m")
    worst_y[x, y] = hl.maximum(bokeh_radius[x, y + m], "max_y")
    worst[x, y] = hl.maximum(worst_y[x + m, y], "max_x")

    with_alpha = hl.Func("with_alpha")
    colours = [hl.f32(left[x, y, i]) for i in range(3)]
    with_alpha[x, y, c] = hl.mux(c, [*colours, hl.f32(255.0)])

    sample_locations = hl.Func("sample_locations")
    u, v = (
        hl.clamp(hl.i32(_noise(x, y, z, seed) * 2.0 * worst[x, y]), -most, most) for seed in (1, 2)
    )
    sample_locations[x, y, z] = (u, v)
    u, v = sample_locations[x, y, z][0], sample_locations[x, y, z][1]
    r_squared = hl.f32(u * u + v * v)
    # A sample counts if its bokeh reaches this pixel, and it is not hidden behind it.
    within_this = r_squared < bokeh_radius_squared[x, y]
    within_sample = r_squared < bokeh_radius_squared[x + u, y + v]
    in_front = depth[x + u, y + v] < depth[x, y]
    sample_weight = hl.Func("sample_weight")
    sample_weight[x, y, z] = hl.select(
        (within_this | in_front) & within_sample, hl.f32(1.0), hl.f32(0.0)
    )

    blurred = hl.Func("blurred")
    blurred[x, y, c] = with_alpha[x, y, c]
    s = hl.RDom([(0, aperture_samples)], "s")
    sample_x = x + sample_locations[x, y, s][0]
    sample_y = y + sample_locations[x, y, s][1]
    blurred[x, y, c] += sample_weight[x, y, s] * with_alpha[sample_x, sample_y, c]
    output = hl.Func("output")
    output[x, y, c] = blurred[x, y, c] / blurred[x, y, 3]

    for image in (left_im, right_im):
        image.set_estimates([(0, width), (0, height), (0, 3)])
    slices.set_estimate(32)
    focus_depth.set_estimate(13)
    blur_radius_scale.set_estimate(0.5)
    aperture_samples.set_estimate(32)
    output.set_estimates([(0, width), (0, height), (0, 3)])
    return SimpleNamespace(
        cost=cost,
        cost_confidence=cost_confidence,
        push=push,
        pull=pull,
        depth=depth,
        with_alpha=with_alpha,
        worst_y=worst_y,
        worst=worst,
        sample_locations=sample_locations,
        sample_weight=sample_weight,
        blurred=blurred,
        output=output,
        x=x,
        y=y,
        z=z,
        c=c,
        s=s,
    )


def lens_blur(width: int = 1536, height: int = 2560) -> hl.Pipeline:
    """The pipeline, unscheduled."""
    return hl.Pipeline(_algorithm(width, height).output)


def hand(target: hl.Target, width: int = 1536, height: int = 2560) -> hl.Pipeline:
    """The pipeline with the schedule that an expert chose for `target`."""
    f = _algorithm(width, height)
    if target.has_gpu_feature():
        _schedule_gpu(f)
    else:
        _schedule_cpu(f)
    return hl.Pipeline(f.output)


def _schedule_cpu(f: SimpleNamespace) -> None:
    # Two passes over the cost volume: its full-size level, then, for each slice on its own, all
    # smaller levels. The rest is row by row, with the samples of a vector in registers. Vectors
    # of what is stored are rounded up; loops of the output are not cut at its borders.
    x, y, z, c = f.x, f.y, f.z, f.c
    up = hl.TailStrategy.RoundUp
    xi, yi, t = hl.vars("xi yi t")
    (
        f.push[0]
        .compute_root()
        .reorder(c, z, x, y)
        .bound(c, 0, 2)
        .unroll(c)
        .vectorize(x, 16, up)
        .parallel(y, 4, up)
    )
    f.cost.compute_at(f.push[0], x).vectorize(x)
    f.cost_confidence.compute_at(f.push[0], x).vectorize(x)
    for level in range(1, LEVELS):
        push = f.push[level]
        push.compute_at(f.pull[1], t).vectorize(push.args()[0], 8, up)
        if level > 1:
            pull = f.pull[level].compute_at(f.pull[1], t)
            pull.tile(x, y, xi, yi, 8, 2, up).vectorize(xi).unroll(yi)
    (
        f.pull[1]
        .compute_root()
        .fuse(z, c, t)
        .parallel(t)
        .tile(x, y, xi, yi, 8, 2, up)
        .vectorize(xi)
        .unroll(yi)
    )
    f.depth.compute_root().tile(x, y, xi, yi, 8, 2, up).vectorize(xi).unroll(yi).parallel(y, 8, up)
    f.with_alpha.compute_root().reorder(c, x, y).unroll(c).vectorize(x, 8, up).parallel(y, 8, up)
    f.worst_y.compute_at(f.output, y).vectorize(x, 8, up)
    f.worst.compute_at(f.output, y).vectorize(x, 8, up)
    f.output.compute_root().reorder(c, x, y).bound(c, 0, 3).unroll(c).vectorize(x, 8).parallel(y)
    f.output.never_partition_all()
    f.blurred.compute_at(f.output, x).vectorize(x)
    f.blurred.update().reorder(c, x, f.s).vectorize(x).unroll(c)
    f.sample_weight.compute_at(f.blurred, x).unroll(x)
    f.sample_locations.compute_at(f.blurred, x).vectorize(x)


def _schedule_gpu(f: SimpleNamespace) -> None:
    x, y, z, c = f.x, f.y, f.z, f.c
    xi, yi, zi = hl.vars("xi yi zi")
    (
        f.push[0]
        .compute_root()
        .reorder(c, z, x, y)
        .bound(c, 0, 2)
        .unroll(c)
        .gpu_tile(x, y, xi, yi, 16, 16)
    )
    f.cost.compute_at(f.push[0], xi)
    f.cost_confidence.compute_at(f.push[0], xi)
    for level in f.push[1:] + f.pull[1:]:
        lx, ly, lz = level.args()[:3]
        level.compute_root().gpu_tile(lx, ly, lz, xi, yi, zi, 8, 8, 8)
    f.depth.compute_root().gpu_tile(x, y, xi, yi, 16, 16)
    f.with_alpha.compute_root().reorder(c, x, y).unroll(c).gpu_tile(x, y, xi, yi, 16, 16)
    f.worst_y.compute_root().gpu_tile(x, y, xi, yi, 16, 16)
    f.worst.compute_root().gpu_tile(x, y, xi, yi, 16, 16)
    (
        f.output.compute_root()
        .reorder(c, x, y)
        .bound(c, 0, 3)
        .unroll(c)
        .gpu_tile(x, y, xi, yi, 16, 16)
    )
    f.blurred.compute_at(f.output, xi)
    f.blurred.update().reorder(c, x, f.s).unroll(c)
    f.sample_weight.compute_at(f.blurred, x)
    f.sample_locations.compute_at(f.blurred, x)


def random_inputs(width: int = 1536, height: int = 2560, seed: int = 0) -> dict[str, Any]:
    """A random left image, and a right one that is the left one moved, plus noise."""
    rng = np.random.default_rng(seed)
    left = rng.integers(0, 256, (width, height, 3), dtype=np.uint8)
    noise = rng.integers(-8, 9, (width, height, 3))
    # Two depths: a near square before a far background.
    right = np.roll(left, 12, axis=0)
    right[width // 4 : width // 2, height // 4 : height // 2] = np.roll(left, 40, axis=0)[
        width // 4 : width // 2, height // 4 : height // 2
    ]
    right = np.clip(right + noise, 0, 255).astype(np.uint8)
    return {
        "left_im": np.asfortranarray(left),
        "right_im": np.asfortranarray(right),
        "slices": 32,
        "focus_depth": 13,
        "blur_radius_scale": 0.5,
        "aperture_samples": 32,
    }


def _hash(x: np.ndarray, y: np.ndarray, z: int, seed: int) -> np.ndarray:
    """The numbers of `_noise`."""
    x, y = x.astype(np.uint32), y.astype(np.uint32)
    offset = np.uint32((z * 0xC2B2AE35 + seed) & 0xFFFFFFFF)
    h = x * np.uint32(0x9E3779B1) + y * np.uint32(0x85EBCA6B) + offset
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x7FEB352D)
    h = (h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B)
    return (h >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24) - np.float32(0.5)


def reference(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """The result by NumPy, axes (x, y, c).

    Levels of the pyramid are computed on a grid with a generous margin, so that no care is
    needed at the borders.
    """
    slices, focus, samples = (inputs[k] for k in ("slices", "focus_depth", "aperture_samples"))
    scale = inputs["blur_radius_scale"]
    width, height = inputs["left_im"].shape[:2]
    most = int(max(slices - focus, focus) * scale)
    # Level l is known at indices lo[l] to hi[l] - 1.
    lo, hi = [-most - 2], [(width + most + 2, height + most + 2)]
    for _ in range(1, LEVELS):
        lo.append(lo[-1] // 2 - 2)
        hi.append(tuple(v // 2 + 3 for v in hi[-1]))
    # The finest level has to cover what the coarser ones read of it; its values outside the
    # image repeat the images' edges, which is not the same as repeating its own.
    x0, y0 = lo[0] - 4, lo[0] - 4
    x1, y1 = hi[0][0] + 4, hi[0][1] + 4

    left = inputs["left_im"].astype(np.int64)
    right = inputs["right_im"].astype(np.int64)
    xs, ys = np.arange(x0, x1), np.arange(y0, y1)
    cy = np.clip(ys, 0, height - 1)

    def at(image: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return image[np.clip(columns, 0, width - 1)][:, cy]

    here = at(left, xs)
    cost = np.empty((len(xs), len(ys), slices))
    for z in range(slices):
        a, b = (np.abs(here - at(right, xs + 2 * z + k)) for k in (0, 1))
        cost[:, :, z] = (np.minimum(a, b) ** 2).sum(axis=2)
    confidence = (cost**2).mean(axis=2) - cost.mean(axis=2) ** 2
    level0 = np.stack(
        [cost * confidence[:, :, None], np.broadcast_to(confidence[:, :, None], cost.shape)], -1
    )

    def half(f: np.ndarray, start: int, count: int, offset: int, axis: int) -> np.ndarray:
        """Indices start to start + count - 1 of f filtered and halved; f begins at offset."""
        f = np.moveaxis(f, axis, 0)
        k = 2 * np.arange(start, start + count) - offset
        result = (f[k - 1] + 3 * (f[k] + f[k + 1]) + f[k + 2]) / 8
        return np.moveaxis(result, 0, axis)

    def double(f: np.ndarray, start: int, count: int, offset: int, axis: int) -> np.ndarray:
        f = np.moveaxis(f, axis, 0)
        k = np.arange(start, start + count)
        result = 0.25 * f[k // 2 - 1 + 2 * (k % 2) - offset] + 0.75 * f[k // 2 - offset]
        return np.moveaxis(result, 0, axis)

    def repeat(f: np.ndarray, extent: int, start: int, stop: int, axis: int) -> np.ndarray:
        """Return f of indices start to stop - 1; its edges at 0 and extent - 1 are repeated."""
        return np.take(f, np.clip(np.arange(start, stop), 0, extent - 1), axis=axis)

    push, offsets = [level0], [(x0, y0)]
    w, h = width, height
    for level in range(1, LEVELS):
        w, h = w // 2, h // 2
        previous, (ox, oy) = push[-1], offsets[-1]
        # Repeating the edges of an empty level yields its element 0 at best; keep one.
        smaller = half(previous, 0, max(w, 1), ox, 0)
        smaller = half(smaller, 0, max(h, 1), oy, 1)
        sx, sy = lo[level] - 2, lo[level] - 2
        smaller = repeat(smaller, max(w, 1), sx, hi[level][0] + 4, 0)
        push.append(repeat(smaller, max(h, 1), sy, hi[level][1] + 4, 1))
        offsets.append((sx, sy))
    pull, start = push[-1], offsets[-1]
    for level in reversed(range(LEVELS - 1)):
        nx, ny = hi[level][0] - lo[level], hi[level][1] - lo[level]
        up = double(pull, lo[level], nx, start[0], 0)
        up = double(up, lo[level], ny, start[1], 1)
        ox, oy = lo[level] - offsets[level][0], lo[level] - offsets[level][1]
        pull = 0.5 * up + 0.5 * push[level][ox : ox + nx, oy : oy + ny]
        start = (lo[level], lo[level])
    depth = np.argmin(pull[..., 0] / pull[..., 1], axis=2)

    radius = np.abs(depth - focus) * scale
    margin = -lo[0]
    return (_render(inputs["left_im"], depth, radius, margin, most, samples),)


def _render(
    image: np.ndarray, depth: np.ndarray, radius: np.ndarray, margin: int, most: int, samples: int
) -> np.ndarray:
    """The blurred image; depth and radius begin `margin` pixels before the image."""
    width, height = image.shape[:2]

    def window(f: np.ndarray, dx: int, dy: int) -> np.ndarray:
        return f[margin + dx :, margin + dy :][:width, :height]

    reach = range(-most, most + 1)
    worst = np.max([window(radius, dx, dy) for dx in reach for dy in reach], axis=0)
    x, y = np.meshgrid(np.arange(width), np.arange(height), indexing="ij")
    total = np.concatenate([image, np.full((width, height, 1), 255)], axis=2).astype(np.float64)
    here = total.copy()
    for s in range(samples):
        u, v = (
            np.clip(np.trunc(_hash(x, y, s, k) * 2 * worst).astype(int), -most, most)
            for k in (1, 2)
        )
        there = (margin + x + u, margin + y + v)
        squared = u * u + v * v
        reaches = squared < radius[there] ** 2
        counts = (squared < window(radius, 0, 0) ** 2) | (depth[there] < window(depth, 0, 0))
        clamped = (np.clip(x + u, 0, width - 1), np.clip(y + v, 0, height - 1))
        total += (reaches & counts)[:, :, None] * here[clamped]
    return (total[..., :3] / total[..., 3:]).astype(np.float32)
