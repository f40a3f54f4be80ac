"""The kernel library: operations, their implementations, and the registry of kernels."""

from tilewright.prediction.data.kernel import (
    Instance,
    Kernel,
    KernelVariant,
    Operands,
    Storage,
)
from tilewright.prediction.kernels.registry import kernel, kernels, register

__all__ = [
    "Instance",
    "Kernel",
    "KernelVariant",
    "Operands",
    "Storage",
    "kernel",
    "kernels",
    "register",
]
