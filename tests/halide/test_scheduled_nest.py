"""`ScheduledNest` against Halide's own lowering, against sizes worked by hand, and in rows."""

from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_schedules import schedules
from scheduled_pipelines import PIPELINES, imported

from tilewright.halide.analysis.bounds import Interval
from tilewright.halide.analysis.loop_ranges import part_of
from tilewright.halide.analysis.scheduled_nest import ScheduledNest, nest_analysis
from tilewright.halide.frontend.given import read_schedule
from tilewright.halide.frontend.source import serialized
from tilewright.halide.ir.algorithm import Span
from tilewright.halide.ir.nest import default_stage
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    FuncSchedule,
    Level,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)

SIZES = (83, 37, 3)


def sized(algorithm, sizes=SIZES):
    """The algorithm with these estimates of its outputs."""
    funcs = tuple(
        replace(func, estimates={a: Span(0, sizes[d]) for d, a in enumerate(func.args)})
        if func.name in algorithm.outputs
        else func
        for func in algorithm.funcs
    )
    return replace(algorithm, funcs=funcs)


ALGORITHMS = {name: sized(imported(build())) for name, build in PIPELINES.items()}


@pytest.fixture(scope="module")
def conformance():
    # Importing it makes Halide print what it does, where that has not been used before.
    from support import nest_conformance

    with nest_conformance.Lowering() as lowering:
        yield lambda algorithm, schedule: nest_conformance.compare(
            algorithm, schedule, lowering(algorithm, schedule)
        )


