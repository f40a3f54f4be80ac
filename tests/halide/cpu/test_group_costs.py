"""Cycles of whole groups, worked out by hand.

Four cores at 2 GHz; 32 KiB, 512 KiB, 8 MiB; memory gives 5 bytes per cycle, 8 lanes of 32 bits.
"""

import dataclasses

import halide as hl
import numpy as np
import pytest
from cpu_machines import TIMED_CORES as MACHINE

from tilewright.halide.analysis.bounds import Interval
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.inline import (
    _moved_cycles,
    _points,
    _substituted_cycles,
    hopeless,
    inline_trivial,
)
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.nested import nest_reductions
from tilewright.halide.schedulers.analytic.cpu.regions import Window
from tilewright.halide.schedulers.analytic.cpu.scheduler import InliningSearch
from tilewright.halide.schedulers.analytic.cpu.tiling import CpuPlan, Policy, Tiling
from tilewright.halide.schedulers.analytic.grouping import Group, Grouping
from tilewright.machines.cpu import Cache

MODEL = model_of(MACHINE)


def costing(output, inline=("image_im",)):
    """The costs of a pipeline with wrappers of inputs inlined, and its Funcs by bare name."""
    algorithm = load(output)
    names = {f.name.split("$")[0]: f.name for f in algorithm.funcs}
    view = View(algorithm, frozenset(names[n] for n in inline if n in names))
    analysis = Analysis(view, estimated_boxes(view), algorithm.symbols)
    return CpuCosts(analysis, MODEL, nest_reductions(analysis)), names


def scaled(width, height):
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y = hl.vars("x y")
    output = hl.Func("output")
    output[x, y] = image[x, y] * 2.0
    output.set_estimates([(0, width), (0, height)])
    return output


