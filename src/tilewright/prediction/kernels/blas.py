"""NumPy's BLAS with a given number of threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from tilewright.prediction.data.kernel import KernelVariant, Operands, Run
from tilewright.prediction.kernels.storage import numpy_versions


def cpus() -> tuple[int, ...]:
    """1 to the number of CPUs this process may use."""
    return tuple(range(1, len(os.sched_getaffinity(0)) + 1))


@cache
def _libraries() -> tuple[Any, ...]:
    import numpy as np  # its BLAS must be loaded to be found
    from threadpoolctl import ThreadpoolController

    assert np.__version__
    controllers = ThreadpoolController().select(user_api="blas").lib_controllers
    # SciPy has a BLAS of its own, which NumPy's functions do not use.
    return tuple(c for c in controllers if "scipy" not in str(c.filepath))


def numpy_variant(build: Callable[[Operands], Callable[[], Any]]) -> KernelVariant:
    """Return the variant ``numpy`` of a kernel that uses BLAS, with the setting ``threads``.

    The number of threads is set during a call. It is a property of the process; the last of
    overlapping calls restores the number from before the first.
    """

    def prepared(operands: Operands, settings: Mapping[str, int]) -> Run:
        compute, libraries, threads = build(operands), _libraries(), settings["threads"]
        if not _borrowed and all(library.get_num_threads() == threads for library in libraries):
            return compute

        def run() -> Any:
            _borrow(libraries, threads)
            try:
                return compute()
            finally:
                _give_back()

        return run

    return KernelVariant("numpy", prepared, settings={"threads": cpus()}, versions=numpy_versions)


_lock = threading.Lock()
# The number of threads of each library before the first of the overlapping calls.
_borrowed: list[tuple[tuple[Any, int], ...]] = []


def _borrow(libraries: tuple[Any, ...], threads: int) -> None:
    with _lock:
        before = tuple((library, library.get_num_threads()) for library in libraries)
        _borrowed.append(_borrowed[0] if _borrowed else before)
        for library in libraries:
            library.set_num_threads(threads)


def _give_back() -> None:
    with _lock:
        before = _borrowed.pop()
        if not _borrowed:
            for library, number in before:
                library.set_num_threads(number)
