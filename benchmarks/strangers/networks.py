"""Networks: a residual network of some 300 Funcs (He et al. 2016), attention, normalisation."""

from __future__ import annotations

import halide as hl
import numpy as np

from strangers.kit import F32, Program, image, pipeline, single


def residual_network(target, *, blocks, channels, size):
    """`blocks` of two 3x3 convolutions with folded normalisation, and a sum around each.

    A block has twelve Funcs: twice padding, product sum, scale, shift, ReLU; the sum and its
    ReLU.
    """
    c, x, y = hl.vars("c x y")
    data = image("data", F32, channels, size, size)
    weights = image("weights", F32, channels, channels, 3, 3, 2 * blocks)
    factors = image("factors", F32, channels, 2, 2 * blocks)
    current = hl.Func("start")
    current[c, x, y] = data[c, x, y]
    for block in range(blocks):
        around = current
        for half in range(2):
            layer = 2 * block + half
            pad, conv, scale, shift, relu = (
                hl.Func(f"{n}_{layer}") for n in ("pad", "conv", "scale", "shift", "relu")
            )
            inside = (x >= 0) & (x < size) & (y >= 0) & (y < size)
            at = current[c, hl.clamp(x, 0, size - 1), hl.clamp(y, 0, size - 1)]
            pad[c, x, y] = hl.select(inside, at, 0.0)
            r = hl.RDom([(0, channels), (0, 3), (0, 3)], f"r_{layer}")
            conv[c, x, y] += weights[c, r.x, r.y, r.z, layer] * pad[r.x, x + r.y - 1, y + r.z - 1]
            scale[c, x, y] = conv[c, x, y] * factors[c, 0, layer] * (1.0 / (9 * channels))
            shift[c, x, y] = scale[c, x, y] + factors[c, 1, layer]
            relu[c, x, y] = hl.max(shift[c, x, y], 0.0)
            current = relu
        total, relu = hl.Func(f"total_{block}"), hl.Func(f"out_{block}")
        total[c, x, y] = current[c, x, y] + around[c, x, y]
        relu[c, x, y] = hl.max(total[c, x, y] - 0.5, 0.0)
        current = relu
    pooled = hl.Func("pooled")
    r = hl.RDom([(0, size), (0, size)], "r")
    pooled[c] += current[c, r.x, r.y] * (1.0 / (size * size))
    return pipeline((pooled, (channels,)))


def _residual_network(inputs, *, blocks, channels, size):
    current = inputs["data"].astype(np.float64)
    for block in range(blocks):
        around = current
        for half in range(2):
            layer = 2 * block + half
            pad = np.pad(current, ((0, 0), (1, 1), (1, 1)))
            conv = np.zeros_like(current)
            for i in range(3):
                for j in range(3):
                    w = inputs["weights"][:, :, i, j, layer].astype(np.float64)
                    conv += np.einsum("fc,cxy->fxy", w, pad[:, i : i + size, j : j + size])
            factors = inputs["factors"][:, :, layer].astype(np.float64)
            conv *= factors[:, 0, None, None] / (9 * channels)
            current = np.maximum(conv + factors[:, 1, None, None], 0)
        current = np.maximum(current + around - 0.5, 0)
    return single(current.mean(axis=(1, 2)))


def attention(target, *, tokens, width):
    """``softmax(Q K' / sqrt(width)) V`` for one head."""
    i, j, d = hl.vars("i j d")
    q, k, v = (image(name, F32, width, tokens) for name in "QKV")
    r, s = hl.RDom([(0, width)], "r"), hl.RDom([(0, tokens)], "s")
    score, top, power, total, out = (hl.Func(n) for n in ("score", "top", "power", "total", "out"))
    score[j, i] += q[r, i] * k[r, j]
    top[i] = hl.f32(-1e30)
    top[i] = hl.max(top[i], score[s, i])
    power[j, i] = hl.exp((score[j, i] - top[i]) * float(width**-0.5))
    total[i] += power[s, i]
    mixed = hl.Func("mixed")
    mixed[d, i] += power[s, i] * v[d, s]
    out[d, i] = mixed[d, i] / total[i]
    return pipeline((out, (width, tokens)))


def _attention(inputs, *, width, **_):
    q, k, v = (inputs[n].T.astype(np.float64) for n in "QKV")
    score = q @ k.T * width**-0.5
    power = np.exp(score - score.max(axis=1, keepdims=True))
    return single((power / power.sum(axis=1, keepdims=True) @ v).T)


def layer_norm(target, *, channels, rows):
    """Each row less its mean, over its deviation, times a gain; mean and square are a Tuple."""
    c, y = hl.vars("c y")
    data, gain = image("data", F32, channels, rows), image("gain", F32, channels)
    r = hl.RDom([(0, channels)], "r")
    sums, out = hl.Func("sums"), hl.Func("out")
    sums[y] = (hl.f32(0.0), hl.f32(0.0))
    sums[y] = (sums[y][0] + data[r, y], sums[y][1] + data[r, y] * data[r, y])
    average = sums[y][0] / channels
    variance = sums[y][1] / channels - average * average
    out[c, y] = gain[c] * (data[c, y] - average) / hl.sqrt(variance + 1e-3)
    return pipeline((out, (channels, rows)))


def _layer_norm(inputs, **_):
    data = inputs["data"].astype(np.float64)
    deviation = np.sqrt(data.var(axis=0) + 1e-3)
    return single(inputs["gain"][:, None] * (data - data.mean(axis=0)) / deviation)


def gelu(target, *, size):
    """The Gaussian error unit by its hyperbolic tangent, in double precision inside."""
    i = hl.Var("i")
    data = image("data", F32, size)
    out = hl.Func("out")
    z = data[i]
    out[i] = 0.5 * z * (1.0 + hl.tanh(0.79788456 * (z + 0.044715 * z * z * z)))
    return pipeline((out, (size,)))


def _gelu(inputs, **_):
    z = inputs["data"].astype(np.float64)
    return single(0.5 * z * (1 + np.tanh(0.79788456 * (z + 0.044715 * z**3))))


PROGRAMS = (
    Program(
        residual_network,
        {"blocks": 25, "channels": 16, "size": 32},
        {"blocks": 2, "channels": 8, "size": 6},
        _residual_network,
    ),
    Program(attention, {"tokens": 256, "width": 64}, {"tokens": 14, "width": 8}, _attention),
    Program(layer_norm, {"channels": 768, "rows": 512}, {"channels": 24, "rows": 5}, _layer_norm),
    Program(gelu, {"size": 1 << 19}, {"size": 333}, _gelu),
)
