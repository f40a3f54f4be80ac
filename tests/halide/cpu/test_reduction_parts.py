"""Reductions with few results that run on all cores, in parts."""

import math
from dataclasses import replace

import halide as hl
import pytest
from answers import assert_right
from hypothesis import given
from hypothesis import strategies as st

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import estimated_boxes
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.schedule import Clone, Factored, Split
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.scheduler import (
    POLICIES,
    schedule_cpu,
    schedule_with,
)
from tilewright.halide.schedulers.analytic.cpu.splitting import split_reductions
from tilewright.halide.schedulers.analytic.reduction_parts import contiguous_parts
from tilewright.machines import CpuMachine

MACHINE = CpuMachine("test", "x86-64", 4, ("avx2",), 256, ())
x, y, c = hl.vars("x y c")


def reduced(kind, width=1000, height=700):
    """A reduction of an image to few values, read by another stage except as `output`."""
    image = hl.ImageParam(hl.UInt(8), 3, "image")
    r = hl.RDom([(0, width), (0, height)], "r")
    result, out = hl.Func("result"), hl.Func("out")
    pixel = image[r.x, r.y, c]
    if kind == "histogram":
        result[x, c] = 0
        result[hl.i32(pixel), c] += 1
        out[x, c] = result[x, c] * 2
    elif kind == "position":
        pixel, best = image[r.x, r.y, 0], result
        best[()] = (hl.u8(0), 0)
        place = r.x + r.y * width
        later = best[()]
        best[()] = (hl.max(later[0], pixel), hl.select(later[0] > pixel, later[1], place))
        out[x] = best[()][1] + x
    elif kind == "tuple":
        result[c] = (hl.i32(0), hl.u8(0))
        total, most = result[c][0], result[c][1]
        result[c] = (total + hl.i32(pixel), hl.max(most, pixel))
        out[c] = result[c][0] - result[c][1]
    elif kind == "with constant":
        result[c] = hl.i32(0)
        result[c] += hl.i32(pixel) * 2 + 1
        out[c] = result[c] / (width * height)
    else:
        if kind == "where":
            r.where(r.x <= r.y)
        result[c] = hl.f32(0.0)
        result[c] += hl.f32(pixel)
        out[c] = result[c] / (width * height)
    image.set_estimates([(0, width), (0, height), (0, 3)])
    last = result if kind == "output" else out
    bins = {"histogram": 256, "position": 8}
    last.set_estimates([(0, bins.get(kind, 3)), (0, 3)][: last.dimensions()])
    return load(hl.Pipeline(last))


def scheduled(algorithm, machine=MACHINE):
    return schedule_cpu(algorithm, machine)[0].schedule


def split_in(algorithm):
    return [entry for entry in scheduled(algorithm).clones if isinstance(entry, Factored)]


@pytest.mark.parametrize("kind", ["mean", "output", "histogram", "position"])
def test_parts_run_on_all_cores(kind):
    algorithm = reduced(kind)
    schedule = scheduled(algorithm)
    (entry,) = (each for each in schedule.clones if isinstance(each, Factored))
    # Parts are runs of rows.
    (split,) = entry.splits
    assert (split.old, entry.rvars) == ("r1", ("r1o",))
    parts = 700 / split.factor
    assert parts == int(parts)
    assert parts >= MACHINE.cores
    extended = with_clones(algorithm, schedule.clones)
    (name,) = extended.partials
    wrappers = [copy.name for copy in extended.copies if copy.wrapper]
    # A histogram's places depend on data: registers cannot hold them.
    assert len(wrappers) == (kind != "histogram")
    outer = extended.order[wrappers[0] if wrappers else name]
    (nests,) = (each.stages for each in schedule.funcs if each.func == outer)
    assert nests[-1].loops[-1].mapping == "parallel"


@pytest.mark.parametrize("kind", ["tuple", "with constant"])
@pytest.mark.parametrize("cores", [1, 4])
def test_neighbours_have_partial_results_where_halide_has_no_vectors(kind, cores):
    algorithm = reduced(kind)
    schedule = scheduled(algorithm, replace(MACHINE, cores=cores))
    (entry,) = (each for each in schedule.clones if isinstance(each, Factored))
    # Four vectors of eight values of 32 bits.
    assert entry.splits[-1] == Split("r0", "r0o", "r0i", 32, "guard_with_if")
    assert entry.rvars == (("r0i",) if cores == 1 else ("r0i", "r1o"))
    extended = with_clones(algorithm, schedule.clones)
    (partial,) = (extended.order[name] for name in extended.partials)
    (nests,) = (each.stages for each in schedule.funcs if each.func == partial)
    assert any(loop.mapping == "vectorized" for loop in nests[1].loops)


