"""The kernels that come with Tilewright, each with every variant, available here or not."""

from __future__ import annotations

from functools import cache

from tilewright.prediction.kernels import conversion, convolution, matmul, matvec, pooling
from tilewright.prediction.kernels.registry import Kernel


@cache
def library() -> dict[str, Kernel]:
    """The paper's four kernels, and the conversion between storages."""
    made = (
        matmul.kernel({}),
        matvec.kernel({}),
        convolution.kernel({}),
        pooling.kernel({}),
        conversion.kernel(),
    )
    return {kernel.name: kernel for kernel in made}
