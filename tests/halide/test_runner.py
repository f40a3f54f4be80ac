"""Compiled schedules of one pipeline in one process."""

import halide as hl
import numpy as np

from tilewright.halide.execution.inputs import describe_inputs
from tilewright.halide.execution.runner import Runner
from tilewright.halide.ir.json import to_json
from tilewright.halide.schedulers.naive import naive_schedule
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task


def test_runners_share_buffers_and_keep_their_answers():
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.UInt(16), 2, "image")
    padded, blurred = hl.Func("padded"), hl.Func("blurred")
    padded[x, y] = image[x, y] + 1
    blurred[x, y] = padded[x, y] + padded[x, y + 3]
    blurred.set_estimates([(0, 50), (0, 30)])
    task = make_task(blurred)
    payload = {
        "serialized": task.algorithm.serialized,
        "inputs": describe_inputs(task.algorithm, seed=3).to_json(),
        "target": "host",
    }
    first, second = (
        Runner({**payload, "schedule": to_json(schedule)})
        for schedule in (naive_schedule(task.algorithm), plan(task)[0].schedule)
    )
    apart = [np.array(runner.answers()[0]) for runner in (first, second)]
    assert not np.shares_memory(first.answers()[0], second.answers()[0])
    second.share_buffers(first)
    assert np.shares_memory(first.answers()[0], second.answers()[0])
    for runner, before in zip((first, second), apart, strict=True):
        assert np.array_equal(runner.answers()[0], before)
    first._live.arrays[0][...] += 1
    assert np.array_equal(second.answers()[0], first.answers()[0])
    assert not np.array_equal(second.answers()[0], apart[1])
