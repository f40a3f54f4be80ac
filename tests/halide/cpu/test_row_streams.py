"""Reductions that read short parts of rows, pages apart: what waits, and what is done about it."""

from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from answers import assert_right

from tilewright.halide.analysis.bounds import stage_env
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.running_nest import running_nest
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.schedule import Factored
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.inline import inline_trivial
from tilewright.halide.schedulers.analytic.cpu.known_blocks import KnownBlocks
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.scheduler import schedule_cpu
from tilewright.halide.schedulers.analytic.cpu.stage_loops import block_of
from tilewright.halide.schedulers.analytic.cpu.streams import (
    crossing_wait,
    innermost_loops,
    loop_starts,
    streams_of,
)
from tilewright.machines import CpuMachine
from tilewright.machines.cpu import Cache

CACHES = (Cache(1, 32 << 10, 64, 1), Cache(2, 512 << 10, 64, 1), Cache(3, 8 << 20, 64, 2))
MACHINE = CpuMachine("test", "x86-64", 2, ("avx2",), 256, CACHES)
MODEL = model_of(MACHINE)
WIDE = replace(MACHINE, isa=("avx512_skylake",), vector_bits=512)
x, y = hl.vars("x y")


def columns(width=2048, height=1000):
    """The sum of each column."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r, out = hl.RDom([(0, height)], "r"), hl.Func("out")
    out[x] += image[x, r]
    return finished(out, [width], image, [width, height])


def sparse(rows=4000, width=32):
    """A sparse matrix times a vector: entry k of all rows is contiguous."""
    values, places = (
        hl.ImageParam(hl.Float(32), 2, "values"),
        hl.ImageParam(hl.Int(32), 2, "places"),
    )
    vector = hl.ImageParam(hl.Float(32), 1, "vector")
    r, out = hl.RDom([(0, width)], "r"), hl.Func("out")
    out[x] += values[x, r] * vector[hl.clamp(places[x, r], 0, rows - 1)]
    places.set_estimates([(0, rows), (0, width)])
    vector.set_estimates([(0, rows)])
    return finished(out, [rows], values, [rows, width])


def product(size=600):
    """A product of matrices: a row of the second one is read again for each row of the result."""
    a, b = hl.ImageParam(hl.Float(32), 2, "a"), hl.ImageParam(hl.Float(32), 2, "b")
    r, out = hl.RDom([(0, size)], "r"), hl.Func("out")
    out[x, y] += a[r, y] * b[x, r]
    a.set_estimates([(0, size), (0, size)])
    return finished(out, [size, size], b, [size, size])


def blur(width=2048, height=1000):
    """A vertical blur: each value is read nine times."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r, out = hl.RDom([(0, 9)], "r"), hl.Func("out")
    out[x, y] += image[x, y + r]
    return finished(out, [width, height], image, [width, height + 8])


