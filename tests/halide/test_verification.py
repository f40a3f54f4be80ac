import halide as hl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.halide.execution import at_sizes
from tilewright.halide.execution.at_sizes import AtSizes, payload
from tilewright.halide.execution.contents import thin, to_bfloat16
from tilewright.halide.execution.long_sums import has_long_sums
from tilewright.halide.execution.runner import Runner
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.execution.verification import Tolerance, accepted, compare, tolerance
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.algorithm import Type
from tilewright.halide.ir.json import to_json
from tilewright.halide.schedulers.learned.random_pipelines import build, random_pipeline
from tilewright.halide.schedulers.registry import naive, plan
from tilewright.halide.schedulers.task import make_task

F32, U8, I16 = Type("float", 32), Type("uint", 8), Type("int", 16)


def right(found, expected, kind, allowed):
    return accepted(compare(np.asarray(found), np.asarray(expected), kind, allowed), allowed)


def test_integers_must_be_equal():
    expected = np.arange(12, dtype=np.uint8).reshape(3, 4)
    found = expected.copy()
    assert right(found, expected, U8, Tolerance())
    found[2, 1] += 1
    result = compare(found, expected, U8, Tolerance())
    assert (result.wrong, result.values, result.max_error, result.where) == (1, 12, 1.0, (2, 1))
    assert not accepted(result, Tolerance())


@given(st.integers(-(2**15), 2**15 - 1), st.integers(-(2**15), 2**15 - 1))
def test_integer_differences_do_not_wrap(a, b):
    result = compare(np.array([a], np.int16), np.array([b], np.int16), I16, Tolerance())
    assert result.max_error == abs(a - b)
    assert (result.wrong == 0) == (a == b)


def test_integers_from_floats_may_be_off_by_one():
    expected = np.array([0, 100, 60000], np.uint16)
    found = np.array([1, 99, 60006], np.uint16)
    allowed = Tolerance(1e-4, exact=False)
    assert right(found, expected, Type("uint", 16), allowed)
    assert not right(expected + np.uint16(9), expected, Type("uint", 16), allowed)


def test_floats_are_compared_relative_to_their_magnitude():
    expected = np.array([1e6, 1.0, -2.0, 0.0], np.float32)
    allowed = Tolerance(1e-4, exact=False)
    assert right(expected * np.float32(1 + 1e-6), expected, F32, allowed)
    assert not right(expected * np.float32(1.01), expected, F32, allowed)
    assert not right(-expected, expected, F32, allowed)


def test_small_values_among_large_ones_may_suffer_from_cancellation():
    expected = np.array([100.0, 1e-9], np.float32)
    found = np.array([100.0, 1e-6], np.float32)
    assert right(found, expected, F32, Tolerance(1e-4, exact=False))


def test_nan_and_infinities_equal_only_themselves():
    allowed = Tolerance(1e-4, exact=False)
    special = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert right(special, special, F32, allowed)
    for i in range(4):
        for value in (np.nan, np.inf, -np.inf, 1.0):
            changed = special.copy()
            changed[i] = value
            same = np.array_equal(changed, special, equal_nan=True)
            assert right(changed, special, F32, allowed) == same


def test_outliers_are_a_share_of_the_values():
    expected = np.zeros(100_000, np.uint8)
    found = expected.copy()
    found[:10] = 200
    allowed = Tolerance(1e-4, exact=False, outliers=1e-4)
    assert right(found, expected, U8, allowed)
    found[:11] = 200
    assert not right(found, expected, U8, allowed)


def test_large_outputs_are_compared_in_pieces():
    expected = np.zeros((3, 1_500_000), np.float32)
    found = expected.copy()
    found[1, 1_400_000] = 1.0
    result = compare(found, expected, F32, Tolerance(1e-4, exact=False))
    assert result.wrong == 1
    assert result.where == (1, 1_400_000)


def test_bfloat16_bits_and_booleans_and_scalars():
    bits = to_bfloat16(np.array([1.0, 3.0], np.float32))
    allowed = Tolerance(5e-2, exact=False)
    assert right(bits + np.uint16(1), bits, Type("bfloat", 16), allowed)
    assert not right(bits[::-1], bits, Type("bfloat", 16), allowed)
    assert not right([True, False], [True, True], Type("uint", 1), Tolerance())
    assert right(np.float32(2), np.float32(2), F32, allowed)
    assert not right(np.float32(2), np.float32(3), F32, allowed)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="shapes"):
        compare(np.zeros(3), np.zeros(4), F32, Tolerance())


def of(expr_of):
    x = hl.Var("x")
    image = hl.ImageParam(hl.UInt(8), 1, "image")
    func = hl.Func("f")
    func[x] = expr_of(image[x])
    return tolerance(import_pipeline(bytes(hl.serialize_pipeline(hl.Pipeline(func)))))


