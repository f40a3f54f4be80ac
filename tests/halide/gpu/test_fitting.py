"""Constants are found again from times that were made with them."""

import dataclasses

import numpy as np
import pytest

from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.fitting import (
    PRIORS,
    Observation,
    fitted,
    predicted_cycles,
)
from tilewright.halide.schedulers.analytic.gpu.kernel_time import (
    KernelCounts,
    kernel_cycles,
    kernel_terms,
)
from tilewright.machines import gpu

MACHINE = gpu("v100")
FIELDS = [field.name for field in dataclasses.fields(KernelCounts)]


def observations(truth, number=120, kernels=True):
    random = np.random.default_rng(0)
    found = []
    for i in range(number):
        counts = []
        for _ in range(1 + i % 3):
            # One kind of work dominates each kernel, so that every constant decides somewhere.
            size = dict.fromkeys(FIELDS, 1.0)
            size[FIELDS[random.integers(len(FIELDS))]] = float(10 ** random.uniform(3, 5))
            counts.append(KernelCounts(**size))
        cycles = [float(kernel_cycles(kernel_terms(c, MACHINE, truth), truth)) for c in counts]
        total = sum(cycles) / MACHINE.clock_hz + len(cycles) * truth.launch_seconds
        own = tuple(cycles) if kernels else ()
        found.append(Observation(f"p{i % 5}", total, tuple(counts), (1.0,) * len(counts), own))
    return found


def test_prediction_and_observation_agree_where_the_constants_are_right():
    truth = GpuConstants(issue_rate=1.5, miss_wait=400.0)
    found = observations(truth)
    predicted = predicted_cycles(found, MACHINE, truth)
    assert predicted == pytest.approx([o.seconds * MACHINE.clock_hz for o in found])


@pytest.mark.parametrize("kernels", [True, False])
def test_constants_are_found_again(kernels):
    truth = GpuConstants(**PRIORS)
    truth = dataclasses.replace(truth, issue_rate=3.0, miss_wait=400.0, sector_cycles=1.5)
    found = fitted(observations(truth, kernels=kernels), MACHINE)
    assert found.issue_rate == pytest.approx(3.0, rel=0.1)
    assert found.miss_wait == pytest.approx(400.0, rel=0.1)
    assert found.sector_cycles == pytest.approx(1.5, rel=0.1)


def test_what_the_measurements_do_not_decide_stays_at_its_prior():
    truth = dataclasses.replace(GpuConstants(**PRIORS), issue_rate=3.0)
    counts = KernelCounts(**(dict.fromkeys(FIELDS, 0.0) | {"instructions": 1e5}))
    cycles = float(kernel_cycles(kernel_terms(counts, MACHINE, truth), truth))
    total = cycles / MACHINE.clock_hz + truth.launch_seconds
    one = Observation("p", total, (counts,), (1.0,), (cycles,))
    found = fitted([one], MACHINE)
    assert found.issue_rate == pytest.approx(3.0, rel=0.02)
    for name in ("miss_wait", "bank_cycles", "l2_bytes_per_cycle", "special_cost"):
        assert getattr(found, name) == pytest.approx(PRIORS[name], rel=1e-3)


def test_constants_that_are_not_fitted_stay():
    start = GpuConstants(launch_seconds=1e-5, global_cost=123.0)
    truth = dataclasses.replace(start, **PRIORS)
    found = fitted(observations(truth, 20), MACHINE, start)
    assert (found.launch_seconds, found.global_cost) == (1e-5, 123.0)


def test_a_fit_is_the_same_every_time():
    truth = dataclasses.replace(GpuConstants(**PRIORS), issue_rate=2.5)
    found = observations(truth, 20)
    assert fitted(found, MACHINE) == fitted(found, MACHINE)
