"""Constants per processor family, and their replacement by a calibration.

Without a calibration, the constants of the processor's family apply (`FAMILIES`), and the defaults
of `CpuConstants` to other processors. A calibration replaces constants by measured values that
have converged. A value is limited to a factor of `TRUST` around the default: a larger deviation is
a disturbed measurement, or a different quantity than the one that the model uses.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilewright.halide.schedulers.analytic.cpu.constants import CpuConstants
from tilewright.machines import Calibration, CpuMachine

# Measured values are limited to default / TRUST .. default * TRUST.
TRUST = 8.0


@dataclass(frozen=True, slots=True)
class Family:
    """Processors of a vendor, selected by family numbers (CPUID) or part numbers (Arm)."""

    name: str
    vendor: str
    families: tuple[int, ...]
    constants: CpuConstants
    source: str


_ZEN = dataclasses.replace(CpuConstants(), l3_rate=16.0)
# Cycles of the fifth generation per register (per lane: integer division and functions of the C
# library), measured with 512-bit vectors on 2048 values in the first cache.
_ZEN5 = dataclasses.replace(
    _ZEN,
    transcendental_cycles=9.0,  # exp 8.5, log 10
    pow_cycles=34.0,
    sqrt_cycles=3.0,
    divide_cycles=3.0,  # floats: less than sqrt
    divide_integer_cycles=6.0,
    library_cycles=12.0,  # sin; tanh 8
)
# Pictures transposed from the second and third cache, lane by lane: cycles per value at the nominal
# clock, 1 byte to 8 bytes wide, rows not a multiple of 1024 bytes apart.
_INTEL = dataclasses.replace(
    CpuConstants(),
    gather_cycles=1.0,  # 0.6 to 2
    scatter_cycles=2.2,  # 1.2 to 6
)
_RATES = (
    "half of the 32 bytes per cycle between second and third level in AMD's optimisation guide for "
    "family 19h; the second level also gets half of its 64"
)
FAMILIES = (
    Family("AMD Zen", "AuthenticAMD", (0x17, 0x19), _ZEN, _RATES),
    Family("AMD Zen 5", "AuthenticAMD", (0x1A,), _ZEN5, f"{_RATES}; special functions measured"),
    Family("Intel", "GenuineIntel", (0x06,), _INTEL, "measured on an AVX-512 Xeon, model 207"),
)
GENERIC = Family(
    "any processor", "", (), CpuConstants(), "see `CpuConstants`, measured on an AVX-512 Xeon"
)


def family_of(machine: CpuMachine) -> Family:
    """Return the family of a machine, whose constants apply without a calibration."""
    for family in FAMILIES:
        if machine.vendor == family.vendor and machine.family in family.families:
            return family
    return GENERIC


def calibrated(
    machine: CpuMachine, calibration: Calibration | None
) -> tuple[CpuMachine, CpuConstants]:
    """Return the machine and the constants, with measured values where there are any."""
    c = family_of(machine).constants
    if calibration is None:
        return machine, c
    expected = machine.clock_hz or c.clock_hz
    clock = _trusted(calibration.value("clock"), expected)
    # The calibration counts two bytes per copied byte; the line that is written is also fetched.
    lines = (1.0 + c.write_factor) / 2.0
    memory = _trusted(calibration.value("memory_all", "memory_core"), c.memory_bandwidth / lines)
    core_memory = calibration.value("memory_core")
    l2 = _per_core(calibration, "l2", machine.cores)
    l3 = _per_core(calibration, "l3", machine.cores)
    replaced = dataclasses.replace(
        c,
        clock_hz=clock,
        l2_rate=_trusted(None if l2 is None else l2 / clock, c.l2_rate),
        l3_rate=_trusted(None if l3 is None else l3 / clock, c.l3_rate),
        memory_bandwidth=memory * lines,
        core_memory_bandwidth=(
            c.core_memory_bandwidth if core_memory is None else core_memory * lines
        ),
        fault_cycles_per_byte=_cycles(calibration, "fault", clock, c.fault_cycles_per_byte),
        gather_cycles=_cycles(calibration, "gather", clock, c.gather_cycles),
        task_cycles=_cycles(calibration, "task", clock, c.task_cycles),
        region_cycles=_cycles(calibration, "launch", clock, c.region_cycles),
    )
    known = dataclasses.replace(machine, clock_hz=clock, memory_bandwidth=memory * lines)
    return known, replaced


def description(machine: CpuMachine, calibration: Calibration | None) -> str:
    """Return the origin of a machine's constants, as a phrase for reports."""
    if calibration is None:
        return f"defaults for {family_of(machine).name} (measure: tilewright machine --calibrate)"
    day = calibration.date[:10]
    doubtful = calibration.doubtful
    less = f", but for {', '.join(doubtful)}" if doubtful else ""
    return f"measured on this processor on {day}{less} (ignore: --no-calibration)"


def _per_core(calibration: Calibration, level: str, cores: int) -> float | None:
    """Return bytes per second and core from a cache, all cores active if that was measured."""
    together = calibration.value(f"{level}_all")
    return calibration.value(f"{level}_core") if together is None else together / cores


def _cycles(calibration: Calibration, name: str, clock: float, default: float) -> float:
    seconds = calibration.value(name)
    return _trusted(None if seconds is None else seconds * clock, default)


def _trusted(measured: float | None, default: float) -> float:
    if measured is None:
        return default
    return min(max(measured, default / TRUST), default * TRUST)
