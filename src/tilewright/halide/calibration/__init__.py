"""The cost models fitted to a machine.

A processor is measured with kernels that Halide compiles; the time model of a GPU is fitted to a
file of measured schedules.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
