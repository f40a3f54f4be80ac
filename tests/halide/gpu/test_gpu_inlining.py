"""What inlining gains on a GPU, worked out by hand in operations and loads of cost 1."""

import halide as hl
import pytest
from gpu_pipelines import analysed, full

from tilewright.halide.analysis.inlining import TooLarge
from tilewright.halide.analysis.operation_counts import OpCount
from tilewright.halide.analysis.summaries import (
    Load,
    StageSummary,
)
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.algorithm import Loop, Type
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.inline import _Inliner, _next_to_nothing

F32 = Type("float", 32)


def summary(callees, **operations):
    loads = tuple(Load(c, "func", F32, {"x": (float(i),)}, False, frozenset())
                  for i, c in enumerate(callees))  # fmt: skip
    ops = tuple(OpCount(n, F32, frozenset("x"), False, k) for n, k in operations.items())
    return StageSummary("f", 0, (Loop("x", "pure"),), (), loads, ops, (F32,), (), False, ops)


@pytest.mark.parametrize(
    ("callees", "operations", "expected"),
    [
        ("a", {"add": 3}, True),
        ("a", {"add": 4}, False),
        # Casts and choices are cheap, up to 12 in all.
        ("a", {"add": 3, "cast": 9}, True),
        ("a", {"add": 3, "select": 10}, False),
        ("a", {"div": 3}, True),
        ("a", {"div": 3, "cast": 1}, False),  # a division weighs 4
        ("", {"add": 3}, True),
        ("ab", {"add": 2}, True),
        ("ab", {"add": 3}, False),
        ("aa", {"add": 1}, False),
        ("abc", {"add": 1}, False),
    ],
)
def test_next_to_nothing(callees, operations, expected):
    assert _next_to_nothing(summary(callees, **operations), GpuConstants()) is expected


def inliner(outputs, cache_bytes=float("inf")):
    """Of a pipeline, with the wrapper of its image inlined."""
    algorithm = load(outputs)
    found = _Inliner(analysed(algorithm, specialize=True), 1.0, cache_bytes, GpuConstants())
    found.inlined.add(full(algorithm, "image_im"))
    found.analysis = found.analysis.toggled(full(algorithm, "image_im"))
    return found, full(algorithm, "inner")


def chain(operations, value):
    """Additions and magnitudes by turns, none of which folds into another."""
    for i in range(operations):
        value = hl.abs(value) if i % 2 else value + float(i + 2)
    return value


def line(operations, reads, extent=1000, step=1):
    """A Func of `operations`, read at `reads` neighbouring points, every `step`th from there."""
    image = hl.ImageParam(hl.Float(32), 1, "image")
    x = hl.Var("x")
    inner, output = hl.Func("inner"), hl.Func("output")
    inner[x] = chain(operations, image[x])
    output[x] = sum((inner[step * x + i] for i in range(1, reads)), inner[step * x])
    output.set_estimates([(0, extent)])
    return output


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        # Apart: 1,001 points of one operation, a load and a store; 1,000 of a sum and two loads.
        # Together: 1,000 of two operations, the sum and two loads.
        (1, 1001 * 3 + 1000 * 3 - 1000 * 5),
        (4, 1001 * 6 + 1000 * 3 - 1000 * 11),
    ],
)
def test_inlining_gains(operations, expected):
    found, inner = inliner(line(operations, 2))
    assert found._gain(inner) == expected


@pytest.mark.parametrize(("operations", "expected"), [(3, False), (4, True)])
def test_recomputing_at_every_access_may_be_hopeless(operations, expected):
    # Nine uses: saved are 1,008 x (a + 2) and 9,000 loads, added half of 9,000 a.
    found, inner = inliner(line(operations, 9))
    readers = found.analysis.view.consumers[inner]
    assert found._hopeless(inner, readers) is expected


def two_readers(second=1000):
    image = hl.ImageParam(hl.Float(32), 1, "image")
    x = hl.Var("x")
    inner, one, two = hl.Func("inner"), hl.Func("one"), hl.Func("two")
    inner[x] = chain(8, image[x])
    one[x] = inner[x] + 1.0
    two[x] = inner[x] * 2.0
    one.set_estimates([(0, 1000)])
    two.set_estimates([(0, second)])
    return [one, two]


@pytest.mark.parametrize(("cache_bytes", "expected"), [(4000, 1000), (3999, 16_000)])
def test_large_funcs_with_several_readers_go_through_memory(cache_bytes, expected):
    found, inner = inliner(two_readers(), cache_bytes)
    assert found._store_cost(inner) == expected
    # One reader may take it over in the same kernel.
    found, inner = inliner(line(1, 2), 100)
    assert found._store_cost(inner) == 1001


@pytest.mark.parametrize(("second", "expected"), [(20, True), (21, False)])
def test_borders_may_be_computed_twice(second, expected):
    # 1,020 uses of 1,000 points are as good as pointwise.
    found, inner = inliner(two_readers(second))
    assert found._pointwise(inner) is expected


@pytest.mark.parametrize(
    ("operations", "reads", "step", "expected"),
    [
        # A third of the points: 3 x 33 + 2 = 101 operations each are too many, 98 are not.
        (33, 3, 3, True),
        (32, 3, 3, False),
        # Half of the points are no narrowing, nor is one read.
        (200, 2, 2, False),
        (200, 1, 3, False),
    ],
)
def test_a_pyramid_is_not_inlined_into_its_top(operations, reads, step, expected):
    found, inner = inliner(line(operations, reads, 1000, step))
    assert found._narrows(inner, found.analysis.toggled(inner)) is expected


def test_expressions_have_a_limit():
    found, inner = inliner(line(3000, 1))
    assert found._cost(found.analysis, inner) == 1000 * 3001
    found, inner = inliner(line(3001, 1))
    with pytest.raises(TooLarge):
        found._cost(found.analysis, inner)
