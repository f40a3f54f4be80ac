"""Active warps and the lines, sectors and passes of accesses, by hand."""

import math

import halide as hl
import numpy as np
import pytest

from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.gpu.warps import (
    active_warps,
    addresses_of,
    gathered,
    threads_of,
    touched,
)

LANES = np.arange(32.0)


@pytest.mark.parametrize(
    ("block", "active", "expected"),
    [
        ((32, 8, 1), (32, 8, 1), 8),
        ((32, 8, 1), (1, 8, 1), 8),  # a thread of every row
        ((32, 8, 1), (32, 3, 1), 3),
        ((16, 4, 1), (16, 2, 1), 1),
        ((16, 4, 1), (16, 3, 1), 2),
        ((20, 3, 1), (20, 3, 1), 2),  # 60 threads
        ((4, 4, 4), (4, 4, 2), 1),
        ((4, 4, 4), (4, 4, 3), 2),
        ((8, 8, 1), (64, 64, 1), 2),  # never more than the block has
    ],
)
def test_warps_with_an_active_thread(block, active, expected):
    assert active_warps(block, active, 32) == expected


def test_threads_are_numbered_x_first():
    x, y, z = threads_of((4, 2, 8), 32)
    assert x.shape == (2, 32)
    assert (x[0, 5], y[0, 5], z[0, 5]) == (1, 1, 0)
    assert (x[1, 0], y[1, 0], z[1, 0]) == (0, 0, 4)


def test_what_lies_beyond_the_last_thread_does_nothing():
    x, _, _ = threads_of((20, 2, 1), 32)
    assert np.isnan(x).sum() == 64 - 40


def test_of_a_large_block_some_warps_are_looked_at():
    x, y, _ = threads_of((32, 32, 1), 32)
    assert x.shape == (8, 32)
    assert list(y[:, 0]) == [0, 4, 8, 12, 16, 20, 24, 28]


