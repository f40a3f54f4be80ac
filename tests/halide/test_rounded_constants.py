"""Constants in doubles that OpenCL kernels would round to 32 bits."""

from dataclasses import replace

import halide as hl
import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.halide.emit.apply import halide_target
from tilewright.halide.frontend.source import load
from tilewright.halide.legality.rounded_constants import rounded_constant
from tilewright.halide.schedulers.task import make_task
from tilewright.machines import gpu

SIZE = 64
x = hl.Var("x")
TENTH = hl.ImageParam(hl.Float(64), 1, "tenth")
TENTH.set_estimates([(0, 1)])


def double(value):
    return hl.cast(hl.Float(64), value)


def built(value):
    """An output with the values that `value` computes from doubles."""
    image, out = hl.ImageParam(hl.Float(64), 1, "image"), hl.Func("out")
    out[x] = value(image[x])
    for each in (image, out):
        each.set_estimates([(0, SIZE)])
    return hl.Pipeline(out)


ROUNDED = {
    "a factor": (lambda v: v * hl.f64(0.1), 0.1),
    "a divisor": (lambda v: v / 6, 1 / 6),
    "an integer": (lambda v: v + double(hl.i32(2**24 + 1)), 2.0**24 + 1),
    "too large": (lambda v: hl.min(v, hl.f64(1e300)), 1e300),
}
KEPT = {
    "exact": lambda v: v * hl.f64(0.375) + 3,
    "a power of two": lambda v: v / 4,
    "a 32-bit float": lambda v: v * double(hl.f32(0.1)),
    "32 bits throughout": lambda v: double(hl.cast(hl.Float(32), v) * hl.f32(0.1)),
    "an input": lambda v: v * TENTH[0],
}


@pytest.mark.parametrize("name", ROUNDED)
def test_constants_that_lose_digits_are_found(name):
    value, constant = ROUNDED[name]
    found = rounded_constant(load(built(value)))
    assert found is not None
    assert found[0].name.startswith("out")
    assert found[1] == constant


@pytest.mark.parametrize("name", KEPT)
def test_others_are_not(name):
    assert rounded_constant(load(built(KEPT[name]))) is None


def test_only_opencl_refuses_them():
    pipeline = built(ROUNDED["a factor"][0])
    for target, machine in (("host", None), ("cuda", "a100")):
        make_task(pipeline, target=target, machine=machine)
    device = replace(gpu("a100"), api="opencl")
    with pytest.raises(TilewrightError, match=r"out uses the 64-bit constant 0\.1.*ImageParam"):
        make_task(pipeline, target="opencl", machine=device)


@pytest.mark.opencl
def test_halide_rounds_constants_and_keeps_inputs():
    expected = np.arange(1, SIZE + 1) * 0.1
    tenth, errors = np.array([0.1]), []
    given = hl.Buffer(tenth)
    given.set_host_dirty(True)
    TENTH.set(given)
    for value in (ROUNDED["a factor"][0], KEPT["an input"]):
        out, xo, xi = hl.Func("out"), hl.Var("xo"), hl.Var("xi")
        out[x] = value(double(x + 1))
        out.gpu_tile(x, xo, xi, 8)
        result = hl.Buffer(hl.Float(64), [SIZE])
        out.realize(result, halide_target("host-opencl-cl_doubles"))
        result.copy_to_host()
        errors.append(np.abs(np.asarray(result) / expected - 1).max())
    assert errors[0] > 1e-9
    assert errors[1] < 1e-15
