"""Groups are merged with their only readers where that is predicted to be faster."""

import halide as hl
import pytest
from gpu_pipelines import analysed, bare

from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.gpu import group_times
from tilewright.halide.schedulers.analytic.gpu.group_times import GroupTimes
from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
from tilewright.halide.schedulers.analytic.gpu.merging import (
    merged_options,
    only_readers,
    sizes_vary,
)
from tilewright.halide.schedulers.analytic.gpu.plan import Options
from tilewright.halide.schedulers.analytic.gpu.time_search import TimeSearch
from tilewright.halide.schedulers.analytic.grouping import Group
from tilewright.machines import gpu

GPU = gpu("v100")
SIZE = 512
x, y = hl.vars("x y")
image = hl.ImageParam(hl.Float(32), 2, "image")


def pipeline(read):
    """A stencil, and an output that `read` computes from it."""
    first, out = hl.Func("first"), hl.Func("out")
    first[x, y] = image[x, y] + image[x + 1, y] * 3.0 + image[x + 2, y + 2] * 2.0
    out[x, y] = read(first)
    out.set_estimates([(0, SIZE), (0, SIZE)])
    return load(out)


def stencil():
    return pipeline(lambda first: first[x, y] + first[x, y + 1] * first[x + 1, y])


def upsampled():
    return pipeline(lambda first: first[x / 8, y / 8] + first[x / 8 + 1, y / 8 + 1])


READS = {
    "stencil": (stencil, False),
    "upsampled": (upsampled, True),
    "one divided coordinate": (lambda: pipeline(lambda first: first[x, y / 2]), True),
    "downsampled": (lambda: pipeline(lambda first: first[2 * x, y] + first[2 * x + 1, y]), False),
    "quotient in the value": (lambda: pipeline(lambda first: first[x, y] / 8.0), False),
    "quotient in the index of loaded data": (
        lambda: pipeline(lambda first: first[hl.i32(hl.clamp(image[x / 2, y], 0, 9)), y]),
        False,
    ),
}


def searching(algorithm):
    inlined = frozenset(func.name for func in algorithm.funcs if bare(func.name) == "image_im")
    search = GroupingSearch(analysed(algorithm, specialize=True), GPU, inlined)
    return TimeSearch(GroupTimes(search), Options())


def both(algorithm):
    """The group of all Funcs but the input, in order."""
    return Group(tuple(func.name for func in algorithm.funcs if bare(func.name) != "image_im"))


def apart(search):
    """A schedule in which every Func is a group."""
    return search._start(Options("none"))


@pytest.mark.parametrize("name", READS)
def test_the_size_of_a_member_varies_if_a_coordinate_is_divided(name):
    make, varies = READS[name]
    algorithm = make()
    analysis = analysed(algorithm, specialize=True)
    assert sizes_vary(analysis, both(algorithm)) is varies
    # A Func alone has no members.
    assert not sizes_vary(analysis, Group((algorithm.outputs[0],)))


@pytest.mark.parametrize(("make", "points"), [(stencil, True), (upsampled, False)])
def test_merged_groups_are_tried_with_points_unless_sizes_vary(make, points):
    algorithm = make()
    group = both(algorithm)
    search = searching(algorithm)
    options = merged_options(search.search.analysis, group)
    assert {} in options
    assert any("points" in each for each in options) is points
    # The search tries only these.
    search._merged(apart(search))
    tried = [each.options.points for each in search._tried[group]]
    assert any(shape for shape in tried) is points


def test_a_group_is_merged_where_that_is_faster():
    search = searching(stencil())
    start = apart(search)
    merged = search._merged(start)
    assert [len(each.group.members) for each in start.groups] == [1, 1]
    assert [len(each.group.members) for each in merged.groups] == [2]
    assert merged.seconds < start.seconds


def test_a_merged_group_must_not_spill(monkeypatch):
    monkeypatch.setattr(
        group_times, "needed_registers", lambda kernel, _: 100.0 * (len(kernel.stages) > 1)
    )
    search = searching(stencil())
    start = apart(search)
    assert search._merged(start) is start


def test_only_a_group_with_one_reader_is_merged():
    first, left, right, out = (hl.Func(name) for name in ("first", "left", "right", "out"))
    first[x, y] = image[x, y] * image[x, y]
    left[x, y] = first[x, y] + first[x + 1, y]
    right[x, y] = first[x, y] * first[x, y + 1]
    out[x, y] = left[x, y + 1] - right[x + 1, y] + left[x, y]
    out.set_estimates([(0, SIZE), (0, SIZE)])
    search = searching(load(out))
    pairs = [
        (bare(one.group.output), bare(other.group.output), [bare(n) for n in group.members])
        for one, other, group in only_readers(search.search.view, apart(search).groups)
    ]
    assert sorted(pairs) == [("left", "out", ["left", "out"]), ("right", "out", ["right", "out"])]
