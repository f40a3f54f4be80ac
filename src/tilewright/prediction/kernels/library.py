"""The kernels that come with Tilewright, each with every variant, available here or not."""

from __future__ import annotations

from functools import cache

from tilewright.prediction.kernels import (
    conversion,
    convolution,
    cpp,
    matmul,
    matvec,
    pooling,
    with_halide,
)
from tilewright.prediction.kernels.registry import Kernel


@cache
def library() -> dict[str, Kernel]:
    """The paper's four kernels, and the conversion between storages."""
    made = (
        matmul.kernel({**cpp.variants("matmul"), **with_halide.variant("matmul")}),
        matvec.kernel(cpp.variants("matvec")),
        convolution.kernel({**cpp.variants("convolution"), **with_halide.variant("convolution")}),
        pooling.kernel({**cpp.variants("pooling"), **with_halide.variant("pooling")}),
        conversion.kernel(),
    )
    return {kernel.name: kernel for kernel in made}
