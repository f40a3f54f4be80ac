"""The CPU scheduler: whatever it proposes is legal and computes what was asked."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np
import pytest
from cpu_machines import FOUR_CORES as MACHINE

from tilewright.halide.analysis.bounds import Interval
from tilewright.halide.emit.apply import apply
from tilewright.halide.execution.binding import bind, deserialize
from tilewright.halide.execution.inputs import describe_inputs
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.analytic.cpu.assemble import middle_tile
from tilewright.halide.schedulers.analytic.cpu.scheduler import schedule_cpu
from tilewright.halide.schedulers.naive import naive_schedule

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
HOST = hl.get_host_target()


def stencils(width: int, height: int) -> hl.Func:
    """Two stencils, a reduction read point by point, and a short dimension."""
    image = hl.ImageParam(hl.Float(32), 3, "image")
    image.set_estimates([(0, width + 4), (0, height + 4), (0, 3)])
    x, y, c = hl.vars("x y c")
    r = hl.RDom([(0, 3), (0, 3)], "r")
    blurred, gray, output = hl.Func("blurred"), hl.Func("gray"), hl.Func("output")
    gray[x, y] = image[x, y, 0] * 0.25 + image[x, y, 1] * 0.5 + image[x, y, 2] * 0.25
    blurred[x, y] = 0.0
    blurred[x, y] += gray[x + r.x, y + r.y]
    wide = hl.Func("wide")
    wide[x, y] = blurred[x, y] + blurred[x + 1, y + 1] + blurred[x + 2, y]
    output[x, y, c] = hl.select(c == 0, wide[x, y], wide[x, y] * image[x, y, c])
    output.set_estimates([(0, width), (0, height), (0, 3)])
    return output


def scan_and_histogram(width: int, height: int) -> hl.Func:
    """A scatter, a scan over it, and a gather through both."""
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    image.set_estimates([(0, width), (0, height)])
    x, y, i = hl.vars("x y i")
    r = hl.RDom([(0, width), (0, height)], "r")
    histogram, cdf, output = hl.Func("histogram"), hl.Func("cdf"), hl.Func("output")
    histogram[i] = hl.u32(0)
    histogram[hl.i32(image[r.x, r.y])] += hl.u32(1)
    b = hl.RDom([(1, 255)], "b")
    cdf[i] = histogram[i]
    cdf[b.x] = cdf[b.x - 1] + histogram[b.x]
    output[x, y] = cdf[hl.i32(image[x, y])] + hl.u32(x)
    output.set_estimates([(0, width), (0, height)])
    return output


def transposing(width: int, height: int) -> hl.Func:
    """Reads a Func along the other dimension."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    image.set_estimates([(0, height), (0, width)])
    x, y = hl.vars("x y")
    root, output = hl.Func("root"), hl.Func("output")
    root[x, y] = hl.sqrt(image[x, y] + 1.0)
    output[x, y] = root[y, x] + root[y, x] * 0.5
    output.set_estimates([(0, width), (0, height)])
    return output


