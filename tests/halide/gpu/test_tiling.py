import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.gpu.tiling import (
    candidates,
    loop_roles,
    tile_bounds,
    tile_sizes,
    tiled_dims,
)


@pytest.mark.parametrize(
    ("extents", "expected"),
    [
        ([1536, 2560, 3], (0, 1)),
        ([3, 1536, 2560], (1, 2)),
        ([64, 63], (0,)),
        ([24, 40, 3], (1,)),
        ([5, 5], (0,)),
        ([], ()),
    ],
)
def test_dimensions_of_64_are_tiled_else_the_largest(extents, expected):
    assert tiled_dims(extents) == expected


@pytest.mark.parametrize(
    ("extent", "tiled", "expected"),
    [
        (2560, 1, (8, 64)),
        (25600, 1, (8, 200)),
        (2560, 2, (8, 80)),
        (1024, 1, (8, 64)),
        (1000, 1, (8, 500)),
        (1000, 2, (8, 500)),
        (64, 3, (8, 32)),
        (40, 1, (2, 20)),
    ],
)
def test_bounds_of_tile_sizes(extent, tiled, expected):
    assert tile_bounds(extent, tiled) == expected


def test_opencl_halves_the_largest_tile():
    assert tile_bounds(2560, 2, halve=True) == (8, 40)
    assert max(tile_sizes(1536, 2, "powers", halve=True)) == 16


@given(st.integers(1, 5000), st.integers(1, 3), st.sampled_from(["powers", "two"]), st.booleans())
def test_sizes_lie_within_their_bounds(extent, tiled, step, halve):
    sizes = tile_sizes(extent, tiled, step, halve=halve)
    least, most = tile_bounds(extent, tiled, halve=halve)
    assert sizes == sorted(set(sizes))
    assert sizes == [extent] or all(least <= size <= min(most, extent) for size in sizes)
    if step == "powers" and sizes != [extent]:
        assert all(size & (size - 1) == 0 for size in sizes)


def test_small_innermost_dimension_becomes_threads():
    assert loop_roles([30, 2560]).threads == (0, 1)
    assert loop_roles([3, 2560]).threads == (1,)


def test_top_of_a_pyramid_has_threads_in_all_its_dimensions():
    roles = loop_roles([24, 40, 8, 2])
    assert roles.threads == (0, 1, 2)
    assert roles.others == (3,)


def test_at_most_three_dimensions_are_threads():
    roles = loop_roles([100, 70, 200, 90])
    assert roles.threads == (0, 2, 3)
    assert roles.others == (1,)


def test_other_loops_run_whole_or_one_a_block():
    tiles = candidates([1536, 2560, 3], loop_roles([1536, 2560, 3]), "powers")
    assert set(tiles[:, 2]) == {1.0, 3.0}
    assert set(tiles[:, 0]) == {8.0, 16.0, 32.0}
    assert len({tuple(tile) for tile in tiles}) == len(tiles)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=5), st.sampled_from(["powers", "two"]))
def test_candidates_are_tilings_and_not_too_many(extents, step):
    tiles = candidates(extents, loop_roles(extents), step)
    assert 1 <= len(tiles) <= SEARCH.most_tilings
    assert np.all(tiles >= 1)
    assert np.all(tiles <= np.array(extents))
