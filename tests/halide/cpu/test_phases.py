"""Funcs that interleave others: their bounds are aligned, and each point computes one branch."""

import halide as hl
import pytest
from evaluator import Evaluator
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.residues import at_residues, residues_of
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.algorithm import Call, Op, walk
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    DimensionBounds,
    FuncSchedule,
    Level,
    Schedule,
    ScheduledLoop,
    StageSchedule,
)
from tilewright.halide.legality.sizes import requirements
from tilewright.halide.schedulers.analytic.cpu.alignment import Alignment, periods_of
from tilewright.halide.schedulers.analytic.cpu.block_choice import best_block
from tilewright.halide.schedulers.analytic.cpu.blocks import Block, fit_block
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.register_block import block_cycles, phases_of
from tilewright.machines import CpuMachine
from tilewright.machines.cpu import Cache

CACHES = (Cache(1, 32 << 10, 64, 1), Cache(2, 512 << 10, 64, 1), Cache(3, 8 << 20, 64, 4))
MACHINE = CpuMachine("test", "x86-64", 4, ("avx2",), 256, CACHES)
MOST = 4
X, Y = hl.vars("x y")


def analysis_of(definition, *, output=False):
    """The analysis of `full`, defined by a function of an image, which a stencil reads."""
    image = hl.ImageParam(hl.Int(32), 2, "image")
    full, out = hl.Func("full"), hl.Func("out")
    full[X, Y] = definition(image)
    out[X, Y] = full[X, Y] + full[X + 1, Y + 1]
    last = full if output else out
    last.set_estimates([(0, 640), (0, 480)])
    view = View(load(hl.Pipeline(last)))
    return Analysis(view, estimated_boxes(view), view.algorithm.symbols)


def name_of(analysis):
    return next(n for n in analysis.view.algorithm.by_name if n.startswith("full"))


