"""Reductions that would have kernels of their own are computed in a wrapper's threads."""

from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from gpu_pipelines import matmul
from test_scheduler import TIMED, assert_right

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.execution.lowering import refusal
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.names import readable
from tilewright.halide.legality.check import Limits, check
from tilewright.halide.schedulers.analytic.gpu import scheduler
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.gpu.kernel import FusedKernel
from tilewright.halide.schedulers.analytic.gpu.nested import optimize_granularity
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.halide.schedulers.analytic.gpu.time_search import TimeSearch
from tilewright.halide.schedulers.analytic.gpu.wrapping import wrapped_reductions
from tilewright.halide.schedulers.prediction import predicted
from tilewright.halide.schedulers.task import Task
from tilewright.machines import gpu

A100 = gpu("a100")


def filtered(size=512, taps=64, channels=4):
    """A long filter, whose results are all read for every channel of the output."""
    image, weights = hl.ImageParam(hl.Float(32), 2, "image"), hl.ImageParam(hl.Float(32), 1, "w")
    mixing = hl.ImageParam(hl.Float(32), 1, "mixing")
    x, y, c = hl.vars("x y c")
    r, s = hl.RDom([(0, taps)], "r"), hl.RDom([(-1, 3)], "s")
    total, out = hl.Func("total"), hl.Func("out")
    total[x, y] = 0.0
    total[x, y] += weights[r] * image[x + r, y]
    out[x, y, c] = mixing[c] * hl.maximum(total[x + s, y])
    image.set_estimates([(-1, size + taps + 1), (0, size)])
    weights.set_estimates([(0, taps)])
    mixing.set_estimates([(0, channels)])
    out.set_estimates([(0, size), (0, size), (0, channels)])
    return load(hl.Pipeline(out))


