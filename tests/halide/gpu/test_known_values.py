"""Kernels compiled for expected values of parameters, and for any others."""

import halide as hl
import numpy as np
import pytest

from tilewright.halide.emit.apply import apply
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.schedule import KnownValue
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.machines import gpu


def filtered():
    """A filter whose length is an input's, over every so-many-th value."""
    values = hl.ImageParam(hl.Float(32), 2, "values")
    taps = hl.ImageParam(hl.Float(32), 1, "taps")
    step = hl.Param(hl.Int(32), "step", 2)
    x, y = hl.vars("x y")
    r = hl.RDom([(0, taps.width())], "r")
    sums, out = hl.Func("sums"), hl.Func("out")
    sums[x, y] = hl.f32(0)
    sums[x, y] += taps[r.x] * values[x * step + r.x, y]
    out[x, y] = sums[x, y] * 0.5
    values.set_estimates([(0, 516), (0, 64)])
    taps.set_estimates([(0, 5)])
    step.set_estimate(2)
    out.set_estimates([(0, 256), (0, 64)])
    return hl.Pipeline(out), {"values": values, "taps": taps, "step": step}


ALGORITHM = load(filtered()[0])


@pytest.mark.parametrize("mode", ["nested", "overlapped", "none"])
@pytest.mark.few(1)
def test_the_kernel_that_uses_them_knows_them(mode):
    (planned,) = schedule_gpu(ALGORITHM, gpu("a100"), mode=mode)
    known = {k for f in planned.schedule.funcs for s in f.stages for k in s.specialize}
    index = {parameter.name: i for i, parameter in enumerate(ALGORITHM.parameters)}
    assert known == {
        KnownValue(index["taps"], "extent", 0, 5),
        KnownValue(index["step"], "value", 0, 2),
    }
    assert not check(planned.schedule, ALGORITHM)


@pytest.mark.opencl
@pytest.mark.parametrize(("taps", "step"), [(5, 2), (7, 3)])
def test_right_with_the_expected_values_and_with_others(taps, step):
    pipeline, params = filtered()
    (planned,) = schedule_gpu(ALGORITHM, gpu("pocl"))
    apply(planned.schedule, ALGORITHM, pipeline)
    random = np.random.default_rng(taps)
    values = random.random((64, 600), dtype=np.float32)
    weights = random.random(taps, dtype=np.float32)
    for name, array in (("values", values), ("taps", weights)):
        buffer = hl.Buffer(array)
        buffer.set_host_dirty(True)
        params[name].set(buffer)
    params["step"].set(step)
    found = pipeline.realize([150, 64], hl.Target(planned.schedule.target))
    found.copy_to_host()
    expected = sum(
        0.5 * w * values[:, i : i + 149 * step + 1 : step].astype(np.float64)
        for i, w in enumerate(weights)
    )
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5)
