"""Hoisting, folding, bounds, prefetches, shared loops, wrappers: what is legal and computed."""

import numpy as np
import pytest
from schedule_cases import all_cases, complete, nest, place, split
from scheduled_pipelines import BUILDERS, imported, reference, run, with_image

from tilewright.halide.emit.apply import apply
from tilewright.halide.ir.clones import clone_problems
from tilewright.halide.ir.json import from_data, to_data
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    Clone,
    ComputeWith,
    DimensionBounds,
    FuncSchedule,
    Level,
    Prefetch,
    ScheduleError,
    StorageDim,
)
from tilewright.halide.legality.check import check

CASES = all_cases()
BLUR, REDUCTIONS, SEPARATE = (imported(BUILDERS[n]()) for n in ("blur", "reductions", "separate"))
ACROSS, BLURRED = place(BLUR, "across"), place(BLUR, "blurred")
COLOUR, GREY = place(SEPARATE, "colour"), place(SEPARATE, "grey")
ROW, PIXEL = (Level("at", BLURRED, 0, loop) for loop in ("v1", "v0"))


def blur(across=None, **options):
    stages = (nest(order="v0 v1", **options),)
    across = across or FuncSchedule(ACROSS, ROOT, ROOT)
    return BLUR, complete(BLUR, "host", [FuncSchedule(BLURRED, ROOT, ROOT, stages=stages), across])


def shared(loop, order="v0 v1", *changes, func=COLOUR, align=()):
    other = nest(split("v1", 8), order="v0 v2 v1i v1o")
    own = nest(*changes, order=order, compute_with=ComputeWith(func, 0, loop, align))
    entries = [
        FuncSchedule(COLOUR, ROOT, ROOT, stages=(other,)),
        FuncSchedule(GREY, ROOT, ROOT, stages=(own,)),
    ]
    return SEPARATE, complete(SEPARATE, "host", entries)


def stored(**options):
    return blur(FuncSchedule(ACROSS, PIXEL, ROW, **options))


@pytest.mark.parametrize(
    ("made", "kind", "reason"),
    [
        (stored(hoist=PIXEL), "hoist", "inside its store"),
        (stored(hoist=INLINE), "hoist", "hoisted to inline"),
        (stored(ring_buffer=2), "storage", "needs storage hoisted"),
        (
            stored(storage=(StorageDim(2, fold=4),)),
            "storage",
            "dimension 2, which it does not have",
        ),
        (stored(storage=(StorageDim(1, fold=4, bound=3),)), "storage", "folded to 4 elements"),
        (stored(storage=(StorageDim(1), StorageDim(1))), "storage", "two entries"),
        (
            stored(bounds=(DimensionBounds(0, modulus=4, remainder=4),)),
            "bounds",
            "remainder in range",
        ),
        (blur(prefetch=(Prefetch(ACROSS, "v3", "v1"),)), "prefetch", "no loop 'v3'"),
        (blur(prefetch=(Prefetch(ACROSS, "v1", "v0"),)), "prefetch", "outside loop 'v0'"),
        (blur(prefetch=(Prefetch(50, "v1", "v0"),)), "prefetch", "no Func 50"),
        (shared("v7"), "compute_with", "has no loop 'v7'"),
        (shared("v1i"), "compute_with", "same names, splits and mappings"),
        (shared("v1o", func=50), "compute_with", "has no schedule"),
        (shared("v0", func=GREY), "compute_with", "stages of one Func"),
        (
            shared("v1o", "v0 v1i v1o", split("v1", 8), align=(("v5", "end"),)),
            "compute_with",
            "align names loop 'v5'",
        ),
    ],
)
def test_unfitting_directives_are_refused(made, kind, reason):
    algorithm, schedule = made
    problems = check(schedule, algorithm)
    assert kind in {problem.kind for problem in problems}
    assert any(reason in problem.message for problem in problems)


@pytest.mark.parametrize(
    "made",
    [
        blur(),
        stored(hoist=ROOT),
        stored(hoist=ROW, storage=(StorageDim(1, fold=4, bound=4),)),
        stored(bounds=(DimensionBounds(0, modulus=4, remainder=3),)),
        shared("v1o", "v0 v1i v1o", split("v1", 8), align=(("v1o", "end"),)),
    ],
)
def test_fitting_directives_are_legal(made):
    algorithm, schedule = made
    assert check(schedule, algorithm) == []


def wrapped(*clones):
    return [reason for _, reason in clone_problems(REDUCTIONS, clones)]


def test_wrappers_that_cannot_be_made():
    convolved, scan = place(REDUCTIONS, "convolved"), place(REDUCTIONS, "scan")
    count = len(REDUCTIONS.funcs)
    good = Clone(convolved, (scan,), wrapper=True)
    assert wrapped(good) == []
    assert wrapped(good, Clone(count, (scan,), wrapper=True)) == []
    assert "does not read" in wrapped(Clone(scan, (convolved,), wrapper=True))[0]
    assert "cannot be cloned" in wrapped(good, Clone(count, (scan,)))[0]
    assert "only a later wrapper" in wrapped(Clone(count, (scan,), wrapper=True))[0]
    other = place(REDUCTIONS, "result")
    assert "does not read" in wrapped(good, Clone(count, (other,), wrapper=True))[0]
    assert "twice" in wrapped(good, good)[0]


@pytest.mark.parametrize("name", ["storage", "ring", "wrappers", "shared_loops"])
def test_they_compute_what_the_unscheduled_pipeline_does(name):
    algorithm, schedule = CASES[name]
    extents = [64, 96, 3]
    pipeline, _image = with_image(algorithm)
    apply(schedule, algorithm, pipeline, same_bytes=True)
    found = run(pipeline, algorithm, extents)
    for got, expected in zip(found, reference(algorithm, extents), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_json_without_the_newer_fields_is_as_it_was():
    for name in ("sliding_window", "clones", "reduction_loops"):
        data = to_data(CASES[name][1])
        newer = "hoist storage bounds run_async ring_buffer prefetch compute_with allow_races"
        for func in data["funcs"]:
            for item in (func, *func["stages"]):
                assert not set(newer.split()) & set(item)
        assert all("wrapper" not in clone for clone in data.get("clones", ()))


@pytest.mark.parametrize(
    ("case", "field", "value", "message"),
    [
        ("storage", "hoist", "nowhere", "hoist must be 'inline', 'root'"),
        ("storage", "storage", [{"dimension": 0}], r"storage\[0\].align is missing"),
        (
            "storage",
            "bounds",
            [{"dimension": 0, "extent": 0, "modulus": 0}],
            r"bounds\[0\].modulus is 0",
        ),
        ("ring", "run_async", 1, "run_async must be true or false"),
    ],
)
def test_malformed_fields_are_named(case, field, value, message):
    data = to_data(CASES[case][1])
    data["funcs"][ACROSS][field] = value
    with pytest.raises(ScheduleError, match=message):
        from_data(data)
