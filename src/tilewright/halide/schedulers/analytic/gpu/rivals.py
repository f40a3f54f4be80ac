"""Constants whose best schedules are rivals of the best by the model's own constants.

A search that improves one schedule step by step misses schedules that are faster even by its own
model: with other constants it ends elsewhere. These results are judged by the model's constants.
Where several schedules are wanted, because they will be measured, those by sampled constants are
among them: they vary where the constants are uncertain, and the model's next best hardly vary.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.fitting import drawn
from tilewright.halide.schedulers.analytic.gpu.group_times import can_predict
from tilewright.machines import GpuMachine

# Factors of constants, one set per rival. With both, the model's choice takes 0.94 of the time of
# that without rivals, with other sets 0.94 to 0.97 (measured on an H100, 17 programs).
FACTORS: tuple[dict[str, float], ...] = ({"member_wait": 1.5}, {"sector_cycles": 0.58})
# Most constants to draw, where several schedules are wanted. The best of five with four drawn takes
# 0.91 of the time of the model's five best (measured on an H100, 12 programs).
DRAWN = 4
SEED = 0  # of the draws


def rival_constants(c: GpuConstants) -> tuple[GpuConstants, ...]:
    """Return the constants of the rivals of the best by `c`."""
    return tuple(
        dataclasses.replace(c, **{name: factor * getattr(c, name) for name, factor in each.items()})
        for each in FACTORS
    )


def other_constants(c: GpuConstants, machine: GpuMachine, k: int) -> tuple[GpuConstants, ...]:
    """Return sampled constants for a search for `k` schedules to measure.

    If the machine's clock or bandwidth is unknown, there are none: times cannot be predicted then,
    and the constants do not matter.
    """
    count = min(k - 1, DRAWN) if can_predict(machine) else 0
    return tuple(drawn([], machine, c, np.random.default_rng([SEED, i])) for i in range(count))
