import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.halide.schedulers.analytic.gpu.occupancy import residency
from tilewright.machines import gpu
from tilewright.machines.occupancy import max_registers, occupancy


@pytest.mark.parametrize("name", ["k40c", "rtx2080ti", "a100", "h100"])
@given(threads=st.integers(1, 1024), shared=st.integers(0, 48 * 1024))
def test_agrees_with_the_occupancy_of_one_launch(name, threads, shared):
    machine = gpu(name)
    table = residency(machine)
    registers = max_registers(machine, threads, 64)
    expected = occupancy(machine, threads, registers, shared, shared_limit=48 * 1024)
    by_shared = table.blocks_by_shared(np.array([float(shared)]))
    assert table.blocks(np.array([float(threads)]), by_shared)[0] == expected.blocks_per_sm


def test_nothing_is_resident_beyond_the_limits():
    table = residency(gpu("a100"))
    assert table.blocks(np.array([1025.0]), np.array([32.0]))[0] == 0
    assert table.blocks_by_shared(np.array([48 * 1024 + 1.0]))[0] == 0