@pytest.mark.parametrize(
    ("kind", "width", "lanes"),
    [
        # Vectors have 8 values of 32 bits, and a step of a loop at least two of them.
        ("tuple", 15, 16),
        ("tuple", 7, 8),
        ("mean", 15, 16),
        ("mean", 8, 8),
        ("mean", 3, 4),
        ("mean", 2, None),
        # Three vectors and seven values one by one, or four vectors.
        ("mean", 31, 32),
        ("mean", 63, 32),
        # Twelve vectors, and four values one by one.
        ("mean", 100, None),
        # Conditions hide lanes, too.
        ("where", 3, None),
    ],
)
@pytest.mark.few(5)
def test_the_rest_of_a_loop_has_lanes(kind, width, lanes):
    schedule = scheduled(reduced(kind, width, height=90000))
    (entry,) = (each for each in schedule.clones if isinstance(each, Factored))
    if lanes is None:
        assert entry.rvars == ("r1o",)
    else:
        assert entry.rvars == ("r0i", "r1o")
        assert entry.splits[-1] == Split("r0", "r0o", "r0i", lanes, "guard_with_if")


@pytest.mark.parametrize(("rows", "lanes"), [(SEARCH.least_rows, True), (5, False)])
def test_few_iterations_around_a_short_loop_do_not_make_up_for_lanes(rows, lanes):
    image = hl.ImageParam(hl.Float(32), 3, "image")
    r = hl.RDom([(0, 15), (0, rows)], "r")
    total = hl.Func("total")
    total[x] = 0.0
    total[x] += hl.sqrt(image[r.x, r.y, x])
    image.set_estimates([(0, 15), (0, rows), (0, 5000)])
    total.set_estimates([(0, 5000)])
    kept = {name for entry in split_in(load(hl.Pipeline(total))) for name in entry.rvars}
    assert ("r0i" in kept) == lanes


@pytest.mark.parametrize(("stride", "lanes"), [(1, False), (15, True)])
def test_short_loops_have_no_lanes_where_neighbouring_results_read_neighbours(stride, lanes):
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r = hl.RDom([(0, 15), (0, 15)], "r")
    total = hl.Func("total")
    total[x, y] = 0.0
    total[x, y] += image[x * stride + r.x, y * 15 + r.y]
    image.set_estimates([(0, 15 * 300), (0, 15 * 200)])
    total.set_estimates([(0, 300), (0, 200)])
    kept = {name for entry in split_in(load(hl.Pipeline(total))) for name in entry.rvars}
    assert ("r0i" in kept) == lanes


def test_parts_of_other_lengths_have_conditions():
    # 701 is a prime number: no number of parts divides it.
    algorithm = reduced("mean", height=701)
    schedule = scheduled(algorithm)
    (partial,) = with_clones(algorithm, schedule.clones).partials
    func = with_clones(algorithm, schedule.clones).by_name[partial]
    assert func.stages[1].predicates
    # The condition concerns whole rows, which still run in vectors.
    place = with_clones(algorithm, schedule.clones).order[partial]
    (nests,) = (each.stages for each in schedule.funcs if each.func == place)
    assert nests[1].atomic


def test_what_gains_nothing_is_not_split():
    assert split_in(reduced("mean"))
    assert not split_in(reduced("mean", width=30, height=20))  # little work
    one = replace(MACHINE, cores=1)
    assert scheduled(reduced("mean"), one).clones == ()


def test_partial_results_per_lane_are_stored_with_the_lanes_innermost():
    """Vectors of a sum with a condition are masked: elsewhere, they would be scatters."""
    algorithm = reduced("where")
    schedule = scheduled(algorithm)
    (entry,) = split_in(algorithm)
    assert entry.rvars[0] == "r0i"  # the condition depends on this loop
    extended = with_clones(algorithm, schedule.clones)
    place = extended.order[extended.partials[0]]
    (found,) = (each for each in schedule.funcs if each.func == place)
    lanes = len(extended.funcs[place].args) - len(entry.rvars)
    assert (found.storage_order or (0,))[0] == lanes
    (vector,) = (loop for loop in found.stages[1].loops if loop.mapping == "vectorized")
    assert vector.name.startswith(f"v{lanes}")


def channel_means(channels, width=1000, height=700):
    """Sums over an image whose channels are next to each other."""
    image, r = hl.ImageParam(hl.UInt(8), 3, "image"), hl.RDom([(0, width), (0, height)], "r")
    total = hl.Func("total")
    total[c] = hl.f32(0.0)
    total[c] += hl.f32(image[c, r.x, r.y])
    image.set_estimates([(0, channels), (0, width), (0, height)])
    total.set_estimates([(0, channels)])
    return load(hl.Pipeline(total))


