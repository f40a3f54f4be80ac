import numpy as np
import pytest

from tilewright.halide.analysis.shared_memory import SharedAllocation, packed_bytes


def allocation(name, elements, bytes_, first, last, constant=True):
    return SharedAllocation(name, np.array([float(elements)]), bytes_, first, last, constant)


def packed(*items):
    return float(packed_bytes(items, 1)[0])


def test_allocations_that_live_together_add_up():
    assert packed(allocation("a", 100, 4, 0, 1), allocation("b", 60, 4, 1, 2)) == 640


def test_an_allocation_takes_the_place_of_one_that_is_over():
    chain = [allocation(str(i), size, 4, i, i + 1) for i, size in enumerate([100, 80, 60, 40])]
    # 2 takes the place of 0, and 3 that of 1.
    assert packed(*chain) == (100 + 80) * 4


def test_the_place_of_the_nearest_size_is_taken():
    long_ago = [allocation("a", 100, 4, 0, 0), allocation("b", 10, 4, 0, 0)]
    assert packed(*long_ago, allocation("c", 12, 4, 1, 1)) == (100 + 12) * 4


def test_allocations_that_differ_between_blocks_take_the_place_freed_last():
    over = [allocation("a", 12, 4, 0, 0, False), allocation("b", 100, 4, 1, 1, False)]
    assert packed(*over, allocation("c", 11, 4, 2, 2, False)) == 100 * 4
    # a is nearer in size, but b's place was freed after it
    over = [allocation("a", 12, 4, 0, 1, False), allocation("b", 100, 4, 0, 2, False)]
    assert packed(*over, allocation("c", 200, 4, 3, 3, False)) == (12 + 200) * 4


def test_constant_sizes_keep_to_themselves():
    over = [allocation("a", 12, 4, 0, 1, False), allocation("b", 100, 4, 0, 1)]
    assert packed(*over, allocation("c", 13, 4, 2, 2, False)) == (13 + 100) * 4
    assert packed(*over, allocation("c", 13, 4, 2, 2)) == (12 + 100) * 4


def test_places_are_measured_in_their_widest_element():
    # Seven bytes become one place of three halves once a wider element is in it.
    items = [allocation("bytes", 7, 1, 0, 0), allocation("shorts", 2, 2, 1, 1)]
    assert packed(*items) == 6


def test_the_sum_is_rounded_up_to_the_widest_element():
    assert packed(allocation("wide", 1, 8, 0, 1), allocation("narrow", 3, 1, 0, 1)) == 16


def test_nothing_needs_nothing():
    assert packed() == 0


@pytest.mark.parametrize("n", [1, 5])
def test_sizes_are_arrays_over_tilings(n):
    sizes = np.arange(1.0, n + 1)
    items = [SharedAllocation("a", sizes, 4, 0, 1), SharedAllocation("b", 2 * sizes, 4, 1, 2)]
    assert packed_bytes(items, n).tolist() == (12 * sizes).tolist()
