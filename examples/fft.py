"""A two-dimensional complex FFT of a power-of-two size.

Both dimensions are transformed by the self-sorting (Stockham) algorithm in stages of radix four,
and of two where the size is not a power of four; complex numbers are Tuples, roots of unity an
embedded table. After ``apps/fft`` of Halide, which uses the same decomposition and generates the
butterflies as updates; part of the suite of Adams 2019, at 32x32 and 64x64.

Usage: ``tilewright schedule examples/fft.py:fft``
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import halide as hl
import numpy as np

SMALL: dict[str, Any] = {"size": 32}

HAND_SOURCE = {"cpu": "apps/fft/fft.cpp at v21.0.0", "gpu": None}


def _radices(size: int) -> list[int]:
    if size < 2 or size & (size - 1):
        raise ValueError(f"the size has to be a power of two from 2 on, not {size}")
    bits = size.bit_length() - 1
    return [4] * (bits // 2) + [2] * (bits % 2)


def _stage(f: hl.Func, name: str, size: int, radix: int, done: int, roots: hl.Buffer) -> hl.Func:
    """One stage over the second dimension, after stages whose radices' product is `done`."""
    x, n = hl.vars("x n")
    span = radix * done
    place = n % span
    source = (n // span) * done + place % done
    real, imaginary = hl.f32(0.0), hl.f32(0.0)
    for r in range(radix):
        value = f[x, source + r * (size // radix)]
        angle = ((r * place) % span) * (size // span)
        c, s = roots[angle, 0], roots[angle, 1]
        real = real + value[0] * c - value[1] * s
        imaginary = imaginary + value[0] * s + value[1] * c
    stage = hl.Func(name)
    stage[x, n] = (real, imaginary)
    return stage


def _algorithm(size: int, sign: int) -> SimpleNamespace:
    image = hl.ImageParam(hl.Float(32), 3, "input")
    x, y, c = hl.vars("x y c")
    angles = sign * 2 * np.pi * np.arange(size) / size
    # The table owns its memory: a view of a NumPy array would not outlive the array.
    roots = hl.Buffer(hl.Float(32), [size, 2], "roots")
    np.asarray(roots)[...] = np.cos(angles), np.sin(angles)

    current = hl.Func("transposed")
    current[x, y] = (image[y, x, 0], image[y, x, 1])
    passes = []
    for dimension in "xy":
        stages, done = [], 1
        for radix in _radices(size):
            current = _stage(current, f"fft_{dimension}_{done}", size, radix, done, roots)
            stages.append(current)
            done *= radix
        passes.append(stages)
        if dimension == "x":
            back = hl.Func("back")
            back[x, y] = current[y, x]
            current = back
    output = hl.Func("output")
    output[x, y, c] = hl.mux(c, [current[x, y][0], current[x, y][1]])

    image.set_estimates([(0, size), (0, size), (0, 2)])
    output.set_estimates([(0, size), (0, size), (0, 2)])
    return SimpleNamespace(passes=passes, output=output, x=x, y=y, c=c)


def fft(size: int = 64, sign: int = -1) -> hl.Pipeline:
    """The pipeline, unscheduled; real and imaginary parts are the last dimension."""
    return hl.Pipeline(_algorithm(size, sign).output)


def hand(target: hl.Target, size: int = 64, sign: int = -1) -> hl.Pipeline | None:
    """The pipeline scheduled for a CPU as the application does; None for a GPU.

    Each pass goes over groups of as many lines as a vector has lanes, all stages at a time.
    """
    if target.has_gpu_feature():
        return None
    f = _algorithm(size, sign)
    lanes = min(size, target.natural_vector_size(hl.Float(32)))
    group, xi = hl.vars("group xi")
    first, second = f.passes
    last = first[-1]
    last.compute_root()
    f.output.bound(f.c, 0, 2).reorder(f.c, f.x, f.y).unroll(f.c)
    for stages, line in ((first, last), (second, second[-1])):
        lx, ln = line.args()
        if line is not last:
            line.compute_root()
        line.split(lx, group, xi, lanes).reorder(xi, ln, group).vectorize(xi)
        for stage in stages[:-1]:
            sx, _ = stage.args()
            stage.compute_at(line, group).vectorize(sx, lanes)
    f.output.vectorize(f.x, lanes)
    return hl.Pipeline(f.output)


def random_inputs(size: int = 64, sign: int = -1, seed: int = 0) -> dict[str, Any]:
    """A random complex image, axes (x, y, part)."""
    rng = np.random.default_rng(seed)
    image = rng.random((size, size, 2), dtype=np.float32) - np.float32(0.5)
    return {"input": np.asfortranarray(image)}


def reference(inputs: dict[str, Any], sign: int = -1) -> tuple[np.ndarray, ...]:
    """The result by NumPy, axes (x, y, part)."""
    image = inputs["input"][..., 0] + 1j * inputs["input"][..., 1]
    result = np.fft.fft2(image) if sign < 0 else np.fft.ifft2(image) * image.size
    return (np.stack([result.real, result.imag], axis=2).astype(np.float32),)
