"""The kernels that come with Tilewright, each with every variant, available here or not."""

from __future__ import annotations

from functools import cache

from tilewright.prediction.kernels import conversion, convolution, cpp, matmul, matvec, pooling
from tilewright.prediction.kernels.registry import Kernel


@cache
def library() -> dict[str, Kernel]:
    """The paper's four kernels, and the conversion between storages."""
    made = (
        matmul.kernel(cpp.variants("matmul")),
        matvec.kernel(cpp.variants("matvec")),
        convolution.kernel(cpp.variants("convolution")),
        pooling.kernel(cpp.variants("pooling")),
        conversion.kernel(),
    )
    return {kernel.name: kernel for kernel in made}
