"""Execution on the first CUDA GPU: NVRTC compiles the kernels, the driver runs them."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tilewright.patterns import nodes as n
from tilewright.patterns.codegen.code import Code
from tilewright.patterns.codegen.grid import GridKernel
from tilewright.patterns.codegen.limits import size_limits
from tilewright.patterns.errors import CompileError
from tilewright.patterns.kernel import Array, BoundKernel, CompiledPattern, check_index_range
from tilewright.patterns.nvrtc import compile_cuda

_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


class CudaDriver:
    """The driver, with the primary context of the first GPU.

    Args:
        library: the driver's functions.

    Raises:
        CompileError: the driver finds no GPU.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self.call("cuInit", 0)
        count, device = ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if count.value < 1:
            raise CompileError("the CUDA driver finds no GPU")
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        major, minor = (self._attribute(number, device) for number in _CAPABILITY)
        self.architecture = f"sm_{major}{minor}"
        self._context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self.enter()

    def _attribute(self, number: int, device: ctypes.c_int) -> int:
        found = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(found), number, device)
        return found.value

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of the driver.

        Raises:
            CompileError: the call fails; the message is the driver's.
        """
        status = getattr(self._library, function)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            said = text.value.decode() if text.value else f"error {status}"
            raise CompileError(f"CUDA's {function} fails: {said}")

    def enter(self) -> None:
        """Make the context current in this thread."""
        self.call("cuCtxSetCurrent", self._context)

    def functions(self, cubin: bytes, names: Sequence[str]) -> list[ctypes.c_void_p]:
        """Load machine code, and return its kernels by position in ``names``."""
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(cubin))
        found = [ctypes.c_void_p() for _ in names]
        for function, name in zip(found, names, strict=True):
            self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return found


class CudaArray:
    """Memory on the GPU, freed with this object."""

    def __init__(self, driver: CudaDriver, size: int) -> None:
        self._driver, self.size = driver, size
        self.pointer = ctypes.c_uint64()
        driver.call("cuMemAlloc_v2", ctypes.byref(self.pointer), ctypes.c_size_t(max(size, 1)))
        weakref.finalize(self, _freed, driver, self.pointer.value)

    def write(self, array: Array) -> None:
        """Copy an array to the GPU."""
        source = ctypes.c_void_p(array.ctypes.data)
        self._driver.call("cuMemcpyHtoD_v2", self.pointer, source, ctypes.c_size_t(self.size))

    def read(self, array: Array) -> None:
        """Copy this memory to an array on the host."""
        target = ctypes.c_void_p(array.ctypes.data)
        self._driver.call("cuMemcpyDtoH_v2", target, self.pointer, ctypes.c_size_t(self.size))


def _freed(driver: CudaDriver, pointer: int) -> None:
    driver.enter()
    driver.call("cuMemFree_v2", ctypes.c_uint64(pointer))


@cache
def driver() -> CudaDriver:
    """Return the driver, opened once per process.

    Raises:
        CompileError: there is no driver, or no GPU.
    """
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise CompileError(
            "there is no CUDA driver (libcuda.so.1): run the kernel on a machine with a GPU, or "
            "write its source with source(program, 'cuda')"
        ) from None
    return CudaDriver(library)


class CudaKernel(CompiledPattern):
    """A program compiled for a CUDA GPU: one or more kernels, run in order."""

    def __init__(
        self, program: n.Pattern, code: Code, source: str, kernels: tuple[GridKernel, ...]
    ) -> None:
        super().__init__(program, code, source)
        self.kernels, self._driver = kernels, driver()
        self._limits = size_limits(code, kernels)
        self.binary = compile_cuda(source, self._driver.architecture)
        self._driver.enter()
        names = [kernel.name for kernel in kernels]
        self._functions = self._driver.functions(self.binary.cubin, names)

    def __call__(self, *arrays: Any, sizes: Mapping[str, int] | None = None) -> Any:
        """Run the program.

        Args:
            arrays: one array per input.
            sizes: values of sizes that no input's shape determines, by name.

        Raises:
            SizeError: arrays or sizes do not fit the program, or are too large for 32-bit
                indices.
            PatternError: an array has the wrong type, or the driver fails.
        """
        bound = self.bound(*arrays, sizes=sizes)
        bound.run()
        return bound.result()

    def bound(self, *arrays: Any, sizes: Mapping[str, int] | None = None) -> BoundKernel:
        """Copy arguments to the GPU for repeated runs; arguments and errors are those of a call."""
        import numpy as np

        given, known = self.prepare(arrays, sizes)
        check_index_range(self._limits, known)
        made, cuda = self.memory(known), self._driver
        cuda.enter()
        held: dict[str, Any] = {}
        for item in self.code.inputs:
            array = given[item.name]
            if array.ndim == 0:
                held[item.name] = np.ctypeslib.as_ctypes_type(array.dtype)(array.item())
                continue
            held[item.name] = CudaArray(cuda, array.nbytes)
            held[item.name].write(array)
        for buffer, array in made.items():
            held[buffer.name] = CudaArray(cuda, array.nbytes)
        calls = []
        for kernel, function in zip(self.kernels, self._functions, strict=True):
            values = [held[item.name] for item in (*kernel.reads, *kernel.writes)]
            plain = [v.pointer if isinstance(v, CudaArray) else v for v in values]
            plain += [ctypes.c_int(known[name]) for name in kernel.sizes]
            places = [ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in plain]
            packed = (ctypes.c_void_p * len(places))(*places)
            shape = (*kernel.grid(known), *kernel.launch.threads)
            calls.append((function, shape, packed, plain))

        def run() -> None:
            cuda.enter()
            for function, shape, packed, _ in calls:
                cuda.call("cuLaunchKernel", function, *shape, 0, None, packed, None)
            cuda.call("cuCtxSynchronize")

        def result() -> Any:
            cuda.enter()
            for buffer in self.code.outputs:
                held[buffer.name].read(made[buffer])
            return self.result(made, known)

        return BoundKernel(run, result)
