"""Pixels whose colours lie next to each other: dense vectors, and right in any other layout."""

import re
from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from scheduled_pipelines import lowered
from test_register_block import LOOPS, U8, first, op, stage
from test_register_block import load as block_load

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.layouts import interleaved_planes
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.emit.apply import apply
from tilewright.halide.emit.printing import to_cpp, to_python
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.algorithm import Span
from tilewright.halide.ir.json import from_json, to_json
from tilewright.halide.ir.schedule import KnownValue, OutputValue
from tilewright.halide.ir.variants import conditions_text, holds, implied, merged
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.analytic.cpu.block_choice import best_block
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.scheduler import schedule_cpu
from tilewright.halide.schedulers.any_size import any_size
from tilewright.machines import CpuMachine, detect_cpu

WIDTH, HEIGHT = 512, 64


def darkened(planes=3, fixed=False):
    """A pixel's colours, each less what `ink` says; the last one by half of it."""
    data = hl.ImageParam(hl.UInt(8), 3, "data")
    ink = hl.ImageParam(hl.UInt(8), 2, "ink")
    c, x, y = hl.vars("c x y")
    out = hl.Func("darkened")
    part = hl.select(c == 2, ink[x, y] // 2, ink[x, y])
    out[c, x, y] = data[c, x, y] - hl.min(data[c, x, y], part)
    data.set_estimates([(0, planes), (0, WIDTH), (0, HEIGHT)])
    ink.set_estimates([(0, WIDTH), (0, HEIGHT)])
    out.set_estimates([(0, planes), (0, WIDTH), (0, HEIGHT)])
    if fixed:
        out.bound(c, 0, planes)
        for buffer in (data, out.output_buffer()):
            buffer.dim(1).set_stride(planes)
    return hl.Pipeline(out), {"data": data, "ink": ink}


ALGORITHM = load(darkened()[0])
SCHEDULE = any_size(schedule_cpu(ALGORITHM, detect_cpu())[0].schedule, ALGORITHM)
PLACES = {p.name: i for i, p in enumerate(ALGORITHM.parameters)}
OUT = ALGORITHM.order[ALGORITHM.outputs[0]]
WANTED = {
    KnownValue(PLACES["data"], "stride", 1, 3),
    OutputValue(OUT, "min", 0, 0),
    OutputValue(OUT, "extent", 0, 3),
    OutputValue(OUT, "stride", 1, 3),
}


def conditions(schedule):
    return {known for f in schedule.funcs for stage in f.stages for known in stage.specialize}


def test_the_scheduler_specialises_on_interleaved_colours():
    assert conditions(SCHEDULE) == WANTED
    assert check(SCHEDULE, ALGORITHM) == []


def test_halide_stores_dense_vectors(tmp_path):
    live = lowered(lambda: darkened()[0], lambda p: apply(SCHEDULE, ALGORITHM, p), tmp_path / "s")
    stores = re.findall(r"darkened\S*\[(ramp[^=]*)\] = interleave_vectors", live)
    assert stores
    assert all(store.endswith(", 1, 192)") for store in stores)  # three times 64 bytes


def buffers(planes, order, seed):
    """The inputs, and an output whose dimensions lie in memory in this order, innermost first.

    The output has a spare element after each row of the innermost dimension.
    """
    rng = np.random.default_rng(seed)
    shape = (planes, 300, 40)

    def empty(spare):
        extents = [shape[d] + spare * (d == order[0]) for d in order]
        memory = np.zeros(extents[::-1], np.uint8)
        axes = [2 - order.index(d) for d in range(3)]
        return memory.transpose(axes)[tuple(slice(n) for n in shape)]

    data = empty(0)
    data[...] = rng.integers(0, 256, shape)
    ink = np.zeros(shape[1:], np.uint8, order="F")
    ink[...] = rng.integers(0, 256, shape[1:])
    return data, ink, empty(1)


@pytest.mark.parametrize(
    ("planes", "order"),
    [(3, (0, 1, 2)), (4, (0, 1, 2)), (1, (0, 1, 2)), (2, (0, 1, 2)), (3, (0, 2, 1))],
)
@pytest.mark.few(1)
def test_it_is_right_in_every_layout(planes, order):
    data, ink, found = buffers(planes, order, planes)
    dense = np.zeros(found.shape, np.uint8, order="F")
    for out in (found, dense):
        pipeline, params = darkened()
        apply(SCHEDULE, ALGORITHM, pipeline)
        inputs = {"data": hl.Buffer(data.T), "ink": hl.Buffer(ink.T)}
        for name, buffer in inputs.items():
            params[name].set(buffer)
        pipeline.realize(hl.Buffer(out.T))
        part = np.stack([ink // 2 if c == 2 else ink for c in range(planes)])
        np.testing.assert_array_equal(out, data - np.minimum(data, part))


def test_it_is_printed_stored_and_read(tmp_path):
    assert from_json(to_json(SCHEDULE), ALGORITHM) == SCHEDULE
    text = to_python(SCHEDULE, ALGORITHM)
    assert "darkened.output_buffers()[0].dim(1).stride() == 3" in text
    assert ".dim(1).stride() == 3" in to_cpp(SCHEDULE, ALGORITHM)
    space: dict = {}
    exec(text, space)
    path = tmp_path / "stmt"
    live = lowered(lambda: darkened()[0], lambda p: apply(SCHEDULE, ALGORITHM, p), path)
    assert lowered(lambda: darkened()[0], space["schedule"], path) == live


def test_conditions_on_outputs_are_compared():
    stride, extent = OutputValue(OUT, "stride", 1, 3), OutputValue(OUT, "extent", 0, 3)
    assert holds(stride, ALGORITHM)
    assert not holds(replace(stride, value=4), ALGORITHM)
    assert implied(stride, (extent, stride))
    assert not implied(stride, (extent,))
    assert merged(stride, extent, stride) == (stride, extent)
    assert (
        conditions_text((stride, extent), ALGORITHM) == "darkened stride 1 3, darkened extent 0 3"
    )
    inner = replace(SCHEDULE.funcs[-1].stages[0], specialize=(replace(stride, dimension=3),))
    funcs = (*SCHEDULE.funcs[:-1], replace(SCHEDULE.funcs[-1], stages=(inner,)))
    assert "no dimension 3" in str(check(replace(SCHEDULE, funcs=funcs), ALGORITHM)[0])


def test_conditions_on_a_tuple_are_on_its_first_buffer():
    x, y = hl.vars("x y")
    out = hl.Func("out")
    out[x, y] = (x + y, x - y)
    out.set_estimates([(0, 3), (0, 8)])
    algorithm = load(hl.Pipeline(out))
    stride = OutputValue(len(algorithm.funcs) - 1, "stride", 1, 3)
    assert holds(stride, algorithm)
    assert not holds(replace(stride, value=4), algorithm)


def test_what_the_pipeline_fixes_is_not_asked_for():
    algorithm = load(darkened(fixed=True)[0])
    (planned, *_) = schedule_cpu(algorithm, detect_cpu())
    assert any(loop.mapping == "unrolled" for loop in planned.schedule.funcs[-1].stages[0].loops)
    assert conditions(planned.schedule) == set()


@pytest.mark.parametrize(
    ("extents", "strides", "planes"),
    [
        ((3, 8), (), 3),
        ((3, 8), (1, 3), 3),
        ((3, 8), (None, 4), None),  # padded
        ((3, 8), (8, 1), None),  # planes one after the other
        ((5, 8), (), None),
        ((1, 8), (), None),
        ((3,), (), None),
    ],
)
def test_planes(extents, strides, planes):
    assert interleaved_planes([Span(0, n) for n in extents], strides) == planes
    assert interleaved_planes([None for _ in extents], strides) is None


@pytest.mark.parametrize(("taps", "known"), [(3, True), (9, False)])
def test_a_stage_with_many_loads_gets_no_strides(taps, known):
    """It would shuffle the same values repeatedly; the compiler takes a minute for that."""
    data = hl.ImageParam(hl.UInt(8), 3, "data")
    c, x, y = hl.vars("c x y")
    out = hl.Func("out")
    total = hl.u16(data[c, x, y])
    for tap in range(1, taps):
        total += data[c, x + tap, y]
    out[c, x, y] = total
    data.set_estimates([(0, 3), (0, WIDTH + taps), (0, HEIGHT)])
    out.set_estimates([(0, 3), (0, WIDTH), (0, HEIGHT)])
    algorithm = load(hl.Pipeline(out))
    view = View(algorithm, frozenset({f.name for f in algorithm.funcs} - set(algorithm.outputs)))
    analysis = Analysis(view, estimated_boxes(view), algorithm.symbols, specialize=True)
    (summary,) = analysis.summaries(algorithm.outputs[0])
    assert summary.apart == (1, 3, None)
    assert {load.apart for load in summary.loads} == {(1, 3, None) if known else ()}


@pytest.mark.parametrize(("loads", "lanes"), [(3, 64), (4, 32)])
def test_blocks_of_interleaved_values_shuffle_few_lanes(loads, lanes):
    """Three planes of 64 lanes at four places are 768 shuffled lanes: LLVM takes long for them."""
    wide = model_of(CpuMachine("test", "x86-64", 4, ("avx512",), 512, ()))
    found = tuple(
        replace(block_load({"x": (1.0, 0.0), "y": (0.0, 1.0)}, f"in{i}", U8), apart=(1, 3))
        for i in range(loads)
    )
    summary = replace(stage([op("add", U8, "xy", loads)], found, types=(U8,)), apart=(1, 3))
    block = best_block(summary, LOOPS, {0: 3, 1: 1920}, wide, first)
    assert (block.vector, block.row, block.rows, block.width) == (1, 0, 3, lanes)
