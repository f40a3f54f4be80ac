"""The kernels in CUDA, with global memory and with shared memory, compiled by ``nvcc``."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.prediction.data.kernel import KernelVariant, Operands, Run
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.kernels import native
from tilewright.prediction.kernels.cuda_driver import DeviceArray, driver
from tilewright.prediction.kernels.forms import checked_form
from tilewright.prediction.kernels.storage import dense

SOURCE = native.SOURCES / "kernels.cu"
# The oldest architecture of current compilers; the driver compiles for the actual one.
ARCHITECTURE = "compute_75"
TILE, LINE = 16, 256  # as in the source
LARGEST_FILTER = 7


def nvcc() -> str | None:
    """Return the CUDA compiler on the path, in CUDA_HOME, or of the wheel ``nvidia-cuda-nvcc``."""
    found = shutil.which("nvcc")
    if found:
        return found
    roots = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    spec = importlib.util.find_spec("nvidia")
    if spec is not None:
        roots += [str(Path(place) / "cu13") for place in spec.submodule_search_locations or []]
    places = [Path(root) / "bin" / "nvcc" for root in roots if root]
    return next((str(place) for place in places if os.access(place, os.X_OK)), None)


def compiled(directory: Path | None = None) -> bytes:
    """Return the kernels as PTX, kept by the source's content; no GPU is needed.

    Raises:
        PredictionError: there is no ``nvcc``, or it fails.
    """
    found = nvcc()
    if found is None:
        raise PredictionError("there is no CUDA compiler: install the CUDA toolkit (nvcc)")
    parts = SOURCE.read_bytes() + f"{found} {ARCHITECTURE}".encode()
    flags = ["-ptx", "-O3", f"-arch={ARCHITECTURE}"]
    return native.built_from(parts, [found, *flags], SOURCE, "cuda", ".ptx", directory).read_bytes()


@cache
def available() -> tuple[bool, str]:
    """Return whether there are a GPU and a compiler for it."""
    if nvcc() is None:
        return False, "there is no CUDA compiler: install the CUDA toolkit (nvcc)"
    try:
        driver()
    except PredictionError as error:
        return False, str(error)
    return True, ""


def versions() -> dict[str, str]:
    """Return the compiler and the GPU."""
    return {"nvcc": native.version(nvcc() or "nvcc"), "gpu": driver().name}


def variants(kernel: str) -> dict[str, KernelVariant]:
    """Return a kernel's variants ``cuda_global`` and ``cuda_shared``."""
    made = {}
    for memory in ("global", "shared"):
        build = partial(_build, kernel, memory)
        made[f"cuda_{memory}"] = KernelVariant(
            f"cuda_{memory}", build, available, device="gpu", versions=versions
        )
    return made


def _build(kernel: str, memory: str, operands: Operands, settings: Mapping[str, int]) -> Run:
    form = checked_form(kernel, operands)
    sizes = form.sizes(operands)
    shared = 0
    if memory == "shared" and kernel == "convolution" and sizes[2] > LARGEST_FILTER:
        raise PredictionError(
            f"the variant cuda_shared takes filters up to {LARGEST_FILTER}, not {sizes[2]}; "
            "use cuda_global"
        )
    if memory == "shared" and kernel == "pooling":
        shared = 8 * (TILE * sizes[2]) ** 2
        if shared > 48 << 10:
            raise PredictionError(f"the variant cuda_shared takes blocks up to 4, not {sizes[2]}")
    gpu = driver()
    gpu.enter()
    inputs = tuple(gpu.upload(dense(operands[name])) for name in form.arrays)
    return _runner(f"{kernel}_{memory}", sizes, inputs, form.shape(*sizes), shared)


@cache
def _module() -> ctypes.c_void_p:
    return driver().module(compiled() + b"\0")


def _runner(
    name: str,
    sizes: tuple[int, ...],
    inputs: tuple[DeviceArray, ...],
    shape: tuple[int, ...],
    shared: int = 0,
) -> Run:
    """Launches the kernel `name`; its arguments are sizes, inputs, and the result."""
    if 0 in shape:  # no GPU takes an empty grid
        return lambda: np.empty(shape)
    gpu = driver()
    function = gpu.function(_module(), name)
    if len(shape) == 1:
        grid, block = (-(-shape[0] // LINE), 1), (LINE, 1)
    else:
        grid, block = (-(-shape[1] // TILE), -(-shape[0] // TILE)), (TILE, TILE)
    out = gpu.empty(shape)
    arguments = [*map(ctypes.c_int, sizes), *(array.pointer for array in inputs), out.pointer]

    def run(_: Any = inputs) -> DeviceArray:
        gpu.launch(function, grid, block, shared, arguments)
        return out

    return run
