"""Tiles and structural hashes of the search of Anderson 2021 as published."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.halide.schedulers.learned.gpu.choices import INLINED, Placement, Tile
from tilewright.halide.schedulers.learned.gpu.published_search.states import (
    PlacedKernel,
    SearchState,
)
from tilewright.halide.schedulers.learned.gpu.published_search.structural_hash import (
    StructuralHash,
)
from tilewright.halide.schedulers.learned.gpu.published_search.tiles import (
    StageShape,
    block_tiles,
    fits,
    lined_up,
    root_tiles,
    serial_sizes,
    serial_tiles,
    thread_sizes,
    thread_tiles,
)
from tilewright.halide.schedulers.learned.gpu.space import KernelPlacement

SMS = 10
DEPTHS = range(6)


def pure(*extents):
    """A stage whose loops are over all dimensions."""
    return StageShape(tuple(range(len(extents))), extents)


# --- serial iterations, threads, blocks ---------------------------------------------------------


@pytest.mark.parametrize(
    ("extent", "first", "sizes"),
    [
        (1, False, (1,)),
        (6, False, (1, 2, 4)),
        (1000, True, (1, 2, 4, 8)),
        (3, True, (1, 3)),
        (7, False, (1, 7)),
        (96, True, (3, 1, 2, 4, 8)),  # threads then cover a whole warp
        (96, False, (1, 2, 4, 8)),
        (32 * 105, True, (3, 5, 7, 1, 2, 4, 8)),
        (100, True, (1, 2, 4, 8)),  # not a multiple of a warp
    ],
)
def test_serial_iterations_along_a_dimension(extent, first, sizes):
    assert serial_sizes(extent, first) == sizes


def test_a_thread_unrolls_all_its_iterations_and_does_not_compute_the_whole_func():
    tiles = serial_tiles((1000, 1000), 0)
    assert max(math.prod(tile) for tile in tiles) == 16
    assert (8, 2) in tiles
    assert (8, 4) not in tiles
    assert (2, 4) not in serial_tiles((2, 4), 0)
    assert serial_tiles((1, 1), 0) == [(1, 1)]  # where there is nothing else


@pytest.mark.parametrize(
    ("extent", "how", "sizes"),
    [
        (1000, {"first": True}, (16, 32, 64)),
        (1000, {"first": True, "line": True}, (1, 2, 4, 8, 16, 32, 64)),
        (40, {"first": True}, (16, 32, 40)),
        (10, {"first": True}, (10,)),
        (1000, {"first": False}, (1, 2, 4, 8, 16)),
        (64, {"first": False}, (1, 2, 4, 8, 16)),
        (17, {"first": False}, (1, 2, 17)),  # 4 x 5 points for 17 are more than a seventh too many
        (10, {"first": False}, (1, 2, 10)),
    ],
)
def test_threads_along_a_dimension(extent, how, sizes):
    assert thread_sizes(extent, **how) == sizes


def test_threads_fit_the_block_with_those_of_siblings():
    shape = (pure(64, 64),)
    assert (64, 16) in thread_tiles((64, 64), 0, shape)
    assert (16, 16) not in thread_tiles((64, 64), 0, shape, [(128, 1)])
    assert max(math.prod(t) for t in thread_tiles((64, 64), 0, shape, [(64, 8)])) == 1024
    four = thread_tiles((64, 8, 8, 8), 0, (pure(64, 8, 8, 8),))
    assert all(sum(t > 1 for t in tile) <= 3 for tile in four)


def test_stages_with_fewer_loops_have_fewer_threads():
    update = StageShape((1, -1), (64, 100))
    assert lined_up(update.along((32, 8)), update.dimensions, 0) == (8,)
    assert fits([(8,), (32, 8)])
    assert not fits([(1024,), (1, 2)])


def test_tiles_at_root_leave_at_least_two_blocks_per_sm_where_any_do():
    shapes = (pure(256, 64),)
    tiles = [each.tile for each in root_tiles((256, 64), 0, shapes, SMS)]
    blocks = {
        tile: math.ceil(256 / tile.points[0]) * math.ceil(64 / tile.points[1]) for tile in tiles
    }
    assert min(blocks.values()) >= 2 * SMS
    assert Tile((1, 1), (64, 16)) not in tiles  # 16 blocks
    # 32 columns in warps of 16 and more have 2 blocks: more than 5 SMs are never busy.
    few = [each.tile for each in root_tiles((32, 4), 0, (pure(32, 4),), SMS)]
    assert {tile.threads for tile in few if tile.serial == (1, 1)} == {(16, 1)}


def test_tiles_at_root_say_how_much_of_the_last_round_is_idle():
    found = {each.tile: each.idle for each in root_tiles((64, 33), 0, (pure(64, 33),), 11)}
    assert found[Tile((1, 1), (64, 1))] == pytest.approx(1.0)  # 33 blocks on 11 SMs
    assert found[Tile((1, 1), (16, 4))] == pytest.approx(44 / 36)


def test_tiles_in_a_block_cover_its_region():
    tiles = block_tiles((34, 6), 0, (pure(34, 6),), [])
    assert Tile((3, 1), (12, 6)) in tiles  # from 16 threads: 12 of them have iterations
    assert Tile((1, 6), (34, 1)) in tiles
    # Where siblings leave no room for threads, one thread computes all, if it can unroll that.
    assert block_tiles((7,), 0, (pure(7),), [(2, 512)]) == [Tile((7,), (1,))]
    assert block_tiles((2, 64), 0, (pure(2, 64),), [(1024,)]) == []


extents = st.lists(st.integers(1, 3000), min_size=1, max_size=3)


@given(extents, st.integers(1, 120), st.data())
def test_all_tiles_are_legal(sizes, sms, data):
    first = data.draw(st.integers(0, len(sizes) - 1))
    shapes = (pure(*sizes),)
    found = root_tiles(sizes, first, shapes, sms)
    assert found
    for each in found:
        assert each.tile.legal
        assert each.idle >= 1.0
    for tile in block_tiles([min(size, 70) for size in sizes], first, shapes, [(32, 8)]):
        covered = [s * t for s, t in zip(tile.serial, tile.threads, strict=True)]
        assert all(c >= min(size, 70) for c, size in zip(covered, sizes, strict=True))
        assert math.prod(tile.serial) <= 16
        assert tile.legal


# --- structural hashes --------------------------------------------------------------------------

HASHES = StructuralHash({0: (pure(256, 256),), 1: (pure(64, 8),)}, {0: 0, 1: 0})


def kernel(serial, threads, *members, inlined=()):
    choice = Placement("root", -1, Tile(serial, threads))
    return KernelPlacement(0, choice, members, frozenset(inlined))


def first_difference(one, other):
    """The depth from which on two kernels have different hashes; None if they are equal."""
    differ = [HASHES.kernel(one, depth) != HASHES.kernel(other, depth) for depth in DEPTHS]
    assert differ == sorted(differ)  # once seen, always seen
    return differ.index(True) if any(differ) else None


IN_BLOCK = Placement("block", 0, Tile((1, 1), (64, 8)))
IN_THREAD = Placement("thread", 0, Tile((1, 1)))
BASE = kernel((1, 1), (32, 8))


@pytest.mark.parametrize(
    ("other", "depth"),
    [
        (kernel((1, 1), (32, 8)), None),
        (kernel((8, 1), (32, 256)), 1),  # one block along a dimension
        (kernel((1, 1), (32, 4)), 2),  # other numbers of blocks
        (kernel((1, 1), (32, 8), (1, IN_BLOCK)), 2),
        (kernel((32, 1), (1, 8)), 3),  # one thread along a dimension
        (kernel((2, 1), (16, 8)), 4),  # the same blocks, other numbers of threads
        (kernel((1, 1), (32, 8), inlined=(5,)), None),  # beyond the depths of five passes
    ],
)
def test_deeper_hashes_see_more(other, depth):
    assert first_difference(BASE, other) == depth


def test_hashes_see_at_which_level_a_func_is():
    block, thread = (kernel((1, 1), (32, 8), (1, each)) for each in (IN_BLOCK, IN_THREAD))
    assert first_difference(block, thread) == 2


def test_a_state_is_seen_by_what_is_stored():
    def state(*choices):
        return SearchState(choices, (PlacedKernel(BASE, frozenset(), None, None),))

    one, same, other = state(None, INLINED), state(None, None), state(None, IN_BLOCK)
    for depth in DEPTHS:
        assert HASHES.of(one, depth) == HASHES.of(same, depth)
        assert HASHES.of(one, depth) != HASHES.of(other, depth)
    assert HASHES.of(one, -1) == HASHES.of(other, -1)


serial, threads = st.sampled_from((1, 2, 4)), st.sampled_from((1, 16, 32))
kernels = st.builds(lambda a, b, c, d: kernel((a, b), (c, d)), serial, serial, threads, threads)


@given(kernels, kernels)
def test_what_a_depth_tells_apart_all_larger_depths_do(one, other):
    depth = first_difference(one, other)
    assert (depth is None) == (one == other)
