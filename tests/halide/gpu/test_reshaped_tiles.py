"""At the end of a search, tiles are scaled step by step as long as the predicted time falls."""

from dataclasses import replace

import halide as hl
import pytest
from gpu_pipelines import analysed, bare

from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.gpu import time_search
from tilewright.halide.schedulers.analytic.gpu.changes import reshaped
from tilewright.halide.schedulers.analytic.gpu.group_times import GroupTimes
from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
from tilewright.halide.schedulers.analytic.gpu.plan import Options
from tilewright.halide.schedulers.analytic.gpu.time_search import TimeSearch
from tilewright.halide.schedulers.analytic.grouping import Group
from tilewright.machines import gpu

GPU = gpu("v100")
WIDTH, HEIGHT = 256, 128


def stencil():
    """A stencil of a stencil, with its input inlined."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    first, out = hl.Func("first"), hl.Func("out")
    first[x, y] = image[x, y] + image[x + 1, y] * 3.0 + image[x + 2, y + 2] * 2.0
    out[x, y] = first[x, y] + first[x, y + 1] * first[x + 1, y]
    out.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return load(out)


def searching(algorithm):
    inlined = frozenset(func.name for func in algorithm.funcs if bare(func.name) == "image_im")
    search = GroupingSearch(analysed(algorithm, specialize=True), GPU, inlined)
    return TimeSearch(GroupTimes(search), Options())


@pytest.fixture(scope="module")
def search():
    return searching(stencil())


def tiled(search, tile, points):
    """The group of both Funcs with a given tile and points per thread."""
    names = [f.name for f in search.search.view.funcs if bare(f.name) in ("first", "out")]
    options = Options(points=points, tiles=((names[-1], 0, tile),))
    (found,) = search._timed([(Group(tuple(names)), options)])
    return found


@pytest.mark.parametrize(
    ("factors", "points", "tile", "shape"),
    [
        ((2, 1, 1), (1, 1, 1), (64, 8), (1, 2)),
        ((1, 0.5, 1), (1, 1, 1), (32, 4), (1, 2)),
        ((2, 0.5, 1), (1, 1, 1), (64, 4), (1, 2)),
        ((1, 2, 1), (1, 2, 1), (32, 16), (1, 4)),
        ((1, 0.5, 1), (1, 0.5, 1), (32, 4), (1, 1)),
        ((0.75, 1, 1), (1, 1, 1), (24, 8), (1, 2)),
    ],
)
def test_a_tile_is_scaled_with_its_points(search, factors, points, tile, shape):
    each = tiled(search, (32, 8), (1, 2))
    assert each.plan.kernels[0].tile == (32, 8)
    options = reshaped(each, 0, factors, points)
    assert [place[2] for place in options.tiles] == [tile]
    assert options.points == shape
    (found,) = search._timed([(each.group, options)])
    assert found.plan.kernels[0].tile == tile
    assert found.plan.kernels[0].registers == shape


def test_a_tile_is_scaled_along_z_with_its_points():
    x, y, z = hl.vars("x y z")
    image = hl.ImageParam(hl.Float(32), 3, "image")
    out = hl.Func("out")
    out[x, y, z] = image[x, y, z] + image[x, y, z + 1]
    out.set_estimates([(0, 128), (0, 128), (0, 64)])
    search = searching(load(out))
    (name,) = [f.name for f in search.search.view.funcs if bare(f.name) == "out"]
    options = Options(points=(1, 1, 2), tiles=((name, 0, (32, 4, 8)),))
    (each,) = search._timed([(Group((name,)), options)])
    scaled = reshaped(each, 0, (1, 1, 2), (1, 1, 2))
    (found,) = search._timed([(each.group, scaled)])
    assert found.plan.kernels[0].tile == (32, 4, 16)
    assert found.plan.kernels[0].registers == (1, 1, 4)
    # Eight points along z are the most, and sixteen along y and z.
    assert reshaped(found, 0, (1, 1, 2), (1, 1, 2)) is not None
    assert reshaped(found, 0, (1, 1, 4), (1, 1, 4)) is None
    assert reshaped(found, 0, (1, 4, 1), (1, 4, 1)) is not None
    assert reshaped(found, 0, (1, 8, 1), (1, 8, 1)) is None


@pytest.mark.parametrize(
    ("factors", "points"),
    [
        ((1, 1, 2), (1, 1, 1)),  # There is no z.
        ((1, 0.125, 1), (1, 1, 1)),  # One row is less than two points.
        ((16, 1, 1), (1, 1, 1)),  # Wider than the image.
        ((1, 2, 1), (1, 8, 1)),  # More points than a thread may compute.
        ((0.75, 1, 1), (0.75, 1, 1)),  # Three quarters of a point.
    ],
)
def test_impossible_shapes_are_not_tried(search, factors, points):
    assert reshaped(tiled(search, (32, 8), (1, 2)), 0, factors, points) is None


def test_scaling_goes_on_while_the_time_falls(search):
    start = search._made([tiled(search, (8, 2), (1, 1))])
    found = search._climbed(start, search.times.spent + 1000)
    assert found.seconds < start.seconds
    # Nothing is tried without effort left.
    assert search._climbed(start, search.times.spent) is start


def test_a_scaled_tile_must_not_leave_an_sm_with_one_block(search, monkeypatch):
    start = search._made([tiled(search, (8, 2), (1, 1))])
    timed = search.times.timed
    # As if every larger block were alone on its SM.
    monkeypatch.setattr(
        search.times,
        "timed",
        lambda wanted: [each and replace(each, lone=True) for each in timed(wanted)],
    )
    assert search._climbed(start, search.times.spent + 1000) is start
    # It may if the schedule's own blocks are alone.
    alone = search._made([replace(start.groups[0], lone=True)])
    assert search._climbed(alone, search.times.spent + 1000).seconds < start.seconds


def test_the_last_step_of_a_search_scales_tiles(monkeypatch):
    without = replace(time_search.SEARCH, tile_steps=0)
    slower = []
    for limits in (time_search.SEARCH, without):
        monkeypatch.setattr(time_search, "SEARCH", limits)
        slower.append(searching(stencil()).best().seconds)
    assert slower[0] < slower[1]
