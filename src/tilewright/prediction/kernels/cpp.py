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
from tilewright.prediction.kernels import native
from tilewright.prediction.kernels.blas import cpus
from tilewright.prediction.kernels.forms import Form, checked_form
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
    storages: tuple[Storage, ...] = ("dense", "sparse")
    made = [
        _variant(library, storage, kernel) for library in (EIGEN, UBLAS) for storage in storages
    ]
    return {variant.name: variant for variant in made}


def _variant(library: CppLibrary, storage: Storage, kernel: str) -> KernelVariant:
    settings = {"threads": library.threads} if library.threads != (1,) else {}
    product = kernel == "matmul" and storage == "sparse"
    builder = _sparse_product if product else _dense if storage == "dense" else _sparse

    def build(operands: Operands, chosen: Mapping[str, int]) -> Run:
        form = checked_form(kernel, operands)
        threads = ctypes.c_int(chosen.get("threads", 1))
        return builder(_Loaded(library, library.load(), threads), kernel, form, operands)

    return KernelVariant(
        f"{library.name}_{storage}",
        build,
        library.available,
        storage,
        settings,
        versions=library.versions,
        isolate=True,
    )


def _pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@dataclass(frozen=True)
class _Loaded:
    """A library, loaded, with the number of threads that a call uses."""

    library: CppLibrary
    handle: ctypes.CDLL
    threads: ctypes.c_int

    def filling(self, function: str, shape: tuple[int, ...], arguments: Any, keep: Any) -> Run:
        """Return a run of a function that fills an array of this shape.

        `keep` are the arrays that the arguments point to.
        """
        call = partial(getattr(self.handle, function), *arguments)

        def run(_: Any = keep) -> Array:
            out = np.empty(shape)
            call(_pointer(out), self.threads)
            return out

        return run


class _SparseOperand:
    """A sparse operand in the library's form; keeps the arrays alive that it points to."""

    def __init__(self, loaded: _Loaded, thing: Any) -> None:
        matrix = csr(thing)
        self.shape = matrix.shape
        # Some functions of both libraries fail for a matrix without entries.
        self.empty = not matrix.nnz
        if self.empty:
            return
        self._arrays = matrix.indptr, matrix.indices, matrix.data
        view = _Csr(*matrix.shape, matrix.nnz, *(array.ctypes.data for array in self._arrays))
        if loaded.library.packed:
            handle = loaded.handle
            handle.sparse_make.restype = ctypes.c_void_p
            made = ctypes.c_void_p(handle.sparse_make(ctypes.byref(view)))
            self.argument: Any = made
            weakref.finalize(self, handle.sparse_free, made)
        else:
            self._view = view
            self.argument = ctypes.byref(view)


def _dense(loaded: _Loaded, kernel: str, form: Form, operands: Operands) -> Run:
    arrays = [dense(operands[name]) for name in form.arrays]
    sizes = form.sizes(operands)
    shape = form.shape(*sizes)
    if not all(sizes):
        return lambda: np.zeros(shape)
    return loaded.filling(f"{kernel}_dense", shape, (*sizes, *map(_pointer, arrays)), arrays)


def _sparse(loaded: _Loaded, kernel: str, form: Form, operands: Operands) -> Run:
    a = _SparseOperand(loaded, operands["a"])
    others = [dense(operands[name]) for name in form.arrays[1:]]
    m, n, *third = form.sizes(operands)
    shape = form.shape(m, n, *third)
    if a.empty:
        return lambda: np.zeros(shape)
    arguments = (a.argument, *third, *map(_pointer, others))
    return loaded.filling(f"{kernel}_sparse", shape, arguments, (a, others))


def _sparse_product(loaded: _Loaded, kernel: str, form: Form, operands: Operands) -> Run:
    from scipy.sparse import csr_array

    handle = loaded.handle
    a, b = (_SparseOperand(loaded, operands[name]) for name in form.arrays)
    shape = a.shape[0], b.shape[1]
    if a.empty or b.empty:
        return lambda: csr_array(shape)

    def run() -> Any:
        made = ctypes.c_void_p(handle.matmul_sparse(a.argument, b.argument, loaded.threads))
        count = handle.sparse_count(made)
        starts, indices = np.empty(shape[0] + 1, np.int32), np.empty(count, np.int32)
        values = np.empty(count)
        handle.sparse_take(made, _pointer(starts), _pointer(indices), _pointer(values))
        return csr_array((values, indices, starts), shape=shape)

    return run
