"""The table in which kernels are registered."""

from __future__ import annotations

from tilewright.prediction.data.kernel import Kernel
from tilewright.prediction.errors import PredictionError

_registered: dict[str, Kernel] = {}


def register(kernel: Kernel) -> Kernel:
    """Register a kernel, replacing one of the same name."""
    _registered[kernel.name] = kernel
    return kernel


def kernels() -> dict[str, Kernel]:
    """Return every registered kernel by name: the library's, then those of `register`."""
    from tilewright.prediction.kernels.library import library

    return {**library(), **_registered}


def kernel(name: str) -> Kernel:
    """Return the registered kernel of that name.

    Raises:
        PredictionError: there is none; the message lists the kernels.
    """
    known = kernels()
    if name not in known:
        raise PredictionError(
            f"there is no kernel {name!r}; there are {', '.join(known)}, and kernels of your own "
            "are named as file.py:name"
        )
    return known[name]