def columns(width, height):
    """A sum down the columns of a product."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y = hl.vars("x y")
    inner, output = hl.Func("inner"), hl.Func("output")
    inner[x, y] = image[x, y] * image[x, y]
    output[x, y] = inner[x, y] + inner[x, y + 1]
    output.set_estimates([(0, width), (0, height)])
    return output


def transposed(width, height):
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y = hl.vars("x y")
    output = hl.Func("output")
    output[x, y] = image[y, x] + image[x, y]
    output.set_estimates([(0, width), (0, height)])
    return output


def costed(costs, names, members, tiles, order=None, window=None, deep=False):
    group = Group(tuple(names[name] for name in members))
    rows = np.array([tiles], dtype=np.float64)
    regions = costs.regions(
        group, rows, order or range(len(tiles)), () if window is None else (window,)
    )
    return costs.costs(group, regions, window, deep)


def test_one_stage_in_four_tiles():
    costs, names = costing(scaled(64, 32))
    found = costed(costs, names, ["output"], (64, 8))
    # A block of 8: product 0.6, load 1.2, store 1, loop 0.4: 3.2. A tile has 64 blocks in 8 rows
    # of 8 cycles each: 204.8 + 64 = 268.8. Four tiles on four cores, the last 8% late.
    split = 1.08 / 4
    assert found.compute[0] == pytest.approx(4 * 268.8 * split)
    # All 32 rows of (64 + 7.5) floats are 9,152 bytes, at most the image's 8,192: they fit every
    # cache, so they come once; the output's 8,192 leave once.
    assert found.l2[0] == pytest.approx(16_384 / 32 * split)
    assert found.l3[0] == pytest.approx(16_384 / 8 * split)
    assert found.memory[0] == 0
    # A tile: 60 for its loops, 60 for its one stretch of memory; 20,000 for the parallel loop,
    # 4,000 / 4 for each task.
    assert found.overhead[0] == pytest.approx(4 * 120 * split + 20_000 + 4 * 1000)
    largest = found.l3[0]
    others = found.compute[0] + found.l2[0]
    expected = largest + 0.3 * others + found.overhead[0]
    assert found.cycles[0] == pytest.approx(expected)
    assert (found.tile_bytes[0], found.tasks[0], found.root_bytes, found.fault) == (0, 4, 0, 0)


def test_a_large_image_comes_from_memory():
    costs, names = costing(scaled(1024, 2048))
    found = costed(costs, names, ["output"], (1024, 64))
    # 8 MiB in and, its lines fetched first, 16 MiB out: at 5 bytes per cycle for all cores.
    inside = 1024 * 2048 * 4
    # A tile reads 64 rows of 1,031.5 floats; 32 of them, but never more than there is.
    touched = min(32 * 64 * 1031.5 * 4, inside * 32)
    assert found.memory[0] == pytest.approx((touched + 2 * inside) / 5)


def test_members_are_held_written_and_read():
    costs, names = costing(columns(64, 32))
    found = costed(costs, names, ["inner", "output"], (64, 8))
    # Nine rows of the member for eight of the output, 4 bytes each.
    assert found.tile_bytes[0] == 64 * 9 * 4
    # Inner: product 0.6, load 1.2, store 1, loop 0.4 in 72 blocks and 9 rows; output: 0.6 + 2.4
    # + 1 + 0.4 in 64 and 8.
    tile = 72 * 3.2 + 9 * 8 + 64 * 4.4 + 8 * 8
    assert found.compute[0] == pytest.approx(4 * tile * 0.27)
    # 60 more for the member's loops.
    assert found.overhead[0] == pytest.approx(4 * 180 * 0.27 + 24_000)
    # 33 rows of the image, 8,448 bytes, and the output.
    assert found.l2[0] == pytest.approx((33 * 64 * 4 + 32 * 64 * 4) / 32 * 0.27)


def test_tiles_are_looked_at_in_the_middle_of_the_output():
    """Where the regions of tiles differ, those at the borders are the smaller ones."""
    image = hl.ImageParam(hl.Float(32), 1, "image")
    x = hl.Var("x")
    inner, output = hl.Func("inner"), hl.Func("output")
    inner[x] = image[x] * 2.0
    output[x] = inner[hl.clamp(x - 8, 100, 163)] + inner[hl.clamp(x, 100, 163)]
    output.set_estimates([(100, 64)])
    costs, names = costing(output)
    # Tiles of 16 from 100: the one in the middle, 132 to 147, reads 124 to 147.
    found = costed(costs, names, ["inner", "output"], (16,))
    assert found.tile_bytes[0] == 24 * 4


def test_the_second_of_two_tiles_ends_with_the_output():
    """It would reach beyond the clamped rows, and seem to need next to nothing."""
    image = hl.ImageParam(hl.Float(32), 1, "image")
    x = hl.Var("x")
    inner, output = hl.Func("inner"), hl.Func("output")
    inner[x] = image[x] * 2.0
    output[x] = inner[hl.clamp(x - 1, 0, 63)]
    output.set_estimates([(0, 66)])
    costs, names = costing(output)
    # Tiles of 64: the last, 2 to 65, reads 1 to 63.
    found = costed(costs, names, ["inner", "output"], (64,))
    assert found.tile_bytes[0] == 63 * 4


def test_members_that_outgrow_the_first_cache_pass_the_second():
    costs, names = costing(columns(1024, 32))
    # Nine rows of 4 KiB: 36,864 bytes, written and read in each of four tiles.
    found = costed(costs, names, ["inner", "output"], (1024, 8))
    # Of the image a tile reads nine rows of 1,031.5; all of it does not fit the first cache.
    image = 4 * 9 * 1031.5 * 4
    expected = 4 * 2 * 36_864 + image + 32 * 4096
    assert found.l2[0] == pytest.approx(expected / 32 * 0.27)
    # The second level gets the image once, 33 rows, and the output.
    assert found.l3[0] == pytest.approx((33 * 4096 + 32 * 4096) / 8 * 0.27)
    # More than 16 KiB: from the heap.
    assert found.overhead[0] == pytest.approx(4 * (180 + 250) * 0.27 + 24_000)


def test_a_window_holds_less_and_costs_a_pass_per_row():
    costs, names = costing(columns(1024, 32))
    found = costed(costs, names, ["inner", "output"], (1024, 8), window=Window(1))
    # Two rows instead of nine: they stay in the first cache and on the stack.
    assert found.tile_bytes[0] == 2 * 4096
    assert found.overhead[0] == pytest.approx(4 * (120 + 8 * 180) * 0.27 + 24_000)
    # Two rows per step: half as many passes.
    found = costed(costs, names, ["inner", "output"], (1024, 8), window=Window(1, 2))
    assert found.overhead[0] == pytest.approx(4 * (120 + 4 * 180) * 0.27 + 24_000)
    assert found.tile_bytes[0] == 3 * 4096
    # Block by block: 3.7 cycles for each of 1,024 blocks.
    found = costed(costs, names, ["inner", "output"], (1024, 8), window=Window(1), deep=True)
    assert found.overhead[0] == pytest.approx(4 * (120 + 1024 * 3.7) * 0.27 + 24_000)


def test_a_buffer_at_root_of_over_32_mib_is_faulted_in():
    costs, names = costing(columns(4096, 2048))
    found = costed(costs, names, ["inner"], (4096, 64))
    whole = 4096 * 2049 * 4
    assert found.root_bytes == whole
    assert found.fault == whole * 1.5 / 4
    small, names = costing(columns(4096, 2046))
    found = costed(small, names, ["inner"], (4096, 64))
    assert found.fault == 0
    assert found.root_bytes == 4096 * 2047 * 4


def test_a_member_of_over_32_mib_is_faulted_in_too():
    costs, names = costing(columns(4096, 4096))
    found = costed(costs, names, ["inner", "output"], (4096, 4096))
    held = 4096 * 4097 * 4
    # One tile of one core (4.32 / 4): 250 for the allocation.
    each = 60 + 60 + 60 + 250 + held * 1.5
    assert found.overhead[0] == pytest.approx(each * 4.32 / 4 + 20_000 + 1000)


@pytest.mark.parametrize(
    ("height", "wait"),
    [
        # 256 lines of 64 bytes are half of the first cache: no wait.
        (256, 0.0),
        # 512 lines: 32 KiB. Three cycles per point.
        (512, 3.0),
        # 1,024 lines: 64 KiB, more than a tenth of the second level: eight more.
        (1024, 11.0),
    ],
)
def test_lines_of_a_long_row_are_waited_for(height, wait):
    costs, names = costing(transposed(height, 8))
    name = names["output"]
    costs.companion = lambda *_: None  # not in small tiles
    box = (Interval(0.0, height - 1.0), Interval(0.0, 7.0))
    found = costs.func_cycles(name, box)
    # Blocks of 8: sum 0.6, one load 1.2, one gathered 12, store 1, loop 0.4; rows of 8 cycles.
    plain = height * (0.6 + 1.2 + 12.0 + 1.0 + 0.4) + 8 * 8
    assert float(found) == pytest.approx(plain + wait * height * 8)


def test_in_small_tiles_lines_are_used_up():
    costs, names = costing(transposed(1024, 1024))
    name = names["output"]
    # 256 bytes of each of a vector's 8 rows: 2 KiB at a time
    assert costs.companion_bytes == 256
    assert costs.companion(name, 0) == 1
    box = (Interval(0.0, 1023.0), Interval(0.0, 1023.0))
    plain = 1024 * 128 * (0.6 + 1.2 + 12.0 + 1.0 + 0.4) + 1024 * 8
    assert float(costs.func_cycles(name, box)) == pytest.approx(plain)


def test_a_small_first_cache_has_room_for_less_of_each_row():
    algorithm = load(transposed(64, 64))
    analysis = Analysis(View(algorithm), estimated_boxes(View(algorithm)), {})
    small = dataclasses.replace(MACHINE, caches=(Cache(1, 8 << 10, 64, 1),))
    # An eight of 64 rows of 128 bytes
    assert CpuCosts(analysis, model_of(small), {}).companion_bytes == 128


def test_steps_of_a_block_are_rounded_up():
    costs, names = costing(channels())
    name = names["output"]
    assert costs.block(name, 0) == Block(0, 8, 1, 2, 3)
    args = costs.analysis.view.by_name[name].args
    # 12 x 5 x 7: two vectors, three steps of three channels, five rows: 30 blocks in 15 lines.
    extents = dict(zip(args, (12.0, 5.0, 7.0), strict=True))
    each = costs.block_cycles(name, 0)
    assert costs.stage_cycles(name, 0, extents) == pytest.approx(30 * each + 15 * 8)


def channels():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y, c = hl.vars("x y c")
    output = hl.Func("output")
    output[x, y, c] = image[x, y] * hl.f32(c)
    output.set_estimates([(0, 64), (0, 32), (0, 3)])
    return output


def two_members(width, height):
    """Sums down the columns of sums down the columns."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y = hl.vars("x y")
    first, second, output = hl.Func("first"), hl.Func("second"), hl.Func("output")
    first[x, y] = image[x, y] * image[x, y]
    second[x, y] = first[x, y] + first[x, y + 1]
    output[x, y] = second[x, y] + second[x, y + 1]
    output.set_estimates([(0, width), (0, height)])
    return output


