"""Inputs as plain data: what is described, and what it is filled with."""

from __future__ import annotations

import json
from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from halide_constructs import CONSTRUCTS, define, image, output, pipeline, x, y
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENT

from tilewright.halide.execution.contents import fill, from_bfloat16, numpy_type, to_bfloat16
from tilewright.halide.execution.inputs import BufferInput, InputError, Inputs, describe_inputs
from tilewright.halide.execution.session import Session, Variant, make_inputs
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.algorithm import Span, Type
from tilewright.halide.schedulers.naive import naive_schedule
from tilewright.measure import Timing

KINDS = [
    Type("uint", 1),
    *(Type(code, bits) for code in ("uint", "int") for bits in (8, 16, 32, 64)),
    *(Type("float", bits) for bits in (16, 32, 64)),
    Type("bfloat", 16),
]


def described(kind, dims, **options):
    buffer = BufferInput("im", kind, dims, (None,) * len(dims), (False,) * len(dims))
    return replace(buffer, **options)


def filled(buffer, box, seed=0, order="F"):
    shape = [span.extent for span in box]
    array = np.full(shape, 99, numpy_type(buffer.type), order=order)
    fill(array, buffer, box, seed)
    return array


def algorithm_of(kind=None, dims=2):
    im = image(kind or hl.Float(32), dims=dims)
    args = (x, y, hl.Var("z"))[:dims]
    f = define("f_inputs", args, im[args])
    return load(output(f, *[8, 6, 5][:dims]))


@pytest.mark.parametrize("name", sorted(set(CONSTRUCTS) - {"deep", "long_chain"}))
def test_descriptions_survive_json(name):
    inputs = describe_inputs(load(pipeline(name)), seed=5)
    again = Inputs.from_json(json.loads(json.dumps(inputs.to_json())))
    assert again == inputs
    assert again.digest == inputs.digest


def test_descriptions_differ_where_runs_could():
    base = describe_inputs(algorithm_of())
    others = [
        describe_inputs(algorithm_of(), seed=1),
        describe_inputs(algorithm_of(), contents={"im": (0.0, 2.0)}),
        describe_inputs(algorithm_of(hl.Float(64))),
        describe_inputs(algorithm_of(dims=3)),
    ]
    assert len({inputs.digest for inputs in [base, *others]}) == 5


def test_a_file_is_known_by_its_contents(tmp_path):
    algorithm = algorithm_of()
    shape = tuple(span.extent for span in describe_inputs(algorithm).buffers[0].dims)
    digests = []
    for name, value in (("a.npy", 1.0), ("a.npy", 2.0), ("b.npy", 1.0)):
        np.save(tmp_path / name, np.full(shape, value, np.float32))
        digests.append(describe_inputs(algorithm, contents={"im": tmp_path / name}).digest)
    assert digests[0] != digests[1]
    assert digests[0] == digests[2]


