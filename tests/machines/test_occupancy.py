"""Occupancy against published figures and against a plain, scalar reading of the rules."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.machines import gpu, gpu_names
from tilewright.machines.occupancy import block_limits, max_registers, occupancy


@pytest.mark.parametrize(
    ("name", "threads", "registers", "shared", "blocks", "share"),
    [
        # Sioutas 2020, Section 3
        ("rtx2080ti", 512, 64, 2048, 2, 1.0),
        # CUDA C++ Best Practices Guide, "Calculating Occupancy"
        ("v100", 128, 37, 0, 12, 0.75),
        ("v100", 320, 37, 0, 4, 0.625),
        # CUDA Programming Guide, "Multiprocessor Level" (capabilities 6.x and before 7.5): with
        # 64 registers two blocks of 512 threads fit, with 65 only one.
        ("p100", 512, 64, 2048, 2, 0.5),
        ("p100", 512, 65, 2048, 1, 0.25),
        # "full occupancy needs at most 32 registers a thread" with 2048 threads and 64 Ki registers
        ("k40c", 256, 32, 0, 8, 1.0),
        ("k40c", 256, 33, 0, 6, 0.75),
        # limits on resident blocks
        ("k40c", 32, 16, 0, 16, 0.25),
        ("v100", 32, 16, 0, 32, 0.5),
        ("rtx2080ti", 32, 16, 0, 16, 0.5),
        ("rtx3090", 32, 16, 0, 16, 16 / 48),
        ("rtx4090", 32, 16, 0, 24, 0.5),
        # A100 tuning guide: 1 KiB of shared memory is reserved for each block
        ("a100", 64, 32, 163 * 1024, 1, 2 / 64),
        ("a100", 64, 32, 81 * 1024, 2, 4 / 64),
        ("a100", 64, 32, 82 * 1024, 1, 2 / 64),
        ("h100", 64, 32, 227 * 1024, 1, 2 / 64),
        ("h200", 128, 64, 37 * 1024, 6, 24 / 64),
        # Turing has 1024 threads an SM, the 8.6 line 1536
        ("rtx2070", 1024, 64, 0, 1, 1.0),
        ("rtx3090", 1024, 64, 0, 1, 32 / 48),
        ("rtx3090", 768, 32, 0, 2, 1.0),
    ],
)
def test_published_values(name, threads, registers, shared, blocks, share):
    found = occupancy(gpu(name), threads, registers, shared)
    assert int(found.blocks_per_sm) == blocks
    assert float(found.occupancy) == pytest.approx(share)


@pytest.mark.parametrize(
    ("threads", "registers", "shared"),
    [
        (1025, 16, 0),
        (0, 16, 0),
        (1024, 65, 0),
        (32, 256, 0),
        (32, 16, 227 * 1024 + 1),
        (32, 16, -1),
    ],
)
def test_launches_that_fail_have_no_block(threads, registers, shared):
    limits = block_limits(gpu("h100"), threads, registers, shared)
    assert int(limits.blocks) == 0


def test_a_tighter_shared_limit_is_honoured():
    machine = gpu("h100")
    assert int(occupancy(machine, 64, 32, 60_000).blocks_per_sm) == 3
    default = occupancy(machine, 64, 32, 60_000, shared_limit=machine.shared_per_block)
    assert int(default.blocks_per_sm) == 0


def test_the_launch_check_counts_registers_of_all_sub_partitions():
    # 33 warps' worth of registers do not exist, and 1 warp of 255 registers is checked as if
    # there were 4: that still fits 65536, but not the 32768 of the embedded parts at 9 warps.
    assert int(occupancy(gpu("tk1"), 9 * 32, 96, 0).blocks_per_sm) == 0
    assert int(occupancy(gpu("tk1"), 8 * 32, 96, 0).blocks_per_sm) == 2


def test_arrays_broadcast():
    found = occupancy(gpu("a100"), np.array([[64], [128]]), np.array([32, 64, 128]), 1024)
    assert found.occupancy.shape == (2, 3)
    for i, threads in enumerate((64, 128)):
        for j, registers in enumerate((32, 64, 128)):
            single = occupancy(gpu("a100"), threads, registers, 1024)
            assert found.blocks_per_sm[i, j] == single.blocks_per_sm


def _blocks_by_counting(machine, threads, registers, shared):
    """Add blocks one after another until a resource is used up."""
    warps = -(-threads // machine.warp_size)
    per_warp = -(-registers * machine.warp_size // machine.register_allocation_unit)
    per_warp *= machine.register_allocation_unit
    parts = machine.warp_allocation_granularity
    if threads > machine.max_threads_per_block or registers > machine.max_registers_per_thread:
        return 0
    if shared > machine.shared_per_block_optin:
        return 0
    if per_warp * (-(-warps // parts) * parts) > machine.registers_per_block:
        return 0
    block_shared = -(
        -(shared + machine.reserved_shared_per_block) // machine.shared_allocation_unit
    )
    block_shared *= machine.shared_allocation_unit
    free_registers = [machine.registers_per_sm // parts] * parts
    blocks = 0
    while blocks < machine.max_blocks_per_sm:
        if (blocks + 1) * warps > machine.max_warps_per_sm:
            break
        if (blocks + 1) * block_shared > machine.shared_per_sm:
            break
        for _ in range(warps):
            part = max(range(parts), key=lambda p: free_registers[p])
            free_registers[part] -= per_warp
        if min(free_registers) < 0:
            break
        blocks += 1
    return blocks


@given(
    st.sampled_from(gpu_names()),
    st.integers(1, 1024),
    st.integers(1, 255),
    st.integers(0, 100_000),
)
def test_agrees_with_counting_blocks(name, threads, registers, shared):
    machine = gpu(name)
    found = occupancy(machine, threads, registers, shared)
    assert int(found.blocks_per_sm) == _blocks_by_counting(machine, threads, registers, shared)
    assert 0 <= float(found.occupancy) <= 1


@given(st.sampled_from(gpu_names()), st.integers(1, 1024))
def test_max_registers_is_the_most_that_launches(name, threads):
    machine = gpu(name)
    if threads > machine.max_threads_per_block:
        assert int(max_registers(machine, threads)) == 0
        return
    most = int(max_registers(machine, threads))
    assert int(occupancy(machine, threads, most, 0).blocks_per_sm) >= 1
    assert int(occupancy(machine, threads, most + 1, 0).blocks_per_sm) == 0
    assert int(max_registers(machine, threads, cap=64)) == min(most, 64)
