"""Halide target strings."""

from __future__ import annotations


def is_gpu(target: str) -> bool:
    """Return whether a target string names a GPU."""
    features = target.split("-")
    names = ("cuda", "opencl", "metal", "vulkan", "d3d12compute", "webgpu")
    return any(name in features for name in names)
