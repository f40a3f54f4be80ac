"""The GPUs that are present: CUDA through the driver's library, OpenCL as its trial found it.

Neither is required: without a working driver, no such GPU is found.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.machines.compute_capability import LIMITS
from tilewright.machines.gpu_machine import GpuMachine, cuda_gpu
from tilewright.machines.gpu_table import gpu
from tilewright.machines.opencl import OpenclError, opencl_platform

# CUdevice_attribute, by name of our field
_CUDA_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "shared_per_block": 8,
    "warp_size": 10,
    "registers_per_block": 12,
    "max_threads_per_sm": 39,
    "shared_per_sm": 81,
    "registers_per_sm": 82,
    "shared_per_block_optin": 97,
    "max_blocks_per_sm": 106,
    "reserved_shared_per_block": 111,
}
_CLOCK_KHZ, _SMS, _MEMORY_CLOCK_KHZ, _BUS_BITS, _L2_BYTES, _MAJOR, _MINOR = (
    13,
    16,
    36,
    37,
    38,
    75,
    76,
)


def detect_gpus() -> list[GpuMachine]:
    """Return all GPUs of this computer, CUDA's first; empty if there are none."""
    return [*detect_cuda(), *detect_opencl()]


def detect_cuda() -> list[GpuMachine]:
    """Return the CUDA GPUs that the driver reports to this process, in its order.

    No context is created on a GPU, but the driver is initialised in this process: a process that is
    forked from it afterwards must not use CUDA.
    """
    driver = _cuda_driver()
    if driver is None:
        return []
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    return [_cuda_device(driver, ordinal) for ordinal in range(count.value)]


def _cuda_driver() -> Any | None:
    for name in ("libcuda.so.1", "libcuda.so", "nvcuda.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _cuda_device(driver: Any, ordinal: int) -> GpuMachine:
    device = ctypes.c_int()
    if driver.cuDeviceGet(ctypes.byref(device), ordinal) != 0:
        raise TilewrightError(f"the CUDA driver does not open its device {ordinal}")

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        status = driver.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        # An attribute that an old driver does not know counts as missing.
        return value.value if status == 0 else 0

    text = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(text, len(text), device)
    capability = (attribute(_MAJOR), attribute(_MINOR))
    # For a capability newer than the table, values that cannot be queried come from the newest one.
    known = [c for c in LIMITS if c <= capability]
    if not known:
        raise TilewrightError(
            f"{text.value.decode()} has compute capability {capability[0]}.{capability[1]}; "
            "3.0 is the least that is supported"
        )
    # Memory is clocked at double data rate.
    bandwidth = 2.0 * attribute(_MEMORY_CLOCK_KHZ) * 1e3 * attribute(_BUS_BITS) / 8
    machine = cuda_gpu(
        text.value.decode(errors="replace"),
        max(known),
        sms=attribute(_SMS),
        l2_bytes=attribute(_L2_BYTES),
        memory_bandwidth=bandwidth or None,
        clock_hz=attribute(_CLOCK_KHZ) * 1e3 or None,
    )
    asked = {field: attribute(number) for field, number in _CUDA_ATTRIBUTES.items()}
    found: dict[str, Any] = {field: value for field, value in asked.items() if value > 0}
    warp, threads = found.get("warp_size"), found.get("max_threads_per_sm")
    if warp and threads:
        found["max_warps_per_sm"] = threads // warp
    return dataclasses.replace(machine, compute_capability=capability, **found)


def detect_opencl() -> list[GpuMachine]:
    """Return the devices of the OpenCL platform that works here; empty if none does.

    `tilewright.machines.opencl.opencl_failure` says why there are none.
    """
    try:
        platform = opencl_platform()
    except OpenclError:
        return []
    return [_opencl_device(platform.name, device) for device in platform.devices]


def _opencl_device(platform: str, device: Mapping[str, Any]) -> GpuMachine:
    """Return a device by its platform's template, with the limits that OpenCL reports."""
    template = gpu("pocl") if device["cpu"] else gpu("intelgpu")
    feature_of = {
        "cl_khr_fp64": "cl_doubles",
        "cl_khr_fp16": "cl_half",
        "cl_khr_int64_base_atomics": "cl_atomics64",
    }
    threads = device["work_group"]
    warp = template.warp_size
    shared = device["local_bytes"]
    return dataclasses.replace(
        template,
        name=f"{device['name']} ({platform})",
        sms=device["compute_units"],
        max_threads_per_block=threads,
        max_threads_per_sm=max(threads, template.max_threads_per_sm),
        max_warps_per_sm=max(-(-threads // warp), template.max_warps_per_sm),
        shared_per_block=shared,
        shared_per_block_optin=shared,
        shared_per_sm=max(shared, template.shared_per_sm),
        l2_bytes=device["global_cache_bytes"],
        memory_bandwidth=None,
        clock_hz=device["clock_megahertz"] * 1e6 or None,
        features=tuple(f for e, f in feature_of.items() if e in device["extensions"]),
    )
