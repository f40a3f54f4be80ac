"""Non-local means denoising.

Every pixel becomes a mean of the pixels of a search window around it, weighted by how alike the
patches around the two are. Patch distances for an offset are a box blur of the squared
differences, done in two passes. Published as ``apps/nl_means`` of Halide; part of the suites of
Mullapudi 2016, Adams 2019, Sioutas 2020 (1536x2560x3) and Anderson 2021, with patches of 7x7 and
a search window of 7x7.

Usage: ``tilewright schedule examples/nl_means.py:nl_means``
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import halide as hl
import numpy as np

SMALL: dict[str, Any] = {"width": 67, "height": 41}

HAND_SOURCE = {
    "cpu": "apps/nl_means/nl_means_generator.cpp at v21.0.0",
    "gpu": "apps/nl_means/nl_means_generator.cpp at v21.0.0",
}


def _algorithm(width: int, height: int) -> SimpleNamespace:
    image = hl.ImageParam(hl.Float(32), 3, "input")
    patch_size = hl.Param(hl.Int(32), "patch_size", 7)
    search_area = hl.Param(hl.Int(32), "search_area", 7)
    sigma = hl.Param(hl.Float(32), "sigma", 0.12)
    x, y, c, dx, dy = hl.vars("x y c dx dy")
    clamped = hl.BoundaryConditions.repeat_edge(image)

    # Squared differences of the image and itself moved by (dx, dy), over all colours.
    dc = hl.Func("dc")
    difference = clamped[x, y, c] - clamped[x + dx, y + dy, c]
    dc[x, y, dx, dy, c] = difference * difference
    channels = hl.RDom([(0, 3)], "channels")
    d = hl.Func("d")
    d[x, y, dx, dy] = hl.sum(dc[x, y, dx, dy, channels], "sum_d")

    # Distances of patches: the sum of the differences over a patch, and the weights.
    patch = hl.RDom([(-(patch_size // 2), patch_size)], "patch")
    blur_d_y = hl.Func("blur_d_y")
    blur_d_y[x, y, dx, dy] = hl.sum(d[x, y + patch, dx, dy], "sum_blur_d_y")
    blur_d = hl.Func("blur_d")
    blur_d[x, y, dx, dy] = hl.sum(blur_d_y[x + patch, y, dx, dy], "sum_blur_d")
    scale = -1.0 / (sigma * sigma * hl.f32(patch_size) * hl.f32(patch_size))
    w = hl.Func("w")
    w[x, y, dx, dy] = hl.fast_exp(blur_d[x, y, dx, dy] * scale)

    # The weighted sum; a fourth channel of ones collects the weights.
    with_alpha = hl.Func("with_alpha")
    with_alpha[x, y, c] = hl.mux(
        c, [clamped[x, y, 0], clamped[x, y, 1], clamped[x, y, 2], hl.f32(1.0)]
    )
    low = -(search_area // 2)
    s = hl.RDom([(low, search_area), (low, search_area)], "s")
    total = hl.Func("total")
    total[x, y, c] = 0.0
    total[x, y, c] += w[x, y, s.x, s.y] * with_alpha[x + s.x, y + s.y, c]
    output = hl.Func("output")
    output[x, y, c] = hl.clamp(total[x, y, c] / total[x, y, 3], 0.0, 1.0)

    image.set_estimates([(0, width), (0, height), (0, 3)])
    patch_size.set_estimate(7)
    search_area.set_estimate(7)
    sigma.set_estimate(0.12)
    output.set_estimates([(0, width), (0, height), (0, 3)])
    return SimpleNamespace(
        d=d, blur_d_y=blur_d_y, blur_d=blur_d, total=total, output=output, x=x, y=y, c=c, dx=dx, s=s
    )


def nl_means(width: int = 1536, height: int = 2560) -> hl.Pipeline:
    """The pipeline, unscheduled."""
    return hl.Pipeline(_algorithm(width, height).output)


def hand(target: hl.Target, width: int = 1536, height: int = 2560) -> hl.Pipeline:
    """The pipeline with the schedule that an expert chose for `target`."""
    f = _algorithm(width, height)
    f.output.output_buffer().dim(2).set_bounds(0, 3)
    if target.has_gpu_feature():
        _schedule_gpu(f)
    else:
        _schedule_cpu(f, target)
    return hl.Pipeline(f.output)


def _schedule_cpu(f: SimpleNamespace, target: hl.Target) -> None:
    # Small tiles: the differences and their blur in y for all offsets stay in cache.
    lanes = target.natural_vector_size(hl.Float(32))
    x, y, c, s = f.x, f.y, f.c, f.s
    tx, ty = hl.vars("tx ty")
    (
        f.output.compute_root()
        .reorder(c, x, y)
        .tile(x, y, tx, ty, x, y, 16, 8)
        .parallel(ty)
        .vectorize(x, lanes)
    )
    (
        f.blur_d_y.compute_at(f.output, tx)
        .hoist_storage(f.output, ty)
        .reorder(y, x)
        .vectorize(x, lanes)
    )
    f.d.compute_at(f.output, tx).hoist_storage(f.output, ty).vectorize(x, lanes)
    (
        f.total.compute_at(f.output, x)
        .reorder(c, x, y)
        .bound(c, 0, 4)
        .unroll(c)
        .vectorize(x, lanes)
        .update()
        .reorder(c, x, y, s.x, s.y)
        .unroll(c)
        .vectorize(x, lanes)
    )
    f.blur_d.compute_at(f.total, x).vectorize(x, lanes)


def _schedule_gpu(f: SimpleNamespace) -> None:
    # One pair of kernels per row of offsets, blocks of 32x16 throughout; tiles of the blur are
    # a block less the six pixels that patches of seven add.
    x, y, c, s = f.x, f.y, f.c, f.s
    xi, yi, xii, yii = hl.vars("xi yi xii yii")
    f.output.compute_root().reorder(c, x, y).unroll(c).gpu_tile(x, y, xi, yi, 32, 16)
    (
        f.total.compute_root()
        .gpu_tile(x, y, xi, yi, 32, 16)
        .update()
        .reorder(c, s.x, x, y, s.y)
        .tile(x, y, xi, yi, 32, 16)
        .gpu_blocks(x, y)
        .gpu_threads(xi, yi)
        .unroll(c)
    )
    (
        f.blur_d.compute_at(f.total, s.y)
        .tile(x, y, xi, yi, 128 - 6, 32 - 6)
        .tile(xi, yi, xii, yii, 32, 16)
        .gpu_threads(xii, yii)
        .gpu_blocks(x, y, f.dx)
    )
    for producer in (f.blur_d_y, f.d):
        producer.compute_at(f.blur_d, x).tile(x, y, xi, yi, 32, 16).gpu_threads(xi, yi)


def random_inputs(width: int = 1536, height: int = 2560, seed: int = 0) -> dict[str, Any]:
    """Random inputs by name; arrays have x as their first axis."""
    rng = np.random.default_rng(seed)
    image = rng.random((width, height, 3), dtype=np.float32)
    return {
        "input": np.asfortranarray(image),
        "patch_size": 7,
        "search_area": 7,
        "sigma": 0.12,
    }


def reference(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """The result by NumPy, axes (x, y, c)."""
    patch, search, sigma = inputs["patch_size"], inputs["search_area"], inputs["sigma"]
    width, height = inputs["input"].shape[:2]
    p_low, s_low = -(patch // 2), -(search // 2)
    margin = patch + search
    padded = np.pad(
        inputs["input"].astype(np.float64), ((margin, margin), (margin, margin), (0, 0)), "edge"
    )

    def moved(dx: int, dy: int, grow: int = 0) -> np.ndarray:
        x0, y0 = margin + dx - grow, margin + dy - grow
        return padded[x0 : x0 + width + 2 * grow, y0 : y0 + height + 2 * grow]

    total = np.zeros((width, height, 3))
    weights = np.zeros((width, height, 1))
    for dx in range(s_low, s_low + search):
        for dy in range(s_low, s_low + search):
            d = ((moved(0, 0, patch) - moved(dx, dy, patch)) ** 2).sum(axis=2)
            distance = np.zeros((width, height))
            for i in range(p_low + patch, p_low + 2 * patch):
                for j in range(p_low + patch, p_low + 2 * patch):
                    distance += d[i : i + width, j : j + height]
            w = np.exp(-distance / (sigma * sigma * patch * patch))[:, :, None]
            total += w * moved(dx, dy)
            weights += w
    return (np.clip(total / weights, 0, 1).astype(np.float32),)
