"""Pipelines brought back from their bytes, bound and run."""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest
from halide_constructs import CONSTRUCTS, define, image, output, pipeline, x, y
from hypothesis import given
from hypothesis import strategies as st

from tilewright.halide.execution.binding import (
    bind,
    deserialize,
    layout,
    output_array,
    set_estimates,
)
from tilewright.halide.execution.inputs import InputError, describe_inputs
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.frontend.live import LiveFuncs, capture, live_funcs
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.algorithm import Span

TARGET = hl.get_jit_target_from_environment()


def run(algorithm, inputs, schedule=lambda funcs: None):
    live = deserialize(algorithm.serialized, inputs)
    schedule({func.name(): func for func in live_funcs(algorithm, live.pipeline)})
    outputs = bind(live, inputs, TARGET)
    live.pipeline.realize(outputs)
    kinds = [kind for shape in inputs.outputs for kind in shape.types]
    return live, [output_array(b, k).copy() for b, k in zip(outputs, kinds, strict=True)]


def test_an_output_may_ask_to_begin_at_a_page():
    f = define("f_page", (x,), hl.f32(x))
    f.output_buffer().set_host_alignment(4096)
    algorithm = load(output(f, 16))
    _, (found,) = run(algorithm, describe_inputs(algorithm))
    assert found.tolist() == list(range(16))


def test_schedules_that_read_further_see_the_same_values():
    im = image(hl.Float(32))
    g = define("g_further", (x, y), im[x, y] + im[x + 1, y])
    f = output(define("f_further", (x, y), g[x, y] * g[x, y + 1]), 13, 7)
    algorithm = load(f)
    inputs = describe_inputs(algorithm)

    def rounded(funcs):
        xo, xi = hl.Var("xo"), hl.Var("xi")
        funcs[g.name()].compute_root().split(x, xo, xi, 16, hl.TailStrategy.RoundUp)

    plain, expected = run(algorithm, inputs)
    wider, found = run(algorithm, inputs, rounded)
    assert plain.images["im"].get().dim(0).extent() == 14
    assert wider.images["im"].get().dim(0).extent() == 17
    np.testing.assert_array_equal(found[0], expected[0])


def test_pinned_inputs_have_exactly_their_estimate():
    algorithm = load(pipeline("repeat_edge"))
    live, _ = run(algorithm, describe_inputs(algorithm))
    bound = live.images["im"].get()
    assert [(bound.dim(d).min(), bound.dim(d).extent()) for d in (0, 1)] == [(0, 5), (0, 4)]


def test_an_input_pinned_in_one_dimension_grows_in_the_other():
    im = image(hl.UInt(8))
    im.set_estimates([(0, 6), (0, 3)])
    edge = hl.clamp(x - 2, im.dim(0).min(), im.dim(0).max())
    f = output(define("f_half", (x, y), im[edge, y + 5]), 10, 4)
    algorithm = load(f)
    inputs = describe_inputs(algorithm)
    assert inputs.buffers[0].pinned == (True, False)
    live, (found,) = run(algorithm, inputs)
    bound = live.images["im"].get()
    assert [(bound.dim(d).min(), bound.dim(d).extent()) for d in (0, 1)] == [(0, 6), (0, 9)]
    values = live.arrays[0]
    expected = values[np.clip(np.arange(10) - 2, 0, 5)][:, 5:9]
    np.testing.assert_array_equal(found, expected)


def test_another_input_is_sized_by_a_pinned_ones_bounds():
    im, weights = image(hl.Int(32), dims=1), image(hl.Int(32), "weights", 1)
    im.set_estimates([(0, 7)])
    r = hl.RDom([(0, im.dim(0).extent())], "r")
    f = define("f_dot", (), 0)
    f[()] += im[r.x] * weights[r.x]
    algorithm = load(f)
    live, (found,) = run(algorithm, describe_inputs(algorithm))
    first, second = live.arrays
    assert first.shape == second.shape == (7,)
    assert found == (first.astype(np.int64) * second).sum()


def test_interleaved_inputs_and_outputs_keep_their_strides():
    algorithm = load(pipeline("interleaved"))
    live, (found,) = run(algorithm, describe_inputs(algorithm))
    bound = live.images["im"].get()
    assert [bound.dim(d).stride() for d in range(3)] == [3, 18, 1]
    np.testing.assert_array_equal(found, live.arrays[0] + np.uint8(1))


def test_outputs_start_where_their_estimates_say():
    algorithm = load(pipeline("negative_origin"))
    live, (found,) = run(algorithm, describe_inputs(algorithm))
    np.testing.assert_array_equal(found, live.arrays[0] + np.arange(-3, 2)[:, None])


