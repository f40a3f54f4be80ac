"""Measuring a processor with kernels that Halide compiles, for the cost model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
