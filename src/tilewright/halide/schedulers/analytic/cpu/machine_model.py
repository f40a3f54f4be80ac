"""The CPU as the cost model sees it: a few rates, all in cycles and bytes.

The figures are throughputs of current x86-64 and Arm cores (two vector operations and one
vector load a cycle), not of one product; what differs between machines (lanes, caches,
cores, bandwidth) is read from the `CpuMachine`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.machines.cpu import CpuMachine


@dataclass(frozen=True, slots=True)
class CpuModel:
    """Rates and limits for costing on one CPU; times are in cycles, sizes in bytes."""

    machine: CpuMachine
    vector_bytes: int
    registers: int
    l1_bytes: float
    l2_bytes: float
    l3_bytes: float
    l2_rate: float = 32.0
    l3_rate: float = 8.0
    memory_rate: float = 8.0
    fault_cycles_per_byte: float = 1.5
    fault_threshold: float = 32.0 * 2**20
    row_cycles: float = 8.0
    tile_cycles: float = 60.0
    segment_cycles: float = 60.0
    pass_cycles: float = 180.0
    block_cycles: float = 0.5
    heap_cycles: float = 250.0
    task_cycles: float = 4000.0
    region_cycles: float = 20000.0
    stack_bytes: float = 16384.0
    clock_hz: float = 3.0e9
    overlap: float = 0.3

    @property
    def cores(self) -> int:
        """Hardware threads that run tasks."""
        return self.machine.cores

    def seconds(self, cycles: float) -> float:
        """Cycles as seconds."""
        return cycles / self.clock_hz


def model_of(machine: CpuMachine) -> CpuModel:
    """The cost model's view of a machine."""
    clock = machine.clock_hz or 3.0e9
    bandwidth = machine.memory_bandwidth or 2.0e10
    l2 = machine.cache_bytes_per_core(2) or 256 * 1024
    l3 = machine.cache_bytes(3) or machine.last_level_bytes or 8 * 2**20
    return CpuModel(
        machine=machine,
        vector_bytes=max(16, machine.vector_bits // 8),
        registers=32 if machine.vector_bits == 512 or "neon" in machine.isa else 16,
        l1_bytes=machine.cache_bytes_per_core(1) or 32 * 1024,
        l2_bytes=l2,
        l3_bytes=l3,
        memory_rate=bandwidth / clock,
        clock_hz=clock,
    )


def weighted(model: CpuModel, weight: float) -> CpuModel:
    """The model of a machine whose memory is so many times slower beside its cores."""
    return replace(
        model,
        l2_rate=model.l2_rate / weight,
        l3_rate=model.l3_rate / weight,
        memory_rate=model.memory_rate / weight,
    )
