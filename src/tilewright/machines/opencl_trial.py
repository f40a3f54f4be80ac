"""Try one OpenCL platform: build a small kernel, run it, check its answer, describe the devices.

This is a separate program, which needs only the standard library: a driver that crashes, hangs or
prints affects only this process (`tilewright.machines.opencl` starts it). The first argument is
JSON, ``{"loader": library, "platform": index}``; without a platform, the names of the platforms are
listed. The answer is one line of JSON: ``{"platforms": [...]}``, ``{"name": ..., "devices":
[...]}`` or ``{"failure": text}``.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from ctypes import byref, c_char, c_int, c_size_t, c_uint, c_uint64, c_void_p, sizeof
from typing import Any

# Values of the OpenCL 1.2 headers (CL/cl.h).
_PLATFORM_NAME = 0x0902
_ALL_DEVICES = 0xFFFFFFFF
_DEVICE_TYPE_CPU = 1 << 1
_READ_WRITE, _COPY_HOST_POINTER = 1 << 0, 1 << 5
_DEVICE_TYPE, _DEVICE_NAME, _DEVICE_EXTENSIONS = 0x1000, 0x102B, 0x1030
_DEVICE_SIZES = {
    "compute_units": (0x1002, c_uint),
    "work_group": (0x1004, c_size_t),
    "clock_megahertz": (0x100C, c_uint),
    "global_cache_bytes": (0x101E, c_uint64),
    "local_bytes": (0x1023, c_uint64),
}

# Local memory and a barrier, as the kernels of schedules have them.
_GROUP, _GROUPS = 8, 4
_KERNEL = b"""
__kernel void trial(__global const int *from, __global int *to) {
    __local int shared[8];
    const int i = get_global_id(0), j = get_local_id(0);
    shared[j] = 3 * from[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    to[i] = shared[7 - j] + (int)get_group_id(0);
}
"""


class TrialError(Exception):
    """A call of OpenCL that failed."""


class OpenClFunctions:
    """The functions of an OpenCL loader, which raise where they report an error."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a status; raise TrialError if that is not success."""
        function = getattr(self._library, name)
        function.restype = c_int
        status = function(*arguments)
        if status != 0:
            raise TrialError(f"{name} gives error {status}")

    def make(self, name: str, *arguments: Any) -> c_void_p:
        """Call a function that returns a handle, and a status in its last argument."""
        function = getattr(self._library, name)
        function.restype = c_void_p
        status = c_int(0)
        handle = function(*arguments, byref(status))
        if status.value != 0 or not handle:
            raise TrialError(f"{name} gives error {status.value}")
        return c_void_p(handle)

    def handles(self, name: str, *arguments: Any) -> list[c_void_p]:
        """Return all handles that a function such as clGetDeviceIDs lists."""
        count = c_uint(0)
        self.call(name, *arguments, c_uint(0), None, byref(count))
        found = (c_void_p * count.value)()
        self.call(name, *arguments, count, found, None)
        return [c_void_p(handle) for handle in found]

    def text(self, name: str, handle: c_void_p, what: int) -> str:
        """Return a text that a function such as clGetDeviceInfo reports."""
        size = c_size_t(0)
        self.call(name, handle, c_uint(what), c_size_t(0), None, byref(size))
        value = (c_char * size.value)()
        self.call(name, handle, c_uint(what), size, value, None)
        return bytes(value).rstrip(b"\0").decode(errors="replace").strip()

    def number(self, device: c_void_p, what: int, kind: Any) -> int:
        """Return a number of a device."""
        value = kind(0)
        self.call(
            "clGetDeviceInfo", device, c_uint(what), c_size_t(sizeof(kind)), byref(value), None
        )
        return int(value.value)


def platforms(library: OpenClFunctions) -> list[c_void_p]:
    """Return the platforms that the loader shows; none if it reports that as an error."""
    with contextlib.suppress(TrialError):
        return library.handles("clGetPlatformIDs")
    return []


def describe(library: OpenClFunctions, device: c_void_p) -> dict[str, Any]:
    """Return the properties of a device, as JSON data."""
    kind = library.number(device, _DEVICE_TYPE, c_uint64)
    return {
        "name": library.text("clGetDeviceInfo", device, _DEVICE_NAME),
        "cpu": bool(kind & _DEVICE_TYPE_CPU),
        "extensions": library.text("clGetDeviceInfo", device, _DEVICE_EXTENSIONS).split(),
        **{
            name: library.number(device, what, size) for name, (what, size) in _DEVICE_SIZES.items()
        },
    }


def run_kernel(library: OpenClFunctions, device: c_void_p) -> None:
    """Build the kernel, run it and check its results; raises TrialError."""
    count = _GROUP * _GROUPS
    array = c_int * count
    given, found = array(*range(count)), array()
    devices = (c_void_p * 1)(device)
    context = library.make("clCreateContext", None, c_uint(1), devices, None, None)
    queue = library.make("clCreateCommandQueue", context, device, c_uint64(0))
    flags = c_uint64(_READ_WRITE | _COPY_HOST_POINTER)
    source, target = (
        library.make("clCreateBuffer", context, flags, c_size_t(sizeof(array)), data)
        for data in (given, found)
    )
    text = (ctypes.c_char_p * 1)(_KERNEL)
    program = library.make("clCreateProgramWithSource", context, c_uint(1), text, None)
    library.call("clBuildProgram", program, c_uint(1), devices, b"", None, None)
    kernel = library.make("clCreateKernel", program, b"trial")
    for i, buffer in enumerate((source, target)):
        library.call("clSetKernelArg", kernel, c_uint(i), c_size_t(sizeof(c_void_p)), byref(buffer))
    extents = [(c_size_t * 1)(extent) for extent in (count, _GROUP)]
    library.call(
        "clEnqueueNDRangeKernel", queue, kernel, c_uint(1), None, *extents, c_uint(0), None, None
    )
    size = c_size_t(sizeof(array))
    library.call(
        "clEnqueueReadBuffer",
        queue,
        target,
        c_uint(1),
        c_size_t(0),
        size,
        found,
        c_uint(0),
        None,
        None,
    )
    expected = [3 * (i - i % _GROUP + _GROUP - 1 - i % _GROUP) + i // _GROUP for i in given]
    if list(found) != expected:
        raise TrialError("its answer is wrong")


def answer(loader: str, platform: int | None) -> dict[str, Any]:
    """Return the findings of the trial, as JSON data."""
    try:
        library = OpenClFunctions(loader)
    except OSError:
        return {"failure": "it cannot be loaded"}
    try:
        present = platforms(library)
        if platform is None:
            names = [library.text("clGetPlatformInfo", p, _PLATFORM_NAME) for p in present]
            return {"platforms": names}
        devices = library.handles("clGetDeviceIDs", present[platform], c_uint64(_ALL_DEVICES))
        described = [describe(library, device) for device in devices]
        run_kernel(library, devices[0])
    except (TrialError, AttributeError) as error:
        return {"failure": str(error)}
    return {
        "name": library.text("clGetPlatformInfo", present[platform], _PLATFORM_NAME),
        "devices": described,
    }


def main() -> None:
    """Answer on standard output, kept apart from what drivers print."""
    out = os.dup(1)
    os.dup2(2, 1)
    asked = json.loads(sys.argv[1])
    data = json.dumps(answer(asked["loader"], asked["platform"]))
    os.write(out, data.encode() + b"\n")
    os._exit(0)  # a driver that crashes while it is unloaded has worked before


if __name__ == "__main__":
    main()
