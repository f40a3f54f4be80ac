"""Cycles of operations, loads and blocks, worked out by hand for 16 registers of 32 bytes."""

import dataclasses
from dataclasses import replace

import pytest

from tilewright.halide.analysis.operation_counts import OpCount
from tilewright.halide.analysis.summaries import Load, StageSummary
from tilewright.halide.ir.algorithm import Loop, Type, Variable
from tilewright.halide.schedulers.analytic.cpu.block_choice import best_block, gathered_elements
from tilewright.halide.schedulers.analytic.cpu.blocks import SCALAR, Block
from tilewright.halide.schedulers.analytic.cpu.known_blocks import form
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.register_block import (
    block_cycles,
    border_share,
    companion,
    crossings,
    load_cycles,
    natural_lanes,
    op_cycles,
    separated,
    value_bytes,
)
from tilewright.machines import CpuMachine

MODEL = model_of(CpuMachine("test", "x86-64", 4, ("avx2",), 256, ()))
F32, F64 = Type("float", 32), Type("float", 64)
I16, I32, I64 = Type("int", 16), Type("int", 32), Type("int", 64)
U8, U16, BOOL = Type("uint", 8), Type("uint", 16), Type("uint", 1)
X, Y, R = Loop("x", "pure"), Loop("y", "pure"), Loop("r", "impure_rvar")
LOOPS = {0: "x", 1: "y"}


def first(name):
    return 0


def op(name, type_=F32, loops="x", count=1, literal=False):
    return OpCount(name, type_, frozenset(loops), literal, count)


def load(strides, callee="in", type_=F32, indirect=False, clamped=""):
    return Load(callee, "image", type_, strides, indirect, frozenset(clamped))


def stage(
    ops=(), loads=(), loops=(X, Y), types=(F32,), scatter=False, args=("x", "y"), divided=None
):
    variables = tuple(Variable(name, "var", I32) for name in args)
    counts = tuple(ops)
    return StageSummary(
        "f", 0, loops, (), tuple(loads), counts, types, variables, scatter, counts, divided or {}
    )