@pytest.mark.parametrize(
    ("window", "deep", "each"),
    [
        (None, False, 2 * 60),
        (Window(1), False, 2 * 8 * 180),
        (Window(1), True, 2 * 512 * 3.7),
    ],
)
def test_overheads_count_for_every_member(window, deep, each):
    costs, names = costing(two_members(512, 32))
    members = ["first", "second", "output"]
    found = costed(costs, names, members, (512, 8), window=window, deep=deep)
    # Without a window, 10 and 9 rows of 2 KiB are more than the stack has: two allocations.
    heap = 500 if window is None else 0
    assert found.overhead[0] == pytest.approx(4 * (120 + heap + each) * 0.27 + 24_000)


def test_members_are_held_together():
    costs, names = costing(two_members(1024, 32))
    found = costed(costs, names, ["first", "second", "output"], (1024, 8))
    # Ten and nine rows of 4 KiB, each written and read in four tiles; ten rows of the image; the
    # output.
    held = (10 + 9) * 4096
    assert found.tile_bytes[0] == held
    expected = 4 * 2 * held + 4 * 10 * 1031.5 * 4 + 32 * 4096
    assert found.l2[0] == pytest.approx(expected / 32 * 0.27)


def test_two_large_images_come_from_memory():
    one, two = (hl.ImageParam(hl.Float(32), 2, name) for name in ("image", "other"))
    x, y = hl.vars("x y")
    output = hl.Func("output")
    output[x, y] = hl.u8(one[x, y] + two[x, y])
    output.set_estimates([(0, 2048), (0, 1024)])
    costs, names = costing(output, ("image_im", "other_im"))
    found = costed(costs, names, ["output"], (2048, 1024))
    # 8 MiB each; the output, 2 MiB, stays in the third level.
    assert found.memory[0] == pytest.approx(2 * 8 * 2**20 / 5)


