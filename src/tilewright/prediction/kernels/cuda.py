"""The kernels in CUDA, with global memory and with shared memory, compiled by ``nvcc``."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.files import scratch_folder
from tilewright.prediction.data.kernel import KernelVariant, Operands, Run
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.kernels import fits, native
from tilewright.prediction.kernels.cuda_driver import DeviceArray, driver
from tilewright.prediction.kernels.storage import dense
from tilewright.records import cache_directory

SOURCE = native.SOURCES / "kernels.cu"
ARCHITECTURE = "compute_75"  # the oldest that current compilers know; the driver does the rest
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
    compiler = f"{found} {ARCHITECTURE}".encode()
    key = hashlib.sha256(SOURCE.read_bytes() + compiler).hexdigest()[:24]
    folder = directory or cache_directory() / "kernels"
    target = folder / f"cuda-{key}.ptx"
    if not target.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with scratch_folder(".draft-", folder) as work:
            made = work / target.name
            flags = ["-ptx", "-O3", f"-arch={ARCHITECTURE}", "-o", str(made), str(SOURCE)]
            native.run_compiler([found, *flags], SOURCE.name)
            os.replace(made, target)
    return target.read_bytes()


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
    fits.check(kernel, operands)
    return _BUILDERS[kernel](memory, operands, settings)


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


def _upload(*things: Any) -> tuple[DeviceArray, ...]:
    gpu = driver()
    gpu.enter()
    return tuple(gpu.upload(dense(thing)) for thing in things)


def _matmul(memory: str, operands: Operands, settings: Mapping[str, int]) -> Run:
    (m, n), k = operands["a"].shape, operands["b"].shape[1]
    inputs = _upload(operands["a"], operands["b"])
    return _runner(f"matmul_{memory}", (m, n, k), inputs, (m, k))


def _matvec(memory: str, operands: Operands, settings: Mapping[str, int]) -> Run:
    m, n = operands["a"].shape
    return _runner(f"matvec_{memory}", (m, n), _upload(operands["a"], operands["x"]), (m,))


def _convolution(memory: str, operands: Operands, settings: Mapping[str, int]) -> Run:
    (m, n), r = operands["a"].shape, operands["w"].shape[0]
    if memory == "shared" and r > LARGEST_FILTER:
        raise PredictionError(
            f"the variant cuda_shared takes filters up to {LARGEST_FILTER}, not {r}; "
            "use cuda_global"
        )
    inputs = _upload(operands["a"], operands["w"])
    return _runner(f"convolution_{memory}", (m, n, r), inputs, (m - r + 1, n - r + 1))


def _pooling(memory: str, operands: Operands, settings: Mapping[str, int]) -> Run:
    (m, n), s = operands["a"].shape, int(operands["s"])
    shared = 8 * (TILE * s) ** 2 if memory == "shared" else 0
    if shared > 48 << 10:
        raise PredictionError(f"the variant cuda_shared takes blocks up to 4, not {s}")
    shape = -(-m // s), -(-n // s)
    return _runner(f"pooling_{memory}", (m, n, s), _upload(operands["a"]), shape, shared)


_BUILDERS: dict[str, Callable[[str, Operands, Mapping[str, int]], Run]] = {
    "matmul": _matmul,
    "matvec": _matvec,
    "convolution": _convolution,
    "pooling": _pooling,
}
