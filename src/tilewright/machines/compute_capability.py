"""The limits of CUDA compute capabilities that an occupancy calculation needs.

The figures are those of the CUDA C++ Programming Guide ("Technical Specifications per Compute
Capability") and of NVIDIA's occupancy calculator. They hold for every GPU of a capability. Figures
that differ between products (SMs, caches, clocks) are in `tilewright.machines.gpu_table`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import TilewrightError

KIB = 1024


@dataclass(frozen=True, slots=True)
class CapabilityLimits:
    """Limits of one compute capability; sizes in bytes, registers of 32 bits.

    `shared_per_block` is the limit for a kernel that does not opt in to more,
    `shared_per_block_optin` for one that does. `reserved_shared_per_block` is taken by the system
    from every block. `sub_partitions` is the number of schedulers of an SM among which warps, and
    so registers, are distributed (the calculator calls it the warp allocation granularity).
    """

    warps_per_sm: int
    blocks_per_sm: int
    shared_per_sm: int
    shared_per_block_optin: int
    shared_allocation_unit: int
    reserved_shared_per_block: int
    registers_per_sm: int
    registers_per_block: int
    max_registers_per_thread: int
    sub_partitions: int
    fp32_lanes_per_sm: int

    shared_per_block: int = 48 * KIB
    warp_size: int = 32
    threads_per_block: int = 1024
    register_allocation_unit: int = 256

    @property
    def threads_per_sm(self) -> int:
        """Threads that can be resident on one SM."""
        return self.warps_per_sm * self.warp_size


def _limits(
    warps: int,
    blocks: int,
    shared_kib: int,
    optin_kib: int,
    lanes: int,
    *,
    registers_kib: tuple[int, int] = (64, 64),
    per_thread: int = 255,
    sub_partitions: int = 4,
    ampere: bool = False,
) -> CapabilityLimits:
    """Return the limits of a compute capability; `registers_kib` is (per SM, per block)."""
    return CapabilityLimits(
        warps_per_sm=warps,
        blocks_per_sm=blocks,
        shared_per_sm=shared_kib * KIB,
        shared_per_block_optin=optin_kib * KIB,
        shared_allocation_unit=128 if ampere else 256,
        reserved_shared_per_block=KIB if ampere else 0,
        registers_per_sm=registers_kib[0] * KIB,
        registers_per_block=registers_kib[1] * KIB,
        max_registers_per_thread=per_thread,
        sub_partitions=sub_partitions,
        fp32_lanes_per_sm=lanes,
    )


LIMITS: dict[tuple[int, int], CapabilityLimits] = {
    (3, 0): _limits(64, 16, 48, 48, 192, per_thread=63),
    (3, 2): _limits(64, 16, 48, 48, 192, registers_kib=(64, 32)),
    (3, 5): _limits(64, 16, 48, 48, 192),
    (3, 7): _limits(64, 16, 112, 48, 192, registers_kib=(128, 64)),
    (5, 0): _limits(64, 32, 64, 48, 128),
    (5, 2): _limits(64, 32, 96, 48, 128),
    (5, 3): _limits(64, 32, 64, 48, 128, registers_kib=(64, 32)),
    (6, 0): _limits(64, 32, 64, 48, 64, sub_partitions=2),
    (6, 1): _limits(64, 32, 96, 48, 128),
    (6, 2): _limits(64, 32, 64, 48, 128, registers_kib=(64, 32)),
    (7, 0): _limits(64, 32, 96, 96, 64),
    (7, 2): _limits(64, 32, 96, 96, 64),
    (7, 5): _limits(32, 16, 64, 64, 64),
    (8, 0): _limits(64, 32, 164, 163, 64, ampere=True),
    (8, 6): _limits(48, 16, 100, 99, 128, ampere=True),
    (8, 7): _limits(48, 16, 164, 163, 128, ampere=True),
    (8, 9): _limits(48, 24, 100, 99, 128, ampere=True),
    (9, 0): _limits(64, 32, 228, 227, 128, ampere=True),
    (10, 0): _limits(64, 32, 228, 227, 128, ampere=True),
    (10, 3): _limits(64, 32, 228, 227, 128, ampere=True),
    (12, 0): _limits(48, 24, 100, 99, 128, ampere=True),
    (12, 1): _limits(48, 24, 100, 99, 128, ampere=True),
}


def limits(compute_capability: tuple[int, int]) -> CapabilityLimits:
    """Return the limits of a compute capability, e.g. ``(7, 5)``.

    Raises `TilewrightError` for a capability that is not in the table.

    >>> limits((7, 5)).warps_per_sm
    32
    """
    try:
        return LIMITS[compute_capability]
    except KeyError:
        known = ", ".join(f"{major}.{minor}" for major, minor in LIMITS)
        major, minor = compute_capability
        raise TilewrightError(
            f"no limits are known for compute capability {major}.{minor}; known are: {known}"
        ) from None
