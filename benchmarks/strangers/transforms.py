"""Fourier transforms (Cooley and Tukey 1965) and wavelets (Haar; Daubechies 1988, four taps)."""

from __future__ import annotations

import cmath

import halide as hl
import numpy as np

from strangers.kit import F32, Program, image, lanes, pipeline, single

BATCH, BATCH_SMALL = {"batch": 4096}, {"batch": 20}
SIGNAL, SIGNAL_SMALL = {"size": 1 << 18}, {"size": 64}
PICTURE, PICTURE_SMALL = {"width": 1024, "height": 768}, {"width": 24, "height": 12}
ROOT2 = float(np.sqrt(0.5))
_S = 4 * float(np.sqrt(2))
DAUBECHIES = [float((1 + s * np.sqrt(3)) / _S) for s in (1,)]
DAUBECHIES += [float((3 + s * np.sqrt(3)) / _S) for s in (1, -1)]
DAUBECHIES += [float((1 - np.sqrt(3)) / _S)]


def _complex(data):
    """A Func of complex numbers from an input whose last dimension is the part."""
    b, n = hl.vars("b n")
    f = hl.Func("loaded")
    f[b, n] = (data[b, n, 0], data[b, n, 1])
    return f


def _parts(f, name="out"):
    b, n, part = hl.vars("b n part")
    out = hl.Func(name)
    out[b, n, part] = hl.mux(part, [f[b, n][0], f[b, n][1]])
    return out


