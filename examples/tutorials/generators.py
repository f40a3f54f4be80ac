"""Pipelines written as Python Generators, and a stage defined outside Halide.

After lesson 15 of Halide's Python tutorial and ``python_bindings/test/correctness/extern.py`` at
v21.0.0. Every function gives an unscheduled pipeline with estimates on all inputs and outputs.

Usage: ``tilewright schedule examples/tutorials/generators.py:Brighten``
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np

WIDTH, HEIGHT = 90, 50


@hl.generator(name="tilewright_brighten")
class Brighten:
    """Blur along x, then brighten by a number given at run time; the radius is a parameter."""

    radius = hl.GeneratorParam(2)
    input = hl.InputBuffer(hl.UInt(8), 2)
    offset = hl.InputScalar(hl.UInt(16))
    output = hl.OutputBuffer(hl.UInt(16), 2)

    def generate(self):
        g = self
        x, y = hl.vars("x y")
        blur = hl.Func("blur")
        width = 2 * g.radius + 1
        total = hl.u16(0)
        for i in range(width):
            total += hl.u16(g.input[x + i, y])
        blur[x, y] = total // hl.u16(width)
        g.output[x, y] = blur[x, y] + g.offset
        g.input.set_estimates([(0, WIDTH + 4), (0, HEIGHT)])
        g.offset.set_estimate(25)
        g.output.set_estimates([(0, WIDTH), (0, HEIGHT)])


def called_generator() -> hl.Func:
    """The Generator applied to an input and a number of our own, and a stage after it."""
    image = hl.ImageParam(hl.UInt(8), 2, "input")
    image.set_estimates([(0, WIDTH + 6), (0, HEIGHT)])
    x, y = hl.vars("x y")
    f = hl.Func("f")
    with hl.GeneratorContext(hl.get_host_target()):
        bright = Brighten.call(image, 25, generator_params={"radius": 3})
    f[x, y] = bright[x, y] * hl.u16(2)
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def _called_generator(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    windows = np.lib.stride_tricks.sliding_window_view(inputs["input"].astype(np.uint16), 7, axis=0)
    bright = windows.sum(axis=2).astype(np.uint16) // np.uint16(7) + np.uint16(25)
    return (bright * np.uint16(2),)


# What the stage below calls. It has to be compiled and loaded into the process that runs it.
EXTERN_SOURCE = r"""
#include "HalideRuntime.h"
/* Reverse a vector; asked for its bounds, it wants as much input as there is output. */
int tilewright_reverse(halide_buffer_t *in, int size, halide_buffer_t *out) {
    if (in->host == 0 && in->device == 0) {
        in->dim[0].min = 0;
        in->dim[0].extent = size;
        return 0;
    }
    for (int i = 0; i < out->dim[0].extent; i++) {
        int x = out->dim[0].min + i;
        ((float *)out->host)[i] = ((float *)in->host)[size - 1 - x - in->dim[0].min];
    }
    return 0;
}
"""


def extern_stage() -> hl.Func:
    """A stage in C between two of Halide's. It runs where ``EXTERN_SOURCE`` is loaded."""
    size = 256
    values = hl.ImageParam(hl.Float(32), 1, "input")
    values.set_estimates([(0, size)])
    i = hl.Var("i")
    before, reverse, f = hl.Func("before"), hl.Func("reverse"), hl.Func("f")
    before[i] = values[i] * 2.0
    arguments = [hl.ExternFuncArgument(before), hl.ExternFuncArgument(hl.i32(size))]
    reverse.define_extern("tilewright_reverse", arguments, hl.Float(32), [i])
    # Halide itself asks for these: an extern stage and what it reads cannot be inlined.
    before.compute_root()
    reverse.compute_root()
    f[i] = reverse[i] + 1.0
    f.set_estimates([(0, size)])
    return f


# What each pipeline gives, by NumPy, axes in Halide's order.
EXPECTED: dict[str, Callable[[dict[str, Any]], tuple[np.ndarray, ...]]] = {
    "called_generator": _called_generator,
}
