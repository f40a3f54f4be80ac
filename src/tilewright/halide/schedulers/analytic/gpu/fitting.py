"""Fit the rates and waits of the time model to measured schedules.

The fit minimises the squared logarithms of predicted over measured times, with a robust loss, plus
a penalty on the squared logarithms of the constants over their priors. Constants are bounded to a
factor around the prior. Every program has the same weight, independent of the number of its
schedules.

| symbol | meaning | unit |
|---|---|---|
| `logs` | logarithms of the constants, in the order of `PRIORS` | 1 |
| `owner` | schedule that each kernel belongs to | index |
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

# The start of a fit, and the result where measurements do not determine a constant. Units are those
# of `GpuConstants`. Sources: rates follow from 16 lanes per kind of instruction and sub-partition
# (CUDA C++ Programming Guide); waits and widths are rounded from published microbenchmarks of a
# V100; the others are chosen.
PRIORS: Mapping[str, float] = {
    "issue_rate": 2.0,
    "special_cost": 8.0,
    "sector_cycles": 0.25,
    "bank_cycles": 0.5,
    "l2_bytes_per_cycle": 50.0,
    "instruction_wait": 5.0,
    "miss_wait": 200.0,
    "hit_wait": 30.0,
    "stored_wait": 200.0,
    "shared_wait": 25.0,
    "kernel_cycles": 300.0,
    "overlap": 4.0,
}
BOUND = 2.5  # largest distance of a constant from its prior, as a natural logarithm (chosen)
# Smallest values of constants that small images do not determine: with several waves of blocks, a
# kernel whose memory is the limit takes little longer than its traffic (chosen).
LEAST: Mapping[str, float] = {"overlap": 3.0}
PULL = 0.2  # weight of the logarithms of constants over priors (chosen)
SCHEDULES = 3.0  # weight of the logarithmic errors of schedules (chosen)
KERNELS = 0.3  # weight of the logarithmic errors of single kernels, where known (chosen)
ROBUST = 0.3  # weighted error beyond which the loss grows linearly (chosen)
# Of `drawn`, standard deviations of natural logarithms: of a constant around its prior, of the
# error of a schedule's time, and of the error that all schedules of a pipeline share (chosen); and
# the number of standard deviations beyond which the loss grows linearly (chosen).
SPREAD = 0.5
ERROR = 0.2
SHARED_ERROR = 0.5
FAR = 2.0
INSIDE = 1e-6  # distance of a fit's start from the bounds, which it must not touch (chosen)
MOST_FITTED = 30  # evaluations of a draw's fit, without those of its derivatives (chosen)


@dataclass(frozen=True)
class Observation:
    """A measured schedule.

    Attributes:
        program: The program it belongs to.
        seconds: Measured time of all kernels and launches.
        kernels: The counts of each kernel.
        runs: Number of launches of each kernel.
        cycles: Measured cycles of one launch of each kernel; empty if only the total is known.
    """

    program: str
    seconds: float
    kernels: tuple[KernelCounts, ...]
    runs: tuple[float, ...]
    cycles: tuple[float, ...] = ()


def fitted(
    observed: Sequence[Observation], machine: GpuMachine, start: GpuConstants | None = None
) -> GpuConstants:
    """Return the constants that fit the observations best.

    Args:
        observed: The measured schedules.
        machine: The GPU; its clock and memory bandwidth must be known.
        start: The constants that are not fitted, by default `GpuConstants()`.
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
        bounds=_bounds(priors),
    )
    return problem.constants(found.x)


def drawn(
    observed: Sequence[Observation],
    machine: GpuMachine,
    centre: GpuConstants,
    random: np.random.Generator | None = None,
) -> GpuConstants:
    """Return constants drawn from their distribution given measurements of one pipeline.

    Args:
        observed: The measured schedules; without any, the draw is from the prior.
        machine: The GPU; its clock and memory bandwidth must be known.
        centre: The medians of the prior, and the constants that are not drawn.
        random: Makes the draws; without it, the most probable constants are returned.
    """
    problem = _Problem(observed, machine, centre)
    medians = np.log([getattr(centre, name) for name in PRIORS])
    noise = np.zeros((2, max(len(medians), len(observed))))
    if random is not None:
        noise = random.standard_normal(noise.shape)
    low, high = _bounds(medians)
    prior = np.clip(medians + SPREAD * noise[0, : len(medians)], low, high)
    if not observed:
        return problem.constants(prior)
    from scipy.optimize import least_squares

    targets = problem.logs + ERROR * noise[1, : len(observed)]

    def residuals(point: Array) -> Array:
        """Return the errors in standard deviations; the last coordinate is the shared error."""
        total, _ = problem.schedules(problem.constants(point[:-1]))
        errors = (np.log(total) + point[-1] - targets) / ERROR
        return np.concatenate(
            [errors, (point[:-1] - prior) / SPREAD, point[-1:] / SHARED_ERROR],
        )

    found = least_squares(
        residuals,
        np.append(np.clip(prior, low + INSIDE, high - INSIDE), 0.0),
        loss="soft_l1",
        f_scale=FAR,
        bounds=(np.append(low, -math.inf), np.append(high, math.inf)),
        max_nfev=MOST_FITTED,
    )
    return problem.constants(found.x[:-1])


def _bounds(middle: Array) -> tuple[Array, Array]:
    """Return the least and largest logarithms of the constants, given the middle ones."""
    least = np.array([math.log(LEAST[n]) if n in LEAST else -math.inf for n in PRIORS])
    return np.maximum(middle - BOUND, least), middle + BOUND


def predicted_cycles(
    observed: Sequence[Observation], machine: GpuMachine, c: GpuConstants
) -> Array:
    """Return the predicted cycles of every observation, including launches."""
    return _Problem(observed, machine, c).schedules(c)[0]


class _Problem:
    """The least-squares problem, with the kernels of all observations as arrays."""

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

    @property
    def logs(self) -> Array:
        """The logarithms of the measured cycles of every schedule."""
        return np.asarray(np.log(self._measured))

    def constants(self, logs: Array) -> GpuConstants:
        """Return the constants for the logarithms `logs` of the fitted ones."""
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
        """Return the weighted errors of schedules and kernels, then the distances from priors."""
        total, each = self.schedules(self.constants(logs))
        kernels = np.nan_to_num(np.log(each / self._cycles)) * self._kernel_weights
        return np.concatenate(
            [
                SCHEDULES * np.log(total / self._measured) * self._weights,
                KERNELS * kernels,
                PULL * (logs - priors),
            ]
        )
