"""The kernels by Eigen and by Boost uBLAS, dense and sparse."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.prediction.data.kernel import Array, KernelVariant, Operands, Run, Storage
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.kernels import fits, native
from tilewright.prediction.kernels.blas import cpus
from tilewright.prediction.kernels.storage import csr, dense


class _Csr(ctypes.Structure):
    _fields_ = (
        ("rows", ctypes.c_int32),
        ("columns", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("starts", ctypes.c_void_p),
        ("indices", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class CppLibrary:
    """A C++ library of matrix kernels: where its headers are, and how it is compiled.

    `packed` says that sparse operands are copied into the library's own storage when they are
    prepared; otherwise it works on SciPy's arrays. `threads` are the numbers of threads that it can
    use; only 1 if the number cannot be set.
    """

    name: str
    source: str
    include: Callable[[], Path | None]
    cure: str
    flags: tuple[str, ...] = ()
    packed: bool = False
    threads: tuple[int, ...] = (1,)

    def available(self) -> tuple[bool, str]:
        """Return whether the library can be compiled and loaded here, by trying it."""
        if native.compiler() is None:
            return False, "there is no C++ compiler: install g++ or clang++, or set CXX"
        if self.include() is None:
            return False, f"its headers are missing: {self.cure}"
        return _loads(self)

    def load(self) -> ctypes.CDLL:
        """Return the compiled library; raises PredictionError where it cannot be compiled."""
        include = self.include()
        if include is None:
            raise PredictionError(f"the headers of {self.name} are missing: {self.cure}")
        return _bound(native.load(self.source, (*self.flags, f"-I{include}")))

    def versions(self) -> dict[str, str]:
        """Return the library's version."""
        return {self.name: self.load().tw_version().decode()}


EIGEN = CppLibrary(
    "eigen",
    "eigen.cpp",
    native.eigen_include,
    "pip install cmeel-eigen, or install Eigen 3",
    ("-fopenmp",),
    threads=cpus(),
)
UBLAS = CppLibrary(
    "ublas",
    "ublas.cpp",
    native.boost_include,
    "pip install boost-headers, or install Boost",
    packed=True,
)


@cache
def _loads(library: CppLibrary) -> tuple[bool, str]:
    try:
        library.load()
    except (PredictionError, OSError) as error:
        return False, str(error)
    return True, ""


@cache
def _bound(handle: ctypes.CDLL) -> ctypes.CDLL:
    handle.tw_version.restype = ctypes.c_char_p
    handle.matmul_sparse.restype = ctypes.c_void_p
    handle.sparse_count.argtypes = [ctypes.c_void_p]
    return handle


def variants(kernel: str) -> dict[str, KernelVariant]:
    """Return a kernel's Eigen and uBLAS variants, dense and sparse."""
    made = {}
    for library in (EIGEN, UBLAS):
        for storage, builders in (("dense", _DENSE), ("sparse", _SPARSE)):
            name = f"{library.name}_{storage}"
            made[name] = _variant(name, library, storage, kernel, builders[kernel])  # type: ignore[arg-type]
    return made


def _variant(
    name: str, library: CppLibrary, storage: Storage, kernel: str, builder: Callable[..., Run]
) -> KernelVariant:
    settings = {"threads": library.threads} if library.threads != (1,) else {}

    def build(operands: Operands, chosen: Mapping[str, int]) -> Run:
        fits.check(kernel, operands)
        threads = ctypes.c_int(chosen.get("threads", 1))
        return builder(library, library.load(), operands, threads)

    return KernelVariant(
        name,
        build,
        library.available,
        storage,
        settings,
        versions=library.versions,
        isolate=True,
    )


def _pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class _SparseOperand:
    """A sparse operand in the library's form; keeps the arrays alive that it points to."""

    def __init__(self, library: CppLibrary, handle: ctypes.CDLL, thing: Any) -> None:
        matrix = csr(thing)
        self.shape = matrix.shape
        # Neither library takes a matrix without an entry in every function.
        self.empty = not matrix.nnz
        if self.empty:
            return
        self._arrays = matrix.indptr, matrix.indices, matrix.data
        view = _Csr(*matrix.shape, matrix.nnz, *(array.ctypes.data for array in self._arrays))
        if library.packed:
            handle.sparse_make.restype = ctypes.c_void_p
            made = ctypes.c_void_p(handle.sparse_make(ctypes.byref(view)))
            self.argument: Any = made
            weakref.finalize(self, handle.sparse_free, made)
        else:
            self._view = view
            self.argument = ctypes.byref(view)


