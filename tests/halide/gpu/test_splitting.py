"""Reductions with few outputs are split into partial results that fill the GPU."""

import functools
from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_scheduler import TIMED, assert_right

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.emit.apply import apply, halide_target
from tilewright.halide.execution.lowering import refusal
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.schedule import Clone, Factored
from tilewright.halide.legality.check import Limits, check
from tilewright.halide.schedulers.analytic.gpu import scheduler
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.halide.schedulers.analytic.gpu.splitting import (
    SHAPES,
    idle_reductions,
    split_reductions,
)
from tilewright.machines import gpu

A100 = gpu("a100")
LIMITS = Limits(512, 48 * 1024)
ROOM = float(A100.sms * A100.max_threads_per_sm)
x, y = hl.vars("x y")


def whole(width=1000, height=700, kind="sum"):
    """One value of a whole image: an output without dimensions."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r = hl.RDom([(0, image.width()), (0, image.height())], "r")
    total = hl.Func("total")
    pixel = image[r.x, r.y]
    if kind == "sum":
        total[()] = 0.0
        total[()] += pixel
    elif kind == "maximum":
        total[()] = hl.f32(0.0)
        total[()] = hl.max(total[()], pixel)
    else:
        total[()] = (hl.f32(-1.0), 0)
        place = r.x + r.y * image.width()
        old = total[()]
        total[()] = (hl.max(old[0], pixel), hl.select(old[0] > pixel, old[1], place))
    image.set_estimates([(0, width), (0, height)])
    return load(hl.Pipeline(total))


def norms(width=30000, rows=5):
    """The lengths of a few long rows."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r = hl.RDom([(0, image.width())], "r")
    squares, norm = hl.Func("squares"), hl.Func("norm")
    squares[y] = 0.0
    squares[y] += image[r, y] * image[r, y]
    norm[y] = hl.sqrt(squares[y])
    image.set_estimates([(0, width), (0, rows)])
    norm.set_estimates([(0, rows)])
    return load(hl.Pipeline(norm))


def blurred_sum(width=400, height=300):
    """A sum of what another Func computes, and an image that reads it."""
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    r = hl.RDom([(1, width - 2), (0, height)], "r")
    across, total, out = hl.Func("across"), hl.Func("total"), hl.Func("out")
    across[x, y] = hl.i32(image[x - 1, y]) + image[x, y] + image[x + 1, y]
    total[()] = 0
    total[()] += across[r.x, r.y] * across[r.x, r.y]
    out[x, y] = hl.i32(image[x, y]) - total[()] / (width * height)
    image.set_estimates([(0, width), (0, height)])
    out.set_estimates([(0, width), (0, height)])
    return load(hl.Pipeline(out))


def base_of(algorithm):
    return Analysis(
        View(algorithm), estimated_boxes(View(algorithm)), algorithm.symbols, specialize=True
    )


def added(algorithm, shape):
    names = [func.name for func in algorithm.funcs]
    base = base_of(algorithm)
    return split_reductions(base, idle_reductions(base, names, ROOM / 8.0), shape)


BUILDERS = {
    "sum": whole,
    "maximum": lambda: whole(kind="maximum"),
    "position": lambda: whole(kind="position"),
    "norms": norms,
    "blurred sum": blurred_sum,
}


@functools.cache
def built(name):
    return BUILDERS[name]()


@functools.cache
def planned_for(name, machine):
    """The schedule that the search chooses: it is the same for all tests, and takes seconds."""
    (planned,) = schedule_gpu(built(name), machine)
    return planned


# Of the kinds of reductions, those that differ most; the search takes seconds for each.
def builders(*quick):
    """All of them, of which only those named run where not everything does."""
    marks = {name: () if name in quick else pytest.mark.thorough for name in BUILDERS}
    return [pytest.param(name, marks=marks[name]) for name in BUILDERS]


REDUCTIONS = builders("sum", "position")


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.few(1)
def test_reductions_that_leave_the_gpu_idle_are_split(name):
    algorithm, planned = built(name), planned_for(name, A100)
    assert any(isinstance(entry, Factored) for entry in planned.schedule.clones)
    assert not check(planned.schedule, algorithm, Limits(1024, 48 * 1024))
    assert not refusal(planned.schedule, algorithm)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_the_prediction_decides(name, monkeypatch):
    ours = planned_for(name, A100)
    monkeypatch.setattr(scheduler, "SHAPES", ())
    (without,) = schedule_gpu(built(name), A100)
    assert not any(isinstance(entry, Factored) for entry in without.schedule.clones)
    assert ours.cost < without.cost


def test_pipelines_with_many_funcs_are_left_as_they_are(monkeypatch):
    algorithm = whole()
    few = replace(scheduler.SEARCH, most_funcs_split=len(algorithm.funcs) - 1)
    monkeypatch.setattr(scheduler, "SEARCH", few)
    (planned,) = schedule_gpu(algorithm, A100)
    assert not planned.schedule.clones


def test_reductions_with_many_outputs_are_not():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r = hl.RDom([(0, 64)], "r")
    total = hl.Func("total")
    total[x, y] = 0.0
    total[x, y] += image[x + r, y]
    image.set_estimates([(0, 2063), (0, 2000)])
    total.set_estimates([(0, 2000), (0, 2000)])
    assert added(load(hl.Pipeline(total)), (256,)) == ()


