"""Calibration of the cost models for a machine.

The rates of a processor are measured with kernels that Halide compiles. The constants of the time
model of a GPU are fitted to a file of measured schedules.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
