"""Blocks load the windows of stencils into wrappers that they compute."""

import halide as hl
import pytest
from test_scheduler import TIMED, assert_right
from test_wrapped_reductions import base_of

from tilewright.halide.frontend.source import load
from tilewright.halide.ir.names import readable
from tilewright.halide.legality.check import Limits, check
from tilewright.halide.schedulers.analytic.gpu import scheduler
from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
from tilewright.halide.schedulers.analytic.gpu.plan import Options
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.halide.schedulers.analytic.gpu.wrapping import wrapped_windows
from tilewright.machines import gpu

A100 = gpu("a100")

x, y = hl.vars("x y")


def window(f, radius):
    taps = range(-radius, radius + 1)
    return [f[x + i, y + j] * (5 + i * j) for i in taps for j in taps]


def total(values):
    return sum(values[1:], values[0])


def chain(width=1536, height=2560, radius=2, stages=3):
    image = hl.ImageParam(hl.UInt(16), 2, "image")
    f = hl.Func("first")
    f[x, y] = hl.u16(image[x, y] + image[x + 1, y])
    for i in range(stages):
        g = hl.Func(f"stencil_{i}")
        g[x, y] = hl.u16(total(window(f, radius)))
        f = g
    border = stages * radius
    image.set_estimates([(-border, width + 2 * border + 1), (-border, height + 2 * border)])
    f.set_estimates([(0, width), (0, height)])
    return load(hl.Pipeline(f))


def read_twice(width=1536, height=2560):
    """Two outputs read windows of one Func."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    f, a, b = hl.Func("f"), hl.Func("a"), hl.Func("b")
    f[x, y] = hl.sqrt(image[x, y]) + hl.sqrt(image[x + 1, y])
    a[x, y] = total(window(f, 1))
    b[x, y] = total(window(f, 1)) * 2
    image.set_estimates([(-1, width + 3), (-1, height + 2)])
    for out in (a, b):
        out.set_estimates([(0, width), (0, height)])
    return load(hl.Pipeline([a, b]))


def found(algorithm):
    """The Funcs that get a wrapper where every Func is a kernel."""
    search = GroupingSearch(base_of(algorithm), A100, frozenset())
    plans = [kernel for plan in search.plans(Options("none")) for kernel in plan.kernels]
    wrappers = wrapped_windows(search.analysis, plans)
    return [readable(algorithm.funcs[clone.func].name) for clone in wrappers]


def test_which_funcs_get_a_wrapper():
    assert found(chain()) == ["first", "stencil_0", "stencil_1"]
    assert found(chain(stages=1)) == ["first"]
    assert found(read_twice()) == []


def test_small_windows_do_not():
    f, out = hl.Func("f"), hl.Func("out")
    f[x, y] = hl.sqrt(hl.f32(x * y))
    out[x, y] = f[x - 1, y] + f[x, y] + f[x + 1, y] + f[x, y - 1] + f[x, y + 1]
    out.set_estimates([(0, 64), (0, 64)])
    assert found(load(out)) == []


@pytest.mark.thorough
def test_windows_are_shared_where_that_is_faster(monkeypatch):
    algorithm = chain(stages=6)
    (ours,) = schedule_gpu(algorithm, A100)
    entries = {entry.func: entry for entry in ours.schedule.funcs}
    assert ours.schedule.clones
    assert not check(ours.schedule, algorithm, Limits(1024, 48 * 1024))
    memories = {entry.memory for entry in entries.values()}
    assert "gpu_shared" in memories or "register" in memories
    monkeypatch.setattr(scheduler, "wrapped_windows", lambda *_: ())
    (without,) = schedule_gpu(algorithm, A100)
    assert not without.schedule.clones
    assert ours.cost < without.cost


@pytest.mark.opencl
def test_the_answers_are_right():
    algorithm = chain(256, 256, stages=6)
    (planned,) = schedule_gpu(algorithm, TIMED)
    assert planned.schedule.clones
    assert_right(algorithm, planned.schedule)
