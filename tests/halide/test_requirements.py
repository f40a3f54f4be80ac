"""At which sizes a schedule is right: known cases, each checked against Halide itself."""

import halide as hl
import numpy as np
import pytest
from schedule_cases import complete, nest, place, split
from scheduled_pipelines import PIPELINES, imported, run, with_image

from tilewright.halide.emit.apply import apply
from tilewright.halide.ir.schedule import ROOT, FuncSchedule
from tilewright.halide.legality.check import check
from tilewright.halide.legality.sizes import requirements

BLUR, OUTPUTS = (imported(PIPELINES[name]()) for name in ("blur", "outputs"))


def scheduled(algorithm, name, stage):
    entry = FuncSchedule(place(algorithm, name), ROOT, ROOT, stages=(stage,))
    schedule = complete(algorithm, "host", [entry])
    assert check(schedule, algorithm) == []
    return schedule


def runs(schedule, algorithm, extents):
    pipeline, _image = with_image(algorithm)
    apply(schedule, algorithm, pipeline, same_bytes=True)
    try:
        got = run(pipeline, algorithm, extents)
    except hl.HalideError:
        return False
    reference, _other = with_image(algorithm)
    for a, b in zip(got, run(reference, algorithm, extents), strict=True):
        np.testing.assert_array_equal(a, b)
    return True


CASES = {
    "plain": (nest(split("v0", 4, "round_up"), order="v0i v0o v1"), 1, 4),
    "shifted": (nest(split("v0", 4, "shift_inwards"), order="v0i v0o v1"), 4, 1),
    # A split by one is no guard for what is split further.
    "by_one": (
        nest(split("v0", 1), split("v0o", 4, "round_up"), order="v0oi v0oo v0i v1"),
        1,
        4,
    ),
    # A guard stops what runs past the end, not what starts before the beginning.
    "guarded_then_shifted": (
        nest(split("v0", 3), split("v0o", 4, "shift_inwards"), order="v0oi v0oo v0i v1"),
        10,
        1,
    ),
    "shifted_then_rounded": (
        nest(
            split("v0", 3, "shift_inwards"), split("v0o", 2, "round_up"), order="v0oi v0oo v0i v1"
        ),
        3,
        1,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_least_extent_and_the_divisor_are_those_of_halide(case):
    stage, minimum, multiple = CASES[case]
    schedule = scheduled(BLUR, "blurred", stage)
    (need,) = (r for r in requirements(schedule, BLUR) if r.on == "output")
    assert (need.dimension, need.minimum, need.multiple) == (0, max(minimum, multiple), multiple)
    for extent in {1, need.minimum - 1, need.minimum, need.minimum + 1, 2 * need.minimum}:
        if extent > 0:
            fits = extent >= need.minimum and extent % multiple == 0
            assert runs(schedule, BLUR, [extent, 5]) == fits, extent


@pytest.mark.parametrize("tail", ["predicate_stores", "round_up", "shift_inwards"])
def test_an_output_that_reads_another_may_not_read_beyond_it(tail):
    stage = nest(split("v0", 8, tail), order="v0i v0o v1")
    schedule = scheduled(OUTPUTS, "grey", stage)
    (need,) = (r for r in requirements(schedule, OUTPUTS) if r.on == "output")
    assert (need.name.split("$")[0], need.minimum) == ("grey", 8)
    assert runs(schedule, OUTPUTS, [16, 5, 3])
    assert not runs(schedule, OUTPUTS, [5, 5, 3])


def bound(tail):
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    small = hl.Func("small")
    small[x, y, c] = x + y * c
    small.bound(c, 0, 6)
    algorithm = imported(hl.Pipeline(small))
    stage = nest(split("v2", 4, tail), order="v2i v0 v1 v2o")
    return algorithm, complete(algorithm, "host", [FuncSchedule(0, ROOT, ROOT, stages=(stage,))])


def test_no_split_goes_beyond_promised_bounds():
    algorithm, schedule = bound("round_up")
    (problem,) = check(schedule, algorithm)
    assert "dimension c is bound to 6 values" in problem.message
    for tail in ("guard_with_if", "shift_inwards"):
        algorithm, schedule = bound(tail)
        assert check(schedule, algorithm) == []
        assert requirements(schedule, algorithm) == ()