@pytest.mark.parametrize(
    ("name", "type_", "literal", "lanes", "expected"),
    [
        ("add", F32, False, 8, 0.6),  # one register
        ("add", F32, False, 16, 1.2),  # two
        ("add", F32, False, 1, 0.6),  # a scalar takes one as well
        ("add", F64, False, 8, 1.2),
        ("add", U8, False, 33, 1.2),
        ("sub", I32, False, 8, 0.6),
        ("min", I32, False, 8, 0.6),
        ("abs", F32, False, 8, 0.6),
        ("floor_f32", F32, False, 8, 0.6),
        ("and", BOOL, False, 8, 0.3),
        ("or", BOOL, False, 64, 0.6),
        ("not", BOOL, False, 8, 0.3),
        ("select", F32, False, 8, 0.8),
        ("cast", F32, False, 8, 1.0),
        ("reinterpret", F32, False, 8, 0.0),
        ("absd", I32, False, 8, 1.2),
        ("lerp", F32, False, 8, 4.0),
        ("mul", F32, False, 8, 0.6),
        ("mul", I16, False, 16, 0.6),
        ("mul", I32, False, 8, 1.2),
        ("mul", I64, False, 8, 5.0),  # two registers of 2.5
        ("div", F32, False, 8, 10.0),
        ("div", F32, False, 16, 20.0),
        ("div", F32, True, 16, 1.2),
        ("div", I16, True, 64, 8.0),
        ("div", F32, True, 8, 0.6),
        ("div", I16, True, 16, 2.0),
        ("div", I32, True, 8, 4.0),
        ("mod", I32, True, 16, 8.0),
        ("div", I32, False, 8, 96.0),  # 12 for each lane
        ("mod", I32, False, 1, 12.0),
        ("sqrt_f32", F32, False, 16, 20.0),
        ("exp_f32", F32, False, 8, 16.0),
        ("log_f32", F32, False, 16, 32.0),
        ("pow_f32", F32, False, 8, 40.0),
        ("pow_f32", F32, False, 16, 80.0),
        ("sin_f32", F32, False, 8, 160.0),  # the library's, 20 for each lane
        ("atan2_f32", F32, False, 8, 160.0),
    ],
)
def test_operations(name, type_, literal, lanes, expected):
    assert op_cycles(op(name, type_, literal=literal), lanes, MODEL) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("steps", "lanes", "expected"),
    [
        ((1.0, 0.0), 8, 1.2),
        ((1.0, 0.0), 16, 2.4),
        ((-1.0, 0.0), 8, 2.2),
        ((0.5, 0.0), 8, 2.0),  # half a register and a shuffle
        ((0.5, 0.0), 16, 3.0),
        ((2.0, 0.0), 8, 3.9),  # 2 x 1.2 + 1 x 1.5
        ((-2.0, 0.0), 8, 3.9),
        ((4.0, 0.0), 8, 9.3),  # 4 x 1.2 + 3 x 1.5
        ((5.0, 0.0), 8, 12.0),  # gathered, 1.5 for each lane
        ((0.25, 0.0), 8, 2.5),
        ((0.25, 0.0), 16, 5.0),
        ((-1.0, 0.0), 16, 4.4),
        ((2.0, 0.0), 16, 7.8),
        ((0.0, 0.0), 8, 12.0),
        ((0.0, 1.0), 8, 12.0),
        ((1.0, 1.0), 8, 12.0),
        (None, 8, 12.0),
        ((1.0, 0.0), 1, 0.6),
    ],
)
def test_loads(steps, lanes, expected):
    found = load_cycles(load({"x": steps}), "x", lanes, MODEL, first)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("divisor", "lanes", "steps", "unaligned", "aligned"),
    [
        (2, 8, (0.5, 0.0), 2.0, 2.0),  # Halide separates even and odd lanes
        (4, 8, (0.25, 0.0), 2.5, 2.5),
        (4, 4, (0.25, 0.0), 6.0, 2.5),  # too few lanes; gathered, 1.5 for each
        (3, 8, (1 / 3, 0.0), 12.0, 12.0),  # 3 and 8 have nothing in common
        (8, 8, (0.125, 0.0), 12.0, 2.5),
        (8, 8, (1.0, 0.0), 12.0, 2.5),  # x // 8 * 8
        (8, 16, (1.0, 0.0), 24.0, 5.0),
        (8, 8, None, 12.0, 2.5),  # x % 8
        (8, 16, None, 24.0, 24.0),
    ],
)
def test_loads_from_divided_coordinates(divisor, lanes, steps, unaligned, aligned):
    divided = replace(load({"x": steps}), divisors={"x": divisor})
    assert load_cycles(divided, "x", lanes, MODEL, first) == pytest.approx(unaligned)
    known = replace(divided, aligned=frozenset("x"))
    assert load_cycles(known, "x", lanes, MODEL, first) == pytest.approx(aligned)


def test_loads_that_do_not_depend_on_the_vector_are_scalar():
    assert load_cycles(load({"y": (0.0, 1.0)}), "x", 8, MODEL, first) == 0.6
    assert load_cycles(load({"x": (1.0, 0.0)}), None, 8, MODEL, first) == 0.6


def test_the_contiguous_dimension_need_not_be_the_first():
    assert load_cycles(load({"x": (0.0, 1.0)}), "x", 8, MODEL, lambda name: 1) == 1.2


@pytest.mark.parametrize(
    ("ops", "types", "expected"),
    [
        ([op("add")], (F32,), 8),
        ([op("add", U8)], (U8,), 32),
        ([op("add", F64)], (F64,), 4),
        # A fifth of the operations decides: 2 of 10, not 2 of 11.
        ([op("add", U8, count=8), op("add", U16, count=2)], (U8,), 16),
        ([op("add", U8, count=9), op("add", U16, count=2)], (U8,), 32),
        # Casts, comparisons' results and addresses do not count; stored values do.
        ([op("add", U8), op("cast", F32, count=9), op("lt", BOOL, count=9)], (U8,), 32),
        ([op("add", U8)], (U16,), 16),
        ([op("add", F32)], (U8, U8), 8),
        ([], (F64, U8), 4),
        ([], (), 8),
    ],
)
def test_natural_lanes(ops, types, expected):
    assert natural_lanes(stage(ops, types=types), MODEL) == expected


