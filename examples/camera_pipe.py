"""Camera pipeline: from a raw Bayer mosaic to a sharpened 8-bit RGB image.

The Frankencamera pipeline as in ``apps/camera_pipe/camera_pipe_generator.cpp`` of Halide v21.0.0:
suppression of hot pixels, deinterleaving, adaptive demosaicing, colour correction, a tone curve
as a lookup table, sharpening. The raw image is 32 columns and 24 rows larger than the output, so
no boundary condition is needed.

Usage: ``tilewright schedule examples/camera_pipe.py:camera_pipe``
"""

from types import SimpleNamespace

import halide as hl
import numpy as np
from halide import f32

# The schedules by hand want whole vectors and strips: multiples of 64 columns and 32 rows.
SMALL = {"width": 192, "height": 96}
HAND_SOURCE = {
    "cpu": "apps/camera_pipe/camera_pipe_generator.cpp at v21.0.0",
    "gpu": "apps/camera_pipe/camera_pipe_generator.cpp at v21.0.0",
}
MATRIX_3200 = [
    [1.6697, -0.2693, -0.4004, -42.4346],
    [-0.3576, 1.0615, 1.5949, -37.1158],
    [-0.2175, -1.8751, 6.9640, -26.6970],
]
MATRIX_7000 = [
    [2.2997, -0.4478, 0.1706, -39.0923],
    [-0.3826, 1.5906, -0.2080, -25.4311],
    [-0.0888, -0.7344, 2.2832, -20.0826],
]


def random_inputs(width=1536, height=2560, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "input": rng.integers(0, 1024, (width + 32, height + 24), dtype=np.uint16),
        "matrix_3200": np.array(MATRIX_3200, dtype=np.float32).T,
        "matrix_7000": np.array(MATRIX_7000, dtype=np.float32).T,
    }


