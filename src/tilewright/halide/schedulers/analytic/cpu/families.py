"""Constants per processor family, and their replacement by a calibration.

Without a calibration the constants of the processor's family hold (`FAMILIES`), with those of
`CpuConstants` for every family that is not listed. A calibration replaces constants by measured
values that have settled, up to a factor of `TRUST`: a value that is farther off is a disturbance,
or not the quantity that the model means.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilewright.halide.schedulers.analytic.cpu.constants import CpuConstants
from tilewright.machines import Calibration, CpuMachine

# A measured number counts up to this many times the family's, or down to a part of it.
TRUST = 8.0


@dataclass(frozen=True, slots=True)
class Family:
    """Processors of one vendor and some families (by CPUID or Arm's part numbers)."""

    name: str
    vendor: str
    families: tuple[int, ...]
    constants: CpuConstants
    source: str


FAMILIES = (
    Family(
        "AMD Zen",
        "AuthenticAMD",
        (0x17, 0x19, 0x1A),
        dataclasses.replace(CpuConstants(), l3_rate=16.0),
        "32 bytes per cycle between second and third level in AMD's optimisation guide for family "
        "19h, of which half, as of the second level's 64",
    ),
)
GENERIC = Family(
    "any processor", "", (), CpuConstants(), "see `CpuConstants`, measured on an AVX-512 Xeon"
)


def family_of(machine: CpuMachine) -> Family:
    """Return the family whose constants hold for a machine that was not measured."""
    for family in FAMILIES:
        if machine.vendor == family.vendor and machine.family in family.families:
            return family
    return GENERIC


def calibrated(
    machine: CpuMachine, calibration: Calibration | None
) -> tuple[CpuMachine, CpuConstants]:
    """Return the machine with its clock and bandwidth, and the constants, as far as measured."""
    c = family_of(machine).constants
    if calibration is None:
        return machine, c
    expected = machine.clock_hz or c.clock_hz
    clock = _trusted(calibration.value("clock"), expected)
    # Copies count two bytes where a written line is fetched too.
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
    """Return where a machine's numbers are from, in a few words."""
    if calibration is None:
        return f"defaults for {family_of(machine).name} (measure: tilewright machine --calibrate)"
    day = calibration.date[:10]
    doubtful = calibration.doubtful
    less = f", but for {', '.join(doubtful)}" if doubtful else ""
    return f"measured on this processor on {day}{less} (ignore: --no-calibration)"


def _per_core(calibration: Calibration, level: str, cores: int) -> float | None:
    """Return bytes per second that each core takes from a cache while all do, or one alone."""
    together = calibration.value(f"{level}_all")
    return calibration.value(f"{level}_core") if together is None else together / cores


def _cycles(calibration: Calibration, name: str, clock: float, default: float) -> float:
    seconds = calibration.value(name)
    return _trusted(None if seconds is None else seconds * clock, default)


def _trusted(measured: float | None, default: float) -> float:
    if measured is None:
        return default
    return min(max(measured, default / TRUST), default * TRUST)