@pytest.mark.parametrize(
    ("stored", "loaded", "lanes"),
    [(U8, U8, 16), (U16, F32, 16), (F32, U8, 16), (F32, F32, 8), (F64, F64, 4)],
)
def test_floats_between_narrow_values_get_twice_the_lanes(stored, loaded, lanes):
    narrow = stage(
        [op("add", F32, count=4)], [load({"x": (1.0,)}, type_=loaded)], loops=(X,), types=(stored,)
    )
    assert best(narrow, {0: 1024.0}).lanes == lanes


@pytest.mark.parametrize(("loaded", "lanes"), [(U8, 16), (U16, 8), (I32, 8)])
def test_reductions_of_values_that_fill_no_register_get_twice_the_lanes(loaded, lanes):
    row = load({"x": (1.0, 0.0), "r": (0.0, 1.0)}, type_=loaded)
    weight = load({"r": (1.0, 0.0)}, "weights", type_=loaded)
    total = stage([op("add", I32, "xr")], [row, weight], loops=(X, R), types=(I32,), args=("x",))
    assert best(total, {0: 1024.0}, nested=True).lanes == lanes


def test_vectors_have_at_least_four_lanes():
    sse = model_of(CpuMachine("test", "x86-64", 1, (), 128, ()))
    assert natural_lanes(stage([op("add", F64)], types=(F64,)), sse) == 4


POINTWISE = stage([op("add")], [load({"x": (1.0, 0.0)}), load({"x": (1.0, 0.0), "y": (0.0, 1.0)})])


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        # add 0.6, two loads 2.4, one register stored 1, the loop 0.4
        (Block(0, 8), 4.4),
        # two registers of each
        (Block(0, 16), 8.4),
        (Block(0, 8, 2), 8.4),
        # Three rows: the sum and one load do not depend on y: 0.6 + 1.2 + 3 x 1.2 + 3 + 0.4
        (Block(0, 8, 1, 1, 3), 8.8),
        # scalar: 0.6 + 2 x 0.6 + 1 + 0.4
        (SCALAR, 3.2),
        # Vectors along y: the sum and one load are the same for all lanes: 0.02 + 0.2 x 0.6; the
        # other crosses rows (12), and so do the stores (1.5 x 8).
        (Block(1, 8), 0.02 + 0.12 + 12.0 + 12.0 + 0.4),
    ],
)
def test_blocks_of_a_pure_stage(block, expected):
    assert block_cycles(POINTWISE, LOOPS, block, MODEL, first) == pytest.approx(expected)


def test_a_stage_that_does_not_run_along_the_vectors_is_scalar():
    summary = stage([op("add", loops="y")], [load({"y": (0.0, 1.0)})])
    # 0.6 + 0.6 + 1 + 0.4
    assert block_cycles(summary, {1: "y"}, Block(0, 8), MODEL, first) == pytest.approx(2.6)


SUM = stage(
    [op("add", loops="xyr"), op("mul", loops="xyr"), op("cast", loops="x")],
    [
        load({"x": (1.0, 0.0), "y": (0.0, 1.0)}, "f"),
        load({"x": (1.0, 0.0), "r": (0.0, 1.0)}),
        load({"y": (0.0, 1.0), "r": (1.0, 0.0)}, "other"),
    ],
    loops=(X, Y, R),
)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        # Per step: add and mul 1.2, a tenth of the cast 0.1, a tenth of the accumulator's load
        # 0.12, one vector 1.2, one broadcast 0.6: 3.22, less than the chain of 4. A tenth of a
        # store 0.1, the loop 1.5.
        (Block(0, 8), 5.6),
        # Two vectors: 2.4 + 0.2 + 0.24 + 2.4 + 0.6 = 5.84, stores 0.2, loop 1.5.
        (Block(0, 8, 2), 7.54),
        # Two vectors of four rows, 8 accumulators and 4 operands in 12 registers: 9.6 + 0.2
        # + 0.96 + 2.4 + 2.4 = 15.56; stores 0.8, loop 1.5.
        (Block(0, 8, 2, 1, 4), 17.86),
        # Two vectors of six rows: 12 + 4 in 12 registers, four spilled at 2 cycles: 14.4 + 0.2
        # + 1.44 + 2.4 + 3.6 = 22.04, 8, stores 1.2, loop 1.5.
        (Block(0, 8, 2, 1, 6), 32.74),
    ],
)
def test_blocks_of_a_nested_reduction(block, expected):
    assert block_cycles(SUM, LOOPS, block, MODEL, first, nested=True) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        # One row: as where it is nested.
        (Block(0, 8, 2), 7.54),
        # Four rows: each step loads and stores the 8 accumulators. Add and mul 9.6, a tenth of
        # the cast 0.2, accumulators 9.6, two vectors 2.4, four broadcasts 2.4: 24.2; stores 8,
        # loop 1.5.
        (Block(0, 8, 2, 1, 4), 33.7),
    ],
)
def test_rows_of_a_reduction_in_memory_are_loaded_and_stored(block, expected):
    assert block_cycles(SUM, LOOPS, block, MODEL, first) == pytest.approx(expected)