def test_arrays_of_other_shapes_with_the_same_bytes_are_other_contents(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    algorithm = algorithm_of()
    values = np.arange(32, dtype=np.float32)
    made = [
        make_inputs(algorithm, contents={"im": values.reshape(shape)})
        for shape in ((4, 8), (8, 4), (4, 8))
    ]
    paths = [inputs.buffers[0].path for inputs in made]
    assert made[0] == made[2]
    assert made[0].digest != made[1].digest
    assert [np.load(path).shape for path in paths] == [(4, 8), (8, 4), (4, 8)]


@pytest.mark.parametrize("damage", [{}, {"seed": 1}, {"seed": "x"}, None])
def test_damaged_descriptions_are_refused(damage):
    data = describe_inputs(algorithm_of()).to_json()
    data = damage if not damage else {**data, "buffers": [damage]}
    with pytest.raises(InputError, match="damaged"):
        Inputs.from_json(data)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.lists(
        st.tuples(st.integers(-50, 50), st.integers(1, 40), st.integers(0, 9), st.integers(0, 9)),
        min_size=0,
        max_size=4,
    ),
    st.integers(0, 2**32),
)
def test_contents_do_not_depend_on_the_box(kind, ranges, seed):
    ranges = ranges[:3] if np.prod([r[1] + 18 for r in ranges] or [1]) > 1e6 else ranges
    inner = tuple(Span(low, extent) for low, extent, _, _ in ranges)
    outer = tuple(Span(low - a, extent + a + b) for low, extent, a, b in ranges)
    buffer = described(kind, inner)
    small, large = filled(buffer, inner, seed), filled(buffer, outer, seed, order="C")
    crop = tuple(slice(a, a + extent) for _, extent, a, _ in ranges)
    np.testing.assert_array_equal(small, large[crop])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_contents_spread_over_the_range(kind):
    buffer = describe_inputs(load(_of(kind))).buffers[0]
    values = filled(buffer, (Span(0, 300), Span(0, 200)))
    values = from_bfloat16(values) if kind.code == "bfloat" else values
    values = values.astype(np.float64)
    span = buffer.high - buffer.low
    assert buffer.low <= values.min() < buffer.low + span * 0.01 + 1
    assert buffer.high - span * 0.01 - 1 <= values.max() < buffer.high
    unit = (values - buffer.low) / span
    if kind.bits > 1:
        counts = np.histogram(unit, 10, (0, 1))[0]
        assert abs(counts / values.size - 0.1).max() < 0.01
    # Neighbours have nothing to do with one another.
    for axis in (0, 1):
        a, b = np.split(unit[: 2 * (unit.shape[0] // 2), : 2 * (unit.shape[1] // 2)], 2, axis)
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.03
        shifted = np.roll(unit, 1, axis)
        assert abs(np.corrcoef(unit.ravel(), shifted.ravel())[0, 1]) < 0.03


def _of(kind):
    makers = {"int": hl.Int, "uint": hl.UInt, "float": hl.Float, "bfloat": hl.BFloat}
    im = image(makers[kind.code](kind.bits))
    return output(define("f_kind", (x, y), im[x, y]), 8, 6)


def test_ranges_are_as_asked():
    buffer = described(Type("int", 32), (Span(0, 1000),), low=-3, high=4)
    assert set(filled(buffer, buffer.dims)) == set(range(-3, 4))
    buffer = described(Type("float", 64), (Span(0, 1000),), low=10.0, high=20.0)
    values = filled(buffer, buffer.dims)
    assert 10 <= values.min() < 10.1 < 19.9 < values.max() < 20


def test_seeds_and_inputs_differ():
    buffer = described(Type("float", 32), (Span(0, 100),))
    values = [filled(buffer, buffer.dims, seed) for seed in range(4)]
    assert len({v.tobytes() for v in values}) == 4
    assert values[0].tobytes() == filled(buffer, buffer.dims, 0).tobytes()


@given(st.floats(width=32))
def test_bfloat16_rounds_to_nearest(value):
    (found,) = from_bfloat16(to_bfloat16(np.float32([value])))
    if np.isnan(value):
        assert np.isnan(found)
        return
    bits = np.array([value], np.float32).view(np.uint32)[0]
    down = (bits & np.uint32(0xFFFF0000)).view(np.float32)
    with np.errstate(over="ignore"):
        up = ((bits & np.uint32(0xFFFF0000)) + np.uint32(0x10000)).view(np.float32)
    assert found in (down, up)
    if np.isfinite(up):
        errors = [abs(np.float64(value) - np.float64(v)) for v in (found, down, up)]
        assert errors[0] == min(errors[1:])


def test_arrays_are_saved_and_repeat_their_edge(tmp_path):
    given_array = np.arange(48, dtype=np.float32).reshape(8, 6)
    inputs = describe_inputs(algorithm_of(), contents={"im": given_array}, directory=tmp_path)
    buffer = Inputs.from_json(inputs.to_json()).buffers[0]
    np.testing.assert_array_equal(filled(buffer, buffer.dims), given_array)
    wider = filled(buffer, (Span(-2, 12), Span(0, 7)))
    np.testing.assert_array_equal(wider[2:10, :6], given_array)
    assert (wider[:2, 0] == given_array[0, 0]).all()
    assert (wider[10:, 6] == given_array[7, 5]).all()


def test_files_and_functions_give_contents(tmp_path):
    path = tmp_path / "given.npy"
    np.save(path, np.full((8, 6), 2.5, np.float32))
    from_file = describe_inputs(algorithm_of(), contents={"im": str(path)}).buffers[0]
    assert (filled(from_file, from_file.dims) == 2.5).all()
    from_function = describe_inputs(
        algorithm_of(),
        contents={"im": lambda shape: np.full(shape, 1.5, np.float32)},
        directory=tmp_path,
    ).buffers[0]
    assert (filled(from_function, from_function.dims) == 1.5).all()


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"other": (0, 1)}, "input buffers are im"),
        ({"im": (1.0, 1.0)}, "low < high"),
        ({"im": (1.0,)}, "low < high"),
        ({"im": np.zeros((8, 6))}, "float64"),
        ({"im": np.zeros(8, np.float32)}, "2 dimensions"),
        ({"im": np.zeros((0, 6), np.float32)}, "shape"),
        ({"im": "absent.npy"}, "cannot be read"),
        ({"im": np.zeros((8, 6), np.float32)}, "directory"),
    ],
)
def test_contents_that_do_not_fit_are_refused(contents, message):
    with pytest.raises(InputError, match=message):
        describe_inputs(algorithm_of(), contents=contents)


def test_unknown_sizes_and_values_are_named():
    algorithm = algorithm_of()
    (parameter,) = algorithm.parameters
    unknown = replace(algorithm, parameters=(replace(parameter, estimates=(None, Span(0, 1))),))
    with pytest.raises(InputError, match="extents of the input im"):
        describe_inputs(unknown)
    f = load(pipeline("scalars"))
    with pytest.raises(InputError, match="scalar gain has no value"):
        describe_inputs(replace(f, scalars={"on": True, "radius": 1}))


def test_inputs_with_borders_are_pinned():
    assert describe_inputs(load(pipeline("repeat_edge"))).buffers[0].pinned == (True, True)
    assert describe_inputs(load(pipeline("stencil"))).buffers[0].pinned == (False, False)


@pytest.mark.parametrize("count", [1, 3])
def test_bounds_are_not_asked_for_where_halide_would_read_inputs_for_them(count):
    """Halide crashes on the bounds of an update that stores at one place that data decide."""
    data, f = image(hl.UInt(8), dims=1), hl.Func("f")
    r = hl.RDom([(2, count)], "r")
    f[x] = hl.u32(0)
    f[hl.i32(data[r.x]) % 16] += hl.u32(1)
    f.set_estimates([(0, 16)])
    data.set_estimates([(0, 8)])
    algorithm = load(f)
    assert describe_inputs(algorithm).buffers[0].pinned == (count == 1,)
    with Session(algorithm, limits=PATIENT, timing=Timing(max_samples=1)) as session:
        (done,) = session.measure([Variant(naive_schedule(algorithm))])
    assert done.measurement.status == "ok", done.measurement.message
