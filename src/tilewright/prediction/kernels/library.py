"""The kernels that come with Tilewright, with all variants, available here or not."""

from __future__ import annotations

from functools import cache

from tilewright.prediction.data.kernel import Kernel, KernelVariant
from tilewright.prediction.kernels import (
    conversion,
    convolution,
    cpp,
    cuda,
    matmul,
    matvec,
    pooling,
    with_halide,
)


@cache
def library() -> dict[str, Kernel]:
    """Return the paper's four kernels, and the conversion between storages."""
    made = (
        matmul.kernel(_variants("matmul")),
        matvec.kernel(_variants("matvec")),
        convolution.kernel(_variants("convolution")),
        pooling.kernel(_variants("pooling")),
        conversion.kernel(),
    )
    return {kernel.name: kernel for kernel in made}


def _variants(kernel: str) -> dict[str, KernelVariant]:
    """Return all but those that the kernel's own module has."""
    compiled = {**cpp.variants(kernel), **cuda.variants(kernel)}
    return {**compiled, **with_halide.variant(kernel)} if kernel != "matvec" else compiled