def two_buffers(first, second, cost=100.0):
    """A search, its costs, and a grouping of two Funcs of these root bytes and their reader.

    Each of the two takes `cost` cycles, the reader 100.
    """
    image = hl.ImageParam(hl.Float(32), 1, "image")
    x = hl.Var("x")
    one, two, output = hl.Func("one"), hl.Func("two"), hl.Func("output")
    one[x] = image[x] + 1.0
    two[x] = image[x] + 2.0
    output[x] = one[x] * two[x]
    output.set_estimates([(0, 64)])
    algorithm = load(output)
    names = {f.name.split("$")[0]: f.name for f in algorithm.funcs}
    boxes = estimated_boxes(View(algorithm))
    search = InliningSearch(algorithm, MACHINE, boxes, {}, Policy())
    costs = CpuCosts(search.base.toggled(names["image_im"]), MODEL, {})
    plans = [
        CpuPlan(cycles + fault, Tiling((), ()), root_bytes=size, fault=fault)
        for cycles, size, fault in ((cost, first, 7.0), (cost, second, 0.0), (100.0, 0.0, 0.0))
    ]
    groups = tuple(Group((names[n],)) for n in ("one", "two", "output"))
    return search, costs, Grouping(groups, tuple(plans)), names


@pytest.mark.parametrize(
    ("first", "second", "fresh"),
    [
        (20e6, 9e6, 0.0),
        (20e6, 19e6, 0.0),
        # A heap of twice its largest block is given back.
        (20e6, 20e6, 40e6),
        # What the C library keeps anyway.
        (0.5e6, 0.5e6, 0.0),
        (40e6, 1e6, 40e6),
        (40e6, 50e6, 90e6),
    ],
)
def test_fresh_pages_of_all_buffers_together(first, second, fresh):
    search, costs, grouping, _names = two_buffers(first, second)
    # What each group was charged alone does not count again.
    assert search.total(costs, grouping) == pytest.approx(300.0 + fresh * 1.5 / 4)