def test_short_reductions_and_scattering_ones_are_not():
    assert added(whole(16, 16), (256,)) == ()
    image, r = hl.ImageParam(hl.UInt(8), 2, "image"), hl.RDom([(0, 4000), (0, 4000)], "r")
    bins = hl.Func("bins")
    bins[x] = 0
    bins[hl.i32(image[r.x, r.y])] += 1
    image.set_estimates([(0, 4000), (0, 4000)])
    bins.set_estimates([(0, 256)])
    assert added(load(hl.Pipeline(bins)), (256,)) == ()


def test_neighbouring_threads_read_neighbouring_values():
    (first, second, *wrappers) = added(norms(), (1024, 32))
    assert first.rvars == ("r0ii", "r0o")
    assert [(split.old, split.factor) for split in first.splits] == [("r0", 7680), ("r0i", 256)]
    assert second.rvars == ("r0i",)
    assert all(isinstance(wrapper, Clone) and wrapper.wrapper for wrapper in wrappers)


def test_positions_are_reduced_in_order():
    algorithm = whole(kind="position")
    steps = [entry for entry in added(algorithm, (4096, 64)) if isinstance(entry, Factored)]
    assert [entry.rvars for entry in steps] == [("r0o", "r1"), ("r1o",)]


def test_a_pipeline_that_is_split_already_is_left_as_it_is():
    algorithm = norms()
    extended = with_clones(algorithm, added(algorithm, (256,)))
    (planned,) = schedule_gpu(extended, A100)
    assert planned.schedule.clones == added(algorithm, (256,))


@pytest.mark.parametrize(
    "condition",
    [
        *("r < i", "2 * r < i + 5"),
        *(pytest.param(each, marks=pytest.mark.thorough) for each in ("r >= i", "r / 4 < i")),
    ],
)
@pytest.mark.few(1)
def test_halide_lowers_partial_results_under_conditions_on_two_loops(condition):
    i, image, f = hl.Var("i"), hl.ImageParam(hl.Float(32), 1, "image"), hl.Func("f")
    r = hl.RDom([(0, 5000)], "r")
    r.where(eval(condition, {"r": r.x, "i": i}))
    f[i] += hl.abs(image[i] - image[r])
    for each in (image, f):
        each.set_estimates([(0, 5000)])
    algorithm = load(f)
    plans = schedule_gpu(algorithm, gpu("v100"), k=4)
    assert any(isinstance(copy, Factored) for copy in plans[0].schedule.clones)
    assert [refusal(planned.schedule, algorithm) for planned in plans] == [""] * len(plans)


@pytest.mark.opencl
@pytest.mark.parametrize("name", builders("position"))
def test_the_answers_are_right(name):
    algorithm, planned = built(name), planned_for(name, TIMED)
    assert any(isinstance(entry, Factored) for entry in planned.schedule.clones)
    assert not check(planned.schedule, algorithm, LIMITS)
    assert_right(algorithm, planned.schedule)


@pytest.mark.opencl
@settings(deadline=None, max_examples=4, suppress_health_check=[HealthCheck.too_slow])
@given(
    build=st.sampled_from(
        (
            lambda w, h: whole(w, h),
            lambda w, h: whole(w, h, "position"),
            lambda w, h: norms(w * h // 3, 3),
            blurred_sum,
        )
    ),
    width=st.integers(90, 900),
    height=st.integers(90, 400),
    shape=st.sampled_from(SHAPES[:4]),
)
@pytest.mark.thorough
def test_every_shape_is_right_at_any_size(build, width, height, shape):
    algorithm = build(width, height)
    base = base_of(algorithm)
    idle = idle_reductions(base, [func.name for func in algorithm.funcs], 1000.0)
    assert idle
    extended = with_clones(algorithm, split_reductions(base, idle, shape))
    (planned,) = schedule_gpu(extended, TIMED)
    assert not check(planned.schedule, algorithm, LIMITS)
    assert_right(algorithm, planned.schedule)


@pytest.mark.opencl
@pytest.mark.parametrize(("width", "height"), [(1, 1), (37, 5), (255, 700), (1500, 33)])
@pytest.mark.few(2)
def test_other_sizes_than_those_expected_are_right(width, height):
    algorithm, planned = built("sum"), planned_for("sum", TIMED)
    assert planned.schedule.clones
    pixels = np.random.default_rng(0).integers(0, 9, (height, width)).astype(np.float32)
    name = algorithm.parameters[0].name
    image = hl.ImageParam(hl.Float(32), 2, name)
    buffer = hl.Buffer(pixels)
    buffer.set_host_dirty(True)
    image.set(buffer)
    live = hl.deserialize_pipeline(algorithm.serialized, {name: image.parameter()})
    apply(planned.schedule, algorithm, live, same_bytes=True)
    total = hl.Buffer(hl.Float(32), [])
    live.realize(total, halide_target(planned.schedule.target))
    total.copy_to_host()
    assert total[()] == pixels.sum()