@pytest.mark.parametrize(
    ("addresses", "width", "lines", "sectors", "passes"),
    [
        # 31 gaps of 4 bytes, and the last element's 3 bytes: 127 of 128 bytes beyond the first.
        (4 * LANES, 4, 1 + 127 / 128, 1 + 127 / 32, 1),
        # All threads at one address.
        (0 * LANES, 4, 1 + 3 / 128, 1 + 3 / 32, 1),
        # Every second word: two words for each bank.
        (8 * LANES, 4, 1 + 251 / 128, 1 + 251 / 32, 2),
        # A column of rows of 1 KiB: a line, a sector and one bank for each.
        (1024 * LANES, 4, 32 + 3 / 128, 32 + 3 / 32, 32),
        # Odd rows of 33 words: all banks differ.
        (132 * LANES, 4, 32 + 3 / 128, 32 + 3 / 32, 1),
        # Four rows of eight words.
        (4 * (LANES % 8) + 4096 * (LANES // 8), 4, 4 + 115 / 128, 4 + 115 / 32, 4),
        # Bytes: eight in a word.
        (LANES, 1, 1 + 31 / 128, 1 + 31 / 32, 1),
    ],
)
def test_lines_sectors_and_passes(addresses, width, lines, sectors, passes):
    found = touched(addresses[None], width)
    assert found.lines == pytest.approx(lines)
    assert found.sectors == pytest.approx(sectors)
    assert found.passes == passes
    assert found.sharing == 1.0


def test_warps_that_read_the_same_share_it():
    found = touched(np.stack([4 * LANES] * 4), 4)
    assert found.sharing == pytest.approx(4.0)
    apart = touched(np.stack([4 * LANES, 4 * LANES + 4096]), 4)
    assert apart.sharing == pytest.approx(1.0, rel=0.02)


def test_idle_threads_touch_nothing():
    some = np.where(LANES < 8, 4 * LANES, np.nan)
    assert touched(some[None], 4).sectors == pytest.approx(1 + 31 / 32)
    nothing = np.full((1, 32), np.nan)
    assert touched(nothing, 4) == (1.0, 1.0, 1.0, 1.0)


def test_places_that_data_decides():
    # 32 threads at one of 12 places: 12 (1 - (11/12)^32) of them, each a line.
    found = gathered(0 * LANES[None], 1, 12.0)
    assert found.lines == pytest.approx(12 * (1 - (11 / 12) ** 32))
    many = gathered(0 * LANES[None], 1, 1e6)
    assert many.sectors == pytest.approx(32, rel=1e-3)


@pytest.mark.parametrize(
    ("places", "sectors", "passes"),
    [(1e6, 32.0, 4.0), (2.0, 2.0, 1.0), (16.0, 16 * (1 - (15 / 16) ** 32), 1.746)],
)
def test_passes_of_places_that_data_decides(places, sectors, passes):
    # Eight words in a sector are in different banks; a pass at least.
    found = gathered(0 * LANES[None], 1, places)
    assert found.sectors == pytest.approx(sectors, rel=1e-3)
    assert found.passes == pytest.approx(passes, rel=1e-3)
    assert found.sharing == 1.0


def test_the_fullest_warp_draws_most_places():
    # 32 threads of the first warp, four of the second.
    rows = np.stack([0 * LANES, np.where(LANES < 4, 0.0, np.nan)])
    assert gathered(rows, 1, 12.0).lines == pytest.approx(12 * (1 - (11 / 12) ** 32))
    # No thread is active: as one.
    idle = gathered(np.full((1, 32), np.nan), 1, 5.0)
    assert (idle.lines, idle.sectors, idle.passes) == pytest.approx((1.0, 1.0, 1.0))
    # Four threads a line apart, each at one of three places: four of twelve lines and a bit.
    some = np.where(LANES < 4, 128 * LANES, np.nan)
    units = 3 * (4 + 3 / 128)
    assert gathered(some[None], 4, 3.0).lines == pytest.approx(units * (1 - (1 - 1 / units) ** 4))


def test_addresses_of_indices_that_are_not_affine():
    x = hl.Var("x")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    table = hl.ImageParam(hl.UInt(8), 1, "table")
    out = hl.Func("out")
    index = hl.select(x % 4 < 2, x // 4, hl.min(x, 5) + 8)
    out[x] = image[index, hl.i32(table[x])] + 1.0
    out.set_estimates([(0, 64)])
    stage = load(out).funcs[-1].stages[0]
    (call,) = (c for c in stage.calls if len(c.args) == 2)
    found, places = addresses_of(call.args, {stage.args[0].name: LANES[:8]}, (4.0, 400.0), 8000.0)
    assert list(found) == [4 * i for i in (0, 0, 10, 11, 1, 1, 13, 13)]
    assert places == 20.0  # rows of 400 bytes in 8000


def test_a_block_of_one_thread():
    assert active_warps((1, 1, 1), (1, 1, 1), 32) == 1
    x, _, _ = threads_of((1, 1, 1), 32)
    assert x[0, 0] == 0
    assert math.isnan(x[0, 1])


def test_data_that_all_threads_load_from_one_place_does_not_spread_their_addresses():
    x, y = hl.Var("x"), hl.Var("y")
    table, image, out = hl.Func("table"), hl.Func("image"), hl.Func("out")
    table[x] = x * x
    image[x, y] = x + y
    out[x, y] = image[x + table[y], 0] + image[table[x], 0]
    out.set_estimates([(0, 64), (0, 64)])
    algorithm = load(hl.Pipeline(out))
    (value,) = algorithm.by_name[algorithm.outputs[0]].stages[0].values
    one, other = (call.args for call in value.args)
    env = {algorithm.by_name[algorithm.outputs[0]].args[0]: LANES[None]}
    addresses, places = addresses_of(one, env, (4.0, 400.0), 4000.0)
    assert places == 1
    assert np.ptp(addresses) == 31 * 4
    _, places = addresses_of(other, env, (4.0, 400.0), 4000.0)
    assert places == 100
