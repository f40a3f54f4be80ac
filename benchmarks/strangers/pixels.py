"""Images and sound as files and NumPy hold them: the colours of a pixel next to each other."""

from __future__ import annotations

import halide as hl
import numpy as np

from strangers.kit import F32, U8, Program, clamped, image, padded, pipeline, single


def brightness(target, *, width, height):
    """The brightness of coloured pixels, as televisions have it."""
    x, y, data = hl.Var("x"), hl.Var("y"), image("data", U8, 3, width, height)
    out = hl.Func("out")
    red, green, blue = (hl.u16(data[c, x, y]) for c in range(3))
    out[x, y] = hl.u8((66 * red + 129 * green + 25 * blue + 128) >> 8) + hl.u8(16)
    return pipeline((out, (width, height)))


def _brightness(inputs, **_):
    mixed = np.tensordot([66, 129, 25], inputs["data"].astype(int), 1)
    return ((((mixed + 128) >> 8) + 16).astype(np.uint8),)


def network_input(target, *, width, height):
    """Pixels with a fourth byte as a network takes them: three planes around zero."""
    x, y, c = hl.vars("x y c")
    data = image("data", U8, 4, width, height)
    mean, scale, out = image("mean", F32, 3), image("scale", F32, 3), hl.Func("out")
    out[x, y, c] = (hl.f32(data[c, x, y]) - mean[c]) * scale[c]
    return pipeline((out, (width, height, 3)))


def _network_input(inputs, **_):
    colours = inputs["data"][:3].astype(float).transpose(1, 2, 0)
    return single((colours - inputs["mean"]) * inputs["scale"])


def network_output(target, *, width, height):
    """Three planes between 0 and 1 as bytes, pixel by pixel."""
    c, x, y = hl.vars("c x y")
    data, out = image("data", F32, width, height, 3), hl.Func("out")
    out[c, x, y] = hl.u8_sat(data[x, y, c] * 255.0 + 0.5)
    return pipeline((out, (3, width, height)))


def _network_output(inputs, **_):
    scaled = (inputs["data"] * np.float32(255) + np.float32(0.5)).transpose(2, 0, 1)
    return (np.clip(scaled, 0, 255).astype(np.uint8),)


def soften(target, *, width, height):
    """The mean of nine coloured pixels."""
    c, x, y = hl.vars("c x y")
    data = image("data", U8, 3, width, height)
    edge = hl.BoundaryConditions.repeat_edge(data, [(0, 3), (0, width), (0, height)])
    rows, out = hl.Func("rows"), hl.Func("out")
    rows[c, x, y] = hl.u16(edge[c, x - 1, y]) + edge[c, x, y] + edge[c, x + 1, y]
    out[c, x, y] = hl.u8((rows[c, x, y - 1] + rows[c, x, y] + rows[c, x, y + 1] + 4) / 9)
    return pipeline((out, (3, width, height)))


def _soften(inputs, *, width, height):
    edge = np.stack([padded(plane, 1).astype(int) for plane in inputs["data"]])
    total = sum(edge[:, i : i + width, j : j + height] for i in range(3) for j in range(3))
    return (((total + 4) // 9).astype(np.uint8),)


def layers(target, *, width, height):
    """A picture laid over another one, by its fourth value per pixel."""
    c, x, y = hl.vars("c x y")
    front, back = (image(name, U8, 4, width, height) for name in ("front", "back"))
    out = hl.Func("out")
    clear = 255 - hl.u16(front[3, x, y])
    out[c, x, y] = hl.u8_sat(front[c, x, y] + (back[c, x, y] * clear + 127) / 255)
    return pipeline((out, (4, width, height)))


def _layers(inputs, **_):
    front, back = (inputs[name].astype(int) for name in ("front", "back"))
    return (np.minimum(front + (back * (255 - front[3]) + 127) // 255, 255).astype(np.uint8),)


def stereo_filter(target, *, length):
    """A sound with two channels through a filter of 32 values."""
    c, t = hl.Var("c"), hl.Var("t")
    data, taps, out = image("data", F32, 2, length + 31), image("taps", F32, 32), hl.Func("out")
    r = hl.RDom([(0, 32)], "r")
    out[c, t] += taps[r] * data[c, t + r]
    return pipeline((out, (2, length)))


def _stereo_filter(inputs, **_):
    windows = np.lib.stride_tricks.sliding_window_view(inputs["data"].astype(float), 32, axis=1)
    return single(windows @ inputs["taps"].astype(float))


def mirrored(target, *, width, height):
    """A picture from right to left, its left half darker."""
    c, x, y = hl.vars("c x y")
    data = image("data", U8, 3, width, height)
    edge, out = clamped(data), hl.Func("out")
    value = edge[c, width - 1 - x, y]
    out[c, x, y] = hl.select(x < width // 2, value - value / 4, value)
    return pipeline((out, (3, width, height)))


def _mirrored(inputs, *, width, **_):
    turned = inputs["data"][:, ::-1]
    left = np.arange(width)[None, :, None] < width // 2
    return (np.where(left, turned - turned // 4, turned),)


LARGE, SMALL = {"width": 1920, "height": 1080}, {"width": 40, "height": 30}
PROGRAMS = (
    Program(brightness, LARGE, SMALL, _brightness),
    Program(network_input, LARGE, SMALL, _network_input, {"scale": (0.01, 0.03)}),
    Program(network_output, LARGE, SMALL, _network_output, {"data": (0, 1)}),
    Program(soften, LARGE, SMALL, _soften),
    Program(layers, LARGE, SMALL, _layers),
    Program(stereo_filter, {"length": 1 << 19}, {"length": 90}, _stereo_filter),
    Program(mirrored, LARGE, SMALL, _mirrored),
)
