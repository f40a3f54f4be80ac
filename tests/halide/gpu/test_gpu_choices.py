"""Where a stage runs, and what is tried: thresholds of the GPU's search, one by one."""

import halide as hl
import numpy as np
import pytest
from gpu_pipelines import analysed, full

from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.gpu import grouping_search, scheduler
from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
from tilewright.halide.schedulers.analytic.gpu.kernel import FusedKernel
from tilewright.halide.schedulers.analytic.gpu.plan import Options
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.halide.schedulers.analytic.grouping import Group
from tilewright.machines import gpu

# 68 SMs of 1,024 threads: room for 69,632.
GPU = gpu("rtx2080ti")


def searching(output):
    algorithm = load(output)
    inlined = frozenset(f.name for f in algorithm.funcs if f.name.startswith("image_im"))
    return GroupingSearch(analysed(algorithm, specialize=True), GPU, inlined), full(
        algorithm, "output"
    )


def rows(width, height):
    """A histogram of every row."""
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    i, y = hl.vars("i y")
    r = hl.RDom([(0, width)], "r")
    output = hl.Func("output")
    output[i, y] = 0
    output[hl.i32(image[r, y]), y] += 1
    output.set_estimates([(0, 256), (0, height)])
    return output


@pytest.mark.parametrize(
    ("width", "height", "idle"),
    [
        (100, 8703, True),
        (100, 8704, False),  # an eighth of the room
        (8, 8703, False),  # 69,624 additions: not worth it
        (9, 8703, True),
    ],
)
def test_few_threads_leave_a_gpu_idle(width, height, idle):
    search, name = searching(rows(width, height))
    assert search._leaves_idle(FusedKernel(search.analysis, name, 1)) is idle


@pytest.mark.parametrize(("slow", "chosen"), [(2.9, False), (3.1, True)])
def test_atomic_additions_must_look_three_times_as_fast(monkeypatch, slow, chosen):
    search, name = searching(rows(1000, 100))

    def seconds(model, plan):
        return 1.0 if plan.kernel.atomic else slow

    monkeypatch.setattr(grouping_search, "predicted_seconds", seconds)
    plan = search._stage_plan(Group((name,)), 1, "powers", Options())
    assert plan.kernel.atomic is chosen


def recurrence(steps):
    """Every value depends on the one before."""
    image = hl.ImageParam(hl.Float(32), 1, "image")
    r = hl.RDom([(0, steps)], "r")
    output = hl.Func("output")
    output[()] = 0.0
    output[()] = output[()] * 0.5 + image[r]
    return output


@pytest.mark.parametrize(
    ("steps", "kind", "weight"), [(65536, "single_thread", 200), (65537, "host", 20)]
)
def test_a_long_recurrence_stays_on_the_host(steps, kind, weight):
    search, name = searching(recurrence(steps))
    plan = search._stage_plan(Group((name,)), 1, "powers", Options())
    assert plan.kind == kind
    # A product, a sum, and two loads
    assert plan.cost == steps * 4 * weight


def test_a_variation_inlines_less(monkeypatch):
    weights = []
    known = scheduler.choose_inlined

    def choose(*args, **options):
        weights.append(options["load_weight"])
        return known(*args, **options)

    monkeypatch.setattr(scheduler, "choose_inlined", choose)
    schedule_gpu(load(rows(64, 256)), GPU, k=100)
    assert sorted(set(weights)) == [0.25, 1.0]
    assert np.isfinite(weights).all()