def vertical(width: int, height: int) -> hl.Func:
    """A stencil down the columns over an expression that does not inline for nothing."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    image.set_estimates([(0, width), (0, height + 6)])
    x, y = hl.vars("x y")
    root, output = hl.Func("root"), hl.Func("output")
    root[x, y] = hl.sqrt(hl.exp(image[x, y + 3]) + hl.exp(-image[x, y + 3]))
    output[x, y] = root[x, y - 1] + root[x, y] * 2.0 + root[x, y + 1]
    output.set_estimates([(0, width), (0, height)])
    return output


def enlarged(width: int, height: int) -> hl.Func:
    """Twice the size of what it reads; a stencil over that."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    image.set_estimates([(0, width // 2), (0, height // 2)])
    clamped = hl.BoundaryConditions.repeat_edge(image)
    x, y = hl.vars("x y")
    coarse, fine, output = hl.Func("coarse"), hl.Func("fine"), hl.Func("output")
    coarse[x, y] = hl.exp(clamped[x, y]) + clamped[x + 1, y] * clamped[x, y + 1]
    fine[x, y] = coarse[x // 2, y // 2] + hl.f32(0.5) * coarse[x // 2, (y + 1) // 2]
    output[x, y] = hl.sqrt(fine[x, y]) + hl.sqrt(fine[x, y + 1]) + hl.sqrt(fine[x, y + 2])
    output.set_estimates([(0, width), (0, height)])
    return output


def rows_counted(width: int, height: int) -> hl.Func:
    """What a scatter counts, row by row, is read by the output too."""
    image = hl.ImageParam(hl.UInt(8), 3, "image")
    image.set_estimates([(0, width), (0, height), (0, 3)])
    x, y, i = hl.vars("x y i")
    r = hl.RDom([(0, width)], "r")
    rows = hl.RDom([(0, height)], "rows")
    level, counts, output = hl.Func("level"), hl.Func("counts"), hl.Func("output")
    total = hl.Func("total")
    red, green, blue = (hl.f32(image[x, y, c]) for c in range(3))
    weighed = red * hl.f32(0.3) + green * hl.f32(0.59) + blue * hl.f32(0.11)
    level[x, y] = hl.u8(hl.clamp(weighed, hl.f32(0.0), hl.f32(255.0)))
    counts[i, y] = 0
    counts[hl.i32(level[r.x, y]), y] += 1
    total[i] = 0
    total[i] += counts[i, rows.x]
    output[x, y] = total[hl.i32(level[x, y])]
    output.set_estimates([(0, width), (0, height)])
    return output


def run(algorithm: Any, schedule: Schedule) -> list[np.ndarray]:
    inputs = describe_inputs(algorithm)
    live = deserialize(algorithm.serialized, inputs)
    apply(schedule, algorithm, live.pipeline, same_bytes=True)
    outputs = bind(live, inputs, HOST)
    live.pipeline.realize(outputs if len(outputs) > 1 else outputs[0], HOST)
    return [np.array(np.asarray(output)) for output in outputs]


@pytest.mark.parametrize(
    "size", [pytest.param((128, 96), marks=pytest.mark.thorough), (67, 45)], ids=str
)
@pytest.mark.parametrize(
    "build", [stencils, scan_and_histogram, transposing, vertical, rows_counted]
)
@pytest.mark.few(2)
def test_every_candidate_is_legal_and_right(build: Any, size: tuple[int, int]) -> None:
    algorithm = load(build(*size))
    expected = run(algorithm, naive_schedule(algorithm, "host"))
    planned = schedule_cpu(algorithm, MACHINE, k=4)
    assert planned
    assert len({p.schedule for p in planned}) == len(planned)
    for candidate in planned:
        assert check(candidate.schedule, algorithm) == []
        for got, want in zip(run(algorithm, candidate.schedule), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4)


def test_the_first_is_expected_to_be_at_least_as_fast_as_no_fusion() -> None:
    algorithm = load(stencils(1536, 2560))
    planned = schedule_cpu(algorithm, MACHINE, k=9)
    assert planned[0].cost <= min(p.cost for p in planned) * 1.05


def test_the_same_pipeline_always_gets_the_same_schedule() -> None:
    first = schedule_cpu(load(stencils(512, 512)), MACHINE)[0].schedule
    again = schedule_cpu(load(stencils(512, 512)), MACHINE)[0].schedule
    assert first.funcs == again.funcs


def test_a_stencil_along_short_rows_slides_block_by_block() -> None:
    algorithm = load(vertical(256, 2560))
    # What is not clamped may be read beyond: such a window is left to measuring.
    planned = schedule_cpu(algorithm, MACHINE, k=2)[1]
    assert any("members slide along y" in group.notes for group in planned.groups)
    schedule = planned.schedule
    by_name = {algorithm.funcs[f.func].name.split("$")[0]: f for f in schedule.funcs}
    output, root = by_name["output"], by_name["root"]
    assert root.store.kind == root.compute.kind == "at"
    loops = [loop.name for loop in output.stages[0].loops]  # innermost first
    # Computed right outside the vector, stored outside the rows.
    assert loops.index(root.compute.loop) == 1
    assert loops.index(root.store.loop) > loops.index(root.compute.loop) + 1


def test_a_transposition_reads_the_lines_of_a_vector_whole() -> None:
    algorithm = load(transposing(1536, 2560))
    candidates = schedule_cpu(algorithm, MACHINE, k=9)
    plain = [p.schedule for p in candidates if all(not f.storage_order for f in p.schedule.funcs)]
    output = max(plain[0].funcs, key=lambda f: f.func)
    loops = [loop.name for loop in output.stages[0].loops]
    assert loops[0].startswith("v0")
    assert loops[1].startswith("v1")


def test_inputs_of_a_scatter_may_be_copies_computed_in_its_rows() -> None:
    algorithm = load(rows_counted(1536, 2560))
    with_copies = [p.schedule for p in schedule_cpu(algorithm, MACHINE, k=9) if p.schedule.clones]
    assert with_copies
    schedule = with_copies[0]
    extended = with_clones(algorithm, schedule.clones)
    (copy,) = extended.copies
    assert copy.readers[0].startswith("counts")
    by_name = {extended.funcs[f.func].name: f for f in schedule.funcs}
    assert by_name[copy.name].compute.kind == "at"
    assert extended.funcs[by_name[copy.name].compute.func].name == copy.readers[0]


def test_funcs_that_halide_cannot_copy_are_left_alone() -> None:
    """A Func that is wrapped already, and one that scatters alone read."""
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    image.set_estimates([(0, 256), (0, 64)])
    x, y, i = hl.vars("x y i")
    r = hl.RDom([(0, 256)], "r")
    bright, counts, output = hl.Func("bright"), hl.Func("counts"), hl.Func("output")
    bright[x, y] = image[x, y] // 2
    counts[i, y] = 0
    counts[hl.i32(bright[r.x, y]), y] += 1
    counts[hl.i32(bright[255 - r.x, y]), y] += 1
    output[x, y] = counts[hl.i32(bright[x, y]), y]
    bright.in_(output)
    output.set_estimates([(0, 256), (0, 64)])
    algorithm = load(output)
    for planned in schedule_cpu(algorithm, MACHINE, k=3):
        assert check(planned.schedule, algorithm) == []
    lonely = hl.Func("lonely")
    lonely[x, y] = image[x, y] // 3
    both = [hl.Func("one"), hl.Func("two")]
    for f in both:
        f[i, y] = 0
        f[hl.i32(lonely[r.x, y]), y] += 1
        f.set_estimates([(0, 256), (0, 64)])
    algorithm = load(both)
    for planned in schedule_cpu(algorithm, MACHINE, k=3):
        assert check(planned.schedule, algorithm) == []


def test_a_reduction_read_also_across_a_short_dimension_stays_in_registers() -> None:
    image = hl.ImageParam(hl.Float(32), 3, "image")
    image.set_estimates([(0, 1536 + 8), (0, 1024), (0, 4)])
    x, y, c = hl.vars("x y c")
    r = hl.RDom([(0, 9)], "r")
    summed, output = hl.Func("summed"), hl.Func("output")
    summed[x, y, c] = hl.f32(0.0)
    summed[x, y, c] += image[x + r.x, y, c]
    output[x, y, c] = summed[x, y, c] / summed[x, y, 3]
    output.set_estimates([(0, 1536), (0, 1024), (0, 3)])
    algorithm = load(output)
    schedule = schedule_cpu(algorithm, MACHINE)[0].schedule
    by_name = {algorithm.funcs[f.func].name.split("$")[0]: f for f in schedule.funcs}
    inner = by_name["summed"]
    assert inner.compute.kind == "at"
    loops = [loop.name for loop in by_name["output"].stages[0].loops]
    # Inside one block of the output: every channel of it comes from the same sums.
    channels = max(i for i, name in enumerate(loops) if name.startswith("v2u"))
    assert loops.index(inner.compute.loop) > channels
    got = run(algorithm, schedule)
    want = run(algorithm, naive_schedule(algorithm, "host"))
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4)