def columns(image):
    return hl.select(X % 2 == 0, image[X // 2, Y] * 3, image[X // 2 + 1, Y] // 7)


def quarters(image):
    even = hl.select(X % 2 == 0, image[X // 2, Y // 2] * 3, image[X // 2 + 1, Y // 2] // 7)
    odd = hl.select(X % 2 == 0, image[X // 2, Y // 2 + 1] - 5, image[X // 2 + 2, Y // 2] ^ 9)
    return hl.select(Y % 2 == 0, even, odd)


def checkerboard(image):
    return hl.select((X + Y) % 2 == 0, image[X // 2, Y // 2], image[X // 2 + 1, Y // 2] * 3)


def thirds(image):
    return hl.mux(X % 3, [image[X // 3, Y], image[X // 3, Y] * 2 // 7, image[X // 3 + 4, Y] - 1])


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (columns, {0: 2}),
        (quarters, {0: 2, 1: 2}),
        (checkerboard, {0: 2, 1: 2}),  # each dimension alone says nothing
        (thirds, {0: 3}),
        # A divisor by which Halide does not separate lanes.
        (lambda image: hl.select(X % 5 == 0, image[X // 5, Y], image[X // 5 + 1, Y] // 3), {}),
        # The wider bounds would require another column of the image.
        (lambda image: hl.select(X % 2 == 0, image[X, Y], image[X // 2, Y] // 3), {}),
        # Halide bounds the parts of this coordinate one by one.
        (lambda image: hl.select(X % 2 == 0, image[X // 2 + X % 2, Y], image[0, Y] // 3), {}),
        # The remainder chooses a weight: nothing is left out.
        (lambda image: sum(image[X // 2 + i, Y] * (i + 1) for i in range(9)) * (X % 2 + 1), {}),
    ],
)
def test_periods(definition, expected):
    analysis = analysis_of(definition)
    assert periods_of(analysis, name_of(analysis), MOST) == expected


def test_readers_that_divide_are_not_aligned_for():
    """Halide's bounds of a tile of thirds of halves do not cancel: a row more would be read."""
    image = hl.ImageParam(hl.Int(32), 2, "image")
    halves, thirds_of, out = hl.Func("full"), hl.Func("thirds"), hl.Func("out")
    halves[X, Y] = quarters(image)
    thirds_of[X, Y] = halves[X, Y // 3] - halves[X + 1, Y // 3 + 1]
    out[X, Y] = thirds_of[X, Y] + thirds_of[X + 1, Y + 1]
    out.set_estimates([(0, 640), (0, 480)])
    view = View(load(hl.Pipeline(out)))
    analysis = Analysis(view, estimated_boxes(view), view.algorithm.symbols)
    assert periods_of(analysis, name_of(analysis), MOST) == {0: 2}


def test_outputs_are_not_aligned():
    analysis = analysis_of(quarters, output=True)
    assert periods_of(analysis, name_of(analysis), MOST) == {}


@pytest.mark.parametrize("definition", [quarters, checkerboard, thirds])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(x=st.integers(-50, 50), y=st.integers(-50, 50), data=st.data())
def test_a_stage_at_its_residues_has_the_same_values(definition, x, y, data):
    analysis = analysis_of(definition)
    stage = analysis.view.stages(name_of(analysis))[0]
    periods = data.draw(st.sampled_from([{"x": 2, "y": 2}, {"x": 6}, {"y": 4}, {"x": 3, "y": 2}]))
    residues = {"x": x, "y": y}
    residues = {name: residues[name] % period for name, period in periods.items()}
    assert residues in list(residues_of(periods))
    images = {"image": lambda x, y: 17 * x + 1001 * y}
    evaluator = Evaluator(analysis.view.algorithm, images)
    env = {"x": x, "y": y}
    (found,) = at_residues(stage, residues, periods).values
    assert evaluator.value(found, env, {}) == evaluator.value(stage.values[0], env, {})


def test_branches_of_other_residues_are_gone():
    analysis = analysis_of(quarters)
    name = name_of(analysis)
    stage = analysis.view.stages(name)[0]
    for residues in residues_of({"x": 2, "y": 2}):
        (value,) = at_residues(stage, residues, {"x": 2, "y": 2}).values
        assert not any(isinstance(n, Op) and n.name in ("select", "mod") for n in walk(value))
        assert sum(isinstance(n, Call) and n.name != "bitwise_xor" for n in walk(value)) == 1
    # A period that is no multiple of the divisor does not say what the remainder is.
    (value,) = at_residues(stage, {"x": 1, "y": 1}, {"x": 3, "y": 3}).values
    assert sum(isinstance(n, Op) and n.name == "select" for n in walk(value)) == 3


def test_the_cost_of_a_block_is_that_of_its_phases():
    analysis, model = analysis_of(quarters), model_of(MACHINE, None)
    name = name_of(analysis)
    loops = {0: "x", 1: "y"}
    summary = Alignment(analysis, MOST).summary(name, 0, loops)

    def cycles(block, of=summary):
        return block_cycles(of, loops, block, model, lambda _: 0)

    wide, both = Block(0, 16), Block(0, 16, unrolled=((1, 2),))
    assert len(phases_of(summary, loops, both)) == 4
    assert len(phases_of(summary, loops, wide)) == 2
    assert len(phases_of(summary, loops, Block(1, 16))) == 2
    assert phases_of(summary, loops, Block(0, 15)) == ()
    phases = analysis.at_residues(name, 0, {"x": 2, "y": 2})
    assert cycles(both) == pytest.approx(2 * sum(cycles(wide, each) for each in phases) / 4)
    plain = analysis.summaries(name)[0]
    assert cycles(both) < cycles(wide) * 2 < cycles(wide, plain) * 2
    assert cycles(both, plain) == 2 * cycles(wide, plain)
    assert both.points == 32


def test_the_best_block_unrolls_the_phases():
    analysis, model = analysis_of(quarters), model_of(MACHINE, None)
    name = name_of(analysis)
    loops = {0: "x", 1: "y"}
    summary = Alignment(analysis, MOST).summary(name, 0, loops)
    for height, unrolled in ((480.0, ((1, 2),)), (1.0, ())):
        extents = {0: 640.0, 1: height}
        block = best_block(summary, loops, extents, model, lambda _: 0)
        assert (block.vector, block.unrolled) == (0, unrolled)
    assert fit_block(Block(0, 8, unrolled=((1, 2),)), {0: 640.0, 1: 1.0}).unrolled == ()


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (quarters, set()),
        (lambda image: hl.select(X % 2 == 0, image[X, Y], image[X // 2, Y] // 3), {"input"}),
        (lambda image: image[X // 2 + X % 2, Y], {"input"}),
    ],
)
def test_aligned_bounds_in_loops_of_others(definition, expected):
    algorithm = analysis_of(definition).view.algorithm
    loops = ScheduledLoop("v0"), ScheduledLoop("v1")
    nest = StageSchedule((), loops)
    place = Level("at", 2, 0, "v1")
    funcs = (
        FuncSchedule(0, INLINE, INLINE),
        FuncSchedule(1, place, place, stages=(nest,), bounds=(DimensionBounds(0, 0, 2, 0),)),
        FuncSchedule(2, ROOT, ROOT, stages=(nest,)),
    )
    schedule = Schedule(algorithm.digest, "host", funcs)
    assert {found.on for found in requirements(schedule, algorithm)} == expected
