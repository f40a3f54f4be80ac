"""Kernels whose threads compute several neighbouring points, of the output and of members."""

import halide as hl
import numpy as np
import pytest
from gpu_pipelines import analysed
from test_scheduler import SMALL_GPU, assert_right, example

from tilewright.halide.analysis.gpu_launches import launches
from tilewright.halide.analysis.scheduled_nest import sized_nest
from tilewright.halide.execution.lowering import refusal
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.schedule import Split
from tilewright.halide.legality.check import Limits, check
from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
from tilewright.halide.schedulers.analytic.gpu.inline import choose_inlined
from tilewright.halide.schedulers.analytic.gpu.plan import Options
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.machines import gpu

LIMITS = Limits(1024, 48 * 1024)
SHAPES = [(2, 1), (1, 4), (2, 2)]


def planned(algorithm, machine, points):
    base = analysed(algorithm, specialize=True)
    inlined = choose_inlined(base, cache_bytes=machine.l2_bytes, load_weight=1.0)
    with np.errstate(invalid="ignore", over="ignore"):
        search = GroupingSearch(base, machine, inlined)
        return search.plan(Options(points=points))


def copied(schedule):
    """The Funcs with a loop of points inside a thread, and how many points."""
    return {
        entry.func: [c.factor for c in nest.splits if isinstance(c, Split) and "_r" in c.inner]
        for entry in schedule.funcs
        for nest in entry.stages
        if any(isinstance(c, Split) and "_r" in c.inner for c in nest.splits)
    }


@pytest.mark.parametrize("points", SHAPES)
@pytest.mark.parametrize("name", ["harris", "unsharp", "stencil_chain"])
@pytest.mark.few(4)
def test_launches_are_as_predicted_and_halide_lowers_them(name, points):
    algorithm = example(name)
    plan = planned(algorithm, gpu("v100"), points)
    assert not check(plan.schedule, algorithm, LIMITS)
    assert refusal(plan.schedule, algorithm) == ""
    nest = sized_nest(algorithm, plan.schedule)
    assert nest is not None
    found = {
        (launch.func, launch.stage): (
            tuple(int(np.max(extent)) for extent in launch.block),
            int(np.max(launch.shared_bytes)),
        )
        for launch in launches(nest)
    }
    order = {name: i for i, name in enumerate(f.name for f in algorithm.funcs)}
    for group in plan.groups:
        key = order[group.output], group.stage
        assert found[key] == (tuple(group.threads), group.shared_bytes)


def test_members_in_shared_memory_take_fewer_threads_too():
    algorithm = example("harris")
    one, four = (planned(algorithm, gpu("v100"), points) for points in ((), (2, 2)))
    assert copied(one.schedule) == {}
    (kernel,) = four.groups
    members = len(kernel.funcs)
    assert members > 1
    assert len(copied(four.schedule)) == members
    assert all(factors == [2, 2] for factors in copied(four.schedule).values())
    # The tile is at least as large as the threads are many, four times over.
    assert 4 * np.prod(kernel.threads) >= np.prod(kernel.tile[:2])


@pytest.mark.opencl
@pytest.mark.parametrize(
    ("name", "points", "sizes"),
    [
        ("harris", (2, 2), {"width": 97, "height": 61}),
        ("stencil_chain", (1, 4), {"width": 101, "height": 67, "stencils": 3}),
    ],
)
@pytest.mark.few(1)
def test_answers_are_right(name, points, sizes):
    # Neither extent is a multiple of what a thread computes.
    algorithm = example(name, **sizes)
    plan = planned(algorithm, SMALL_GPU, points)
    assert copied(plan.schedule)
    assert_right(algorithm, plan.schedule)


def blurred():
    """A blur in two passes, whose first is divided and so differs in size from block to block."""
    image = hl.ImageParam(hl.UInt(16), 2, "image")
    x, y = hl.vars("x y")
    edge = hl.BoundaryConditions.repeat_edge(image)
    across, out = hl.Func("across"), hl.Func("out")
    across[x, y] = (edge[x - 1, y] + edge[x, y] + edge[x + 1, y]) / 3
    out[x, y] = across[x / 2, y] + across[x / 2 + 1, y] + across[x / 2, y + 1]
    out.set_estimates([(0, 203), (0, 119)])
    image.set_estimates([(0, 203), (0, 119)])
    return load(hl.Pipeline(out))


@pytest.mark.opencl
def test_members_of_changing_size_are_right():
    algorithm = blurred()
    plan = planned(algorithm, SMALL_GPU, (2, 2))
    assert copied(plan.schedule)
    assert_right(algorithm, plan.schedule)


def heat(width, height, depth):
    """Two steps of a three-dimensional stencil of seven points."""
    image = hl.ImageParam(hl.Float(32), 3, "image")
    x, y, z = hl.vars("x y z")
    before = hl.BoundaryConditions.repeat_edge(image)
    for name in ("once", "twice"):
        after = hl.Func(name)
        around = before[x - 1, y, z] + before[x + 1, y, z] + before[x, y - 1, z]
        around += before[x, y + 1, z] + before[x, y, z - 1] + before[x, y, z + 1]
        after[x, y, z] = before[x, y, z] * 0.25 + around * 0.125
        before = after
    sizes = [(0, width), (0, height), (0, depth)]
    before.set_estimates(sizes)
    image.set_estimates(sizes)
    return load(hl.Pipeline(before))


def factors_along(schedule, dimension):
    """The points per thread of all nests along a dimension of their Func."""
    return {
        change.factor
        for entry in schedule.funcs
        for nest in entry.stages
        for change in nest.splits
        if isinstance(change, Split) and change.inner == f"v{dimension}_r"
    }


def test_a_search_finds_points_along_z():
    (found,) = schedule_gpu(heat(128, 128, 128), gpu("v100"))
    assert max(factors_along(found.schedule, 2), default=1) > 1


@pytest.mark.opencl
def test_points_along_z_are_right():
    # No extent is a multiple of what a thread computes.
    algorithm = heat(67, 65, 71)
    plan = planned(algorithm, SMALL_GPU, (1, 1, 4))
    assert factors_along(plan.schedule, 2) == {4}
    assert_right(algorithm, plan.schedule)


def test_several_plans_include_threads_with_more_points():
    plans = schedule_gpu(example("harris"), gpu("v100"), k=5, objective="sioutas")
    assert [bool(copied(plan.schedule)) for plan in plans].count(True) >= 1
    assert not copied(plans[0].schedule)
