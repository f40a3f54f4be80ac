"""RISE's GPU kernels with the search spaces published for them, as derivations by our rules.

`rise_kernel` returns one of `RISE_KERNELS`: the program, the published space, and for each
configuration its derivation and launch. `RiseObjective` compiles, verifies and times
configurations for `tilewright.tuning.tune`.
"""

from tilewright.patterns.rise.kernels import (
    RISE_KERNELS,
    RiseKernel,
    launch_of,
    rise_kernel,
    small_kernel,
)
from tilewright.patterns.rise.objective import RiseObjective

__all__ = [
    "RISE_KERNELS",
    "RiseKernel",
    "RiseObjective",
    "launch_of",
    "rise_kernel",
    "small_kernel",
]
