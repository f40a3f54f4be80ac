"""Loops at whose variable a predicate reads: they are not split, so that it reads no further."""

import halide as hl
import numpy as np
import pytest
from schedule_cases import complete, nest, place, split

from tilewright.halide.emit.apply import apply
from tilewright.halide.execution.runner import prepare_target
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.schedule import ROOT, FuncSchedule, Fuse, Level
from tilewright.halide.legality.check import check
from tilewright.halide.legality.overreach import predicate_reads
from tilewright.halide.legality.sizes import requirements
from tilewright.halide.schedulers.masked_loops import with_exact_predicates
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task

ROWS, LONGEST = 3000, 16


def ragged_sums(planes=False):
    """Sums of rows of different lengths; ``start`` says where each one begins."""
    i, c = hl.vars("i c")
    start, values = hl.ImageParam(hl.Int(32), 1, "start"), hl.ImageParam(hl.Float(32), 1, "values")
    values.dim(0).set_estimate(0, ROWS * LONGEST)
    r = hl.RDom([(0, LONGEST)], "r")
    r.where(start[i] + r < start[i + 1])
    out = hl.Func("out")
    at = (i, c) if planes else (i,)
    out[at] = 0.0
    out[at] += values[hl.clamp(start[i] + r, 0, values.dim(0).extent() - 1)]
    out.set_estimates([(0, ROWS), (0, 3)][: len(at)])
    return out, start, values


def read_of_start(out, start, values, extents, target):
    values.set(hl.Buffer(np.zeros(100, np.float32)))
    start.reset()
    hl.Pipeline([out]).infer_input_bounds(hl.Buffer(hl.Float(32), extents), target)
    found = start.get().dim(0)
    return found.min(), found.extent()


def neighbours(planes=False):
    """Differences of sums of rows; the sums are at root, and do not begin at 0."""
    sums, start, values = ragged_sums(planes)
    out, at = hl.Func("differences"), hl.vars("i c")[: 1 + planes]
    out[at] = sums[(at[0] + 5, *at[1:])] - sums[(at[0] + 2, *at[1:])]
    out.set_estimates([(0, ROWS), (0, 3)][: len(at)])
    return out, start, values


@pytest.mark.parametrize("build", [ragged_sums, neighbours])
@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize("target", ["host", pytest.param("host-opencl", marks=pytest.mark.opencl)])
@pytest.mark.few(3)
def test_no_schedule_reads_further_than_the_plain_pipeline(build, planes, target):
    task = make_task(hl.Pipeline([build(planes)[0]]), target=target)
    for planned in plan(task, k=3):
        assert requirements(planned.schedule, task.algorithm) == ()
        for rows in (1, 33, ROWS - 1, ROWS):
            extents = [rows, 3] if planes else [rows]
            out, start, values = build(planes)
            again, own_start, own_values = build(planes)
            plain = read_of_start(again, own_start, own_values, extents, hl.get_host_target())
            apply(planned.schedule, task.algorithm, hl.Pipeline([out]))
            halide_target = prepare_target(target)
            assert read_of_start(out, start, values, extents, halide_target) == plain


CASES = {
    "tiles": (
        nest(split("v0", 64), order="v0i r0 v0o:parallel v1"),
        "v0ii v0io r0 v0o:parallel v1",
    ),
    "vectors": (
        nest(split("v0", 8), order="v0i:vectorized r0 v0o:parallel v1"),
        "v0i:vectorized r0 v0o v0oo:parallel v1",
    ),
    "blocks": (
        nest(
            split("v0", 64),
            split("v0i", 16),
            split("v0ii", 8),
            order="v0iii:vectorized v0iio:unrolled r0 v0io v0o v1:parallel",
        ),
        "v0iii:vectorized r0 v0io v0o v1:parallel",
    ),
    "a prime": (nest(split("v0", 7), order="v0i r0 v0o v1"), "r0 v0:serial/never v1"),
    "other": (
        nest(split("v0", 7), split("v1", 2), order="v0i v1i:unrolled r0 v0o:parallel v1o"),
        "v1i:unrolled r0 v0:parallel/never v1o",
    ),
    "fused": (
        nest(split("v0", 64), Fuse("v0o", "v1", "both"), order="v0i r0 both:parallel"),
        "r0 v0 v1:parallel",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_loops_at_whose_variable_the_predicate_reads_are_split_twice_or_whole(case):
    stage, order = CASES[case]
    algorithm = load(hl.Pipeline([ragged_sums(planes=True)[0]]))
    out = place(algorithm, "out")
    plain = nest(order="v0 v1")
    schedule = complete(algorithm, "host", [FuncSchedule(out, ROOT, ROOT, stages=(plain, stage))])
    assert check(schedule, algorithm) == []
    assert [need.multiple for need in requirements(schedule, algorithm)] == [stage.splits[0].factor]
    whole = with_exact_predicates(schedule, algorithm)
    (entry,) = (entry for entry in whole.funcs if entry.func == out)
    assert entry.stages[1].loops == nest(order=order).loops
    assert check(whole, algorithm) == []
    assert requirements(whole, algorithm) == ()


def test_members_of_a_loop_that_is_whole_now_are_computed_at_it():
    i = hl.Var("i")
    start, data = hl.ImageParam(hl.Int(32), 1, "start"), hl.ImageParam(hl.Int(32), 1, "data")
    r = hl.RDom([(0, LONGEST)], "r")
    r.where(start[i] + r < start[i + 1])
    out, weight = hl.Func("out"), hl.Func("weight")
    weight[i] = data[i] * data[i]
    out[i] = 0
    out[i] += weight[i] * r
    out.set_estimates([(0, ROWS)])
    algorithm = load(hl.Pipeline([out]))
    reader = place(algorithm, "out")
    stage = nest(split("v0", 7), order="v0i r0 v0o:parallel")
    level = Level("at", reader, 1, "v0o")
    schedule = complete(
        algorithm,
        "host",
        [
            FuncSchedule(reader, ROOT, ROOT, stages=(nest(order="v0"), stage)),
            FuncSchedule(place(algorithm, "weight"), level, level),
        ],
    )
    assert check(schedule, algorithm) == []
    whole = with_exact_predicates(schedule, algorithm)
    (member,) = (entry for entry in whole.funcs if entry.compute.kind == "at")
    assert (member.compute.loop, member.store.loop) == ("v0", "v0")
    assert check(whole, algorithm) == []


def test_predicates_that_read_clamped_coordinates_leave_loops_split():
    i = hl.Var("i")
    start = hl.ImageParam(hl.Int(32), 1, "start")
    r = hl.RDom([(0, LONGEST)], "r")
    r.where(start[hl.clamp(i, 0, start.dim(0).extent() - 1)] < r)
    out = hl.Func("out")
    out[i] = 0
    out[i] += r * i
    out.set_estimates([(0, ROWS)])
    assert predicate_reads(load(hl.Pipeline([out]))) == frozenset()