def _pass(f, size, radix, done, sign, name):
    """One pass of a decimation in time, with its roots as a table made by NumPy."""
    b, n = hl.vars("b n")
    angles = sign * 2 * np.pi * np.arange(size) / size
    table = hl.Buffer(hl.Float(32), [size, 2], f"roots_{name}")
    np.asarray(table)[...] = np.cos(angles), np.sin(angles)
    span = radix * done
    source = (n // span) * done + n % done
    real, imaginary = hl.f32(0.0), hl.f32(0.0)
    for r in range(radix):
        value = f[b, source + r * (size // radix)]
        turn = ((r * (n % span)) % span) * (size // span)
        real += value[0] * table[turn, 0] - value[1] * table[turn, 1]
        imaginary += value[0] * table[turn, 1] + value[1] * table[turn, 0]
    g = hl.Func(f"pass_{name}")
    g[b, n] = (real, imaginary)
    return g


def _fft(target, batch, size, radix, sign):
    current = _complex(image("data", F32, batch, size, 2))
    done, stages = 1, []
    while done < size:
        current = _pass(current, size, radix, done, sign, str(done))
        stages.append(current)
        done *= radix
    out = _parts(current)
    if target is not None:
        n = lanes(target, F32)
        b, k, part = out.args()
        block = hl.Var("block")
        out.bound(part, 0, 2).reorder(part, b, k).unroll(part)
        out.split(b, block, b, n, hl.TailStrategy.GuardWithIf).reorder(part, b, k, block)
        out.vectorize(b).parallel(block)
        for stage in stages:
            stage.compute_at(out, block).vectorize(stage.args()[0], n)
    return pipeline((out, (batch, size, 2)))


def fft16(target, *, batch):
    """Many transforms of 16 points in two passes of radix four."""
    return _fft(target, batch, 16, 4, -1)


def fft64(target, *, batch):
    """Many transforms of 64 points in six passes of radix two."""
    return _fft(target, batch, 64, 2, -1)


def fft64_inverse(target, *, batch):
    """Many inverse transforms of 64 points, radix four, not scaled."""
    return _fft(target, batch, 64, 4, 1)


def _expected_fft(sign):
    def expected(inputs, **_):
        z = inputs["data"][..., 0] + 1j * inputs["data"][..., 1]
        z = np.fft.fft(z, axis=1) if sign < 0 else np.fft.ifft(z, axis=1) * z.shape[1]
        return single(np.stack([z.real, z.imag], axis=2))

    return expected


def dft16_matrix(target, *, batch):
    """The transform of 16 real points as a matrix product with inline sums."""
    b, n, part = hl.vars("b n part")
    data = image("data", F32, 16, batch)
    table = hl.Buffer(hl.Float(32), [16, 16, 2], "roots")
    turns = np.array(
        [[cmath.exp(-2j * cmath.pi * i * j / 16) for i in range(16)] for j in range(16)]
    )
    np.asarray(table)[...] = turns.real, turns.imag
    r = hl.RDom([(0, 16)], "r")
    out = hl.Func("out")
    out[n, part, b] = hl.sum(data[r, b] * table[r, n, part])
    return pipeline((out, (16, 2, batch)))


def _dft16_matrix(inputs, **_):
    z = np.fft.fft(inputs["data"], axis=0)
    return single(np.stack([z.real, z.imag], axis=1))


def haar(target, *, size):
    """One step: averages and differences, each an output."""
    i = hl.Var("i")
    data = image("data", F32, 2 * size)
    low, high = hl.Func("low"), hl.Func("high")
    low[i] = ROOT2 * (data[2 * i] + data[2 * i + 1])
    high[i] = ROOT2 * (data[2 * i] - data[2 * i + 1])
    if target is not None:
        for f in (low, high):
            f.vectorize(i, lanes(target, F32))
    return pipeline((low, (size,)), (high, (size,)))


def _haar(inputs, **_):
    even, odd = inputs["data"][::2], inputs["data"][1::2]
    return single(ROOT2 * (even + odd)) + single(ROOT2 * (even - odd))


def haar_inverse(target, *, size):
    """Back from averages and differences, interleaved by a choice at every point."""
    i = hl.Var("i")
    low, high = image("low", F32, size), image("high", F32, size)
    out = hl.Func("out")
    even = ROOT2 * (low[i // 2] + high[i // 2])
    odd = ROOT2 * (low[i // 2] - high[i // 2])
    out[i] = hl.select(i % 2 == 0, even, odd)
    return pipeline((out, (2 * size,)))


def _haar_inverse(inputs, **_):
    out = np.empty(2 * len(inputs["low"]))
    out[::2] = ROOT2 * (inputs["low"] + inputs["high"])
    out[1::2] = ROOT2 * (inputs["low"] - inputs["high"])
    return single(out)


def daubechies(target, *, size):
    """One step of four taps; both bands are one output with a dimension for the band."""
    i, band = hl.vars("i band")
    data = image("data", F32, 2 * size + 2)
    low, high, out = hl.Func("low"), hl.Func("high"), hl.Func("out")
    low[i] = sum((DAUBECHIES[k] * data[2 * i + k] for k in range(4)), hl.f32(0.0))
    signs = (1.0, -1.0, 1.0, -1.0)
    high[i] = sum((signs[k] * DAUBECHIES[3 - k] * data[2 * i + k] for k in range(4)), hl.f32(0.0))
    out[i, band] = hl.mux(band, [low[i], high[i]])
    if target is not None:
        out.bound(band, 0, 2).unroll(band).reorder(band, i).vectorize(i, lanes(target, F32))
    return pipeline((out, (size, 2)))


def _daubechies(inputs, *, size):
    data, h = inputs["data"].astype(np.float64), DAUBECHIES
    low = sum(h[k] * data[k : k + 2 * size : 2] for k in range(4))
    high = sum((-1) ** k * h[3 - k] * data[k : k + 2 * size : 2] for k in range(4))
    return single(np.stack([low, high], axis=1))


def daubechies_inverse(target, *, size):
    """One step back, from a band dimension to the signal."""
    i = hl.Var("i")
    bands = image("bands", F32, size + 1, 2)
    out = hl.Func("out")
    h, j = DAUBECHIES, i // 2
    even = h[2] * bands[j, 0] + h[1] * bands[j, 1] + h[0] * bands[j + 1, 0] + h[3] * bands[j + 1, 1]
    odd = h[3] * bands[j, 0] - h[0] * bands[j, 1] + h[1] * bands[j + 1, 0] - h[2] * bands[j + 1, 1]
    out[i] = hl.select(i % 2 == 0, even, odd)
    return pipeline((out, (2 * size,)))


def _daubechies_inverse(inputs, **_):
    low, high = inputs["bands"].astype(np.float64).T
    h = DAUBECHIES
    out = np.empty(2 * (len(low) - 1))
    out[::2] = h[2] * low[:-1] + h[1] * high[:-1] + h[0] * low[1:] + h[3] * high[1:]
    out[1::2] = h[3] * low[:-1] - h[0] * high[:-1] + h[1] * low[1:] - h[2] * high[1:]
    return single(out)


def haar_picture(target, *, width, height):
    """Two levels over an image, four bands each: seven outputs in one."""
    x, y, band = hl.vars("x y band")
    data = image("data", F32, 4 * width, 4 * height)
    current, bands = data, []
    for level in range(2):
        across, down = hl.Func(f"across_{level}"), hl.Func(f"down_{level}")
        across[x, y] = (
            0.5 * (current[2 * x, y] + current[2 * x + 1, y]),
            0.5 * (current[2 * x, y] - current[2 * x + 1, y]),
        )
        up, low = across[x, 2 * y], across[x, 2 * y + 1]
        down[x, y] = (up[0] + low[0], up[1] + low[1], up[0] - low[0], up[1] - low[1])
        bands.append(down)
        current = hl.Func(f"average_{level}")
        current[x, y] = down[x, y][0]
    fine, coarse = hl.Func("fine"), hl.Func("coarse")
    fine[x, y, band] = hl.mux(band, [bands[0][x, y][k] for k in (1, 2, 3)])
    coarse[x, y, band] = hl.mux(band, [bands[1][x, y][k] for k in range(4)])
    return pipeline((fine, (2 * width, 2 * height, 3)), (coarse, (width, height, 4)))


def _haar_picture(inputs, **_):
    def step(a):
        low, high = 0.5 * (a[::2] + a[1::2]), 0.5 * (a[::2] - a[1::2])
        tops = [low[:, ::2], high[:, ::2]]
        bottoms = [low[:, 1::2], high[:, 1::2]]
        plus = [t + b for t, b in zip(tops, bottoms, strict=True)]
        return plus + [t - b for t, b in zip(tops, bottoms, strict=True)]

    first = step(inputs["data"].astype(np.float64))
    return single(np.stack(first[1:], axis=2)) + single(np.stack(step(first[0]), axis=2))


PROGRAMS = (
    Program(fft16, BATCH, BATCH_SMALL, _expected_fft(-1), hand=True),
    Program(fft64, BATCH, BATCH_SMALL, _expected_fft(-1), hand=True),
    Program(fft64_inverse, BATCH, BATCH_SMALL, _expected_fft(1), hand=True),
    Program(dft16_matrix, BATCH, BATCH_SMALL, _dft16_matrix),
    Program(haar, SIGNAL, SIGNAL_SMALL, _haar, hand=True),
    Program(haar_inverse, SIGNAL, SIGNAL_SMALL, _haar_inverse),
    Program(daubechies, SIGNAL, SIGNAL_SMALL, _daubechies, hand=True),
    Program(daubechies_inverse, SIGNAL, SIGNAL_SMALL, _daubechies_inverse),
    Program(haar_picture, PICTURE, PICTURE_SMALL, _haar_picture),
)
