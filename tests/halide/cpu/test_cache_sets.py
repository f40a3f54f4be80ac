"""Rows that share a place in the first cache, worked out by hand for 8 ways of 4096 bytes."""

import halide as hl
import pytest

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.cpu.cache_sets import most_rows, rows_that_stay
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.nested import NestedReduction
from tilewright.machines import CpuMachine
from tilewright.machines.cpu import Cache

CACHES = (Cache(1, 32 << 10, 64, 1), Cache(2, 512 << 10, 64, 1), Cache(3, 8 << 20, 64, 4))
MODEL = model_of(CpuMachine("test", "x86-64", 4, ("avx2",), 256, CACHES))
LARGER = model_of(CpuMachine("test", "x86-64", 4, ("avx2",), 256, (Cache(1, 48 << 10, 64, 1),)))
X, Y = hl.vars("x y")


@pytest.mark.parametrize(
    ("apart", "expected"),
    [
        (4096.0, 8),  # one set
        (8192.0, 8),
        (0.0, 8),
        (2048.0, 16),  # two sets
        (1024.0, 32),
        (3072.0, 32),  # 1024 divides both
        (4160.0, 512),  # 64 divides both: all lines of the cache
        (4100.0, 512),  # less than a line
    ],
)
def test_rows_that_stay(apart, expected):
    assert rows_that_stay(apart, MODEL) == expected


def test_more_ways_keep_more_rows():
    assert rows_that_stay(4096.0, LARGER) == 12


def row_sums(width, reduces=True):
    """A strict sum of each row of an image, for which vectors run across the rows."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r = hl.RDom([(0, width)], "r")
    sums = hl.Func("sums")
    if reduces:
        sums[Y] = 0.0
        sums[Y] = hl.strict_float(sums[Y] + image[r, Y])
        estimates = [(0, 1000)]
    else:
        sums[Y, X] = image[X, Y]
        estimates = [(0, 1000), (0, width)]
    sums.set_estimates(estimates)
    image.set_estimates([(0, width), (0, 1000)])
    algorithm = load(hl.Pipeline(sums))
    view = View(algorithm)
    return Analysis(view, estimated_boxes(view), algorithm.symbols), algorithm.outputs[0]


def limits(analysis, name, index):
    costs = CpuCosts(analysis, MODEL, {})
    summary = analysis.summaries(name)[index]
    return most_rows(summary, costs.pure_loops(name, index), analysis, MODEL, costs.innermost)


def test_a_reduction_reads_few_rows_a_power_of_two_apart():
    analysis, name = row_sums(1024)
    assert limits(analysis, name, 1) == ((0, 8),)
    block = CpuCosts(analysis, MODEL, {}).block(name, 1)
    assert (block.vector, block.width) == (0, 8)


def test_a_reduction_reads_a_vector_of_rows_otherwise():
    analysis, name = row_sums(1040)
    # The cache keeps 512 rows, but lanes that are loaded one by one gain nothing from more vectors.
    assert limits(analysis, name, 1) == ((0, 8),)
    block = CpuCosts(analysis, MODEL, {}).block(name, 1)
    assert (block.vector, block.width) == (0, 8)


def test_a_stage_that_does_not_reduce_has_no_limit():
    analysis, name = row_sums(1024, reduces=False)
    assert limits(analysis, name, 0) == ()


@pytest.mark.parametrize(("dims", "rows"), [("one", 1), ("other", 8)])
def test_rows_of_vectors_across_rows_are_as_few(dims, rows):
    """Rows and lanes that lie in lines of their own share the cache: 8 lanes of one row."""
    image, other = (hl.ImageParam(hl.Float(32), 3, name) for name in ("image", "other"))
    r = hl.RDom([(0, 1024)], "r")
    sums, out = hl.Func("sums"), hl.Func("out")
    sums[X, Y] = 0.0
    if dims == "one":
        sums[X, Y] = hl.strict_float(sums[X, Y] + image[r, X, Y])
    else:
        sums[X, Y] = hl.strict_float(sums[X, Y] + image[r, X, 0] * other[r, Y, 0])
    out[X, Y] = sums[X, Y] * 2
    out.set_estimates([(0, 64), (0, 64)])
    for each in (image, other):
        each.set_estimates([(0, 1024), (0, 64), (0, 64)])
    view = View(load(hl.Pipeline(out)))
    algorithm = view.algorithm
    analysis = Analysis(view, estimated_boxes(view), algorithm.symbols)
    (name,) = view.producers[algorithm.outputs[0]]
    block = CpuCosts(analysis, MODEL, {name: NestedReduction(host="")}).block(name, 1)
    assert (block.vector, block.width, block.rows) == (0, 8, rows)
