"""The CPU that tests schedule for and work out costs of by hand, whatever they run on."""

from dataclasses import replace

from tilewright.machines import CpuMachine
from tilewright.machines.cpu import Cache

FOUR_CORES = CpuMachine(
    "test",
    "x86-64",
    4,
    ("avx2",),
    256,
    (Cache(1, 32 << 10, 64, 1), Cache(2, 512 << 10, 64, 1), Cache(3, 8 << 20, 64, 4)),
)
# With a clock and a bandwidth, so that cycles are seconds.
TIMED_CORES = replace(FOUR_CORES, clock_hz=2e9, memory_bandwidth=1e10)
