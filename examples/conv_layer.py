"""A convolution layer with ReLU.

``relu(c, x, y, n) = max(0, bias(c) + sum of filter(c, rx, ry, ci) * input(ci, x+rx, y+ry, n))``
with 3x3 filters and channels innermost. Published as ``apps/conv_layer`` of Halide; part of the
suites of Mullapudi 2016, Adams 2019, Sioutas 2020 (images of 128x128, 64 channels, batches of 4)
and Anderson 2021.

Usage: ``tilewright schedule examples/conv_layer.py:conv_layer``
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import halide as hl
import numpy as np

SMALL: dict[str, Any] = {"width": 15, "height": 11, "channels": 64, "batch": 2}

HAND_SOURCE = {
    "cpu": "apps/conv_layer/conv_layer_generator.cpp at v21.0.0",
    "gpu": "apps/conv_layer/conv_layer_generator.cpp at v21.0.0 (CUDA only)",
}


def _algorithm(width: int, height: int, channels: int, batch: int) -> SimpleNamespace:
    image = hl.ImageParam(hl.Float(32), 4, "input")
    weights = hl.ImageParam(hl.Float(32), 4, "filter")
    bias = hl.ImageParam(hl.Float(32), 1, "bias")
    x, y, c, n = hl.vars("x y c n")
    r = hl.RDom([(0, channels), (0, 3), (0, 3)], "r")
    conv = hl.Func("conv")
    conv[c, x, y, n] = bias[c]
    conv[c, x, y, n] += weights[c, r.y, r.z, r.x] * image[r.x, x + r.y, y + r.z, n]
    relu = hl.Func("relu")
    relu[c, x, y, n] = hl.max(0.0, conv[c, x, y, n])

    image.set_estimates([(0, channels), (0, width + 2), (0, height + 2), (0, batch)])
    weights.set_estimates([(0, channels), (0, 3), (0, 3), (0, channels)])
    bias.set_estimates([(0, channels)])
    relu.set_estimates([(0, channels), (0, width), (0, height), (0, batch)])
    return SimpleNamespace(
        image=image, weights=weights, bias=bias, conv=conv, relu=relu, x=x, y=y, c=c, n=n, r=r
    )


def conv_layer(
    width: int = 128, height: int = 128, channels: int = 64, batch: int = 4
) -> hl.Pipeline:
    """The pipeline, unscheduled."""
    return hl.Pipeline(_algorithm(width, height, channels, batch).relu)


def hand(
    target: hl.Target, width: int = 128, height: int = 128, channels: int = 64, batch: int = 4
) -> hl.Pipeline | None:
    """The pipeline with the schedule that an expert chose for `target`.

    None for a GPU without CUDA: the expert's schedule shares data within a warp. The sizes are
    compiled in, as the application does.
    """
    if target.has_gpu_feature() and not target.has_feature(hl.TargetFeature.CUDA):
        return None
    f = _algorithm(width, height, channels, batch)
    _fix_shapes(f, width, height, channels, batch)
    if target.has_gpu_feature():
        _schedule_gpu(f)
    else:
        _schedule_cpu(f, target)
    return hl.Pipeline(f.relu)


def _fix_shapes(f: SimpleNamespace, width: int, height: int, channels: int, batch: int) -> None:
    f.relu.bound(f.x, 0, width).bound(f.y, 0, height).bound(f.c, 0, channels).bound(f.n, 0, batch)
    shapes = (
        (f.relu.output_buffer(), (channels, width, height, batch)),
        (f.image, (channels, width + 2, height + 2, batch)),
        (f.weights, (channels, 3, 3, channels)),
        (f.bias, (channels,)),
    )
    for parameter, shape in shapes:
        stride = 1
        for d, extent in enumerate(shape):
            parameter.dim(d).set_bounds(0, extent)
            parameter.dim(d).set_stride(stride)
            stride *= extent


def _schedule_cpu(f: SimpleNamespace, target: hl.Target) -> None:
    # As many sums in registers as the machine holds together with the operands of one step.
    lanes = target.natural_vector_size(hl.Float(32))
    if target.has_feature(hl.TargetFeature.AVX512_Skylake) or (
        target.arch == hl.TargetArch.ARM and target.bits == 64
    ):
        tile_w, tile_h = 4, 5
    elif target.arch == hl.TargetArch.X86:
        tile_w, tile_h = 3, 4
    else:
        tile_w, tile_h = 2, 4
    c, x, y, n, r = f.c, f.x, f.y, f.n, f.r
    co, ci, xo, xi = hl.vars("co ci xo xi")
    (
        f.relu.split(c, co, ci, lanes * tile_w)
        .split(x, xo, xi, tile_h)
        .reorder(ci, xi, xo, y, n, co)
        .vectorize(ci, lanes)
        .unroll(ci)
        .unroll(xi)
        .parallel(y)
        .parallel(n)
        .parallel(co)
    )
    (
        f.conv.compute_at(f.relu, xo)
        .vectorize(c, lanes)
        .unroll(c)
        .unroll(x)
        .unroll(y)
        .update()
        .reorder(c, x, y, r.x, r.y, r.z, n)
        .vectorize(c, lanes)
        .unroll(c)
        .unroll(x)
        .unroll(y)
        .unroll(r.x, 2)
    )
    (f.weights.in_().compute_at(f.conv, r.x).vectorize(hl._0, lanes).unroll(hl._0).unroll(hl._3))
    f.image.in_().compute_at(f.conv, x).unroll(hl._0)


def _schedule_gpu(f: SimpleNamespace) -> None:
    # A warp owns 32 channels of a 5x5 piece; its lanes hold the inputs for each other.
    c, x, y, n, r = f.c, f.x, f.y, f.n, f.r
    xi, xo, yi, yo, ci, co, t = hl.vars("xi xo yi yo ci co t")
    rxo, rxi, rxii = hl.RVar("rxo"), hl.RVar("rxi"), hl.RVar("rxii")
    (
        f.relu.compute_root()
        .split(x, xo, xi, 5)
        .split(y, yo, yi, 5)
        .split(c, co, ci, 32)
        .reorder(xi, yi, ci, xo, yo, co, n)
        .gpu_lanes(ci)
        .unroll(xi)
        .unroll(yi)
        .fuse(co, n, t)
        .gpu_blocks(xo, yo, t)
    )
    (
        f.conv.compute_at(f.relu, xo)
        .store_in(hl.MemoryType.Register)
        .gpu_lanes(c)
        .unroll(x)
        .unroll(y)
        .update()
        .split(r.x, rxo, rxi, 16)
        .split(rxi, rxi, rxii, 2)
        .reorder(c, rxii, x, y, r.y, r.z, rxi, rxo)
        .gpu_lanes(c)
        .unroll(x)
        .unroll(y)
        .unroll(r.y)
        .unroll(r.z)
        .unroll(rxii)
    )
    (
        f.image.in_()
        .compute_at(f.conv, rxo)
        .vectorize(hl._0, 2)
        .split(hl._1, xo, xi, 4)
        .fuse(hl._0, xi, t)
        .gpu_lanes(t)
        .unroll(xo)
        .unroll(hl._2)
    )


def random_inputs(
    width: int = 128, height: int = 128, channels: int = 64, batch: int = 4, seed: int = 0
) -> dict[str, Any]:
    """Random inputs by name; arrays have the channel as their first axis."""
    rng = np.random.default_rng(seed)
    image = rng.random((channels, width + 2, height + 2, batch), dtype=np.float32)
    weights = rng.random((channels, 3, 3, channels), dtype=np.float32) - np.float32(0.5)
    bias = rng.random(channels, dtype=np.float32) - np.float32(0.5)
    return {
        "input": np.asfortranarray(image),
        "filter": np.asfortranarray(weights),
        "bias": bias,
    }


def reference(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """The result by NumPy, axes (c, x, y, n), summed in double precision."""
    image = inputs["input"].astype(np.float64)
    weights = inputs["filter"].astype(np.float64)
    channels, width, height, batch = image.shape
    width, height = width - 2, height - 2
    total = np.zeros((channels, width, height, batch))
    for i in range(3):
        for j in range(3):
            window = image[:, i : i + width, j : j + height]
            total += np.einsum("ck,kxyn->cxyn", weights[:, i, j, :], window)
    total += inputs["bias"][:, None, None, None]
    return (np.maximum(total, 0).astype(np.float32),)
