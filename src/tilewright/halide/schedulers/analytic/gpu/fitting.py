"""Fit the rates and waits of the time model to measured schedules.

Every constant is a factor away from a prior, within bounds; the sum of squared logarithms of
predicted over measured times is minimised, robustly, with a pull towards the priors. Every program
has the same weight, however many of its schedules were measured.

| symbol | meaning | unit |
|---|---|---|
| `logs` | logarithms of the constants, in the order of `PRIORS` | 1 |
| `owner` | the schedule that each kernel belongs to | index |
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.kernel_time import (
    KernelCounts,
    kernel_cycles,
    kernel_terms,
)
from tilewright.machines import GpuMachine

Array = npt.NDArray[np.float64]

# What a fit starts from, and is pulled to where the measurements do not decide. Units are those of
# `GpuConstants`; sources: two units of 16 lanes for each kind of instruction and sub-partition
# (CUDA C++ Programming Guide); waits and widths as published microbenchmarks of a V100 have them,
# rounded; the rest chosen.
PRIORS: Mapping[str, float] = {
    "issue_rate": 2.0,
    "special_cost": 8.0,
    "line_cycles": 0.5,
    "bank_cycles": 0.5,
    "l2_bytes_per_cycle": 50.0,
    "instruction_wait": 5.0,
    "miss_wait": 200.0,
    "hit_wait": 30.0,
    "shared_wait": 25.0,
    "kernel_cycles": 300.0,
    "overlap": 4.0,
}
BOUND = 2.5  # natural logarithm of the farthest that a constant may be from its prior (chosen)
PULL = 0.2  # weight of a factor of e from the prior, where a program's error of e has `SCHEDULES`
SCHEDULES = 3.0  # weight of the errors of schedules (chosen)
KERNELS = 0.3  # weight of the errors of single kernels, where these are known (chosen)
ROBUST = 0.3  # error from which the loss grows linearly (chosen)


@dataclass(frozen=True)
class Observation:
    """A measured schedule: the seconds of all its kernels and launches.

    `kernels` has what the time of each kernel is made of, `runs` how often each is launched, and
    `cycles` the measured cycles of one run of each, empty if only the total is known.
    """

    program: str
    seconds: float
    kernels: tuple[KernelCounts, ...]
    runs: tuple[float, ...]
    cycles: tuple[float, ...] = ()


def fitted(
    observed: Sequence[Observation], machine: GpuMachine, start: GpuConstants | None = None
) -> GpuConstants:
    """Return constants with which the predicted times are nearest to those observed.

    `start` has those that are not fitted. The machine's clock and bandwidth must be known.
    """
    from scipy.optimize import least_squares

    problem = _Problem(observed, machine, start or GpuConstants())
    priors = np.log(np.array(list(PRIORS.values())))
    found = least_squares(
        problem.residuals,
        priors,
        args=(priors,),
        loss="soft_l1",
        f_scale=ROBUST,
        bounds=(priors - BOUND, priors + BOUND),
    )
    return problem.constants(found.x)


def predicted_cycles(
    observed: Sequence[Observation], machine: GpuMachine, c: GpuConstants
) -> Array:
    """Return the predicted cycles of every observation, launches included."""
    return _Problem(observed, machine, c).schedules(c)[0]


class _Problem:
    """All kernels of all observations, as arrays."""

    def __init__(
        self, observed: Sequence[Observation], machine: GpuMachine, start: GpuConstants
    ) -> None:
        assert machine.clock_hz is not None
        self._machine = machine
        self._clock = machine.clock_hz
        self._start = start
        every = [kernel for one in observed for kernel in one.kernels]
        self._counts = KernelCounts(
            *(
                np.array([getattr(kernel, field.name) for kernel in every], dtype=np.float64)
                for field in dataclasses.fields(KernelCounts)
            )
        )
        self._owner = np.repeat(np.arange(len(observed)), [len(o.kernels) for o in observed])
        self._runs = np.array([n for one in observed for n in one.runs])
        self._measured = np.array([one.seconds for one in observed]) * self._clock
        programs = Counter(one.program for one in observed)
        self._weights = np.array([programs[one.program] ** -0.5 for one in observed])
        known = [one.cycles or (math.nan,) * len(one.kernels) for one in observed]
        self._cycles = np.array([cycles for one in known for cycles in one])
        kernels = Counter(one.program for one in observed for _ in one.kernels)
        each = [kernels[one.program] ** -0.5 for one in observed]
        self._kernel_weights = np.array(each)[self._owner]

    def constants(self, logs: Array) -> GpuConstants:
        """Return the constants for a point of the fit."""
        found: dict[str, Any] = dict(zip(PRIORS, map(float, np.exp(logs)), strict=True))
        return dataclasses.replace(self._start, **found)

    def schedules(self, c: GpuConstants) -> tuple[Array, Array]:
        """Return the predicted cycles of every schedule, and of every kernel."""
        terms = kernel_terms(self._counts, self._machine, c)
        assert terms is not None
        each: Array = np.asarray(kernel_cycles(terms, c))
        launch = c.launch_seconds * self._clock
        total: Any = np.bincount(self._owner, self._runs * (each + launch), len(self._measured))
        return total, each

    def residuals(self, logs: Array, priors: Array) -> Array:
        """Return the weighted errors of schedules and kernels, and the distances from priors."""
        total, each = self.schedules(self.constants(logs))
        kernels = np.nan_to_num(np.log(each / self._cycles)) * self._kernel_weights
        return np.concatenate(
            [
                SCHEDULES * np.log(total / self._measured) * self._weights,
                KERNELS * kernels,
                PULL * (logs - priors),
            ]
        )
