"""Measure the rates of this processor with kernels that Halide compiles."""

from __future__ import annotations

import datetime

from tilewright.errors import TilewrightError
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.machines import (
    Calibration,
    CpuMachine,
    Quantity,
    processor_of,
)
from tilewright.measure import Candidate, RunLimits, Timing, measure_one

BUILDER = "tilewright.halide.calibration.measuring:Calibrator"
PRELOAD = (
    "tilewright.halide.calibration.measuring",
    "tilewright.halide.execution.runner:warm:host",
)
# Time limit of the rounds; compiling the kernels and starting a worker take about 5 s more.
SECONDS = 8.0
# A single call of `run` does all measurements.
_ONCE = Timing(
    warmup=0, min_samples=1, max_samples=1, seconds=0.0, sample_seconds=0.0, verify=False
)


def calibrate(machine: CpuMachine, seconds: float = SECONDS) -> Calibration:
    """Measure this processor and return its calibration.

    Args:
        machine: the description of this processor.
        seconds: the time limit, without the time to compile the kernels.

    Raises:
        TilewrightError: the measurement fails, or most quantities do not converge.
    """
    model = model_of(machine)
    payload = {
        "cores": machine.cores,
        "vector_bytes": model.vector_bytes,
        "l1_bytes": model.l1_bytes,
        "l2_bytes": model.l2_bytes,
        "l3_bytes": model.l3_bytes,
        "memory_bytes": machine.memory_bytes,
        "seconds": seconds,
    }
    limits = RunLimits(build_seconds=120.0, run_seconds=6.0 * seconds + 60.0)
    done = measure_one(Candidate(BUILDER, payload, "calibration"), limits, _ONCE, PRELOAD)
    if not done.ok:
        raise TilewrightError(f"the processor could not be measured: {done.status}, {done.message}")
    found = {name: Quantity(**entry) for name, entry in done.details["quantities"].items()}
    result = Calibration(
        processor_of(machine),
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        round(sum(done.times), 1),
        found,
    )
    doubtful = result.doubtful
    if 2 * len(doubtful) > len(found):
        raise TilewrightError(
            f"{len(doubtful)} of {len(found)} quantities did not settle within {seconds:g} s "
            f"({', '.join(doubtful)}), because other programs use this machine: measure again "
            "when its load is lower"
        )
    return result
