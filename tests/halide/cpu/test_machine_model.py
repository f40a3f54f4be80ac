"""What the cost model takes from a machine, and what it assumes where that is not described."""

import dataclasses
import math

import pytest

from tilewright.halide.schedulers.analytic.constant import sheet
from tilewright.halide.schedulers.analytic.cpu.constants import CpuConstants, CpuSearch
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of, weighted
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants, GpuSearch
from tilewright.machines import CpuMachine
from tilewright.machines.cpu import Cache


@pytest.mark.parametrize("numbers", [CpuConstants(), CpuSearch(), GpuConstants(), GpuSearch()])
def test_every_number_has_a_unit_and_a_source(numbers):
    for entry in sheet(numbers):
        assert entry.unit, entry.name
        assert len(entry.source) > 10, entry.name


def test_a_machine_that_the_system_does_not_describe():
    model = model_of(CpuMachine("bare", "x86-64", 2, (), 64, ()))
    assert (model.vector_bytes, model.registers, model.cores) == (16, 16, 2)
    # 32 KiB, 256 KiB, 8 MiB
    assert (model.l1_bytes, model.l2_bytes, model.l3_bytes) == (32768, 262144, 8388608)
    assert model.clock_hz == 3e9
    # 20 GB/s at 3 GHz; one core alone can have it all.
    assert model.memory_rate == pytest.approx(20 / 3)
    assert model.core_memory_rate == math.inf
    assert (model.l2_rate, model.l3_rate) == (32.0, 8.0)
    assert model.seconds(6e9) == 2.0


def test_descriptions_of_the_system_go_before_defaults():
    machine = CpuMachine(
        "known",
        "x86-64",
        8,
        ("avx2",),
        256,
        (Cache(1, 48 << 10, 64, 2), Cache(2, 2 << 20, 64, 2), Cache(3, 30 << 20, 64, 16)),
        clock_hz=2e9,
        memory_bandwidth=1e11,
    )
    model = model_of(machine)
    # Two threads share the inner caches; the third level counts as a whole.
    assert (model.l1_bytes, model.l2_bytes, model.l3_bytes) == (24 << 10, 1 << 20, 30 << 20)
    assert model.vector_bytes == 32
    assert model.memory_rate == 50.0
    assert model.clock_hz == 2e9
    # Without a third level the last one counts.
    two = dataclasses.replace(machine, caches=machine.caches[:2])
    assert model_of(two).l3_bytes == 2 << 20


@pytest.mark.parametrize(
    ("isa", "bits", "registers"),
    [
        (("avx2",), 256, 16),
        (("avx2", "avx512"), 512, 32),
        (("neon",), 128, 32),
        (("sse4.1",), 128, 16),
    ],
)
def test_vector_registers(isa, bits, registers):
    assert model_of(CpuMachine("x", "y", 1, isa, bits, ())).registers == registers


def test_given_constants_are_used():
    constants = dataclasses.replace(
        CpuConstants(),
        clock_hz=2e9,
        l2_rate=20.0,
        l3_rate=5.0,
        memory_bandwidth=8e9,
        core_memory_bandwidth=6e9,
    )
    model = model_of(CpuMachine("x", "y", 4, (), 128, ()), constants)
    rates = model.l2_rate, model.l3_rate, model.memory_rate, model.core_memory_rate
    assert rates == (20.0, 5.0, 4.0, 3.0)
    slower = weighted(model, 4.0)
    rates = slower.l2_rate, slower.l3_rate, slower.memory_rate, slower.core_memory_rate
    assert rates == (5.0, 1.25, 1.0, 0.75)
    assert slower.vector_bytes == model.vector_bytes
