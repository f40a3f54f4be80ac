"""Outputs that are reductions accumulate in registers, in wrappers of their partial results."""

import functools

import halide as hl
import numpy as np
import pytest
from test_scheduler import TIMED, assert_right

from tilewright.halide.emit.apply import apply, halide_target
from tilewright.halide.execution.lowering import refusal
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.schedule import Clone, Factored
from tilewright.halide.legality.check import Limits, check
from tilewright.halide.schedulers.analytic.gpu import scheduler
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.halide.schedulers.any_size import any_size
from tilewright.machines import gpu

A100 = gpu("a100")
LIMITS = Limits(512, 48 * 1024)
x, y = hl.vars("x y")


def product(size=512, updates=1):
    """A product of matrices, or the sum of two: an output."""
    a, b = (hl.ImageParam(hl.Float(32), 2, name) for name in "ab")
    out = hl.Func("out")
    out[x, y] = 1.0
    for i in range(updates):
        r = hl.RDom([(0, size)], f"r{i}")
        out[x, y] += a[r, y] * b[x, r] if i == 0 else b[r, y] * a[x, r]
    for each in (a, b, out):
        each.set_estimates([(0, size), (0, size)])
    return load(hl.Pipeline(out))


@functools.cache
def planned_for(machine, size=512, updates=1):
    algorithm = product(size, updates)
    return algorithm, schedule_gpu(algorithm, machine)[0]


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.few(1)
def test_an_output_accumulates_in_registers(updates):
    algorithm, planned = planned_for(A100, updates=updates)
    place, count = algorithm.order[algorithm.outputs[0]], len(algorithm.funcs)
    wholes = tuple(Factored(place, i + 1, ()) for i in range(updates))
    wrappers = tuple(Clone(count + i, (place,), wrapper=True) for i in range(updates))
    assert planned.schedule.clones == (*wholes, *wrappers)
    order = with_clones(algorithm, planned.schedule.clones).order
    partials = with_clones(algorithm, planned.schedule.clones).partials
    memory = {entry.func: entry.memory for entry in planned.schedule.funcs}
    assert {memory[order[name]] for name in partials} == {"register"}
    # The output's update has conditions: points in its threads would be kept in memory.
    kinds = {entry.func: entry.compute.kind for entry in planned.schedule.funcs}
    copies = with_clones(algorithm, planned.schedule.clones).copies
    assert {kinds[order[copy.name]] for copy in copies if copy.wrapper} == {"root"}
    assert not check(planned.schedule, algorithm, Limits(1024, 48 * 1024))
    assert not refusal(planned.schedule, algorithm)


def test_the_prediction_decides(monkeypatch):
    algorithm, ours = planned_for(A100)
    monkeypatch.setattr(scheduler, "whole_outputs", lambda *given: ())
    (without,) = schedule_gpu(algorithm, A100)
    assert without.schedule.clones == ()
    assert ours.cost < 0.5 * without.cost
    # A pipeline that has added Funcs already is left as it is.
    monkeypatch.undo()
    extended = with_clones(algorithm, ours.schedule.clones)
    assert schedule_gpu(extended, A100)[0].schedule.clones == ours.schedule.clones


@pytest.mark.opencl
@pytest.mark.parametrize("updates", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_the_answers_are_right(updates):
    algorithm, planned = planned_for(TIMED, 123, updates)
    assert any(isinstance(entry, Factored) for entry in planned.schedule.clones)
    assert not check(planned.schedule, algorithm, LIMITS)
    assert_right(algorithm, planned.schedule)


@pytest.mark.opencl
@pytest.mark.parametrize("size", [(1, 1), (37, 5), (200, 131)])
@pytest.mark.few(1)
def test_other_sizes_than_those_expected_are_right(size):
    algorithm, planned = planned_for(TIMED, 123)
    assert planned.schedule.clones
    schedule = any_size(planned.schedule, algorithm)
    width, height = size
    rng = np.random.default_rng(0)
    made = {
        "a": rng.integers(0, 9, (height, 123)).astype(np.float32),
        "b": rng.integers(0, 9, (123, width)).astype(np.float32),
    }
    images = {}
    for parameter in algorithm.parameters:
        buffer = hl.Buffer(made[parameter.name])
        buffer.set_host_dirty(True)
        image = hl.ImageParam(hl.Float(32), 2, parameter.name)
        image.set(buffer)
        images[parameter.name] = image
    parameters = {name: image.parameter() for name, image in images.items()}
    live = hl.deserialize_pipeline(algorithm.serialized, parameters)
    apply(schedule, algorithm, live, same_bytes=True)
    result = hl.Buffer(hl.Float(32), [width, height])
    live.realize(result, halide_target(schedule.target))
    result.copy_to_host()
    np.testing.assert_array_equal(np.asarray(result), made["a"] @ made["b"] + 1.0)