def _matmul_dense(
    library: CppLibrary, handle: ctypes.CDLL, operands: Operands, threads: ctypes.c_int
) -> Run:
    a, b = dense(operands["a"]), dense(operands["b"])
    (m, n), k = a.shape, b.shape[1]
    if not m * n * k:
        return lambda: np.zeros((m, k))
    call = partial(handle.matmul_dense, m, n, k, _pointer(a), _pointer(b))

    def run(_: Any = (a, b)) -> Array:
        out = np.empty((m, k))
        call(_pointer(out), threads)
        return out

    return run


def _matmul_sparse(
    library: CppLibrary, handle: ctypes.CDLL, operands: Operands, threads: ctypes.c_int
) -> Run:
    from scipy.sparse import csr_array

    a, b = (_SparseOperand(library, handle, operands[name]) for name in "ab")
    shape = a.shape[0], b.shape[1]
    if a.empty or b.empty:
        return lambda: csr_array(shape)

    def run() -> Any:
        made = ctypes.c_void_p(handle.matmul_sparse(a.argument, b.argument, threads))
        count = handle.sparse_count(made)
        starts, indices = np.empty(shape[0] + 1, np.int32), np.empty(count, np.int32)
        values = np.empty(count)
        handle.sparse_take(made, _pointer(starts), _pointer(indices), _pointer(values))
        return csr_array((values, indices, starts), shape=shape)

    return run


def _matvec_dense(
    library: CppLibrary, handle: ctypes.CDLL, operands: Operands, threads: ctypes.c_int
) -> Run:
    a, x = dense(operands["a"]), dense(operands["x"])
    m, n = a.shape
    if not m * n:
        return lambda: np.zeros(m)
    call = partial(handle.matvec_dense, m, n, _pointer(a), _pointer(x))

    def run(_: Any = (a, x)) -> Array:
        out = np.empty(m)
        call(_pointer(out), threads)
        return out

    return run


def _matvec_sparse(
    library: CppLibrary, handle: ctypes.CDLL, operands: Operands, threads: ctypes.c_int
) -> Run:
    a, x = _SparseOperand(library, handle, operands["a"]), dense(operands["x"])
    if a.empty:
        return lambda: np.zeros(a.shape[0])

    def run() -> Array:
        out = np.empty(a.shape[0])
        handle.matvec_sparse(a.argument, _pointer(x), _pointer(out), threads)
        return out

    return run


def _convolution_dense(
    library: CppLibrary, handle: ctypes.CDLL, operands: Operands, threads: ctypes.c_int
) -> Run:
    a, w = dense(operands["a"]), dense(operands["w"])
    (m, n), r = a.shape, w.shape[0]
    call = partial(handle.convolution_dense, m, n, r, _pointer(a), _pointer(w))

    def run(_: Any = (a, w)) -> Array:
        out = np.empty((m - r + 1, n - r + 1))
        call(_pointer(out), threads)
        return out

    return run


def _convolution_sparse(
    library: CppLibrary, handle: ctypes.CDLL, operands: Operands, threads: ctypes.c_int
) -> Run:
    a, w = _SparseOperand(library, handle, operands["a"]), dense(operands["w"])
    r = w.shape[0]
    shape = a.shape[0] - r + 1, a.shape[1] - r + 1
    if a.empty:
        return lambda: np.zeros(shape)

    def run() -> Array:
        out = np.empty(shape)
        handle.convolution_sparse(a.argument, r, _pointer(w), _pointer(out), threads)
        return out

    return run


def _pooling_dense(
    library: CppLibrary, handle: ctypes.CDLL, operands: Operands, threads: ctypes.c_int
) -> Run:
    a, s = dense(operands["a"]), int(operands["s"])
    m, n = a.shape
    call = partial(handle.pooling_dense, m, n, s, _pointer(a))

    def run(_: Any = a) -> Array:
        out = np.empty((-(-m // s), -(-n // s)))
        call(_pointer(out), threads)
        return out

    return run


def _pooling_sparse(
    library: CppLibrary, handle: ctypes.CDLL, operands: Operands, threads: ctypes.c_int
) -> Run:
    a, s = _SparseOperand(library, handle, operands["a"]), int(operands["s"])
    shape = -(-a.shape[0] // s), -(-a.shape[1] // s)
    if a.empty:
        return lambda: np.zeros(shape)

    def run() -> Array:
        out = np.empty(shape)
        handle.pooling_sparse(a.argument, s, _pointer(out), threads)
        return out

    return run


_DENSE: dict[str, Callable[..., Run]] = {
    "matmul": _matmul_dense,
    "matvec": _matvec_dense,
    "convolution": _convolution_dense,
    "pooling": _pooling_dense,
}
_SPARSE: dict[str, Callable[..., Run]] = {
    "matmul": _matmul_sparse,
    "matvec": _matvec_sparse,
    "convolution": _convolution_sparse,
    "pooling": _pooling_sparse,
}
