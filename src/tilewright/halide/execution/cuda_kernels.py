"""The resources of CUDA kernels: registers, spills, threads and shared memory.

When a pipeline first runs, Halide's runtime lets the driver compile the PTX with at most 64
registers per thread, or as many as ``HL_CUDA_JIT_MAX_REGISTERS`` says. ``ptxas`` (from the CUDA
toolkit or the ``nvidia-cuda-nvcc`` package) reports the registers and spills. The driver reports
the registers only. Shared memory is dynamic: its size is in the launch.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass, replace
from typing import Any

from tilewright.files import scratch_folder
from tilewright.halide.execution.lowered_launches import call_arguments
from tilewright.machines import HALIDE_JIT_MAX_REGISTERS

REGISTERS = "HL_CUDA_JIT_MAX_REGISTERS"
_PTXAS_SECONDS = 20.0
# The oldest that ptxas of CUDA 13 assembles for.
OLDEST_ARCHITECTURE = "sm_75"


@dataclass(frozen=True, slots=True)
class KernelResources:
    """The resources of one kernel; unknown values are None.

    `spill_bytes` is the sum of bytes of spill stores and loads, `local_bytes` the stack frame per
    thread including spills. `threads` holds the block's extents in x, y and z.
    """

    name: str
    registers: int | None = None
    spill_bytes: int | None = None
    local_bytes: int | None = None
    threads: tuple[int | None, ...] = ()
    shared_bytes: int | None = None


def kernel_resources(pipeline: Any, target: Any) -> list[dict[str, Any]]:
    """Return the resources of all kernels of a scheduled ``halide.Pipeline`` as JSON data.

    Registers are counted for the device in this machine, or else for the compute capability of
    `target`. The result is empty for a pipeline without device code.
    """
    ptx, statement = device_code(pipeline, target)
    limit = int(os.environ.get(REGISTERS, HALIDE_JIT_MAX_REGISTERS))
    known = {kernel.name: kernel for kernel in launches(statement)}
    device = _Driver.load()
    ptxas = find_ptxas()
    compiled: list[KernelResources] = []
    if ptxas is not None:
        architecture = device.architecture if device else _architecture(ptx)
        compiled = assembled(ptx, ptxas, architecture, limit)
        if not compiled and device is None:
            # Registers hardly differ between neighbouring architectures.
            compiled = assembled(ptx, ptxas, OLDEST_ARCHITECTURE, limit)
    if not compiled and device is not None:
        compiled = [device.kernel(ptx, name, limit) for name in entries(ptx)]
    for kernel in compiled:
        launch = known.get(kernel.name, KernelResources(kernel.name))
        known[kernel.name] = replace(
            kernel, threads=launch.threads, shared_bytes=launch.shared_bytes
        )
    return [asdict(kernel) for kernel in known.values()]


def device_code(pipeline: Any, target: Any) -> tuple[str, str]:
    """Return the PTX and the lowered statement, without generating code for the host."""
    import halide as hl

    bare = target.with_feature(hl.TargetFeature.NoRuntime)
    with scratch_folder("tilewright-cuda-") as folder:
        ptx, statement = folder / "code.ptx", folder / "code.stmt"
        kinds = {hl.OutputFileType.device_code: str(ptx), hl.OutputFileType.stmt: str(statement)}
        pipeline.compile_to(kinds, pipeline.infer_arguments(), "kernels", bare)
        return (ptx.read_text() if ptx.exists() else ""), statement.read_text()


def entries(ptx: str) -> list[str]:
    """Return the names of the kernels in PTX code."""
    return re.findall(r"\.visible \.entry (\w+)\(", ptx)


def launches(statement: str) -> list[KernelResources]:
    """Return the kernels launched by lowered code, with their threads and shared memory.

    Extents and sizes that depend on arguments of the pipeline are None.
    """
    found = {}
    for match in re.finditer(r'halide_cuda_run\([^"]*"(\w+)", ', statement):
        parts = call_arguments(statement, match.end())
        threads = tuple(_number(part) for part in parts[3:6])
        found[match[1]] = KernelResources(match[1], threads=threads, shared_bytes=_number(parts[6]))
    return list(found.values())


def _number(text: str) -> int | None:
    """Return the value of a sum of products of literals, such as ``0 + (2660*4)``, else None."""
    total = 0
    for term in text.replace("(", "").replace(")", "").split("+"):
        factors = [factor.strip() for factor in term.split("*")]
        if not all(factor.isdigit() for factor in factors):
            return None
        product = 1
        for factor in factors:
            product *= int(factor)
        total += product
    return total


def find_ptxas() -> str | None:
    """Return the path of ``ptxas``: from ``PATH``, ``CUDA_HOME`` or its Python package."""
    found = shutil.which("ptxas")
    if found is None and "CUDA_HOME" in os.environ:
        found = shutil.which("ptxas", path=os.path.join(os.environ["CUDA_HOME"], "bin"))
    if found is None:
        try:
            files = importlib.metadata.files("nvidia-cuda-nvcc") or []
        except importlib.metadata.PackageNotFoundError:
            files = []
        programs = [str(file.locate()) for file in files if file.name == "ptxas"]
        found = programs[0] if programs else None
    return found


def assembled(
    ptx: str, ptxas: str, architecture: str, max_registers: int, seconds: float = _PTXAS_SECONDS
) -> list[KernelResources]:
    """Return the resources of the kernels as ``ptxas -v`` reports them.

    The result is empty if ``ptxas`` fails or takes longer than `seconds`.
    """
    with scratch_folder("tilewright-cuda-") as folder:
        source = folder / "code.ptx"
        source.write_text(ptx)
        argv = [ptxas, "-v", f"-arch={architecture}", f"--maxrregcount={max_registers}"]
        try:
            result = subprocess.run(
                [*argv, "-o", os.devnull, str(source)],
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds,
            )
        except (OSError, subprocess.TimeoutExpired):
            return []
    return parse_ptxas(result.stderr) if result.returncode == 0 else []


def parse_ptxas(text: str) -> list[KernelResources]:
    """Return the kernels in the output of ``ptxas -v``."""
    kernels: list[KernelResources] = []
    for line in text.splitlines():
        name = re.search(r"Compiling entry function '(\w+)'", line)
        memory = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)", line)
        registers = re.search(r"Used (\d+) registers", line)
        if name:
            kernels.append(KernelResources(name[1]))
        elif memory and kernels:
            frame, stores, loads = map(int, memory.groups())
            kernels[-1] = replace(kernels[-1], local_bytes=frame, spill_bytes=stores + loads)
        elif registers and kernels:
            kernels[-1] = replace(kernels[-1], registers=int(registers[1]))
    return kernels


def _architecture(ptx: str) -> str:
    match = re.search(r"\.target (sm_\w+)", ptx)
    return match[1] if match else "sm_80"


class _Driver:
    """The CUDA driver, which compiles kernels for the first device and reports their resources."""

    # Values of CUfunction_attribute, CUdevice_attribute and CUjit_option in cuda.h.
    _LOCAL_BYTES, _REGISTERS = 3, 4
    _MAJOR, _MINOR = 75, 76
    _JIT_MAX_REGISTERS = 0

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        device = ctypes.c_int()
        context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(major), self._MAJOR, device)
        self._call("cuDeviceGetAttribute", ctypes.byref(minor), self._MINOR, device)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._context = context
        self.architecture = f"sm_{major.value}{minor.value}"

    @staticmethod
    def load() -> _Driver | None:
        """Return the driver; None without a driver or a device."""
        try:
            return _Driver(ctypes.CDLL("libcuda.so.1"))
        except (OSError, AttributeError):
            return None

    def kernel(self, ptx: str, name: str, max_registers: int) -> KernelResources:
        """Compile as Halide's runtime does; values are None if the driver refuses the code."""
        module, function, value = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
        options = (ctypes.c_int * 1)(self._JIT_MAX_REGISTERS)
        values = (ctypes.c_void_p * 1)(max_registers)
        found = {}
        try:
            self._call("cuCtxPushCurrent_v2", self._context)
            image = ptx.encode()
            self._call("cuModuleLoadDataEx", ctypes.byref(module), image, 1, options, values)
            self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            for what in (self._REGISTERS, self._LOCAL_BYTES):
                self._call("cuFuncGetAttribute", ctypes.byref(value), what, function)
                found[what] = value.value
            self._call("cuModuleUnload", module)
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        except OSError:
            return KernelResources(name)
        return KernelResources(
            name, registers=found[self._REGISTERS], local_bytes=found[self._LOCAL_BYTES]
        )

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        if status != 0:
            raise OSError(f"{name} failed with CUDA error {status}")