def pair(size=512, taps=64):
    """The largest value and where it is: two values that are reduced together."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y = hl.vars("x y")
    r = hl.RDom([(0, taps)], "r")
    best, out = hl.Func("best"), hl.Func("out")
    best[x, y] = (hl.f32(0.0), -1)
    better = image[x + r, y] > best[x, y][0]
    best[x, y] = (
        hl.select(better, image[x + r, y], best[x, y][0]),
        hl.select(better, r, best[x, y][1]),
    )
    out[x, y] = best[x, y][0] + best[x + 1, y][0] * best[x, y + 1][1]
    image.set_estimates([(0, size + taps + 1), (0, size + 1)])
    out.set_estimates([(0, size), (0, size)])
    return load(hl.Pipeline(out))


def counted(size=512):
    """A histogram: the reduction stores to points that depend on data."""
    image = hl.ImageParam(hl.UInt(8), 1, "image")
    x = hl.Var("x")
    r = hl.RDom([(0, size)], "r")
    bins, out = hl.Func("bins"), hl.Func("out")
    bins[x] = 0
    bins[hl.i32(image[r])] += 1
    out[x] = bins[x] + bins[255 - x]
    image.set_estimates([(0, size)])
    out.set_estimates([(0, 256)])
    return load(hl.Pipeline(out))


def base_of(algorithm):
    return Analysis(View(algorithm), estimated_boxes(View(algorithm)), algorithm.symbols)


def wrapped(algorithm, names=None):
    """The names of the Funcs that get a wrapper if `names`, or all, are outputs of kernels."""
    named = [func.name for func in algorithm.funcs] if names is None else names
    found = wrapped_reductions(base_of(algorithm), named)
    return [readable(algorithm.funcs[clone.func].name) for clone in found]


# --- which reductions ---------------------------------------------------------------------------


def test_reductions_that_are_read_are_wrapped():
    algorithm = filtered()
    assert "total" in wrapped(algorithm)
    assert wrapped(algorithm, algorithm.outputs) == []
    assert wrapped(pair()) == ["best"]


def test_outputs_and_scattering_stages_are_not():
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r = hl.RDom([(0, 64)], "r")
    total = hl.Func("total")
    total[x, y] = 0.0
    total[x, y] += image[x + r, y]
    image.set_estimates([(0, 575), (0, 512)])
    total.set_estimates([(0, 512), (0, 512)])
    assert wrapped(load(hl.Pipeline(total))) == []
    assert wrapped(counted()) == []


# --- what they gain -----------------------------------------------------------------------------


@pytest.mark.parametrize("build", [filtered, pair])
@pytest.mark.few(1)
def test_the_sums_are_in_registers(build):
    algorithm = build()
    (planned,) = schedule_gpu(algorithm, A100)
    entries = {entry.func: entry for entry in planned.schedule.funcs}
    assert planned.schedule.clones
    assert "register" in {entries[clone.func].memory for clone in planned.schedule.clones}
    assert not check(planned.schedule, algorithm, Limits(1024, 48 * 1024))


@pytest.mark.parametrize("build", [filtered, pair, matmul, counted])
@pytest.mark.few(2)
def test_wrappers_are_used_only_where_they_are_faster(build, monkeypatch):
    algorithm = build()
    (ours,) = schedule_gpu(algorithm, A100)
    monkeypatch.setattr(scheduler, "wrapped_reductions", lambda *_: ())
    (without,) = schedule_gpu(algorithm, A100)
    assert not without.schedule.clones
    if ours.schedule.clones:
        assert ours.cost < without.cost
    else:
        assert ours.schedule == without.schedule


@pytest.mark.parametrize(("slack", "refined"), [(0.0, 1), (1e9, 2)])
@pytest.mark.few(1)
def test_far_slower_wrappers_are_not_refined(slack, refined, monkeypatch):
    seen = []
    whole = TimeSearch._refined

    def counted_calls(search, made):
        seen.append(made)
        return whole(search, made)

    monkeypatch.setattr(TimeSearch, "_refined", counted_calls)
    monkeypatch.setattr(scheduler, "SEARCH", replace(SEARCH, wrapped_slack=slack))
    (planned,) = schedule_gpu(filtered(), A100)
    assert len(seen) == refined
    assert bool(planned.schedule.clones) == (refined == 2)


@pytest.mark.thorough
def test_a_wrapper_that_is_slower_is_not_used(monkeypatch):
    algorithm = filtered()
    best = scheduler.TimeSearch.best

    def dearer(search, *least):
        made = best(search, *least)
        if made is None or not search.search.algorithm.copies:
            return made
        return replace(made, seconds=made.seconds * 100)

    monkeypatch.setattr(scheduler.TimeSearch, "best", dearer)
    (planned,) = schedule_gpu(algorithm, A100)
    assert not planned.schedule.clones


def test_the_cost_of_a_plan_is_its_predicted_time():
    algorithm = filtered()
    (planned,) = schedule_gpu(algorithm, A100)
    task = Task(algorithm, A100.halide_target, A100, "test")
    assert planned.schedule.clones
    assert planned.cost == pytest.approx(predicted(task, planned.schedule).seconds, rel=0.05)


@pytest.mark.opencl
@pytest.mark.parametrize("build", [filtered, pair])
@pytest.mark.few(1)
def test_the_answers_are_right(build):
    algorithm = build(size=40, taps=9)
    plans = schedule_gpu(algorithm, TIMED, k=3)
    assert any(planned.schedule.clones for planned in plans)
    for planned in plans:
        assert_right(algorithm, planned.schedule)


# --- what Halide must be able to bound --------------------------------------------------------


def patches(size=64, *, known=False):
    """Sums over windows, whose size is a parameter unless `known`, of sums over three channels."""
    image = hl.ImageParam(hl.Float(32), 3, "image")
    width = hl.Param(hl.Int(32), "width", 7)
    x, y, c = hl.vars("x y c")
    colours, window = hl.RDom([(0, 3)], "colours"), hl.RDom([(0, 7 if known else width)], "window")
    each, column, out = hl.Func("each"), hl.Func("column"), hl.Func("out")
    each[x, y] = 0.0
    each[x, y] += image[x, y, colours] * image[x, y, colours]
    column[x, y] = 0.0
    column[x, y] += each[x, y + window]
    out[x, y, c] = column[x, y] + column[x + 1, y]
    width.set_estimate(7)
    image.set_estimates([(0, size + 1), (0, size + 6), (0, 3)])
    out.set_estimates([(0, size), (0, size), (0, 2)])
    return load(hl.Pipeline(out))


def nested_in_threads(algorithm, several):
    """The members inside threads, if all Funcs are in one kernel and all reductions wrapped."""
    names = [func.name for func in algorithm.funcs]
    extended = with_clones(algorithm, wrapped_reductions(base_of(algorithm), names))
    members = tuple(func.name for func in extended.funcs)
    kernel = FusedKernel(base_of(extended), members[-1], 0, members[:-1])
    return {readable(name) for name in optimize_granularity(kernel, several=several)}


def test_sums_are_not_in_threads_whose_loops_have_unknown_lengths():
    # With several points per thread, Halide could not bound how many sums the last thread has.
    assert "each" in nested_in_threads(patches(), several=False)
    assert "each" not in nested_in_threads(patches(), several=True)
    assert "each" in nested_in_threads(patches(known=True), several=True)


def test_an_operand_read_at_unknown_distances_is_not_copied():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y = hl.vars("x y")
    k = hl.RDom([(0, 512)], "k")
    product, out = hl.Func("product"), hl.Func("out")
    product[x, y] = 0.0
    product[x, y] += image[x, k] * image[y, k]
    out[x, y] = product[x, y]
    image.set_estimates([(0, 512), (0, 512)])
    out.set_estimates([(0, 512), (0, 512)])
    algorithm = load(hl.Pipeline(out))
    (planned,) = schedule_gpu(algorithm, A100)
    assert not refusal(planned.schedule, algorithm)


# --- tiny problems ------------------------------------------------------------------------------


def test_a_group_without_candidate_tiles_has_no_plan():
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r = hl.RDom([(0, 21)], "r")
    total, out = hl.Func("total"), hl.Func("out")
    total[y] = 0.0
    total[y] += hl.exp(image[r, y])
    out[x, y] = hl.exp(image[x, y]) / total[y]
    image.set_estimates([(0, 21), (0, 4)])
    out.set_estimates([(0, 21), (0, 4)])
    algorithm = load(hl.Pipeline(out))
    for planned in schedule_gpu(algorithm, A100, k=3):
        assert np.isfinite(planned.cost)
