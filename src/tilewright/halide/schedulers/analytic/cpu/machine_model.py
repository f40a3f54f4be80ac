"""The machine as the CPU cost model sees it: sizes, rates and constants.

Notation, used in `cost`, `register_block` and `inline`:

| symbol | meaning | unit |
|---|---|---|
| `l1_bytes`, `l2_bytes` | a core's share of the first and second cache | bytes |
| `l3_bytes` | the whole third cache | bytes |
| `vector_bytes`, `registers` | width and number of the vector registers | bytes, count |
| `l2_rate`, `l3_rate` | transfer rate of these caches to a core | bytes per cycle and core |
| `memory_rate` | transfer rate from memory to all cores together | bytes per cycle |
| `core_memory_rate` | transfer rate from memory to one core | bytes per cycle |
| `cores` | hardware threads that run tasks | count |

Vector width, caches, cores and clock come from the `CpuMachine` where it has them, and from
`constants` otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.halide.schedulers.analytic.cpu.constants import CpuConstants
from tilewright.halide.schedulers.analytic.cpu.families import family_of
from tilewright.machines import CpuMachine


@dataclass(frozen=True, slots=True)
class CpuModel:
    """A CPU with the constants of its cost model; times in cycles, sizes in bytes."""

    machine: CpuMachine
    constants: CpuConstants
    vector_bytes: int
    registers: int
    l1_bytes: float
    l2_bytes: float
    l3_bytes: float
    l2_rate: float
    l3_rate: float
    memory_rate: float
    core_memory_rate: float
    clock_hz: float

    @property
    def cores(self) -> int:
        """Hardware threads that run tasks."""
        return self.machine.cores

    def seconds(self, cycles: float) -> float:
        """Return cycles as seconds."""
        return cycles / self.clock_hz


def model_of(machine: CpuMachine, constants: CpuConstants | None = None) -> CpuModel:
    """Return the cost model of a machine, by default with the constants of its family."""
    c = constants or family_of(machine).constants
    clock = machine.clock_hz or c.clock_hz
    many = machine.vector_bits == c.many_registers_bits or "neon" in machine.isa
    return CpuModel(
        machine=machine,
        constants=c,
        vector_bytes=max(c.least_vector_bytes, machine.vector_bits // 8),
        registers=c.many_registers if many else c.registers,
        l1_bytes=machine.cache_bytes_per_core(1) or c.l1_bytes,
        l2_bytes=machine.cache_bytes_per_core(2) or c.l2_bytes,
        l3_bytes=machine.cache_bytes(3) or machine.last_level_bytes or c.l3_bytes,
        l2_rate=c.l2_rate,
        l3_rate=c.l3_rate,
        memory_rate=(machine.memory_bandwidth or c.memory_bandwidth) / clock,
        core_memory_rate=c.core_memory_bandwidth / clock,
        clock_hz=clock,
    )


def weighted(model: CpuModel, weight: float) -> CpuModel:
    """Return the model with all transfer rates of caches and memory divided by `weight`."""
    return replace(
        model,
        l2_rate=model.l2_rate / weight,
        l3_rate=model.l3_rate / weight,
        memory_rate=model.memory_rate / weight,
        core_memory_rate=model.core_memory_rate / weight,
    )
