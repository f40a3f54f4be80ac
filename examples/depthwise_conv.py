"""A depthwise-separable convolution with ReLU.

Each channel is convolved with its own 3x3 filter, then the channels are mixed at every pixel.
Published as ``apps/depthwise_separable_conv`` of Halide, which takes the second layer of
MobileNet v2 (batches of 4, 112x112, 32 channels to 16); part of the suite of Anderson 2021. As
there, the shape of the filters is read from the inputs, not compiled in.

Usage: ``tilewright schedule examples/depthwise_conv.py:depthwise_conv``
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import halide as hl
import numpy as np

SMALL: dict[str, Any] = {
    "width": 19,
    "height": 14,
    "in_channels": 32,
    "out_channels": 16,
    "batch": 2,
}

HAND_SOURCE = {
    "cpu": "apps/depthwise_separable_conv/depthwise_separable_conv_generator.cpp at v21.0.0",
    "gpu": "apps/depthwise_separable_conv/depthwise_separable_conv_generator.cpp at v21.0.0",
}


def _algorithm(
    width: int, height: int, in_channels: int, out_channels: int, batch: int
) -> SimpleNamespace:
    image = hl.ImageParam(hl.Float(32), 4, "input")
    depthwise = hl.ImageParam(hl.Float(32), 4, "depthwise_filter")
    pointwise = hl.ImageParam(hl.Float(32), 2, "pointwise_filter")
    bias = hl.ImageParam(hl.Float(32), 1, "bias")
    x, y, d, b = hl.vars("x y d b")

    # Zeros around the image, as one select over a clamped load.
    bounded = hl.Func("input_bounded")
    inside = (x >= 0) & (x < image.dim(1).extent()) & (y >= 0) & (y < image.dim(2).extent())
    cx, cy = hl.clamp(x, 0, image.dim(1).max()), hl.clamp(y, 0, image.dim(2).max())
    bounded[d, x, y, b] = hl.select(inside, image[d, cx, cy, b], hl.f32(0.0))

    multiplier = depthwise.dim(0).extent()
    r = hl.RDom([(0, multiplier), (0, depthwise.dim(2).extent()), (0, depthwise.dim(3).extent())])
    rd, rx, ry = r[0], r[1], r[2]
    pad_x, pad_y = depthwise.dim(2).extent() // 2, depthwise.dim(3).extent() // 2
    dconv = hl.Func("depthwise_convolved")
    dconv[d, x, y, b] = 0.0
    dconv[d, x, y, b] += (
        depthwise[rd, d, rx, ry] * bounded[d // multiplier, x + rx - pad_x, y + ry - pad_y, b]
    )
    rc = hl.RDom([(0, pointwise.dim(1).extent())], "rc")
    pconv = hl.Func("pointwise_convolved")
    pconv[d, x, y, b] = bias[d]
    pconv[d, x, y, b] += pointwise[d, rc] * dconv[rc, x, y, b]
    output = hl.Func("output")
    output[d, x, y, b] = hl.max(pconv[d, x, y, b], 0.0)

    image.set_estimates([(0, in_channels), (0, width), (0, height), (0, batch)])
    depthwise.set_estimates([(0, 1), (0, in_channels), (0, 3), (0, 3)])
    pointwise.set_estimates([(0, out_channels), (0, in_channels)])
    bias.set_estimates([(0, out_channels)])
    output.set_estimates([(0, out_channels), (0, width), (0, height), (0, batch)])
    return SimpleNamespace(
        depthwise=depthwise,
        pointwise=pointwise,
        multiplier=multiplier,
        bounded=bounded,
        dconv=dconv,
        pconv=pconv,
        output=output,
        x=x,
        y=y,
        d=d,
        b=b,
        rd=rd,
        rx=rx,
        ry=ry,
        rc=rc,
    )


def depthwise_conv(
    width: int = 112,
    height: int = 112,
    in_channels: int = 32,
    out_channels: int = 16,
    batch: int = 4,
) -> hl.Pipeline:
    """The pipeline, unscheduled."""
    return hl.Pipeline(_algorithm(width, height, in_channels, out_channels, batch).output)


def hand(
    target: hl.Target,
    width: int = 112,
    height: int = 112,
    in_channels: int = 32,
    out_channels: int = 16,
    batch: int = 4,
) -> hl.Pipeline:
    """The pipeline with the schedule that an expert chose for `target`."""
    f = _algorithm(width, height, in_channels, out_channels, batch)
    if target.has_gpu_feature():
        _schedule_gpu(f)
    else:
        _schedule_cpu(f, target)
    # For the usual case, a filter per channel of 3x3 and channels a multiple of 32, the filter
    # is dense in its second dimension and the loops over it have known lengths.
    f.depthwise.dim(1).set_stride(f.multiplier)
    channels = f.pointwise.dim(1).extent()
    f.output.specialize(
        (f.multiplier == 1)
        & (channels == (channels // 32) * 32)
        & (f.depthwise.dim(2).extent() == 3)
        & (f.depthwise.dim(3).extent() == 3)
    )
    return hl.Pipeline(f.output)


def _tile(target: hl.Target, lanes: int) -> tuple[int, int, int]:
    """Vectors, columns and rows of sums that fit in the registers of `target`."""
    many = target.has_feature(hl.TargetFeature.AVX512_Skylake) or (
        target.arch == hl.TargetArch.ARM and target.bits == 64
    )
    if many and lanes == 16:
        return 1, 6, 4
    if many and lanes == 4:
        return 4, 3, 2
    if not many and lanes == 8:
        return 2, 3, 2
    return 4, 2, 1


def _schedule_cpu(f: SimpleNamespace, target: hl.Target) -> None:
    # The depthwise part is computed for a slice of channels at a time, within the reduction of
    # the pointwise part.
    lanes = target.natural_vector_size(hl.Float(32))
    vectors, tile_w, tile_h = _tile(target, lanes)
    tile_d = vectors * lanes
    x, y, d, b = f.x, f.y, f.d, f.b
    di, xi, yi = hl.vars("di xi yi")
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    (
        f.output.tile([d, x, y], [di, xi, yi], [tile_d, tile_w, tile_h])
        .vectorize(di)
        .unroll(xi)
        .unroll(yi)
        .fuse(y, b, b)
        .parallel(b)
    )
    (
        f.pconv.compute_at(f.output, d)
        .vectorize(d)
        .unroll(x)
        .unroll(y)
        .update()
        .reorder(d, x, y, f.rc, b)
        .vectorize(d)
        .unroll(x)
        .unroll(y)
        .split(f.rc, ro, ri, tile_d)
    )
    (
        f.dconv.store_in(hl.MemoryType.Stack)
        .bound_extent(d, tile_d)
        .compute_at(f.pconv, ro)
        .vectorize(d)
        .reorder(x, y, d)
        .unroll(x)
        .unroll(y)
        .update()
        .vectorize(d)
        .reorder(x, y, d, f.rd, f.rx, f.ry, b)
        .unroll(x)
        .unroll(y)
    )
    (
        f.bounded.store_in(hl.MemoryType.Stack)
        .compute_at(f.pconv, ro)
        .tile(d, x, di, xi, lanes, 4, hl.TailStrategy.RoundUp)
        .vectorize(di)
        .unroll(xi)
    )


def _schedule_gpu(f: SimpleNamespace) -> None:
    # Again the depthwise part is fused; it passes through shared memory on its way to the
    # registers of the threads that mix the channels.
    x, y, d, b = f.x, f.y, f.d, f.b
    xi, yi, di, dii, xii, yii = hl.vars("xi yi di dii xii yii")
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    (
        f.output.tile([d, x, y], [di, xi, yi], [16, 4, 4])
        .tile([di, xi, yi], [dii, xii, yii], [1, 2, 2])
        .gpu_threads(di, xi, yi)
        .fuse(y, b, b)
        .gpu_blocks(d, x, b)
        .unroll(xii)
        .unroll(yii)
        .unroll(dii)
    )
    (
        f.pconv.compute_at(f.output, di)
        .reorder(x, y, d)
        .unroll(x)
        .unroll(y)
        .unroll(d)
        .update()
        .unroll(x)
        .unroll(y)
        .unroll(d)
        .split(f.rc, ro, ri, 4)
        .reorder(ri, x, y, d, ro)
        .unroll(ri)
    )
    (f.dconv.in_().in_().compute_at(f.pconv, x).bound_extent(d, 4).vectorize(d).unroll(x).unroll(y))
    (
        f.dconv.in_()
        .compute_at(f.output, d)
        .tile([d, x, y], [di, xi, yi], [32, 4, 4], hl.TailStrategy.RoundUp)
        .tile([di, xi, yi], [dii, xii, yii], [2, 2, 2])
        .gpu_threads(di, xi, yi)
        .unroll(xii)
        .unroll(yii)
        .unroll(dii)
    )
    (
        f.dconv.compute_at(f.dconv.in_(), di)
        .unroll(x)
        .unroll(y)
        .unroll(d)
        .update()
        .reorder(d, x, y, f.rx, f.ry, f.rd)
        .unroll(x)
        .unroll(y)
        .unroll(d)
    )


def random_inputs(
    width: int = 112,
    height: int = 112,
    in_channels: int = 32,
    out_channels: int = 16,
    batch: int = 4,
    seed: int = 0,
) -> dict[str, Any]:
    """Random inputs by name; arrays have the channel as their first axis."""
    rng = np.random.default_rng(seed)

    def centred(*shape: int) -> np.ndarray:
        return np.asfortranarray(rng.random(shape, dtype=np.float32) - np.float32(0.5))

    return {
        "input": centred(in_channels, width, height, batch),
        "depthwise_filter": centred(1, in_channels, 3, 3),
        "pointwise_filter": centred(out_channels, in_channels),
        "bias": centred(out_channels),
    }


def reference(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """The result by NumPy, axes (d, x, y, b), summed in double precision."""
    image = np.pad(inputs["input"].astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    filters = inputs["depthwise_filter"].astype(np.float64)[0]
    width, height = inputs["input"].shape[1:3]
    convolved = np.zeros(inputs["input"].shape)
    for i in range(3):
        for j in range(3):
            window = image[:, i : i + width, j : j + height]
            convolved += filters[:, i, j][:, None, None, None] * window
    mixed = np.einsum("dc,cxyb->dxyb", inputs["pointwise_filter"].astype(np.float64), convolved)
    mixed += inputs["bias"][:, None, None, None]
    return (np.maximum(mixed, 0).astype(np.float32),)
