"""Histogram equalisation of an RGB image: its luminance is spread over the whole range.

As in ``apps/hist/hist_generator.cpp`` of Halide v21.0.0: a histogram of each row, their sum, its
running sum as a lookup table.

Usage: ``tilewright schedule examples/histogram.py:histogram``
"""

from types import SimpleNamespace

import halide as hl
import numpy as np
from halide import f32

SMALL = {"width": 203, "height": 97}
HAND_SOURCE = {
    "cpu": "apps/hist/hist_generator.cpp at v21.0.0",
    "gpu": "apps/hist/hist_generator.cpp at v21.0.0",
}


def random_inputs(width=1536, height=2560, seed=0):
    rng = np.random.default_rng(seed)
    return {"input": rng.integers(0, 256, (width, height, 3), dtype=np.uint8)}


def build(width, height):
    """The algorithm: its Funcs and Vars by name."""
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    image = hl.ImageParam(hl.UInt(8), 3, "input")
    image.set_estimates([(0, width), (0, height), (0, 3)])

    Y, Cr, Cb = hl.Func("Y"), hl.Func("Cr"), hl.Func("Cb")
    Y[x, y] = (
        f32(0.299) * image[x, y, 0] + f32(0.587) * image[x, y, 1] + f32(0.114) * image[x, y, 2]
    )
    Cr[x, y] = (image[x, y, 0] - Y[x, y]) * f32(0.713) + f32(128.0)
    Cb[x, y] = (image[x, y, 2] - Y[x, y]) * f32(0.564) + f32(128.0)

    rx = hl.RDom([(0, image.width())], "rx").x
    hist_rows = hl.Func("hist_rows")
    hist_rows[x, y] = 0
    hist_rows[hl.i32(hl.clamp(Y[rx, y], f32(0.0), f32(255.0))), y] += 1

    ry = hl.RDom([(0, image.height())], "ry").x
    hist = hl.Func("hist")
    hist[x] = 0
    hist[x] += hist_rows[x, ry]

    b = hl.RDom([(1, 255)], "b").x
    cdf = hl.Func("cdf")
    cdf[x] = hist[0]
    cdf[b] = cdf[b - 1] + hist[b]

    cdf_bin, eq = hl.Func("cdf_bin"), hl.Func("equalize")
    cdf_bin[x, y] = hl.u8(hl.clamp(Y[x, y], f32(0.0), f32(255.0)))
    eq[x, y] = hl.clamp(
        cdf[cdf_bin[x, y]] * (f32(255.0) / (image.height() * image.width())), f32(0.0), f32(255.0)
    )

    def to_byte(value):
        return hl.u8(hl.clamp(value, f32(0.0), f32(255.0)))

    cr, cb = Cr[x, y] - f32(128.0), Cb[x, y] - f32(128.0)
    red = to_byte(eq[x, y] + cr * f32(1.4))
    green = to_byte(eq[x, y] - f32(0.343) * cb - f32(0.711) * cr)
    blue = to_byte(eq[x, y] + f32(1.765) * cb)
    output = hl.Func("output")
    output[x, y, c] = hl.mux(c, [red, green, blue])
    output.set_estimates([(0, width), (0, height), (0, 3)])
    return SimpleNamespace(
        x=x,
        y=y,
        c=c,
        rx=rx,
        ry=ry,
        Y=Y,
        Cr=Cr,
        Cb=Cb,
        hist_rows=hist_rows,
        hist=hist,
        cdf=cdf,
        eq=eq,
        output=output,
    )


def histogram(width=1536, height=2560):
    """The unscheduled pipeline; input and output are ``width`` x ``height`` x 3."""
    return hl.Pipeline(build(width, height).output)


def hand(target, width=1536, height=2560):
    """The same pipeline with the schedule of Halide's own application."""
    p = build(width, height)
    p.cdf.bound(p.x, 0, 256)
    if target.has_gpu_feature():
        if target.has_feature(hl.TargetFeature.CUDA):
            _rows_cuda(p)
        else:
            _rows_gpu(p)
        _rest_gpu(p)
    else:
        _cpu(p, target.natural_vector_size(hl.Float(32)))
    return hl.Pipeline(p.output)