def test_tolerance_depends_on_the_computation():
    assert of(lambda v: v * 3 // 2) == Tolerance()
    assert of(lambda v: hl.cast(hl.Float(32), v) * 1.5) == Tolerance(1e-4, exact=False)
    rounded = of(lambda v: hl.cast(hl.Int(32), hl.cast(hl.Float(32), v) * 1.5))
    assert rounded.outliers > 0
    compared = of(lambda v: hl.select(hl.cast(hl.Float(32), v) > 1.5, 2, 3))
    assert compared.outliers > 0
    saturated = of(lambda v: hl.saturating_cast(hl.Int(32), hl.cast(hl.Float(32), v) * 1.5))
    assert saturated.outliers > 0
    assert of(lambda v: hl.saturating_cast(hl.UInt(8), hl.cast(hl.Int(32), v) * 3)) == Tolerance()
    double = of(lambda v: hl.sqrt(hl.cast(hl.Float(64), v)))
    assert double.relative < 1e-8
    assert double.outliers == 0


def test_rounding_of_the_reference_itself_is_not_held_against_a_schedule(tmp_path):
    """Where a multiplication is fused with an addition, coordinates come out one apart."""
    task = make_task(build(random_pipeline(1087, (1e5, 1e6))), target="host", name="random")
    with Session(task.algorithm, references=tmp_path) as session:
        problem = session.prepare()
    payload = problem.candidate(Variant(naive(task), target="host-strict_float")).payload
    runner = Runner(payload)
    assert runner.verify().ok or runner.recheck().ok


def squares(values, dims):
    """The sum of the squares of `values` floats, of one image or of each of three."""
    image, r = (
        hl.ImageParam(hl.Float(32), 2 + dims, "image"),
        hl.RDom([(0, 1024), (0, values >> 10)]),
    )
    total, c = hl.Func("total"), hl.Var("c")
    at = () if dims == 0 else c
    value = image[r.x, r.y] if dims == 0 else image[r.x, r.y, c]
    total[at] = hl.f32(0)
    total[at] += value * value
    image.set_estimates([(0, 1024), (0, values >> 10), (0, 3)][: 2 + dims])
    total.set_estimates([(0, 3)] * dims)
    return total


def runner_of(dims, folder, scheduler=lambda task: plan(task)[0].schedule):
    task = make_task(squares(1 << 22, dims), target="host", name="squares")
    assert has_long_sums(task.algorithm)
    with Session(task.algorithm, references=folder) as session:
        problem = session.prepare()
    return Runner(problem.candidate(Variant(scheduler(task))).payload)


@pytest.mark.parametrize("dims", [0, 1])
@pytest.mark.few(1)
def test_long_sums_may_be_more_accurate_than_the_reference(dims, tmp_path):
    runner = runner_of(dims, tmp_path)
    assert not runner.verify().ok
    assert runner.recheck().ok


def test_sums_one_by_one_agree_with_partial_sums_where_most_values_are_zero(tmp_path):
    runner = runner_of(0, tmp_path, naive)
    before = runner.answers()[0].copy()
    assert runner._agrees_with_partial_sums()
    assert runner.answers()[0] == before  # the inputs are as before


@pytest.mark.parametrize("factor", [0.999, pytest.param(0.9, marks=pytest.mark.thorough), 0.0])
@pytest.mark.parametrize("scheduler", [lambda task: plan(task)[0].schedule, naive])
@pytest.mark.few(2)
def test_wrong_long_sums_stay_wrong(scheduler, factor, tmp_path, monkeypatch):
    runner = runner_of(0, tmp_path, scheduler)
    answers = runner.answers
    monkeypatch.setattr(runner, "answers", lambda: [factor * answer for answer in answers()])
    assert not runner.verify().ok
    assert not runner.recheck().ok


@pytest.mark.parametrize("scale", [1.0, 0.999])
def test_long_sums_at_other_sizes(scale, monkeypatch):
    task = make_task(squares(1 << 22, 0), target="host", name="squares")
    runs = AtSizes(payload(task.algorithm, to_json(plan(task)[0].schedule), "host", [{}]))
    found = at_sizes.output_array
    images = []

    def scaled(buffer, kind):
        images.append(found(buffer, kind))
        return images[-1] * np.float32(scale if len(images) % 2 else 1)

    monkeypatch.setattr(at_sizes, "output_array", scaled)
    runs.run()
    assert runs.outcomes[0].status == ("ok" if scale == 1 else "wrong")


def test_a_random_share_of_the_coordinates_is_kept():
    whole = np.ones((40, 50, 60), np.float32)
    part = np.ones((20, 50, 60), np.float32)
    thin(whole, (0, -3, 2), 0.1)
    thin(part, (20, -3, 2), 0.1)
    assert np.array_equal(whole[20:], part)
    assert 0.09 < whole.mean() < 0.11
    line = np.ones(100_000, np.uint8)
    thin(line, (7,), 0.25)
    assert 0.24 < line.mean() < 0.26
    scalar = np.ones((), np.float32)
    thin(scalar, (), 0.1)
    assert scalar == 1


def test_short_sums_are_not_split():
    assert not has_long_sums(load(hl.Pipeline(squares(1 << 16, 0))))
    assert has_long_sums(load(hl.Pipeline(squares(1 << 17, 0))))