@pytest.mark.parametrize(
    ("channels", "width", "per_lane"), [(3, 1000, True), (64, 1000, False), (3, 5, False)]
)
def test_pixels_have_partial_results_where_their_channels_do_not_fill_vectors(
    channels, width, per_lane
):
    algorithm = channel_means(channels, width, 700000 // width)
    kept = {name for entry in split_in(algorithm) for name in entry.rvars}
    assert ("r0i" in kept) == per_lane


def test_rows_of_sums_have_enough_results():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r = hl.RDom([(0, 500)], "r")
    total, out = hl.Func("total"), hl.Func("out")
    total[y] += image[r, y]
    out[y] = hl.sqrt(total[y])
    image.set_estimates([(0, 500), (0, 3000)])
    out.set_estimates([(0, 3000)])
    assert scheduled(load(hl.Pipeline(out))).clones == ()


KINDS = ("mean", "output", "histogram", "position", "tuple", "with constant")
CASES = {*((kind, 1000, 700, False) for kind in KINDS), ("histogram", 1003, 701, True)}


@pytest.mark.parametrize(
    ("kind", "width", "height", "guarded"),
    [
        pytest.param(*case, marks=() if case in CASES else pytest.mark.thorough)
        for case in (
            (kind, *size, guarded)
            for kind in KINDS
            for size in ((1000, 700), (1003, 701))
            for guarded in (False, True)
        )
    ],
)
@pytest.mark.few(3)
def test_the_answer_is_right(kind, width, height, guarded):
    algorithm = reduced(kind, width, height)
    schedule = scheduled(algorithm)
    assert any(isinstance(each, Factored) for each in schedule.clones)
    assert_right(algorithm, schedule, guarded)


@pytest.mark.parametrize("kind", ["mean", "output", "tuple", "with constant"])
@pytest.mark.parametrize(
    ("width", "guarded"),
    [
        (7, True),
        pytest.param(31, False, marks=pytest.mark.thorough),
        pytest.param(7, False, marks=pytest.mark.thorough),
        pytest.param(31, True, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.few(2)
def test_the_answer_is_right_with_a_rest(kind, width, guarded):
    algorithm = reduced(kind, width, 9001)
    schedule = scheduled(algorithm)
    (entry,) = (each for each in schedule.clones if isinstance(each, Factored))
    assert entry.rvars[0] == "r0i"
    assert_right(algorithm, schedule, guarded)


def test_other_copies_are_kept():
    """What a split reduction reads in a copy, its partial results read."""
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    r = hl.RDom([(0, 1000), (0, 700)], "r")
    bright, tally, out = hl.Func("bright"), hl.Func("tally"), hl.Func("out")
    bright[x, y] = hl.u8(hl.sqrt(hl.f32(image[x, y])) * 15.0)
    tally[x] = 0
    tally[hl.i32(bright[r.x, r.y])] += 1
    out[x, y] = tally[hl.i32(bright[x, y])]
    image.set_estimates([(0, 1000), (0, 700)])
    out.set_estimates([(0, 1000), (0, 700)])
    algorithm = load(hl.Pipeline(out))
    place = {func.name.partition("$")[0]: i for i, func in enumerate(algorithm.funcs)}
    copy = Clone(place["bright"], (place["tally"],))
    boxes = estimated_boxes(View(algorithm))
    copied = with_clones(algorithm, (copy,))
    schedule, _, costs = schedule_with(copied, MACHINE, boxes, algorithm.symbols, POLICIES[0])
    found = split_reductions(algorithm, costs, schedule)
    assert len(found) == 2  # one part per core, and several
    for factored, kept in found:
        assert isinstance(factored, Factored)
        assert (factored.func, factored.stage) == (place["tally"], 1)
        # The partial results are the first added Func.
        assert kept == replace(copy, readers=(len(algorithm.funcs),))


@given(
    extents=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    number=st.integers(2, 50),
)
def test_parts_cover_the_domain(extents, number):
    parts = contiguous_parts(extents, number)
    if parts is None:
        assert math.prod(extents) < 2 * number
        return
    splits, kept, left = parts
    assert 1 <= math.prod(left) <= number
    assert len(kept) == len(left)
    split = {each.old: each for each in splits}
    # The loops that are kept whole are the outermost.
    whole = [f"r{i}" for i in range(len(extents)) if f"r{i}" in kept]
    assert whole == [f"r{i}" for i in range(len(extents) - len(whole), len(extents))]
    for old, each in split.items():
        extent = extents[int(old[1:])]
        outer = left[kept.index(each.outer)]
        assert (outer - 1) * each.factor < extent <= outer * each.factor
        assert each.tail == "guard_with_if"
