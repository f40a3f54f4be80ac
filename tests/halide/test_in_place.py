"""Outputs that hold data beforehand, and strides of dimensions of one element."""

import halide as hl
import numpy as np
import pytest

from tilewright.halide.execution.binding import bind, deserialize, output_array
from tilewright.halide.execution.inputs import Inputs, describe_inputs
from tilewright.halide.execution.runner import Reference, Runner
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.json import to_json
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task


def inverted(dtype):
    x, y = hl.vars("x y")
    f = hl.Func("f")
    f[x, y] = hl.undef(dtype)
    f[x, y] = 3 - f[x, y]
    f.set_estimates([(0, 50), (0, 20)])
    return f


def every_other_row(dtype):
    """Rows that are not written keep what they held."""
    x, y = hl.vars("x y")
    data = hl.ImageParam(dtype, 2, "data")
    f, r = hl.Func("f"), hl.RDom([(0, 10)], "r")
    f[x, y] = hl.undef(dtype)
    f[x, 2 * r] = f[x, 2 * r] + data[x, r]
    f.set_estimates([(0, 50), (0, 20)])
    return f


def odd_columns(dtype):
    """Even columns, in an expression that is undefined there, keep what they held."""
    x, y = hl.vars("x y")
    f = hl.Func("f")
    f[x, y] = hl.select(x % 2 == 0, hl.undef(dtype), hl.cast(dtype, 7))
    f.set_estimates([(0, 50), (0, 20)])
    return f


def overwritten(dtype):
    x, y = hl.vars("x y")
    f = hl.Func("f")
    f[x, y] = hl.cast(dtype, x)
    f[x, y] += hl.cast(dtype, y)
    f.set_estimates([(0, 50), (0, 20)])
    return f


def verified(build, dtype, tmp_path, wrong=None):
    """What the one-shot schedule's verification says, its answers and the reference's."""
    task = make_task(build(dtype))
    inputs = describe_inputs(task.algorithm, seed=7)
    payload = {"serialized": task.algorithm.serialized, "inputs": inputs.to_json()}
    Reference({**payload, "directory": str(tmp_path), "inline": False}).run()
    other = make_task(wrong(dtype)).algorithm if wrong else task.algorithm
    schedule = to_json(plan(task)[0].schedule) if wrong is None else None
    runner = Runner(
        {
            "serialized": other.serialized,
            "inputs": describe_inputs(other, seed=7).to_json(),
            "schedule": schedule,
            "target": "host",
            "reference": [str(tmp_path / "0.npy")],
        }
    )
    return runner.verify(), runner.answers()[0], np.load(tmp_path / "0.npy")


@pytest.mark.parametrize("build", [inverted, every_other_row])
@pytest.mark.parametrize("dtype", [hl.UInt(8), hl.Float(32), hl.BFloat(16)])
def test_a_pipeline_in_place_is_verified(build, dtype, tmp_path):
    result, answer, reference = verified(build, dtype, tmp_path)
    assert result.ok, result.message
    assert len(np.unique(answer)) > 10
    assert np.array_equal(answer, reference)


def test_a_wrong_answer_in_place_is_found(tmp_path):
    result, _, _ = verified(inverted, hl.UInt(8), tmp_path, wrong=every_other_row_of_nothing)
    assert not result.ok


def every_other_row_of_nothing(dtype):
    x, y = hl.vars("x y")
    f = hl.Func("f")
    f[x, y] = hl.undef(dtype)
    f[x, y] = f[x, y] + hl.select(y % 2 == 0, hl.cast(dtype, 1), hl.cast(dtype, 0))
    f.set_estimates([(0, 50), (0, 20)])
    return f


def test_only_outputs_in_place_have_contents():
    for build in (inverted, every_other_row, odd_columns, overwritten):
        inputs = describe_inputs(load(build(hl.UInt(8))))
        assert [output.in_place for output in inputs.outputs] == [build is not overwritten]
        assert Inputs.from_json(inputs.to_json()) == inputs


def test_a_stride_of_a_dimension_of_one_element():
    x, y, c = hl.vars("x y c")
    data = hl.ImageParam(hl.UInt(8), 3, "data")
    data.set_estimates([(0, 37), (0, 22), (0, 1)])
    f = hl.Func("f")
    f[x, y, c] = 255 - data[x, y, c]
    for buffer in (data, f.output_buffer()):
        buffer.dim(0).set_stride(1)
        buffer.dim(2).set_stride(1)
    f.set_estimates([(0, 37), (0, 22), (0, 1)])
    algorithm = load(f)
    inputs = describe_inputs(algorithm)
    live = deserialize(algorithm.serialized, inputs)
    (output,) = bind(live, inputs, hl.Target("host"))
    assert [output.dim(d).stride() for d in range(3)] == [1, 37, 1]
    live.pipeline.realize([output], hl.Target("host"))
    result = output_array(output, inputs.outputs[0].types[0])
    assert np.array_equal(result[..., 0], 255 - live.arrays[0][..., 0])
