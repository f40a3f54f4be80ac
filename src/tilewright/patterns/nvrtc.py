"""Compilation of CUDA source with NVRTC in this process, without a GPU and without ``nvcc``.

NVRTC comes from the wheel ``nvidia-cuda-nvrtc`` (the extra ``cuda-static``) or a CUDA toolkit.
Source of its interface: NVRTC's documentation, version 13.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.metadata
import re
from dataclasses import dataclass
from functools import cache

from tilewright.patterns.errors import CompileError

ARCHITECTURE = "sm_80"  # an A100, as the default of `tilewright patterns rank`
_SUCCESS = 0
_ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class CudaKernelUse:
    """The resources that a kernel uses.

    Args:
        name: the name of the kernel.
        registers: registers per thread.
        spill_bytes: bytes that a thread stores and loads because it has too few registers.
        shared_bytes: bytes of shared memory per block that are known before the launch.
    """

    name: str
    registers: int
    spill_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class CudaBinary:
    """Machine code for a GPU, and the resources of its kernels."""

    cubin: bytes
    kernels: tuple[CudaKernelUse, ...]


@cache
def library() -> ctypes.CDLL:
    """Load NVRTC.

    Raises:
        CompileError: NVRTC is not installed.
    """
    try:
        files = importlib.metadata.files("nvidia-cuda-nvrtc") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    names = [str(f.locate()) for f in files if f.name.startswith("libnvrtc.so")]
    name = next(iter(names), None) or ctypes.util.find_library("nvrtc")
    if name is None:
        raise CompileError("NVRTC is not installed: pip install 'tilewright[cuda-static]'")
    return ctypes.CDLL(name)


def compile_cuda(source: str, architecture: str = ARCHITECTURE) -> CudaBinary:
    """Compile CUDA source to machine code.

    Args:
        source: the CUDA source.
        architecture: the GPU's architecture, as in ``sm_80``.

    Raises:
        CompileError: NVRTC is not installed, or rejects the source; the message has its first
            error.
    """
    nvrtc, program = library(), ctypes.c_void_p()
    code = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), None, 0, None, None)
    if code != _SUCCESS:
        raise CompileError(f"NVRTC cannot take the source (error {code})")
    try:
        options = [f"--gpu-architecture={architecture}", "--ptxas-options=-v"]
        given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        code = nvrtc.nvrtcCompileProgram(program, len(options), given)
        log = _bytes("ProgramLog", program)
        text = log.rstrip(b"\0").decode(errors="replace")
        if code != _SUCCESS:
            said = next((line for line in text.splitlines() if "error" in line), text)
            raise CompileError(f"NVRTC refuses the generated code: {said or f'error {code}'}")
        cubin = _bytes("CUBIN", program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return CudaBinary(cubin, tuple(map(_use, _ENTRY.finditer(text))))


def _bytes(what: str, program: ctypes.c_void_p) -> bytes:
    """Return an output of NVRTC: ``ProgramLog`` or ``CUBIN``."""
    size, nvrtc = ctypes.c_size_t(), library()
    if getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) != _SUCCESS:
        return b""
    held = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, held)
    return held.raw


def _use(found: re.Match[str]) -> CudaKernelUse:
    shared = _SHARED.search(found["rest"])
    spilled = int(found["stores"]) + int(found["loads"])
    return CudaKernelUse(
        found["name"], int(found["registers"]), spilled, int(shared[1]) if shared else 0
    )