def test_a_cheap_func_is_revised_where_its_buffer_may_fault():
    # Neither is worth a look for its cycles, a hundredth of the reader's.
    search, costs, grouping, names = two_buffers(0.0, 20e6, cost=1.0)
    assert search._revisions(costs, grouping, frozenset()) == [names["two"]]


def test_bytes_of_buffers():
    costs, names = costing(columns(64, 32))
    assert costs.buffer_bytes("image") == 64 * 33 * 4
    assert costs.buffer_bytes(names["inner"]) == 64 * 33 * 4
    assert costs.buffer_bytes("nowhere") == 4


def reduction(size=64):
    """A matrix product read point by point."""
    x, y = hl.vars("x y")
    a, b = hl.ImageParam(hl.Float(32), 2, "A"), hl.ImageParam(hl.Float(32), 2, "B")
    k = hl.RDom([(0, size)], "k")
    product, output = hl.Func("product"), hl.Func("output")
    product[x, y] = 0.0
    product[x, y] += a[x, k] * b[k, y]
    output[x, y] = product[x, y] * 2.0
    output.set_estimates([(0, size), (0, size)])
    return output


@pytest.mark.parametrize(("rows", "runs"), [(8, 2), (10, 3)])
def test_runs_of_blocks_of_a_reduction_read_their_own_part(rows, runs):
    costs, names = costing(reduction(1024), ("A_im", "B_im"))
    found = costed(costs, names, ["product", "output"], (1024, rows))
    block = costs.block(names["output"], 0)
    assert costs.nested[names["product"]].host == names["output"]
    # All stages of the reduction and its reader have one block.
    assert costs.block(names["product"], 0) == costs.block(names["product"], 1) == block
    # A tile is runs of blocks along x, four rows each. Each run reads all of A, 4 MiB, and its
    # rows of B with half a line more. That is more than the first cache holds, but no shorter
    # sweep differs: it comes for every run, and the output leaves once.
    assert block.rows == 4
    run = 1024 * 1024 * 4 + (1024 + 7.5) * 4 * 4
    tiles = np.ceil(1024 / rows)
    split = np.ceil(tiles / 4) * 4 / tiles + 0.08 * 4 / tiles
    expected = runs * tiles * run + 1024 * 1024 * 4
    assert found.l2[0] * 32 * 4 / split == pytest.approx(expected)


@pytest.mark.parametrize(("terms", "expected"), [(16, False), (17, True)])
def test_a_stencil_read_by_a_stencil_is_not_inlined(terms, expected):
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y = hl.vars("x y")
    inner, output = hl.Func("inner"), hl.Func("output")
    inner[x, y] = sum((image[x + i, y] for i in range(1, terms + 1)), image[x, y])
    output[x, y] = sum((inner[x, y + i] for i in range(1, 9)), inner[x, y])
    output.set_estimates([(0, 64), (0, 64)])
    costs, names = costing(output)
    assert hopeless(costs, names["inner"], [names["output"]]) is expected


@pytest.mark.parametrize(("reads", "expected"), [(8, False), (9, True)])
def test_few_reads_may_be_inlined(reads, expected):
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y = hl.vars("x y")
    inner, output = hl.Func("inner"), hl.Func("output")
    inner[x, y] = sum((image[x + i, y] for i in range(1, 20)), image[x, y])
    output[x, y] = sum((inner[x, y + i] for i in range(1, reads)), inner[x, y])
    output.set_estimates([(0, 64), (0, 64)])
    costs, names = costing(output)
    assert hopeless(costs, names["inner"], [names["output"]]) is expected


def inlined(build, bias=1.0):
    algorithm = load(build)
    base = Analysis(View(algorithm), estimated_boxes(View(algorithm)), {})
    found = inline_trivial(base, MODEL, bias).view.inlined
    return {name.split("$")[0] for name in found}