def test_two_runs_of_one_description_agree():
    algorithm = load(pipeline("inline_sum"))
    inputs = describe_inputs(algorithm, seed=9)
    (first,), (second,) = (run(algorithm, inputs)[1] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = run(algorithm, describe_inputs(algorithm, seed=10))[1][0]
    assert (other != first).any()


def test_compile_errors_are_halides():
    algorithm = load(pipeline("extern_stage"))
    live = deserialize(algorithm.serialized, describe_inputs(algorithm))
    with pytest.raises(hl.HalideError):
        bind(live, describe_inputs(algorithm), TARGET)


def test_scalars_that_the_binding_cannot_pass_are_named():
    p = hl.Param(hl.Float(16), "half")
    f = output(define("f_half_scalar", x, hl.cast(hl.Float(32), p)), 4)
    algorithm = load(f, estimates={"half": 1.0})
    with pytest.raises(InputError, match=r"scalar half: .*cannot pass the type"):
        deserialize(algorithm.serialized, describe_inputs(algorithm))


def test_estimates_are_set_for_autoschedulers():
    im, p = image(hl.Float(32)), hl.Param(hl.Float(32), "p")
    p.set_estimate(0.5)
    im.set_estimates([(0, 20), (0, 30)])
    f = output(define("f_set", (x, y), im[x, y] * p), 20, 30)
    algorithm = load(f)
    inputs = describe_inputs(algorithm)
    live = deserialize(algorithm.serialized, inputs)
    before = capture(live.pipeline)
    assert before.ranges["im"] == (None, None)
    set_estimates(live, inputs)
    after = capture(live.pipeline)
    assert after.ranges["im"] == (Span(0, 20), Span(0, 30))
    assert after.scalars == {"p": 0.5}
    (out,) = live.pipeline.outputs()
    parameter = out.output_buffer().parameter()
    # The range's size is what serialisation had lost.
    assert parameter.extent_constraint_estimate(0).defined()
    assert parameter.extent_constraint_estimate(1).defined()


def test_pointers_are_passed_as_null():
    algorithm = load(pipeline("handles"))
    _, (found,) = run(algorithm, describe_inputs(algorithm))
    np.testing.assert_array_equal(found, np.arange(4, dtype=np.uint64))


WRAPPED = ["wrapped_once", "wrapped_everywhere", "wrapped_twice", "wrapped_image", "cloned"]


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_funcs_are_reached(name):
    built = pipeline(name)
    algorithm = load(built)
    live = deserialize(algorithm.serialized, describe_inputs(algorithm))
    for one in (built, live.pipeline):
        found = [func.name() for func in live_funcs(algorithm, one)]
        assert found == [func.name for func in algorithm.funcs]
    again = import_pipeline(hl.serialize_pipeline(live.pipeline))
    assert again.digest == algorithm.digest


@pytest.mark.parametrize("name", sorted(set(CONSTRUCTS) - {"deep", "long_chain"}))
def test_bytes_read_back_are_the_same_computation(name):
    algorithm = load(pipeline(name))
    live = deserialize(algorithm.serialized, describe_inputs(algorithm))
    assert import_pipeline(hl.serialize_pipeline(live.pipeline)).digest == algorithm.digest


@given(st.permutations(range(3)), st.lists(st.integers(1, 9), min_size=3, max_size=3), st.data())
def test_fixed_strides_are_kept_and_nothing_overlaps(order, extents, data):
    strides, span = {}, 1
    for d in order:
        strides[d] = span + data.draw(st.integers(0, 3))
        span = strides[d] * extents[d]
    fixed = tuple(strides[d] for d in range(3))
    found, size = layout("im", tuple(extents), fixed)
    assert found == fixed
    places = np.add.outer(
        np.add.outer(np.arange(extents[0]) * found[0], np.arange(extents[1]) * found[1]),
        np.arange(extents[2]) * found[2],
    )
    assert len(np.unique(places)) == places.size
    assert places.max() == size - 1


@pytest.mark.parametrize(
    ("fixed", "expected"),
    [
        ((None, None, None), (1, 5, 35)),
        ((1, None, None), (1, 5, 35)),
        ((3, None, 1), (3, 15, 1)),
        ((None, None, 1), (3, 15, 1)),
        ((1, 8, None), (1, 8, 56)),
        ((30, None, 10), (30, 150, 10)),
    ],
)
def test_free_strides_follow_densely(fixed, expected):
    assert layout("im", (5, 7, 3), fixed)[0] == expected


def test_overlapping_strides_are_refused():
    with pytest.raises(InputError, match="overlap"):
        layout("im", (5, 7), (1, 4))


@pytest.mark.parametrize("name", ["several_outputs", "long_chain", *WRAPPED])
def test_single_funcs_are_fetched_by_halides_order(name, monkeypatch):
    algorithm = load(pipeline(name))
    live = deserialize(algorithm.serialized, describe_inputs(algorithm))
    fetched = []
    take = type(live.pipeline).get_func

    def counted(pipeline, index):
        fetched.append(index)
        return take(pipeline, index)

    monkeypatch.setattr(type(live.pipeline), "get_func", counted)
    funcs = LiveFuncs(algorithm, live.pipeline)
    for place in reversed(range(len(funcs))):
        assert funcs[place].name() == algorithm.funcs[place].name
    if not algorithm.wrappers:
        assert len(fetched) == len(funcs)
