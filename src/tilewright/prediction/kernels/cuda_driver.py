"""The parts of the CUDA driver's interface that the kernels need, through ctypes."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tilewright.prediction.data.kernel import Array
from tilewright.prediction.errors import PredictionError


class Driver:
    """The first GPU, its primary context made current in the calling thread.

    Raises:
        PredictionError: no driver, or no GPU.
    """

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise PredictionError("there is no CUDA driver (libcuda.so.1)") from None
        self._call("cuInit", 0)
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        if count.value == 0:
            raise PredictionError("the CUDA driver finds no GPU")
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, 256, device)
        self.name = name.value.decode(errors="replace")
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self.enter()

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._cuda, function)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(status, ctypes.byref(text))
            said = text.value.decode() if text.value else f"error {status}"
            raise PredictionError(f"{function}: {said}")

    def enter(self) -> None:
        """Make the context current in this thread."""
        self._call("cuCtxSetCurrent", self._context)

    def module(self, ptx: bytes) -> ctypes.c_void_p:
        """Compile PTX for this GPU."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx))
        return module

    def function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        """Return a kernel of a module."""
        found = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(found), module, name.encode())
        return found

    def empty(self, shape: tuple[int, ...]) -> DeviceArray:
        """Return memory for doubles on the GPU."""
        pointer = ctypes.c_uint64()
        size = max(8 * int(np.prod(shape)), 8)
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return DeviceArray(self, pointer, shape)

    def upload(self, array: Array) -> DeviceArray:
        """Return a copy of a C-ordered array of float64 on the GPU."""
        made = self.empty(array.shape)
        source = ctypes.c_void_p(array.ctypes.data)
        self._call("cuMemcpyHtoD_v2", made.pointer, source, ctypes.c_size_t(array.nbytes))
        return made

    def download(self, source: DeviceArray) -> Array:
        """Return a copy in the computer's memory."""
        self.enter()
        out = np.empty(source.shape)
        target = ctypes.c_void_p(out.ctypes.data)
        self._call("cuMemcpyDtoH_v2", target, source.pointer, ctypes.c_size_t(out.nbytes))
        return out

    def free(self, pointer: ctypes.c_uint64) -> None:
        """Free memory."""
        self.enter()
        self._call("cuMemFree_v2", pointer)

    def launch(
        self,
        function: ctypes.c_void_p,
        grid: tuple[int, int],
        block: tuple[int, int],
        shared: int,
        arguments: Sequence[Any],
    ) -> None:
        """Run a kernel to its end."""
        places = [ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in arguments]
        packed = (ctypes.c_void_p * len(places))(*places)
        self._call("cuLaunchKernel", function, *grid, 1, *block, 1, shared, None, packed, None)
        self._call("cuCtxSynchronize")


class DeviceArray:
    """An array of doubles on the GPU; NumPy copies it back when asked for its values."""

    def __init__(self, driver: Driver, pointer: ctypes.c_uint64, shape: tuple[int, ...]) -> None:
        self.pointer, self.shape, self._driver = pointer, shape, driver
        weakref.finalize(self, driver.free, pointer)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        values = self._driver.download(self)
        return values if dtype is None else values.astype(dtype)


@cache
def driver() -> Driver:
    """Return the driver, opened once; raises PredictionError as `Driver`."""
    return Driver()