def twice(operations, reads):
    """A Func of some additions, read at some points along a row."""
    image = hl.ImageParam(hl.Float(32), 1, "image")
    x = hl.Var("x")
    inner, output = hl.Func("inner"), hl.Func("output")
    value = image[x]
    for i in range(operations):
        value = hl.abs(value + float(i + 1))
    inner[x] = value
    output[x] = sum((inner[x + 3 * i] for i in range(1, reads)), inner[x])
    output.set_estimates([(0, 80_000)])
    return output


def test_what_inlining_saves_and_repeats_by_hand():
    costs, names = costing(columns(16, 8))
    inner, output = names["inner"], names["output"]
    region = costs.analysis.regions[inner]
    # 16 x 9 floats go to the second-level cache and back, at 32 bytes per cycle.
    assert _moved_cycles(costs, inner, region) == 2 * 16 * 9 * 4 / 32
    # Three cycles for each of the 144 values; each of the 128 sums computes two of them.
    assert _substituted_cycles(costs, inner, [output], 3.0 * 144) == 128 * 2 * 3.0
    # 800 operations, substituted at two reads, are more than are looked at.
    large, names = costing(twice(400, 2))
    assert _substituted_cycles(large, names["inner"], [names["output"]], 1.0) == np.inf


def test_inlining_weighs_recomputing_against_keeping():
    # One operation more per use is cheaper than a store and two ways through the second cache;
    # per vector of 8: apart: inner 0.6 n + 1.2 + 1 + 0.4, output 0.6 + 2.4 + 1 + 0.4, moved
    # 2 x 32 / 32 = 2. Together: 1.2 n + 0.6 + 2.4 + 1 + 0.4. They meet at 0.6 n = 2.6 + 2, plus
    # rows of 8 cycles: n = 7.67 operations. Two operations (sum and magnitude) a step.
    assert inlined(twice(3, 2)) == {"image_im", "inner"}
    assert inlined(twice(4, 2)) == {"image_im"}
    # Half the price: meets where 1.2 n + 4.4 = 0.5 (0.6 n + 9): n = 0.1.
    assert "inner" not in inlined(twice(1, 2), bias=0.5)
    # Twice: 1.2 n + 4.4 = 1.2 n + 18: always, up to 16 operations that are read 8 times.
    assert "inner" in inlined(twice(8, 2), bias=2.0)


def updated(terms):
    """A Func that is cheap before its update, which adds this many values, read in nine rows."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y = hl.vars("x y")
    inner, output = hl.Func("inner"), hl.Func("output")
    inner[x, y] = 0.0
    inner[x, y] += sum((image[x + i, y] for i in range(1, terms)), image[x, y])
    output[x, y] = sum((inner[x, y + i] for i in range(1, 9)), inner[x, y])
    output.set_estimates([(0, 64), (0, 64)])
    return output


@pytest.mark.parametrize(("terms", "expected"), [(16, False), (17, True)])
def test_the_dearest_stage_decides_what_is_a_stencil(terms, expected):
    # As many additions as terms: the update adds to what is there.
    costs, names = costing(updated(terms))
    assert hopeless(costs, names["inner"], [names["output"]]) is expected


@pytest.mark.parametrize(("steps", "expected"), [(373, 2 * 80_000 * 1.0), (374, np.inf)])
def test_no_reader_may_exceed_what_compilers_take(steps, expected):
    # Two operations a step and a load, at two reads; a sum and two loads of its own: 2 x 747 + 3
    # are less than 1,500, 2 x 749 + 3 are more.
    costs, names = costing(twice(steps, 2))
    inner = names["inner"]
    (region,) = costs.analysis.regions[inner]
    alone = float(region.extent)  # a cycle per value
    assert _substituted_cycles(costs, inner, [names["output"]], alone) == expected


def test_the_dearest_stage_is_written_out():
    # 166 additions and 167 loads, at nine reads: over 1,500. Of the first stage, none.
    costs, names = costing(updated(166))
    found = _substituted_cycles(costs, names["inner"], [names["output"]], 1.0)
    assert found == np.inf


def test_points_of_a_region():
    assert _points((Interval(2.0, 5.0), Interval(0.0, 2.0))) == 12
    assert _points(()) == 1
    assert _points((Interval(0.0, -1.0),)) == 1
