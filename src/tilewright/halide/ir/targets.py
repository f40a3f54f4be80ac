"""Halide target strings."""

from __future__ import annotations


def is_gpu(target: str) -> bool:
    """Return whether a target string names a GPU."""
    features = target.split("-")
    names = ("cuda", "opencl", "metal", "vulkan", "d3d12compute", "webgpu")
    return any(name in features for name in names)


def vector_bits(target: str) -> int | None:
    """Return the width in bits of the vector registers that an x86 target may use.

    Return None if the target does not name its features: other architectures, ``host``, GPUs.

    >>> vector_bits("x86-64-linux-avx-avx2-fma"), vector_bits("x86-64-linux-sse41")
    (256, 128)
    """
    features = target.split("-")
    if "x86" not in features or is_gpu(target):
        return None
    if any(feature.startswith(("avx512", "avx10")) for feature in features):
        return 512
    return 256 if "avx" in features or "avx2" in features else 128
