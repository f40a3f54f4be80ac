"""Which numbers a processor is costed with: worked out by hand from what was measured."""

import dataclasses
import math

import halide as hl
import pytest

from tilewright.halide.schedulers.analytic.cpu.constants import CpuConstants
from tilewright.halide.schedulers.analytic.cpu.families import (
    GENERIC,
    calibrated,
    description,
    family_of,
)
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task
from tilewright.machines import Calibration, CpuMachine, Quantity
from tilewright.machines.cpu import Cache

MACHINE = CpuMachine("x", "x86-64", 4, ("avx2",), 256, (), clock_hz=2e9)


def measured(**values):
    """A calibration in which everything has settled that has no minus sign."""
    found = {n: Quantity(abs(v), "", 0.0, 9, v >= 0) for n, v in values.items()}
    return Calibration({}, "2026-11-22T10:00:00+00:00", 8.0, found)


@pytest.mark.parametrize(
    ("vendor", "family", "name", "l3_rate"),
    [
        ("AuthenticAMD", 0x17, "AMD Zen", 16.0),
        ("AuthenticAMD", 0x1A, "AMD Zen 5", 16.0),
        ("AuthenticAMD", 0x15, "any processor", 8.0),
        ("GenuineIntel", 6, "Intel", 8.0),
        ("GenuineIntel", 15, "any processor", 8.0),
        ("", None, "any processor", 8.0),
    ],
)
def test_defaults_by_family(vendor, family, name, l3_rate):
    machine = dataclasses.replace(MACHINE, vendor=vendor, family=family)
    assert family_of(machine).name == name
    assert model_of(machine).l3_rate == l3_rate
    assert calibrated(machine, None) == (machine, family_of(machine).constants)


@pytest.mark.parametrize(("vendor", "lanes"), [("GenuineIntel", "v0"), ("", "v1")])
def test_a_turned_picture_is_stored_in_vectors_on_intel(vendor, lanes):
    """A vector loads from different rows, or stores to them, whichever costs less."""
    x, y = hl.vars("x y")
    data, turned = hl.ImageParam(hl.UInt(8), 2, "data"), hl.Func("turned")
    data.set_estimates([(0, 1500), (0, 2000)])
    turned[x, y] = data[y, 1999 - x]
    turned.set_estimates([(0, 2000), (0, 1500)])
    caches = (Cache(1, 48 << 10, 64, 1), Cache(2, 2 << 20, 64, 1), Cache(3, 300 << 20, 64, 2))
    machine = CpuMachine(
        "x", "x86-64", 2, ("avx2", "avx512"), 512, caches, clock_hz=2.1e9, vendor=vendor, family=6
    )
    chosen = plan(make_task(turned, target="host", machine=machine))[0].schedule
    ((stage,),) = (entry.stages for entry in chosen.funcs if entry.stages)
    (vector,) = (loop.name for loop in stage.loops if loop.mapping == "vectorized")
    assert vector.startswith(lanes)


def test_measured_rates_replace_the_defaults():
    machine, c = calibrated(
        MACHINE,
        measured(
            clock=4e9,
            l2_core=1e11,
            l2_all=2.4e11,
            l3_core=4e10,
            memory_core=1e10,
            memory_all=2e10,
            gather=5e-10,
            fault=2.5e-10,
            task=5e-7,
            launch=1e-5,
        ),
    )
    # All four cores take 240 GB/s from their second levels: 60 each, 15 bytes per cycle.
    assert c.l2_rate == pytest.approx(15.0)
    # Nothing is known of all cores together: one has 40 GB/s.
    assert c.l3_rate == pytest.approx(10.0)
    # Copies count 2 of 3 bytes: 30 GB/s for all, 15 for one.
    assert c.memory_bandwidth == machine.memory_bandwidth == pytest.approx(3e10)
    assert c.core_memory_bandwidth == pytest.approx(1.5e10)
    assert c.clock_hz == machine.clock_hz == 4e9
    found = c.gather_cycles, c.fault_cycles_per_byte, c.task_cycles, c.region_cycles
    assert found == pytest.approx((2.0, 1.0, 2000.0, 40_000.0))
    model = model_of(machine, c)
    assert (model.memory_rate, model.core_memory_rate) == pytest.approx((7.5, 3.75))
    # Everything else stays.
    changed = {
        f.name for f in dataclasses.fields(c)
        if getattr(c, f.name) != getattr(CpuConstants(), f.name)
    }  # fmt: skip
    assert changed == {
        "clock_hz", "l2_rate", "l3_rate", "memory_bandwidth", "core_memory_bandwidth",
        "fault_cycles_per_byte", "gather_cycles", "task_cycles", "region_cycles",
    }  # fmt: skip


def test_unsettled_rates_are_left_out():
    machine, c = calibrated(MACHINE, measured(l2_all=-1e9, l2_core=-1e9, task=-1.0, clock=-9e9))
    assert (c.l2_rate, c.task_cycles, machine.clock_hz) == (32.0, 4000.0, 2e9)
    assert c.core_memory_bandwidth == math.inf
    # Without a clock that settled the system's holds for the others.
    _, c = calibrated(MACHINE, measured(l2_core=4e10))
    assert c.l2_rate == pytest.approx(20.0)


def test_implausible_rates_count_in_part():
    # An eighth of the default, and eight times it.
    _, c = calibrated(MACHINE, measured(clock=2e9, task=0.0, launch=1.0, gather=1e-12))
    assert c.task_cycles == 500.0
    assert c.region_cycles == 160_000.0
    assert c.gather_cycles == 1.5 / 8


def test_reports_say_where_the_numbers_are_from():
    assert "any processor" in description(MACHINE, None)
    assert "machine --calibrate" in description(MACHINE, None)
    text = description(MACHINE, measured(clock=1e9, task=-1.0))
    assert "on 2026-11-22, but for task" in text
    assert "--no-calibration" in text
    assert GENERIC.source
