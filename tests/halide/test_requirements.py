"""At which sizes a schedule is right: known cases, each checked against Halide itself."""

import halide as hl
import numpy as np
import pytest
from schedule_cases import complete, nest, place, split
from scheduled_pipelines import PIPELINES, imported, reference, run, with_image

from tilewright.halide.emit.apply import apply
from tilewright.halide.emit.checks import python_check
from tilewright.halide.ir.schedule import ROOT, DimensionBounds, FuncSchedule, Level, StorageDim
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
    for a, b in zip(got, reference(algorithm, extents), strict=True):
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
@pytest.mark.few(2)
def test_the_least_extent_and_the_divisor_are_those_of_halide(case):
    stage, minimum, multiple = CASES[case]
    schedule = scheduled(BLUR, "blurred", stage)
    (need,) = (r for r in requirements(schedule, BLUR) if r.on == "output")
    assert (need.dimension, need.minimum, need.multiple) == (0, max(minimum, multiple), multiple)
    for extent in {1, need.minimum - 1, need.minimum, need.minimum + 1, 2 * need.minimum}:
        if extent > 0:
            fits = extent >= need.minimum and extent % multiple == 0
            assert runs(schedule, BLUR, [extent, 5]) == fits, extent


@pytest.mark.parametrize(("outer", "inner"), [(4096, 16), (1152, 64)])
def test_splits_of_an_inner_loop_leave_the_divisor_as_it_is(outer, inner):
    changes = split("v0", outer, "round_up"), split("v0i", inner, "round_up")
    stage = nest(*changes, order="v0ii v0io v0o v1")
    (need,) = requirements(scheduled(BLUR, "blurred", stage), BLUR)
    assert (need.minimum, need.multiple, need.certain) == (outer, outer, True)


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


def limited(bounds=(), storage=(), output=False):
    """A blur whose producer is at root, or whose output says so much of its own extents."""
    name = "blurred" if output else "across"
    here = FuncSchedule(place(BLUR, name), ROOT, ROOT, bounds=bounds, storage=storage)
    return complete(BLUR, "host", [here])


def asked(schedule):
    return [
        (r.on, r.dimension, r.minimum, r.multiple, r.maximum) for r in requirements(schedule, BLUR)
    ]


def test_storage_that_is_bound_limits_what_is_wanted():
    schedule = limited(storage=(StorageDim(0, bound=9),))
    (need,) = requirements(schedule, BLUR)
    assert (need.on, need.maximum, need.reason) == ("storage", 9, "storage bound to 9")
    assert "at most 9 elements of across in x at a time (storage bound to 9)" in str(need)
    assert runs(schedule, BLUR, [9, 5])
    assert not runs(schedule, BLUR, [10, 5])


def test_an_output_of_promised_extent_has_that():
    schedule = limited(bounds=(DimensionBounds(0, extent=8),), output=True)
    assert asked(schedule) == [("output", 0, 8, 1, 8)]
    (need,) = requirements(schedule, BLUR)
    assert "must be exactly 8 in x (bound_extent promises 8)" in str(need)
    assert runs(schedule, BLUR, [8, 5])
    assert not runs(schedule, BLUR, [9, 5])
    assert python_refusal(schedule, 8) is None
    assert "exactly 8" in python_refusal(schedule, 9)


def python_refusal(schedule, extent):
    namespace: dict = {}
    exec(python_check("blur", requirements(schedule, BLUR)), namespace)
    return namespace["blur_refuses"](**{BLUR.outputs[0]: (extent, 5)})


def test_an_output_of_aligned_bounds_is_a_multiple():
    schedule = limited(bounds=(DimensionBounds(0, modulus=4),), output=True)
    assert asked(schedule) == [("output", 0, 4, 4, 0)]
    assert runs(schedule, BLUR, [8, 5])
    assert not runs(schedule, BLUR, [9, 5])


@pytest.mark.parametrize(("fold", "enough"), [(4, True), (2, False)])
def test_a_fold_that_always_suffices_asks_for_nothing(fold, enough):
    out, across = place(BLUR, "blurred"), place(BLUR, "across")
    at = FuncSchedule(across, Level("at", out, 0, "v1"), ROOT, storage=(StorageDim(1, fold=fold),))
    schedule = complete(BLUR, "host", [at])
    found = requirements(schedule, BLUR)
    assert (found == ()) == enough
    assert runs(schedule, BLUR, [7, 40]) == enough
    if not enough:
        assert found[0].reason == "storage folded to 2"
