"""The kernel library: operations, their implementations, and how to register one's own."""

from tilewright.prediction.kernels.registry import (
    Instance,
    Kernel,
    Operands,
    Storage,
    Variant,
    kernel,
    kernels,
    register,
)

__all__ = [
    "Instance",
    "Kernel",
    "Operands",
    "Storage",
    "Variant",
    "kernel",
    "kernels",
    "register",
]