@pytest.mark.parametrize("name", PIPELINES)
@settings(
    deadline=None,
    max_examples=12,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
@pytest.mark.few(2)
def test_loops_and_allocations_are_those_of_halides_lowering(name, data, conformance):
    algorithm = ALGORITHMS[name]
    schedule = data.draw(schedules(algorithm))
    found = conformance(algorithm, schedule)
    assert found.error == ""
    assert found.loops > 0
    assert found.extent_mismatches == []
    assert found.allocation_mismatches == []


def blur_schedule(tile, tail="shift_inwards"):
    """A blur in tiles of its output, with the other Func computed in each."""
    algorithm = ALGORITHMS["blur"]
    # By place: names are numbered where others of this process have taken them.
    across, blurred = 1, 2
    nest = StageSchedule(
        (Split("v0", "xo", "xi", tile[0], tail), Split("v1", "yo", "yi", tile[1], tail)),
        (
            ScheduledLoop("xi", "vectorized"),
            ScheduledLoop("yi"),
            ScheduledLoop("xo"),
            ScheduledLoop("yo", "parallel"),
        ),
    )
    level = Level("at", blurred, 0, "xo")
    func = algorithm.funcs[across]
    inner = FuncSchedule(across, level, level, stages=(default_stage(func, func.stages[0]),))
    outer = FuncSchedule(blurred, ROOT, ROOT, stages=(nest,))
    image = FuncSchedule(0, INLINE, INLINE)
    return algorithm, Schedule(algorithm.digest, "host", (image, inner, outer))


def extents(nest):
    return {
        (loop.stage[0], loop.name): np.broadcast_to(loop.extent, (1,)).tolist()[0]
        for loop in nest.loops
    }


def test_a_blur_in_tiles_by_hand():
    algorithm, schedule = blur_schedule((16, 8))
    nest = ScheduledNest(nest_analysis(algorithm, schedule), schedule)
    assert extents(nest) == {
        (2, "yo"): 5.0,  # 37 rows in tiles of 8
        (2, "xo"): 6.0,  # 83 columns in tiles of 16
        (1, "v1"): 10.0,  # a tile's 8 rows and two more
        (1, "v0"): 16.0,
        (2, "yi"): 8.0,
        (2, "xi"): 16.0,
    }
    (across,) = nest.allocations
    assert across.bytes == 16 * 10 * 2
    assert across.path == (((2, 0), "yo"), ((2, 0), "xo"))
    assert not across.slides
    row = next(loop for loop in nest.loops if loop.name == "yo")
    image = nest.touched_in(row)["image"]
    assert [part.extent for part in image] == [85.0, 10.0]


def test_a_tile_is_the_most_that_can_be_allocated_where_its_ends_stand_still():
    algorithm, schedule = blur_schedule((16, 8))
    nest = ScheduledNest(nest_analysis(algorithm, schedule), schedule)
    (across,) = nest.allocations
    assert nest.at_most(across) == across.extents == (16.0, 10.0)


@pytest.mark.parametrize(
    ("tail", "at", "rows"),
    [
        ("shift_inwards", 1.0, 10.0),
        ("guard_with_if", 1.0, 7.0),  # 37 = 4 * 8 + 5, and two more
        ("round_up", 1.0, 10.0),
        ("guard_with_if", 0.0, 10.0),
    ],
)
def test_the_last_tile_is_as_the_tail_makes_it(tail, at, rows):
    algorithm, schedule = blur_schedule((16, 8), tail)
    nest = ScheduledNest(nest_analysis(algorithm, schedule), schedule, at=at)
    assert extents(nest)[1, "v1"] == rows


@pytest.mark.parametrize("name", PIPELINES)
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_rows_of_factors_are_what_each_row_is_alone(name, data):
    algorithm = ALGORITHMS[name]
    schedule = data.draw(schedules(algorithm))
    analysis = nest_analysis(algorithm, schedule)
    places = [
        (e, s, i)
        for e, entry in enumerate(schedule.funcs)
        for s, nest in enumerate(entry.stages)
        for i, change in enumerate(nest.splits)
        if isinstance(change, Split)
    ]
    sizes = st.lists(st.sampled_from((1.0, 2.0, 3.0, 4.0, 7.0, 16.0)), min_size=3, max_size=3)
    factors = {place: np.array(data.draw(sizes)) for place in places}
    together = ScheduledNest(analysis, schedule, factors)
    for row in range(3):
        alone = ScheduledNest(analysis, schedule, {p: float(f[row]) for p, f in factors.items()})
        for ours, theirs in zip(together.loops, alone.loops, strict=True):
            assert np.broadcast_to(ours.extent, (3,))[row] == theirs.extent
        for many, one in zip(together.allocations, alone.allocations, strict=True):
            assert np.broadcast_to(many.bytes, (3,))[row] == one.bytes


def test_part_of_is_the_iteration_at_a_fraction_of_a_loop():
    assert [part_of(fraction, 10.0) for fraction in (0.0, 0.5, 1.0)] == [0.0, 4.0, 9.0]
    assert part_of(0.0, float("inf")) == 0.0
    extents = np.array([1.0, 10.0, np.inf])
    assert part_of(0.0, extents).tolist() == [0.0, 0.0, 0.0]
    assert part_of(1.0, extents).tolist() == [0.0, 9.0, np.inf]


def test_an_extent_promised_of_each_production_does_not_bound_the_whole():
    x, xo, xi = (hl.Var(name) for name in ("x", "xo", "xi"))
    made, copied, output = (hl.Func(name) for name in ("made", "copied", "output"))
    made[x] = hl.cast(hl.Float(32), x)
    copied[x] = made[x] + made[x + 1]
    output[x] = copied[x] * 2.0
    output.set_estimates([(0, 64)])
    made.compute_root()
    output.compute_root().split(x, xo, xi, 8)
    copied.compute_at(output, xo).bound_extent(x, 8)
    read = read_schedule(serialized(hl.Pipeline(output)))
    nest = ScheduledNest(nest_analysis(read.algorithm, read.schedule), read.schedule)
    boxes = {read.algorithm.funcs[i].name: required.box for (i, _), required in nest.whole.items()}
    # Halide numbers a name that another Func of the process has.
    assert boxes[made.name()] == (Interval(0.0, 64.0),)
    assert boxes[copied.name()] == (Interval(0.0, 63.0),)
    inside = nest.touched_by(nest.structure.root.productions[-1])
    assert inside[copied.name()] == (Interval(0.0, 63.0),)
