"""The bytes that a second cache of 100 bytes leaves for memory, by hand."""

import pytest

from tilewright.halide.schedulers.analytic.gpu.nest_work import HostWork, KernelWork
from tilewright.halide.schedulers.analytic.gpu.traffic import memory_traffic

HOST = HostWork("host", 0, 1.0, 10.0, 1.0, 1)


def kernel(func, written, stage=0, blocks=4.0, **read):
    """A kernel whose blocks together touch all of what they read, once."""
    footprints = {name: (size / blocks, size) for name, size in read.items()}
    return KernelWork(
        func, stage, 1.0, blocks, (32, 1, 1), 0.0, 0.0, (), footprints, written, 0.0, 1, 0
    )


def test_what_fits_stays():
    assert memory_traffic([kernel("a", 30.0, image=30.0), kernel("b", 30.0, a=30.0)], 100.0) == [
        0.0,
        0.0,
    ]


def test_nothing_stays_of_what_is_twice_as_large():
    # 200 bytes in all: loads and stores all go to memory.
    parts = [kernel("a", 100.0, image=100.0)]
    assert memory_traffic(parts, 100.0) == [200.0]


def test_half_way_between():
    # 150 bytes in all: a third of the stores stays. Of the image 75 bytes, 25 are left by then.
    (moved,) = memory_traffic([kernel("a", 75.0, image=75.0)], 100.0)
    assert moved == pytest.approx(75.0 + 75.0 * (1 - (2 * 100 / 150 - 1)))


def test_what_was_used_last_is_kept():
    parts = [kernel("a", 10.0, image=80.0), kernel("b", 10.0, image=80.0)]
    first, second = memory_traffic(parts, 100.0)
    assert first == second == 0.0
    between = kernel("c", 90.0, other=90.0)
    parts = [parts[0], between, parts[1]]
    moved = memory_traffic(parts, 100.0)
    # 290 bytes in all: none of the stores stays. `c` displaces the image before `b`, and nothing
    # before `a` of the next run.
    assert moved == pytest.approx([10.0, 90.0 + 90.0, 80.0 + 10.0])


def test_a_stage_that_adds_loads_what_it_stores():
    parts = [kernel("a", 200.0), kernel("a", 200.0, stage=1)]
    assert memory_traffic(parts, 100.0) == [200.0, 400.0]


def test_blocks_that_touch_little_load_little():
    part = kernel("a", 0.0, blocks=2.0, image=1000.0)
    few = KernelWork("a", 0, 1.0, 2.0, (1, 1, 1), 0.0, 0.0, (), {"image": (60.0, 1000.0)}, 0.0,
                     0.0, 1, 0)  # fmt: skip
    assert memory_traffic([part], 10.0) == [1000.0]
    assert memory_traffic([few], 10.0) == [120.0]


def test_a_stage_of_the_host_moves_nothing():
    assert memory_traffic([HOST, kernel("a", 200.0)], 100.0) == [0.0, 200.0]
    assert memory_traffic([], 100.0) == []
