"""Vectors that begin at multiples of what their loads divide by, such as blocks of 8."""

import halide as hl
import pytest

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.schedule import DimensionBounds, Split
from tilewright.halide.schedulers.analytic.cpu.alignment import aligned_summary, moduli_of
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task
from tilewright.machines import CpuMachine
from tilewright.machines.cpu import Cache

CACHES = (Cache(1, 32 << 10, 64, 1), Cache(2, 512 << 10, 64, 1), Cache(3, 8 << 20, 64, 4))
MACHINE = CpuMachine("test", "x86-64", 4, ("avx2",), 256, CACHES)
X, Y, K = hl.vars("x y k")


def transform(size=8, further=0, mixed=False, table="func", output=False):
    """Each row of each block of `size` values, transformed; with one value that is `further` on."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    if table == "input":
        table = hl.ImageParam(hl.Float(32), 2, "table")
    else:
        table = hl.Func("table")
        table[X, K] = hl.f32(X * K % 7)
    rows, out = hl.Func("rows"), hl.Func("out")
    terms = [image[X // size * size + i, Y] * table[X % size, i] for i in range(size)]
    total = terms[0]
    for term in terms[1:]:
        total += term
    rows[X, Y] = total + image[X + further, Y]
    if mixed:
        rows[X, Y] += image[X // (2 * size), Y]
    out[X, Y] = rows[X, Y] + rows[X, Y + 1]
    last = rows if output else out
    last.set_estimates([(0, 640), (0, 480)])
    return last


def analysis_of(func):
    view = View(load(hl.Pipeline(func)))
    return Analysis(view, estimated_boxes(view), view.algorithm.symbols)


def rows_of(analysis):
    return next(name for name in analysis.view.algorithm.by_name if name.startswith("rows"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {0: 8}),
        ({"size": 16}, {0: 16}),
        ({"size": 4}, {}),  # Halide separates the lanes itself
        ({"size": 128}, {}),  # the bounds would grow too much
        ({"further": 1}, {}),  # more of the input would be read
        ({"mixed": True}, {}),  # as well: 16 divides 8 no more
        ({"table": "input"}, {}),  # an input may have less than a whole table
        ({"output": True}, {}),  # the user's buffer has no more
    ],
)
def test_moduli(given, expected):
    analysis = analysis_of(transform(**given))
    assert moduli_of(analysis, rows_of(analysis)) == expected


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (X // 8, 8),
        ((X + 1) // 8, 8),
        (3 * X // 8, 8),
        (2 * X // 8, 4),
        (8 * X // 8 + X, None),
        (X, None),
        (X // 3 + X % 8, 24),
        (X // 2, 2),
    ],
)
def test_the_divisor_is_what_the_step_leaves_of_it(index, expected):
    image, out = hl.ImageParam(hl.Float(32), 1, "image"), hl.Func("out")
    out[X] = image[index]
    out.set_estimates([(0, 1000)])
    analysis = analysis_of(out)
    (found,) = analysis.summaries(analysis.view.algorithm.outputs[0])[0].loads
    assert found.divisors.get("x") == expected


def test_alignment_only_holds_for_loads_that_divide_by_a_divisor_of_the_modulus():
    analysis = analysis_of(transform(8))
    summary = analysis.summaries(rows_of(analysis))[0]
    for modulus, expected in ((8, True), (16, True), (12, False)):
        loads = aligned_summary(summary, {0: "x", 1: "y"}, {0: modulus}).loads
        divided = [found for found in loads if found.divisors]
        assert len(divided) == 16
        assert all(("x" in found.aligned) is expected for found in divided)
    assert aligned_summary(summary, {0: "x", 1: "y"}, {}) is summary


def test_blocks_are_computed_at_root_with_aligned_bounds():
    planned = plan(make_task(transform(8), target="host", machine=MACHINE))[0]
    aligned = [entry for entry in planned.schedule.funcs if entry.bounds]
    assert [(entry.compute.kind, entry.bounds) for entry in aligned] == [
        ("root", (DimensionBounds(0, 0, 8, 0),))
    ]
    tails = [
        change.tail
        for stage in aligned[0].stages
        for change in stage.splits
        if isinstance(change, Split) and change.old == "v0"
    ]
    assert tails == ["guard_with_if"]