def test_a_part_of_a_register_takes_as_long_as_all_of_it():
    narrow = stage([op("add", U8)], [load({"x": (1.0, 0.0)}, type_=U8)], types=(U8, U8))
    # add 0.6, load 1.2, two values stored, the loop 0.4
    assert block_cycles(narrow, LOOPS, Block(0, 8), MODEL, first) == pytest.approx(4.2)


@pytest.mark.parametrize("extents", [{0: 1024, 1: 5}, {0: 20, 1: 1024}, {0: 9, 1: 7}])
def test_the_best_block_counts_what_hangs_over(extents):
    def whole(block):
        steps = -(-extents[0] // block.width) * -(-extents[1] // block.rows)
        return steps * block_cycles(SUM, LOOPS, block, MODEL, first)

    found = best(SUM, extents)
    assert found.vector == 0
    assert found.width <= extents[0] or found.vectors == 1
    for lanes in (4, 8):
        for vectors in (1, 2, 3, 4):
            for rows in (2, 3, 4, 6, 8):
                if lanes * vectors <= extents[0] and rows <= extents[1]:
                    other = Block(0, lanes, vectors, 1, rows)
                    assert whole(found) <= whole(other) * 1.000001


def test_more_registers_spill_less():
    many = model_of(CpuMachine("test", "x86-64", 4, ("avx512",), 512, ()))
    # 16 lanes now fill a register: 12 + 4 in 28.
    found = block_cycles(SUM, LOOPS, Block(0, 16, 2, 1, 6), many, first, nested=True)
    assert found == pytest.approx(32.74 - 8.0)


def test_scatters_wait_for_what_was_just_stored():
    counting = stage(
        [op("add", I32, loops="r")],
        [load({"r": None}, "f", I32, indirect=True)],
        loops=(Y, R),
        types=(I32,),
        scatter=True,
        args=("x", "y"),
    )
    # 0.6 + 0.6 are less than 8; a store 1, the loop 1.5.
    assert block_cycles(counting, {1: "y"}, SCALAR, MODEL, first) == pytest.approx(10.5)
    # Without reading itself it waits for nothing.
    blind = dataclasses.replace(counting, loads=(load({"r": (1.0,)}),))
    assert block_cycles(blind, {1: "y"}, SCALAR, MODEL, first) == pytest.approx(3.7)


def best(summary, extents, rank=0, whole=None, nested=False):
    loops = {d: name for d, name in LOOPS.items() if d in extents}
    return best_block(summary, loops, extents, MODEL, first, rank, whole, nested)


@pytest.mark.parametrize(
    ("extent", "expected"),
    [
        (1024, Block(0, 8)),
        # Five of eight lanes cost 4.4 / 8 x 1.6 = 0.88 per point; four and four 1.76.
        (5, Block(0, 8)),
        # Eight lanes want at least four points: 4.4 / 4 x 4 / 3 = 1.47, scalar 3.2.
        (3, Block(0, 4)),
        (1, SCALAR),
    ],
)
def test_the_best_block_of_a_pure_stage(extent, expected):
    plain = stage([op("add")], [load({"x": (1.0,)}), load({"x": (1.0,)})], loops=(X,))
    assert best(plain, {0: extent}) == expected


@pytest.mark.parametrize(
    ("extent", "lanes"), [(1024, 32), (31, 32), (15, 16), (12, 16), (8, 8), (7, 8), (4, 4), (3, 1)]
)
def test_vectors_are_no_longer_than_rows(extent, lanes):
    # 32 bytes fill a register.
    plain = stage([op("add", U8)], [load({"x": (1.0,)}, type_=U8)], loops=(X,), types=(U8,))
    assert best(plain, {0: extent}) == (Block(0, lanes) if lanes > 1 else SCALAR)


def test_a_short_loop_over_a_library_function_stays_scalar():
    # Four lanes of which two are wanted: 80 + 1.2 + 1 + 0.4 for two points, scalars 22 each.
    plain = stage([op("sin_f32")], [load({"x": (1.0,)})], loops=(X,))
    assert best(plain, {0: 2}) == SCALAR
    assert best(plain, {0: 4}) == Block(0, 4)


@pytest.mark.parametrize(("rows", "unrolled"), [(1, False), (2, True), (4, True), (5, False)])
def test_a_short_dimension_is_unrolled_whole(rows, unrolled):
    found = best(POINTWISE, {0: 1024, 1: rows})
    assert found == (Block(0, 8, 1, 1, rows) if unrolled else Block(0, 8))


def test_a_short_dimension_is_unrolled_without_anything_in_common():
    # Along rows of memory: (0.6 + 1.2 + 1 + 0.4) / 8 = 0.4 per point, with three rows
    # (1.8 + 3.6 + 3 + 0.4) / 24 = 0.367.
    apart = stage([op("add", loops="xy")], [load({"x": (1.0, 0.0), "y": (0.0, 1.0)})])
    assert best(apart, {0: 1024, 1: 3}) == Block(0, 8, 1, 1, 3)
    # Not where vectors cross rows: they would only touch more lines at a time.
    across = stage([op("add", loops="xy")], [load({"x": (0.0, 1.0), "y": (1.0, 0.0)})])
    assert best(across, {0: 1024, 1: 3}).rows == 1


def test_the_best_block_of_a_reduction_in_memory_has_one_row():
    # Four vectors of a row: 4.8 + 0.4 + 0.48 + 4.8 + 0.6 = 11.08, stores 0.4, loop 1.5: 0.406 per
    # point; two vectors of four rows take 33.7 / 64 = 0.527.
    assert best(SUM, {0: 1024, 1: 1024}) == Block(0, 8, 4)


def test_the_best_block_of_a_nested_reduction_fills_the_registers():
    # 2 x 4 reaches 17.86 / 64 = 0.279 per point; 3 x 2 has 12.72 + 0.6 + 1.5 = 14.72 / 48,
    # 2 x 6 spills: 32.74 / 96 = 0.341.
    extents = {0: 1024, 1: 1024}
    assert best(SUM, extents, nested=True) == Block(0, 8, 2, 1, 4)
    # Next in line, within a quarter of it; with a rank beyond, the last of these.
    second, far = best(SUM, extents, 1, nested=True), best(SUM, extents, 99, nested=True)
    costs = [
        block_cycles(SUM, LOOPS, b, MODEL, first, nested=True) / b.points
        for b in (Block(0, 8, 2, 1, 4), second, far)
    ]
    assert costs == sorted(costs)
    assert second != Block(0, 8, 2, 1, 4)
    assert 1.1 * costs[0] < costs[2] <= 1.25 * costs[0]


def test_a_dimension_that_is_to_be_unrolled_whole_is():
    found = best(SUM, {0: 1024, 1: 3}, whole=1)
    assert (found.row, found.rows, found.vector) == (1, 3, 0)


def test_chains_of_updates_take_turns():
    counting = stage(
        [op("add", I32, loops="r")], [load({"r": None}, "f", I32, indirect=True)],
        loops=(Y, R), types=(I32,), scatter=True,
    )  # fmt: skip
    found = best_block(counting, {1: "y"}, {1: 100.0}, MODEL, first)
    assert found == Block(row=1, rows=4)
    assert best_block(counting, {1: "y"}, {1: 3.0}, MODEL, first) == Block(row=1, rows=2)


def test_blocks_that_gather_are_limited():
    clamped = load({"x": (1.0, 0.0), "y": (0.0, 1.0), "r": (1.0, 0.0)}, clamped="xr")
    summary = stage([op("add", loops="xyr")], [clamped], loops=(X, Y, R))
    # 8 lanes, 2 vectors and 4 rows that the load depends on
    assert gathered_elements(summary, LOOPS, Block(0, 8, 2, 1, 4), first) == 64
    assert gathered_elements(summary, LOOPS, SCALAR, first) == 0
    many = dataclasses.replace(
        summary, loads=tuple(dataclasses.replace(clamped, callee=f"in{i}") for i in range(20))
    )
    # 20 loads of 8 lanes: three vectors or rows (480) pass, four (640) do not.
    found = best(many, {0: 1024, 1: 1024})
    assert 1 < found.vectors * found.rows <= 3
    # One vector is always allowed.
    more = dataclasses.replace(many, loads=many.loads * 5)
    assert best(more, {0: 1024, 1: 1024}) == Block(0, 8)


def test_borders_are_gathered_where_the_vector_loop_is_clamped():
    strides = {"x": (1.0, 0.0), "y": (0.0, 1.0)}
    block = Block(0, 8, 2, 1, 3)
    per_lane = MODEL.constants.border_cycles

    def cycles(clamped, border, **more):
        summary = stage([], [load(strides, clamped=clamped, **more)], loops=(X, Y))
        return block_cycles(summary, LOOPS, block, MODEL, first, border=border)

    # A quarter of the lanes of 2 vectors and 3 rows.
    assert cycles("x", 0.25) - cycles("x", 0.0) == pytest.approx(0.25 * per_lane * 8 * 2 * 3)
    assert cycles("y", 0.25) == cycles("y", 0.0) == cycles("x", 0.0)
    # What is gathered through data is gathered everywhere.
    assert cycles("x", 0.25, indirect=True) == cycles("x", 0.0, indirect=True)


def test_a_block_at_each_end_is_border():
    assert border_share(Block(0, 8, 2), {0: 160.0, 1: 3.0}, MODEL, ()) == pytest.approx(0.2)
    assert border_share(Block(1, 8), {0: 160.0, 1: 64.0}, MODEL, ()) == pytest.approx(0.25)
    assert border_share(Block(0, 8, 4), {0: 40.0}, MODEL, ()) == 1.0
    assert border_share(SCALAR, {0: 40.0}, MODEL, ()) == 0.0


def test_clamped_reductions_take_narrower_blocks():
    strides = {"x": (1.0, 0.0), "y": (0.0, 1.0), "r": (1.0, 0.0)}
    # One weight serves all vectors of a row.
    weight = load({"y": (0.0, 1.0), "r": (1.0, 0.0)}, "weights")
    plain, clamped = (
        stage([op("max", loops="xyr")], [load(strides, clamped=loops), weight], loops=(X, Y, R))
        for loops in ("", "xr")
    )
    extents = {0: 1024.0, 1: 1024.0}
    wide, narrow = (best(s, extents, nested=True) for s in (plain, clamped))
    assert narrow.vectors < wide.vectors


def test_several_vectors_are_not_gathered_through_data():
    indirect = load({"x": None, "y": None, "r": None}, indirect=True)
    summary = stage([op("add", loops="xyr")], [indirect], loops=(X, Y, R))
    assert best(summary, {0: 1024, 1: 1024}).vectors == 1


def test_vectors_across_rows_and_what_lies_along_them():
    across = load({"x": (0.0, 1.0), "y": (1.0, 0.0)}, "turned")
    summary = stage([], [across, load({"x": (1.0, 0.0)})])
    assert crossings(summary, "x", first) == ("turned",)
    assert crossings(summary, None, first) == ()
    assert companion(summary, LOOPS, 0, first) == 1
    assert companion(stage([], [load({"x": (1.0, 0.0)})]), LOOPS, 0, first) is None
    # Through data: gathered, but no rows are crossed in order.
    assert crossings(stage([], [load({"x": None}, indirect=True)]), "x", first) == ()


def test_bytes_of_a_value():
    assert value_bytes((F32, U8)) == 5


def renamed(summary, names, func):
    """A stage with other names of its loops and its own Func."""
    loads = tuple(
        dataclasses.replace(
            load,
            callee=func if load.callee == summary.func else f"other_{load.callee}",
            strides={names[loop]: steps for loop, steps in reversed(load.strides.items())},
        )
        for load in summary.loads
    )
    ops = tuple(
        dataclasses.replace(op, loops=frozenset(names[loop] for loop in op.loops))
        for op in summary.ops
    )
    loops = tuple(dataclasses.replace(loop, name=names[loop.name]) for loop in summary.loops)
    return dataclasses.replace(
        summary, func=func, loops=loops, loads=loads, ops=ops, vector_ops=ops
    )


ACCUMULATION = stage(
    [op("mul", loops="xyr", count=2), op("add", loops="xyr")],
    [load({"x": (1.0, 0.0), "r": (0.0, 1.0)}), load({"x": (1.0,), "y": None}, callee="f")],
    loops=(X, Y, R),
)


def test_stages_of_equal_form_differ_in_names_alone():
    other = renamed(ACCUMULATION, {"x": "a", "y": "b", "r": "c"}, "g")
    assert form(other, {0: "a", 1: "b"}, first) == form(ACCUMULATION, LOOPS, first)
    extents = {0: 100.0, 1: 100.0}
    block = best_block(ACCUMULATION, LOOPS, extents, MODEL, first)
    assert best_block(other, {0: "a", 1: "b"}, extents, MODEL, first) == block


@pytest.mark.parametrize(
    "other",
    [
        stage(ACCUMULATION.ops, ACCUMULATION.loads, loops=(X, Y, Loop("r", "pure"))),
        stage(ACCUMULATION.ops, ACCUMULATION.loads, loops=(X, Y, R), types=(F64,)),
        stage(ACCUMULATION.ops, ACCUMULATION.loads, loops=(X, Y, R), scatter=True),
        stage(ACCUMULATION.ops, ACCUMULATION.loads[:1], loops=(X, Y, R)),
        stage(
            ACCUMULATION.ops,
            [ACCUMULATION.loads[0], load({"x": (1.0,), "y": None}, callee="g")],
            loops=(X, Y, R),
        ),
        stage(
            ACCUMULATION.ops,
            [ACCUMULATION.loads[0], load({"x": None, "y": (1.0,)}, callee="f")],
            loops=(X, Y, R),
        ),
        stage([op("mul", loops="xyr")], ACCUMULATION.loads, loops=(X, Y, R)),
        stage(
            [op("mul", loops="xy", count=2), op("add", loops="xyr")],
            ACCUMULATION.loads,
            loops=(X, Y, R),
        ),
    ],
)
def test_reductions_of_other_costs_have_other_forms(other):
    assert form(other, LOOPS, first) != form(ACCUMULATION, LOOPS, first)


def test_the_contiguous_dimension_is_part_of_the_form():
    def second(name):
        return 1 if name == "in" else 0

    assert form(ACCUMULATION, LOOPS, second) != form(ACCUMULATION, LOOPS, first)
    assert form(ACCUMULATION, {1: "x", 0: "y"}, first) != form(ACCUMULATION, LOOPS, first)


def test_lanes_that_halide_separates_fill_registers_of_their_own():
    half = load({"x": (0.5, 0.0), "y": (0.0, 1.0)})
    half = dataclasses.replace(half, divisors={"x": 2})
    parity = stage([op("add")], [half], divided={"x": 2})
    plain = stage([op("add")], [half])
    lanes = natural_lanes(plain, MODEL)
    for width, registers in ((lanes, 1), (2 * lanes, 2)):
        block = Block(0, width)
        c = MODEL.constants
        # Two vectors of half the lanes: an addition, a dense load, and the interleaved result.
        halves = 2 * max(1, registers // 2) * (c.simple_cycles + c.load_cycles)
        expected = halves + registers * (1 + c.shuffle_cycles) + c.loop_cycles
        assert block_cycles(parity, LOOPS, block, MODEL, first) == pytest.approx(expected)
        dense = registers * (c.simple_cycles + 1 + c.doubled_load_cycles) + c.loop_cycles
        together = dense + c.doubled_shuffle_cycles
        assert block_cycles(plain, LOOPS, block, MODEL, first) == pytest.approx(together)


@pytest.mark.parametrize(("divisor", "widest"), [(1, 1), (2, 2), (6, 1)])
def test_vectors_are_longer_where_lanes_are_separated(divisor, widest):
    parity = stage([op("add")] * 4, [load({"x": (1.0, 0.0)})], divided={"x": divisor})
    lanes = natural_lanes(parity, MODEL)
    block = best_block(parity, LOOPS, {0: 4096.0, 1: 64.0}, MODEL, first)
    assert block.lanes == lanes * widest


def test_a_separated_load_has_the_stride_of_its_lanes():
    half = dataclasses.replace(load({"x": (0.5, 0.0)}), divisors={"x": 2})
    assert separated(half, "x", 2).strides == {"x": (1.0, 0.0)}
    assert separated(half, "x", 2).divisors == {"x": 1}
    unknown = load({"x": None})
    assert separated(unknown, "x", 2) is unknown