def avg(a, b, bits=16):
    """The average of two unsigned values of the given number of bits, rounded up."""
    return hl.cast(hl.UInt(bits), (hl.cast(hl.UInt(2 * bits), a) + b + 1) // 2)


def blur121(a, b, c):
    return avg(avg(a, c, 8), b, 8)


def demosaic(deinterleaved, x, y, c):
    """Full-size RGB from the four half-size channels g (red rows), r, b, g (blue rows).

    ``x_y`` is the value of channel x at the sites where the mosaic has y. Each missing value is
    interpolated in the direction of least change; red and blue are then corrected by the second
    derivative of green.
    """
    names = "g_gr r_r b_b g_gb g_r g_b r_gr b_gr r_gb b_gb r_b b_r"
    f = SimpleNamespace(**{name: hl.Func(name) for name in names.split()})
    for channel, known in enumerate((f.g_gr, f.r_r, f.b_b, f.g_gb)):
        known[x, y] = deinterleaved[x, y, channel]

    def directed(g, horizontal, vertical):
        g[x, y] = hl.select(
            hl.absd(*horizontal) < hl.absd(*vertical), avg(*horizontal), avg(*vertical)
        )

    here, there = f.g_gr, f.g_gb
    directed(f.g_r, (here[x + 1, y], here[x, y]), (there[x, y - 1], there[x, y]))
    directed(f.g_b, (there[x - 1, y], there[x, y]), (here[x, y + 1], here[x, y]))

    def corrected(green, near_green, colour, a, b):
        """``colour`` between the sites a and b, corrected by ``green`` there."""
        return green[x, y] - avg(near_green[a], near_green[b]) + avg(colour[a], colour[b])

    f.r_gr[x, y] = corrected(f.g_gr, f.g_r, f.r_r, (x, y), (x - 1, y))
    f.b_gr[x, y] = corrected(f.g_gr, f.g_b, f.b_b, (x, y), (x, y - 1))
    f.r_gb[x, y] = corrected(f.g_gb, f.g_r, f.r_r, (x, y), (x, y + 1))
    f.b_gb[x, y] = corrected(f.g_gb, f.g_b, f.b_b, (x, y), (x + 1, y))

    def diagonal(green, near_green, colour, p, n):
        """``corrected`` along whichever of the two diagonals has the smaller difference."""
        smaller = hl.absd(colour[p[0]], colour[p[1]]) < hl.absd(colour[n[0]], colour[n[1]])
        return hl.select(
            smaller,
            corrected(green, near_green, colour, *p),
            corrected(green, near_green, colour, *n),
        )

    f.r_b[x, y] = diagonal(f.g_b, f.g_r, f.r_r, ((x, y), (x - 1, y + 1)), ((x - 1, y), (x, y + 1)))
    f.b_r[x, y] = diagonal(f.g_r, f.g_b, f.b_b, ((x, y), (x + 1, y - 1)), ((x + 1, y), (x, y - 1)))

    def interleave_x(a, b):
        out = hl.Func("interleaved_x")
        out[x, y] = hl.select((x % 2) == 0, a[x // 2, y], b[x // 2, y])
        return out

    def interleave_y(a, b):
        out = hl.Func("interleaved_y")
        out[x, y] = hl.select((y % 2) == 0, a[x, y // 2], b[x, y // 2])
        return out

    r = interleave_y(interleave_x(f.r_gr, f.r_r), interleave_x(f.r_b, f.r_gb))
    g = interleave_y(interleave_x(f.g_gr, f.g_r), interleave_x(f.g_b, f.g_gb))
    b = interleave_y(interleave_x(f.b_gr, f.b_r), interleave_x(f.b_b, f.b_gb))
    demosaiced = hl.Func("demosaiced")
    # Signed, as a correction may have gone below zero.
    demosaiced[x, y, c] = hl.i16(hl.mux(c, [r[x, y], g[x, y], b[x, y]]))
    return f, demosaiced


def build(width, height):
    """The algorithm: its Funcs and Vars by name."""
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    image = hl.ImageParam(hl.UInt(16), 2, "input")
    image.set_estimates([(0, width + 32), (0, height + 24)])
    matrices = [hl.ImageParam(hl.Float(32), 2, name) for name in ("matrix_3200", "matrix_7000")]
    for matrix in matrices:
        matrix.set_estimates([(0, 4), (0, 3)])

    def param(kind, name, value):
        p = hl.Param(kind, name, value)
        p.set_estimate(value)
        return p

    color_temp = param(hl.Float(32), "color_temp", 3700.0)
    gamma = param(hl.Float(32), "gamma", 2.0)
    contrast = param(hl.Float(32), "contrast", 50.0)
    sharpen_strength = param(hl.Float(32), "sharpen_strength", 1.0)
    black_level = param(hl.Int(32), "blackLevel", 25)
    white_level = param(hl.Int(32), "whiteLevel", 1023)

    # Hot pixels: none may exceed all of its neighbours of the same colour.
    shifted, denoised = hl.Func("shifted"), hl.Func("denoised")
    shifted[x, y] = image[x + 16, y + 12]
    brightest = hl.max(
        hl.max(shifted[x - 2, y], shifted[x + 2, y]), hl.max(shifted[x, y - 2], shifted[x, y + 2])
    )
    denoised[x, y] = hl.clamp(shifted[x, y], hl.u16(0), brightest)

    deinterleaved = hl.Func("deinterleaved")
    corners = [(2 * x, 2 * y), (2 * x + 1, 2 * y), (2 * x, 2 * y + 1), (2 * x + 1, 2 * y + 1)]
    deinterleaved[x, y, c] = hl.mux(c, [denoised[corner] for corner in corners])
    greens, demosaiced = demosaic(deinterleaved, x, y, c)

    # A colour matrix between two calibrated ones, by inverse temperature, in fixed point Q8.8
    matrix, corrected = hl.Func("matrix"), hl.Func("corrected")
    alpha = (f32(1.0) / color_temp - f32(1.0 / 3200)) / f32(1.0 / 7000 - 1.0 / 3200)
    matrix[x, y] = hl.i16(
        (matrices[0][x, y] * alpha + matrices[1][x, y] * (1 - alpha)) * f32(256.0)
    )
    rgb = [hl.i32(demosaiced[x, y, i]) for i in range(3)]
    sums = [matrix[3, j] + sum(matrix[i, j] * rgb[i] for i in range(3)) for j in range(3)]
    corrected[x, y, c] = hl.mux(c, [hl.i16(s // 256) for s in sums])

    # The tone curve: gamma, then a piecewise quadratic contrast
    curve, curved = hl.Func("curve"), hl.Func("curved")
    b = f32(2.0) - hl.pow(f32(2.0), contrast / f32(100.0))
    a = f32(2.0) - f32(2.0) * b
    linear = f32(x - black_level) * (f32(1.0) / (white_level - black_level))
    g = hl.pow(hl.clamp(linear, f32(0.0), f32(1.0)), f32(1.0) / gamma)
    rest = f32(1.0) - g
    z = hl.select(g > f32(0.5), f32(1.0) - (a * rest * rest + b * rest), a * g * g + b * g)
    value = hl.u8(hl.clamp(z * f32(255.0) + f32(0.5), f32(0.0), f32(255.0)))
    curve[x] = hl.select(x <= black_level, hl.u8(0), hl.select(x > white_level, hl.u8(255), value))
    curved[x, y, c] = curve[hl.clamp(hl.i32(corrected[x, y, c]), 0, 1023)]

    # Unsharp mask; the strength is in fixed point with five bits of fraction.
    strength = hl.Func("sharpen_strength_x32")
    strength[()] = hl.u8_sat(sharpen_strength * 32)
    unsharp_y, unsharp = hl.Func("unsharp_y"), hl.Func("unsharp")
    unsharp_y[x, y, c] = blur121(curved[x, y - 1, c], curved[x, y, c], curved[x, y + 1, c])
    unsharp[x, y, c] = blur121(unsharp_y[x - 1, y, c], unsharp_y[x, y, c], unsharp_y[x + 1, y, c])
    mask, sharpened = hl.Func("mask"), hl.Func("sharpened")
    mask[x, y, c] = hl.i16(curved[x, y, c]) - hl.i16(unsharp[x, y, c])
    sharpened[x, y, c] = hl.u8_sat(curved[x, y, c] + (mask[x, y, c] * strength[()]) // 32)
    processed = hl.Func("processed")
    processed[x, y, c] = sharpened[x, y, c]
    processed.set_estimates([(0, width), (0, height), (0, 3)])
    return SimpleNamespace(
        x=x,
        y=y,
        c=c,
        denoised=denoised,
        deinterleaved=deinterleaved,
        greens=(greens.g_r, greens.g_b),
        demosaiced=demosaiced,
        matrix=matrix,
        corrected=corrected,
        curve=curve,
        curved=curved,
        strength=strength,
        processed=processed,
    )


def camera_pipe(width=1536, height=2560):
    """The unscheduled pipeline; the output is ``width`` x ``height`` x 3."""
    return hl.Pipeline(build(width, height).processed)


def hand(target, width=1536, height=2560):
    """The same pipeline with the schedule of Halide's own application.

    One thing is left out: the application prefetches the raw image, and a serialised pipeline
    cannot say so.
    """
    p = build(width, height)
    for f in (p.matrix, p.curve, p.strength):
        f.compute_root()
    if target.has_gpu_feature():
        _gpu(p)
    else:
        _cpu(p, target.natural_vector_size(hl.UInt(16)))
    return hl.Pipeline(p.processed)


def _cpu(p, vec):
    x, y, c = p.x, p.y, p.c
    xi, yi, yo, yii = hl.Var("xi"), hl.Var("yi"), hl.Var("yo"), hl.Var("yii")
    strip, round_up = 32, hl.TailStrategy.RoundUp
    out_width = p.processed.output_buffer().width()
    out_height = p.processed.output_buffer().height()
    # Parallel strips, two rows at a time; the stages slide along within a strip.
    p.processed.compute_root().reorder(c, x, y).split(y, yi, yii, 2, round_up)
    p.processed.split(yi, yo, yi, strip // 2).vectorize(x, 2 * vec, round_up).unroll(c)
    p.processed.parallel(yo)
    p.processed.bound(c, 0, 3).bound(x, 0, (out_width // (2 * vec)) * (2 * vec))
    p.processed.bound(y, 0, (out_height // strip) * strip)

    for f in (p.denoised, p.deinterleaved, *p.greens, p.curved):
        f.store_at(p.processed, yo).compute_at(p.processed, yi)
    p.denoised.fold_storage(y, 4).tile(x, y, x, y, xi, yi, 2 * vec, 2).vectorize(xi).unroll(yi)
    p.deinterleaved.fold_storage(y, 4).reorder(c, x, y).vectorize(x, 2 * vec, round_up).unroll(c)
    p.curved.reorder(c, x, y).tile(x, y, x, y, xi, yi, 2 * vec, 2, round_up)
    p.curved.vectorize(xi).unroll(yi).unroll(c)
    p.corrected.compute_at(p.curved, x).reorder(c, x, y).vectorize(x).unroll(c)
    p.demosaiced.compute_at(p.curved, x).vectorize(x).unroll(y).reorder(c, x, y).unroll(c)
    g_r, g_b = p.greens
    for f in p.greens:
        f.vectorize(x, 2 * vec, round_up).fold_storage(y, 4)
    start = hl.LoopAlignStrategy.AlignStart
    g_b.compute_with(g_r, x, [(x, start), (y, start)])


def _gpu(p):
    x, y, c = p.x, p.y, p.c
    xi, yi = hl.Var("xi"), hl.Var("yi")
    p.matrix.gpu_single_thread()
    p.strength.gpu_single_thread()
    p.curve.gpu_tile(x, xi, 32)
    out_width = p.processed.output_buffer().width()
    out_height = p.processed.output_buffer().height()
    p.processed.bound(c, 0, 3).bound(x, 0, (out_width // 2) * 2)
    p.processed.bound(y, 0, (out_height // 2) * 2)
    # One kernel with every stage in shared memory; pairs of columns, as the mosaic has them.
    p.processed.compute_root().reorder(c, x, y).unroll(x, 2).gpu_tile(x, y, xi, yi, 28, 12)
    for f in (p.curved, p.corrected):
        f.compute_at(p.processed, x).unroll(x, 2).gpu_threads(x, y)
    p.demosaiced.compute_at(p.processed, x).unroll(x, 2).gpu_threads(x, y)
    p.demosaiced.reorder(c, x, y).unroll(c)
    for f in p.greens:
        f.compute_at(p.processed, x).gpu_threads(x, y)
    p.denoised.compute_at(p.processed, x).tile(x, y, xi, yi, 2, 2).unroll(xi).unroll(yi)
    p.denoised.gpu_threads(x, y)
    p.deinterleaved.compute_at(p.processed, x).unroll(x, 2).gpu_threads(x, y)
    p.deinterleaved.reorder(c, x, y).unroll(c)


def reference(
    inputs,
    color_temp=3700.0,
    gamma=2.0,
    contrast=50.0,
    sharpen_strength=1.0,
    blackLevel=25,
    whiteLevel=1023,
):
    """NumPy; arrays are indexed ``[x, y]`` and ``[x, y, c]``.

    Neighbours are taken with wrap-around; the margin of the raw image keeps what that spoils
    away from the output.
    """
    raw = inputs["input"].astype(np.int64)
    width, height = raw.shape[0] - 32, raw.shape[1] - 24

    def at(a, dx, dy):
        return np.roll(a, (-dx, -dy), axis=(0, 1))

    neighbours = [at(raw, dx, dy) for dx, dy in ((-2, 0), (2, 0), (0, -2), (0, 2))]
    raw = np.minimum(raw, np.max(neighbours, axis=0))

    def average(a, b):
        return (a + b + 1) // 2

    def least_change(first, second):
        """The average of the pair that differs less; of the second where they tie."""
        return np.where(
            abs(first[0] - first[1]) < abs(second[0] - second[1]), average(*first), average(*second)
        )

    gr, red, blue, gb = raw[0::2, 0::2], raw[1::2, 0::2], raw[0::2, 1::2], raw[1::2, 1::2]
    green_r = least_change((at(gr, 1, 0), gr), (at(gb, 0, -1), gb))
    green_b = least_change((at(gb, -1, 0), gb), (at(gr, 0, 1), gr))

    def along(green, other_green, colour, a, b):
        ends = [at(colour, *a), at(colour, *b)]
        green_ends = [at(other_green, *a), at(other_green, *b)]
        return green - average(*green_ends) + average(*ends), abs(ends[0] - ends[1])

    def diagonal(green, other_green, colour, p, n):
        value_p, change_p = along(green, other_green, colour, *p)
        value_n, change_n = along(green, other_green, colour, *n)
        return np.where(change_p < change_n, value_p, value_n)

    def mosaic(top_left, top_right, bottom_left, bottom_right):
        out = np.empty(raw.shape, dtype=np.int64)
        out[0::2, 0::2], out[1::2, 0::2] = top_left, top_right
        out[0::2, 1::2], out[1::2, 1::2] = bottom_left, bottom_right
        return out.astype(np.int16).astype(np.int64)

    rgb = [
        mosaic(
            along(gr, green_r, red, (0, 0), (-1, 0))[0],
            red,
            diagonal(green_b, green_r, red, ((0, 0), (-1, 1)), ((-1, 0), (0, 1))),
            along(gb, green_r, red, (0, 0), (0, 1))[0],
        ),
        mosaic(gr, green_r, green_b, gb),
        mosaic(
            along(gr, green_b, blue, (0, 0), (0, -1))[0],
            diagonal(green_r, green_b, blue, ((0, 0), (1, -1)), ((1, 0), (0, -1))),
            blue,
            along(gb, green_b, blue, (0, 0), (1, 0))[0],
        ),
    ]

    alpha = (1 / color_temp - 1 / 3200) / (1 / 7000 - 1 / 3200)
    matrix = inputs["matrix_3200"] * alpha + inputs["matrix_7000"] * (1 - alpha)
    matrix = np.trunc(matrix * 256).astype(np.int64)
    corrected = np.stack(
        [(matrix[3, j] + sum(matrix[i, j] * rgb[i] for i in range(3))) // 256 for j in range(3)],
        axis=2,
    ).astype(np.int16)

    levels = np.arange(1024)
    linear = np.clip((levels - blackLevel) / (whiteLevel - blackLevel), 0, 1)
    g = linear ** (1 / gamma)
    b = 2 - 2 ** (contrast / 100)
    a = 2 - 2 * b
    tone = np.where(g > 0.5, 1 - (a * (1 - g) ** 2 + b * (1 - g)), a * g**2 + b * g)
    tone = np.clip(tone * 255 + 0.5, 0, 255).astype(int)
    tone = np.where(levels <= blackLevel, 0, np.where(levels > whiteLevel, 255, tone))
    curved = tone[np.clip(corrected, 0, 1023)]

    blurred = curved
    for step in ((0, 1), (1, 0)):
        ends = at(blurred, *step), at(blurred, *(-s for s in step))
        blurred = average(average(*ends), blurred)
    strength = int(np.clip(sharpen_strength * 32, 0, 255))
    sharpened = np.clip(curved + (curved - blurred) * strength // 32, 0, 255)
    return (sharpened[16 : 16 + width, 12 : 12 + height].astype(np.uint8),)
