"""GPUs known by name.

Product figures (SMs, L2, memory bandwidth, boost clock) are the vendors' published ones.
"""

from __future__ import annotations

import difflib
import re
from functools import cache

from tilewright.errors import TilewrightError
from tilewright.machines.gpu_machine import GpuMachine, cuda_gpu

_KIB = 1024
_MIB = 1024 * 1024

# key: (name, compute capability, SMs, L2 bytes, bandwidth in GB/s, boost clock in MHz)
_CUDA: dict[str, tuple[str, tuple[int, int], int, int, float, float]] = {
    "k420": ("NVIDIA Quadro K420", (3, 0), 1, 256 * _KIB, 29, 780),
    "tk1": ("NVIDIA Tegra K1", (3, 2), 1, 128 * _KIB, 14.9, 852),
    "k40c": ("NVIDIA Tesla K40c", (3, 5), 15, 1536 * _KIB, 288, 875),
    "gtxtitan": ("NVIDIA GeForce GTX TITAN", (3, 5), 14, 1536 * _KIB, 288.4, 876),
    "gtxtitanblack": ("NVIDIA GeForce GTX TITAN Black", (3, 5), 15, 1536 * _KIB, 336, 980),
    "p100": ("NVIDIA Tesla P100 SXM2", (6, 0), 56, 4 * _MIB, 732, 1480),
    "gtx1080ti": ("NVIDIA GeForce GTX 1080 Ti", (6, 1), 28, 2816 * _KIB, 484, 1582),
    "v100": ("NVIDIA Tesla V100 SXM2", (7, 0), 80, 6 * _MIB, 900, 1530),
    "xavier": ("NVIDIA Jetson AGX Xavier", (7, 2), 8, 512 * _KIB, 137, 1377),
    "rtx2070": ("NVIDIA GeForce RTX 2070", (7, 5), 36, 4 * _MIB, 448, 1620),
    "rtx2080ti": ("NVIDIA GeForce RTX 2080 Ti", (7, 5), 68, 5632 * _KIB, 616, 1545),
    "t4": ("NVIDIA Tesla T4", (7, 5), 40, 4 * _MIB, 320, 1590),
    "a100": ("NVIDIA A100 SXM4 40GB", (8, 0), 108, 40 * _MIB, 1555, 1410),
    "a10080gb": ("NVIDIA A100 SXM4 80GB", (8, 0), 108, 40 * _MIB, 2039, 1410),
    "rtx3090": ("NVIDIA GeForce RTX 3090", (8, 6), 82, 6 * _MIB, 936, 1695),
    "orin": ("NVIDIA Jetson AGX Orin", (8, 7), 16, 4 * _MIB, 204.8, 1300),
    "rtx4090": ("NVIDIA GeForce RTX 4090", (8, 9), 128, 72 * _MIB, 1008, 2520),
    "h100": ("NVIDIA H100 SXM5", (9, 0), 132, 50 * _MIB, 3352, 1980),
    "h100pcie": ("NVIDIA H100 PCIe", (9, 0), 114, 50 * _MIB, 2039, 1755),
    "h200": ("NVIDIA H200", (9, 0), 132, 50 * _MIB, 4800, 1980),
    "b200": ("NVIDIA B200", (10, 0), 148, 126 * _MIB, 8000, 1965),
    "rtx5090": ("NVIDIA GeForce RTX 5090", (12, 0), 170, 96 * _MIB, 1792, 2407),
}

# Intel's Gen graphics: a subslice has ten execution units of seven threads; a thread has 128
# registers of 32 bytes, which at SIMD16 are 64 registers per work-item. The 512 work-items per
# group are those of the Intel device of Sioutas 2020, Section 5.
_INTEL_IGPU = GpuMachine(
    name="Intel integrated GPU (OpenCL)",
    api="opencl",
    compute_capability=None,
    sms=2,
    warp_size=16,
    max_threads_per_block=512,
    max_threads_per_sm=1120,
    max_warps_per_sm=70,
    max_blocks_per_sm=16,
    registers_per_sm=71680,
    registers_per_block=32768,
    max_registers_per_thread=64,
    register_allocation_unit=1024,
    warp_allocation_granularity=1,
    shared_per_block=64 * _KIB,
    shared_per_block_optin=64 * _KIB,
    shared_per_sm=64 * _KIB,
    shared_allocation_unit=1024,
    reserved_shared_per_block=0,
    l2_bytes=256 * _KIB,
    memory_bandwidth=25.6e9,
    clock_hz=1.15e9,
    fp32_lanes_per_sm=80,
)