def test_a_reduction_is_computed_in_its_readers_innermost_block() -> None:
    sys.path.insert(0, str(EXAMPLES))
    example = importlib.import_module("conv_layer")
    algorithm = load(example.conv_layer(**example.SMALL))
    schedule = schedule_cpu(algorithm, MACHINE)[0].schedule
    by_name = {algorithm.funcs[f.func].name.split("$")[0]: f for f in schedule.funcs}
    reader = algorithm.funcs[by_name["conv"].compute.func].name
    assert reader.startswith("relu")
    loops = by_name["conv"].stages[1].loops
    mapped = [loop.mapping for loop in loops]
    assert mapped[0] == "vectorized"
    assert mapped.index("unrolled") < [loop.name[0] for loop in loops].index("r")


def test_extern_stages_and_what_only_they_read_are_left_at_root() -> None:
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    before, extern, after = hl.Func("before"), hl.Func("extern"), hl.Func("after")
    before[x, y] = image[x, y] + 1.0
    arguments = [hl.ExternFuncArgument(before), hl.ExternFuncArgument(image)]
    extern.define_extern("user_stage", arguments, [hl.Float(32)], [x, y])
    after[x, y] = extern[x, y] * 2.0
    after.set_estimates([(0, 200), (0, 100)])
    algorithm = load(after)
    for planned in schedule_cpu(algorithm, MACHINE, k=5):
        assert not check(planned.schedule, algorithm)
        placed = {entry.func: entry for entry in planned.schedule.funcs}
        assert placed[algorithm.order[before.name()]].compute.kind == "root"
        # Without an entry, Halide would call it for each vector of its reader.
        entry = placed[algorithm.order[extern.name()]]
        assert entry.compute.kind == "root"
        assert not entry.stages
        assert "an extern stage, at root" in planned.groups[0].notes


@pytest.mark.parametrize(
    ("extent", "first"),
    [(100, 36), (128, 64), (200, 128), (64, 0), (40, 0)],
)
def test_the_middle_tile_lies_inside_the_output(extent: int, first: int) -> None:
    (tile,) = middle_tile([64], (Interval(5.0, 5.0 + extent - 1.0),))
    assert (tile.lo, tile.hi) == (5.0 + first, 5.0 + first + min(64, extent) - 1.0)
