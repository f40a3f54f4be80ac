"""A performance estimate from features alone, for a GPU without measurements.

The estimate counts cycles of the busiest multiprocessor. Its constants are not fitted to
measurements. It ignores traffic between memory and caches, which the features do not describe.

| symbol | meaning | unit |
|---|---|---|
| `warps` | warps of a group | count |
| `busiest` | groups that the busiest multiprocessor runs | count |
| `waves` | rounds of resident groups | count |
| `lines` | cache lines that a warp accesses | count |
| `issued` | instructions that a warp issues for accesses, loops and barriers | count |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from tilewright.machines import GpuMachine, occupancy
from tilewright.patterns.ranking.points import FEATURES

Array: TypeAlias = np.ndarray[Any, Any]

LINES_PER_CYCLE = 1.0  # a multiprocessor's L1 serves 128 bytes per cycle (NVIDIA Volta whitepaper)
LOCAL_PER_CYCLE = 1.0  # warp accesses to local memory: 32 banks of 4 bytes (CUDA C guide)
LATENCY_CYCLES = 400.0  # chosen: latency of a load from global memory
LOOP_INSTRUCTIONS = 3.0  # chosen: per iteration, add, compare and branch
INDEX_INSTRUCTIONS = 2.0  # chosen: per access, itself and the arithmetic of its address


@dataclass(frozen=True)
class StaticEstimate:
    """Estimated runs per second of kernels on a GPU; it does not learn.

    Args:
        machine: the GPU.
    """

    machine: GpuMachine

    def fit(self, features: Any, performance: Any) -> Self:
        """Do nothing: the estimate is not fitted."""
        return self

    def predict(self, features: Any) -> Array:
        """Return runs per second, shape (n,), for features of shape (n, features).

        The estimate is 0 if the GPU cannot launch the kernel.
        """
        f = dict(zip(FEATURES, np.asarray(features, dtype=float).T, strict=True))
        gpu = self.machine
        group = f["local_size_0"] * f["local_size_1"] * f["local_size_2"]
        threads = f["global_size_0"] * f["global_size_1"] * f["global_size_2"]
        groups, warps = threads / group, np.ceil(group / gpu.warp_size)
        resident = occupancy(gpu, group.astype(int), 0, f["local_memory"].astype(int)).blocks_per_sm
        fits = resident > 0
        waves = np.ceil(groups / (np.maximum(resident, 1) * gpu.sms))
        busiest = np.ceil(groups / gpu.sms)
        accesses = f["global_loads"] + f["global_stores"]
        local = f["local_loads"] + f["local_stores"]
        loops = LOOP_INSTRUCTIONS * (f["loop_bodies"] + f["if_statements"]) + f["barriers"]
        issued = INDEX_INSTRUCTIONS * (accesses + local) + loops
        lines = accesses * f["lines_per_access"]
        busy = np.max(
            [
                lines / LINES_PER_CYCLE,
                local / LOCAL_PER_CYCLE,
                issued * gpu.warp_size / gpu.fp32_lanes_per_sm,
            ],
            axis=0,
        )
        cycles = busiest * warps * busy + waves * LATENCY_CYCLES * (1 + f["barriers"])
        return np.where(fits, (gpu.clock_hz or 1.0) / cycles, 0.0)