def _cpu(p, vec):
    x, y, c, rx, ry = p.x, p.y, p.c, p.rx, p.ry
    # The luminance is computed twice: once a row for the histogram, so that it vectorises, and
    # once inline for the output.
    whole = p.hist_rows.in_()
    p.Y.clone_in(p.hist_rows).compute_at(whole, y).vectorize(x, vec)
    whole.compute_root().vectorize(x, vec).parallel(y, 4)
    p.hist_rows.compute_at(whole, y).vectorize(x, vec)
    p.hist_rows.update().reorder(y, rx).unroll(y)
    # Bins, not rows, are summed in parallel.
    p.hist.compute_root().vectorize(x, vec)
    p.hist.update().reorder(x, ry).vectorize(x, vec).unroll(x, 4).parallel(x).reorder(ry, x)
    p.cdf.compute_root()
    p.output.reorder(c, x, y).bound(c, 0, 3).unroll(c).parallel(y, 8).vectorize(x, vec * 2)


def _rows_cuda(p):
    x, y, rx = p.x, p.y, p.rx
    xi, rxo, rxi = hl.Var("xi"), hl.RVar("rxo"), hl.RVar("rxi")
    # One warp a row counts with atomic additions in shared memory.
    whole = p.hist_rows.in_()
    whole.compute_root().split(x, x, xi, 64).vectorize(xi, 2).unroll(x).gpu_lanes(xi).gpu_blocks(y)
    p.hist_rows.store_in(hl.MemoryType.GPUShared).compute_at(whole, y)
    p.hist_rows.split(x, x, xi, 64).vectorize(xi, 2).unroll(x).gpu_lanes(xi)
    p.hist_rows.update().split(rx, rxo, rxi, 32).reorder(rxi, rxo, y).atomic().gpu_lanes(rxi)
    luminance = p.Y.clone_in(p.hist_rows)
    luminance.compute_at(p.hist_rows, rxo).store_in(hl.MemoryType.Register).gpu_lanes(x)


def _rows_gpu(p):
    x, y, rx = p.x, p.y, p.rx
    xi, yi, z, zi = hl.Var("xi"), hl.Var("yi"), hl.Var("z"), hl.Var("zi")
    rxo, rxi = hl.RVar("rxo"), hl.RVar("rxi")
    # Without such atomics: histograms of pieces of rows, which are then summed. (The application
    # also bounds the staged luminance to 16 pixels, too few for a piece of 256: left out.)
    p.hist_rows.compute_root().gpu_tile(x, y, xi, yi, 32, 8)
    p.hist_rows.update().split(rx, rxo, rxi, 256)
    pieces = p.hist_rows.update().rfactor(rxo, z)
    whole = pieces.in_()
    whole.compute_root().gpu_tile(y, z, yi, zi, 16, 1)
    pieces.compute_at(whole, y).split(x, x, xi, 16).gpu_threads(xi)
    pieces.update().gpu_threads(y)
    p.hist_rows.update().gpu_tile(x, y, xi, yi, 32, 8)
    luminance = p.Y.clone_in(pieces)
    luminance.compute_at(whole, y).split(x, x, xi, 16).gpu_threads(xi)


def _rest_gpu(p):
    x, y, c = p.x, p.y, p.c
    xi, yi = hl.Var("xi"), hl.Var("yi")
    p.hist.compute_root().gpu_tile(x, xi, 16)
    p.hist.update().gpu_tile(x, xi, 16)
    p.cdf.compute_root().gpu_tile(x, xi, 16)
    p.cdf.update().gpu_single_thread()
    p.output.compute_root().reorder(c, x, y).bound(c, 0, 3).unroll(c)
    p.output.gpu_tile(x, y, xi, yi, 128, 4).vectorize(xi, 4)
    for f in (p.Cb, p.Cr, p.eq):
        f.compute_at(p.output, xi).vectorize(x)
    # The lookup table is staged in shared memory.
    table = p.cdf.in_()
    table.compute_at(p.output, x).split(x, x, xi, 64).vectorize(xi, 2).gpu_threads(xi, x)


def reference(inputs):
    """NumPy, in float32; arrays are indexed ``[x, y, c]``."""
    image = inputs["input"].astype(np.float32)
    width, height, _ = image.shape
    single = np.float32
    r, g, b = image[..., 0], image[..., 1], image[..., 2]
    luminance = single(0.299) * r + single(0.587) * g + single(0.114) * b
    cr = (r - luminance) * single(0.713)
    cb = (b - luminance) * single(0.564)
    bins = np.clip(luminance, 0, 255).astype(int)
    cdf = np.cumsum(np.bincount(bins.ravel(), minlength=256))
    equalized = np.clip(cdf[bins].astype(single) * (single(255) / single(width * height)), 0, 255)
    channels = [
        equalized + cr * single(1.4),
        equalized - single(0.343) * cb - single(0.711) * cr,
        equalized + single(1.765) * cb,
    ]
    return (np.clip(np.stack(channels, axis=2), 0, 255).astype(np.uint8),)
