"""Bytes between levels of memory, worked out by hand for a machine of round numbers.

Four cores at 2 GHz; 32 KiB, 512 KiB, 8 MiB; memory gives 10 GB/s, 5 bytes per cycle. A sweep may
use 80% of the first two caches (26,214.4 and 419,430.4 bytes) and 60% of the third (5,033,164.8).
"""

import dataclasses

import numpy as np
import pytest
from cpu_machines import TIMED_CORES as MACHINE

from tilewright.halide.schedulers.analytic.cpu import traffic
from tilewright.halide.schedulers.analytic.cpu.constants import CpuConstants
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of

MODEL = model_of(MACHINE)


def array(*values):
    return np.array(values, dtype=np.float64)


def sweep(times, touched, cold=0.0, held=0.0):
    return traffic.Sweep(array(times), array(touched), array(cold), array(held))


def into(*sweeps):
    return tuple(float(level[0]) for level in traffic.fetched(sweeps, MODEL))


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        # One tile is made 100 times and touches 1,000 bytes, a row of tiles 10 times and 20,000,
        # all tiles 300,000; half of it comes from memory. Rows fit the first level, all tiles
        # the second: 10 x 20,000 and 1 x 300,000; from memory 1 x 150,000.
        (0.0, (200_000, 300_000, 150_000)),
        (6_214.0, (200_000, 300_000, 150_000)),
        # 20,000 + 6,215 > 26,214.4: the first level gets every tile's, 100 x 1,000.
        (6_215.0, (100_000, 300_000, 150_000)),
        (119_430.0, (100_000, 300_000, 150_000)),
        # 300,000 + 119,431 > 419,430.4: the second level gets every row's.
        (119_431.0, (100_000, 200_000, 150_000)),
        (4_733_164.0, (100_000, 100_000, 150_000)),
        # 300,000 + 4,733,165 > 5,033,164.8, and no row fits either: 100 x 500.
        (5_033_165.0, (100_000, 100_000, 50_000)),
    ],
)
def test_the_longest_sweep_that_fits_comes_once(held, expected):
    sweeps = (
        sweep(100, 1_000, 500),
        sweep(10, 20_000, 10_000, held),
        sweep(1, 300_000, 150_000, held),
    )
    assert into(*sweeps) == expected


def test_the_shortest_sweep_counts_even_if_it_fits_nowhere():
    assert into(sweep(7, 1e8, 1e8)) == (7e8, 7e8, 7e8)


def test_members_that_outgrow_a_cache_go_through_the_next():
    # All of 32,768; 0.4 x 524,288 = 209,715.2; 0.7 x 8 MiB / 4 cores = 1,468,006.4
    held = array(32_768, 32_769, 209_715, 209_716, 1_468_006, 1_468_007)
    moved = array(10, 20, 30, 40, 50, 60)
    found = traffic.spilled(held, moved, MODEL)
    assert found.l2.tolist() == [0, 20, 30, 40, 50, 60]
    assert found.l3.tolist() == [0, 0, 0, 40, 50, 60]
    assert found.memory.tolist() == [0, 0, 0, 0, 0, 60]


@pytest.mark.parametrize(
    ("whole", "stages", "memory"),
    [
        (1_000.0, 3, 0.0),
        # More than half of the third level: it goes to memory, where its lines are read first.
        (4_194_304.0, 1, 0.0),
        (4_194_305.0, 1, 2 * 4_194_305.0),
        (5_000_000.0, 3, 2 * 15_000_000.0),
    ],
)
def test_written_values_pass_every_cache(whole, stages, memory):
    found = traffic.written(whole, stages, MODEL)
    assert [float(level) for level in found] == [whole * stages, whole * stages, memory]


def test_traffic_adds_up():
    one = traffic.Traffic(array(1), array(2), array(3))
    both = one.plus(traffic.Traffic(array(10), array(20), array(30)))
    assert [level.tolist() for level in both.times(array(2))] == [[22], [44], [66]]


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        (1, 4.32),  # three cores idle: 4 / 1, and the last is late by 0.08 x 4 / 1
        (4, 1.08),
        (6, 2 * 4 / 6 + 0.08 * 4 / 6),
        (400, 1.0008),
    ],
)
def test_imbalance(tasks, expected):
    assert float(traffic.imbalance(array(tasks), MODEL)[0]) == pytest.approx(expected)


def test_memory_is_shared_and_one_core_may_not_saturate_it():
    tasks = array(1, 2, 8)
    assert traffic.memory_cycles(array(1000, 1000, 1000), tasks, MODEL).tolist() == [200] * 3
    # 4 GB/s per core are 2 bytes per cycle; three cores would have 6, but there are only 5.
    limited = model_of(MACHINE, dataclasses.replace(CpuConstants(), core_memory_bandwidth=4e9))
    found = traffic.memory_cycles(array(1000, 1000, 1000), tasks, limited)
    assert found.tolist() == [500, 250, 200]


def test_starting_tasks():
    # 4,000 cycles each on four cores; beyond 256 the threads are awake.
    found = traffic.parallel_cycles(array(1, 256, 1000), MODEL)
    assert found.tolist() == [1000, 256_000, 256_000]


def test_fresh_pages():
    # 1.5 cycles per byte, on four cores at once
    assert traffic.fault_cycles(4096.0, MODEL) == 1536.0


def test_the_largest_part_hides_most_of_the_others():
    # 100 + 0.3 x (10 + 20)
    found = traffic.combined([array(10), array(100), array(20)], MODEL)
    assert found.tolist() == [109]


@pytest.mark.parametrize(
    ("tile", "expected"),
    [((64, 32, 4), 1), ((64, 8, 4), 4), ((16, 8, 2), 16), ((64, 32, 2), 1), ((16, 32, 4), 128)],
)
def test_stretches_of_memory(tile, expected):
    # Of an output of 64 x 32 x 4: once a dimension is cut, each outer step starts a stretch.
    assert traffic.segments(array(tile), array(64, 32, 4)).tolist() == [expected]