# PoCL runs work-groups on CPU threads, one group per core at a time, its work-items in vector
# lanes; its private memory is the stack, so registers set no limit. These limits hold for any of
# its builds; detection reads those of the installed one.
_POCL = GpuMachine(
    name="PoCL (OpenCL on the CPU)",
    api="opencl",
    compute_capability=None,
    sms=2,
    warp_size=8,
    max_threads_per_block=1024,
    max_threads_per_sm=1024,
    max_warps_per_sm=128,
    max_blocks_per_sm=1,
    registers_per_sm=1 << 20,
    registers_per_block=1 << 20,
    max_registers_per_thread=255,
    register_allocation_unit=1,
    warp_allocation_granularity=1,
    shared_per_block=48 * _KIB,
    shared_per_block_optin=48 * _KIB,
    shared_per_sm=48 * _KIB,
    shared_allocation_unit=1,
    reserved_shared_per_block=0,
    l2_bytes=1 * _MIB,
    memory_bandwidth=None,
    clock_hz=None,
    fp32_lanes_per_sm=16,
)

_ALIASES = {
    "k40": "k40c",
    "teslak40c": "k40c",
    "teslak40": "k40c",
    "titan": "gtxtitan",
    "titanblack": "gtxtitanblack",
    "quadrok420": "k420",
    "tegrak1": "tk1",
    "jetsontk1": "tk1",
    "agxxavier": "xavier",
    "jetsonxavier": "xavier",
    "2070": "rtx2070",
    "2080ti": "rtx2080ti",
    "3090": "rtx3090",
    "4090": "rtx4090",
    "5090": "rtx5090",
    "h100sxm": "h100",
    "h100sxm5": "h100",
    "h100x1": "h100",
    "a10040gb": "a100",
    "intel": "intelgpu",
    "inteligpu": "intelgpu",
    "inteluhd": "intelgpu",
}


def _key(name: str) -> str:
    """Return a name without case, punctuation and the words that all products of a vendor share."""
    words = re.sub(r"[^a-z0-9]+", " ", name.lower()).split()
    return "".join(w for w in words if w not in ("nvidia", "geforce"))


@cache
def _table() -> dict[str, GpuMachine]:
    table = {
        key: cuda_gpu(
            name,
            capability,
            sms=sms,
            l2_bytes=l2,
            memory_bandwidth=bandwidth * 1e9,
            clock_hz=clock * 1e6,
        )
        for key, (name, capability, sms, l2, bandwidth, clock) in _CUDA.items()
    }
    table["intelgpu"] = _INTEL_IGPU
    table["pocl"] = _POCL
    return table


def gpu_names() -> list[str]:
    """Return the short names that `gpu` knows, oldest GPU first."""
    return list(_table())


def gpu(name: str) -> GpuMachine:
    """Return the GPU of that name, ignoring case and punctuation.

    Raises `TilewrightError`, which names the nearest known GPUs, if no GPU has that name.

    >>> gpu("RTX 2080 Ti").sms
    68
    """
    table = _table()
    by_key = {_key(machine.name): machine for machine in table.values()}
    by_key.update({alias: table[key] for alias, key in _ALIASES.items()})
    by_key.update(table)
    machine = by_key.get(_key(name))
    if machine is not None:
        return machine
    near = difflib.get_close_matches(_key(name), list(by_key), n=5, cutoff=0.5)
    hint = ""
    if near:
        short = {id(m): k for k, m in table.items()}
        hint = f" Did you mean {' or '.join(dict.fromkeys(short[id(by_key[k])] for k in near))}?"
    raise TilewrightError(f"no GPU named {name!r} is known.{hint} Known are: {', '.join(table)}.")