def rows(width=2048, height=1000):
    """The sum of each row, contiguous in memory."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r, out = hl.RDom([(0, width)], "r"), hl.Func("out")
    out[y] += image[r, y]
    return finished(out, [height], image, [width, height])


def finished(out, extents, image, sizes):
    out.set_estimates([(0, extent) for extent in extents])
    image.set_estimates([(0, size) for size in sizes])
    return load(hl.Pipeline(out))


def analysed(algorithm):
    view = View(algorithm)
    base = Analysis(view, estimated_boxes(view), algorithm.symbols)
    return inline_trivial(base, MODEL, 1.0, KnownBlocks()), algorithm.outputs[0]


def streams(algorithm):
    analysis, name = analysed(algorithm)
    func, stage = analysis.view.by_name[name], analysis.view.stages(name)[1]
    env = stage_env(func, stage, analysis.regions[name], analysis.bounder)
    extents = {loop.name: float(env[loop.name].extent) for loop in stage.loops}
    return streams_of(analysis.summaries(name)[1], extents, analysis, MODEL, lambda _: 0)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (columns(), 1),
        (columns(width=500), 0),  # rows of 2000 bytes: a prefetcher follows
        (columns(height=40), 0),  # 320 kB: in the second cache
        (sparse(), 2),  # the values and their places, not what these are indices of
        (product(), 0),
        (blur(), 0),
        (rows(), 0),
    ],
)
def test_which_loads_start_segments(algorithm, expected):
    assert streams(algorithm) == expected


def test_a_stage_without_reductions_has_no_streams():
    analysis, name = analysed(columns())
    summary = analysis.summaries(name)[0]
    assert streams_of(summary, {"x": 2048.0}, analysis, MODEL, lambda _: 0) == 0


def test_streams_of_columns_fill_the_registers():
    analysis, name = analysed(columns())
    wide = model_of(WIDE)
    costs = CpuCosts(analysis, wide, {})
    block = costs.block(name, 1)
    # Of 32 registers, 28 are free.
    assert block == Block(vector=0, lanes=16, vectors=16)
    extents = {loop.name: 2048.0 if loop.kind == "pure" else 1000.0
               for loop in analysis.view.stages(name)[1].loops}  # fmt: skip
    steps = 1000 * 2048 / block.width
    c = wide.constants
    expected = steps * (costs.block_cycles(name, 1) + c.jump_cycles) + 2048 / 256 * c.row_cycles
    assert costs.stage_cycles(name, 1, extents) == pytest.approx(expected)


def test_streams_next_to_a_gather_are_swept():
    analysis, name = analysed(sparse())
    costs = CpuCosts(analysis, MODEL, {})
    block = costs.block(name, 1)
    assert block == Block(vector=0, lanes=8, swept=True)
    extents = {loop.name: 1024.0 if loop.kind == "pure" else 32.0
               for loop in analysis.view.stages(name)[1].loops}  # fmt: skip
    c = MODEL.constants
    # Two segments per sweep of 1024 rows, instead of two per 8 rows.
    lines = 32 * (c.row_cycles + 2 * c.jump_cycles)
    expected = 32 * 1024 / 8 * costs.block_cycles(name, 1) + lines
    assert costs.stage_cycles(name, 1, extents) == pytest.approx(expected)


def test_the_innermost_loop():
    analysis, name = analysed(columns())
    summary = analysis.summaries(name)[1]
    pure, run = (next(loop.name for loop in summary.loops if (loop.kind == "pure") == is_pure)
                 for is_pure in (True, False))  # fmt: skip
    extents = {pure: 2048.0, run: 1000.0}
    assert innermost_loops(summary, Block(0, 8), pure, extents) == {run}
    assert innermost_loops(summary, Block(0, 8, swept=True), pure, extents) == {pure}
    assert innermost_loops(summary, Block(), None, extents) == {run}
    start = analysis.summaries(name)[0]
    assert innermost_loops(start, Block(0, 8), "x", extents) == {"x"}
    assert innermost_loops(start, Block(), None, extents) == {start.loops[0].name}
    assert innermost_loops(replace(start, loops=()), Block(), None, {}) == {None}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [((1.0, 5.0, 7.0), 7.0), ((2.0, 5.0, 7.0), 35.0), ((1.0, 5.0), 1.0), ((3.0,), 1.0)],
)
def test_around_a_single_block_there_is_no_loop(steps, expected):
    dimensions, image, out = len(steps), hl.ImageParam(hl.Float(32), 1, "image"), hl.Func("out")
    args = [x, y, hl.Var("z")][:dimensions]
    out[args] = image[args[0]]
    analysis, name = analysed(finished(out, [8] * dimensions, image, [8]))
    (summary,) = analysis.summaries(name)
    names = [loop.name for loop in summary.loops]
    assert loop_starts(summary, dict(zip(names, steps, strict=True)), {names[0]}) == expected


def test_around_a_single_block_the_reduction_loop_is_the_innermost():
    analysis, name = analysed(columns())
    summary = analysis.summaries(name)[1]
    pure, run = sorted((loop.name for loop in summary.loops), key=lambda n: n.startswith("r"))
    steps = {pure: np.array([1.0, 4.0]), run: 1000.0}
    assert list(loop_starts(summary, steps, {pure})) == [1.0, 1000.0]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("extents", [(0,), (0, 5), (5, 0)])
@pytest.mark.few(1)
def test_sums_over_nothing_are_planned(extents):
    image, out, total = hl.ImageParam(hl.Float(32), 2, "image"), hl.Func("out"), hl.Func("total")
    r = hl.RDom([(0, extent) for extent in extents], "r")
    total[x, y] = 0.0
    total[x, y] += image[x, sum(r[d] for d in range(len(extents)))]
    out[x, y] = total[x, y] + 1
    algorithm = finished(out, [64, 64], image, [64, 64])
    (planned,) = schedule_cpu(algorithm, MACHINE)
    assert_right(algorithm, planned.schedule, True)


@pytest.mark.parametrize(
    ("extents", "expected"),
    [((3, 3, 100), 2), ((2, 4, 100), 3), ((9, 3, 100), 1), ((2, 2, 2), 3)],
)
def test_short_reduction_loops_are_unrolled(extents, expected):
    image, out = hl.ImageParam(hl.Float(32), 4, "image"), hl.Func("out")
    r = hl.RDom([(0, extent) for extent in extents], "r")
    out[x] += image[r.x, r.y, r.z, x]
    analysis, name = analysed(finished(out, [500], image, [*extents, 500]))
    summary = analysis.summaries(name)[1]
    runs = [loop.name for loop in summary.loops if loop.kind != "pure"]
    found = innermost_loops(summary, Block(), None, dict(zip(runs, extents, strict=True)))
    assert found == set(runs[:expected])


@pytest.mark.parametrize(
    ("make", "guarded"),
    [
        (columns, True),
        (sparse, False),
        pytest.param(columns, False, marks=pytest.mark.thorough),
        pytest.param(sparse, True, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.few(1)
def test_the_schedules_give_the_right_answer(make, guarded):
    small = {"width": 300, "height": 70} if make is columns else {"rows": 130, "width": 5}
    planned = schedule_cpu(make(), MACHINE)[0].schedule
    algorithm = make(**small)
    schedule = replace(planned, algorithm=algorithm.digest)
    if not guarded:
        algorithm, schedule = make(), planned
    assert_right(algorithm, schedule, guarded)


@pytest.mark.parametrize(
    ("make", "machine", "swept"),
    [(columns, WIDE, False), (columns, MACHINE, False), (sparse, MACHINE, True)],
)
def test_the_order_of_the_loops(make, machine, swept):
    algorithm = make()
    schedule = schedule_cpu(algorithm, machine)[0].schedule
    nest = running_nest(algorithm, schedule, estimated_boxes(View(algorithm)))
    sizes = {(loop.stage, loop.name): float(loop.extent) for loop in nest.loops}
    (production,) = nest.structure.root.productions
    update = production.stages[1]
    assert block_of(update, sizes, {}).swept == swept
    names = [loop for loop, mapping in update.loops if mapping == "serial"]
    assert names[-1].startswith("r") != swept


def test_an_output_adds_its_partial_results_where_they_are_computed():
    a, w = hl.ImageParam(hl.Float(32), 2, "a"), hl.ImageParam(hl.Float(32), 2, "w")
    r, out = hl.RDom([(0, 7), (0, 7)], "r"), hl.Func("out")
    out[x, y] += a[x + r.x, y + r.y] * w[r.x, r.y]
    w.set_estimates([(0, 7), (0, 7)])
    algorithm = finished(out, [1000, 900], a, [1006, 906])
    schedule = schedule_cpu(algorithm, MACHINE)[0].schedule
    assert any(isinstance(entry, Factored) for entry in schedule.clones)
    extended = with_clones(algorithm, schedule.clones)
    (wrapper,) = (extended.order[copy.name] for copy in extended.copies if copy.wrapper)
    (entry,) = (each for each in schedule.funcs if each.func == wrapper)
    # In the loops of the output's update: no pass of all partial results through memory.
    assert (entry.compute.kind, entry.compute.func) == ("at", extended.order[algorithm.outputs[0]])
    assert entry.compute.stage == 1
    assert_right(algorithm, schedule, False)


@pytest.mark.parametrize(
    ("lines_bytes", "member", "expected"),
    [(1000.0, False, 0.0), (20000.0, True, 3.0), (60000.0, True, 3.0), (60000.0, False, 11.0)],
)
def test_vectors_across_rows_wait(lines_bytes, member, expected):
    assert float(crossing_wait(lines_bytes, member, MODEL)) == expected


def test_an_output_adds_values_of_fewer_dimensions():
    # The sums of columns are nested in their reader, which has no rows.
    image, other = hl.ImageParam(hl.Float(32), 2, "image"), hl.ImageParam(hl.Float(32), 2, "other")
    r = hl.RDom([(0, 50)], "r")
    sums, mean, out = hl.Func("sums"), hl.Func("mean"), hl.Func("out")
    sums[x] += image[x, r]
    mean[x] = sums[x] * 0.02
    out[x, y] = other[x, y]
    out[x, y] += mean[x]
    other.set_estimates([(0, 400), (0, 60)])
    algorithm = finished(out, [400, 60], image, [400, 50])
    assert_right(algorithm, schedule_cpu(algorithm, MACHINE)[0].schedule, False)


@pytest.mark.thorough
def test_an_update_with_reduction_loops_has_no_funcs_in_its_tiles():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r, s = hl.RDom([(0, 3), (0, 3)], "r"), hl.RDom([(0, 300)], "s")
    blurred, out = hl.Func("blurred"), hl.Func("out")
    blurred[x, y] += image[x + r.x, y + r.y]
    out[x] += blurred[x, s]
    algorithm = finished(out, [600], image, [602, 302])
    for planned in schedule_cpu(algorithm, MACHINE, k=3):
        assert planned.cost > 0
        assert_right(algorithm, planned.schedule, False)
