"""The description of a GPU: the immutable `GpuMachine`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.machines.compute_capability import limits

# The capabilities that Halide 21 has target features for; a newer GPU takes the newest of them.
HALIDE_CUDA_CAPABILITIES = (30, 32, 35, 50, 61, 70, 75, 80, 86)

# The CUDA runtime of Halide 21 compiles PTX with at most this many registers per thread, unless the
# environment has HL_CUDA_JIT_MAX_REGISTERS.
HALIDE_JIT_MAX_REGISTERS = 64


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """One GPU as a scheduler sees it; sizes in bytes, registers of 32 bits.

    For OpenCL devices an SM is a compute unit (on Intel a subslice), a block a work-group, a warp
    the work-items that run in lockstep, shared memory is local memory.

    `shared_per_block` is the shared memory of a kernel that does not opt in to more. It is the
    limit of Halide's kernels: Halide's CUDA runtime never opts in to `shared_per_block_optin`.
    `memory_bandwidth` is in bytes per second, `clock_hz` the highest sustained (boost) clock; both
    are None where unknown. `features` are further Halide target features, such as ``cl_doubles``.
    """

    name: str
    api: Literal["cuda", "opencl"]
    compute_capability: tuple[int, int] | None
    sms: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    registers_per_block: int
    max_registers_per_thread: int
    register_allocation_unit: int
    warp_allocation_granularity: int
    shared_per_block: int
    shared_per_block_optin: int
    shared_per_sm: int
    shared_allocation_unit: int
    reserved_shared_per_block: int
    l2_bytes: int
    memory_bandwidth: float | None
    clock_hz: float | None
    fp32_lanes_per_sm: int
    features: tuple[str, ...] = ()

    @property
    def peak_flops(self) -> float | None:
        """Peak single-precision operations per second, a fused multiply-add counted as two."""
        if self.clock_hz is None:
            return None
        return 2.0 * self.sms * self.fp32_lanes_per_sm * self.clock_hz

    @property
    def halide_target(self) -> str:
        """The Halide target string for this GPU with the host that compiles.

        >>> from tilewright.machines import gpu
        >>> gpu("a100").halide_target
        'host-cuda-cuda_capability_80'
        """
        parts = ["host", self.api]
        if self.api == "cuda" and self.compute_capability is not None:
            own = 10 * self.compute_capability[0] + self.compute_capability[1]
            known = [c for c in HALIDE_CUDA_CAPABILITIES if c <= own]
            if known:
                parts.append(f"cuda_capability_{known[-1]}")
        return "-".join([*parts, *self.features])


def cuda_gpu(
    name: str,
    compute_capability: tuple[int, int],
    *,
    sms: int,
    l2_bytes: int,
    memory_bandwidth: float | None,
    clock_hz: float | None,
) -> GpuMachine:
    """Return a CUDA GPU from its product figures and the limits of its compute capability.

    Raises `TilewrightError` when the capability is not in the table of limits.
    """
    cc = limits(compute_capability)
    return GpuMachine(
        name=name,
        api="cuda",
        compute_capability=compute_capability,
        sms=sms,
        warp_size=cc.warp_size,
        max_threads_per_block=cc.threads_per_block,
        max_threads_per_sm=cc.threads_per_sm,
        max_warps_per_sm=cc.warps_per_sm,
        max_blocks_per_sm=cc.blocks_per_sm,
        registers_per_sm=cc.registers_per_sm,
        registers_per_block=cc.registers_per_block,
        max_registers_per_thread=cc.max_registers_per_thread,
        register_allocation_unit=cc.register_allocation_unit,
        warp_allocation_granularity=cc.sub_partitions,
        shared_per_block=cc.shared_per_block,
        shared_per_block_optin=cc.shared_per_block_optin,
        shared_per_sm=cc.shared_per_sm,
        shared_allocation_unit=cc.shared_allocation_unit,
        reserved_shared_per_block=cc.reserved_shared_per_block,
        l2_bytes=l2_bytes,
        memory_bandwidth=memory_bandwidth,
        clock_hz=clock_hz,
        fp32_lanes_per_sm=cc.fp32_lanes_per_sm,
    )
