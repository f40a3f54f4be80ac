"""One measurement of a variant on operands: prepared, verified, timed while undisturbed."""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.measure import Measurement, Timing, cpu_seconds, time_runs
from tilewright.prediction.data.kernel import Array, Kernel, KernelVariant, Operands, Run
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.kernels.storage import is_sparse

# Above this ratio of wall to CPU time, another process had the CPU.
DIRTY = 1.1

# Above this share of a CPU, others were busy: of two threads that spin at a barrier, neither has
# less CPU time for waiting. Kernel accounting is in ticks; allow a few unattributed ones.
OTHERS = 0.1

TICKS = 0.02

TRIES = 3


@dataclass(frozen=True)
class Ready:
    """A variant prepared on operands, with its answer checked."""

    run: Run
    max_error: float | None


class VariantWork:
    """Verifying and timing a variant of a kernel."""

    def __init__(
        self, kernel: Kernel, variant: KernelVariant, verify: bool, timing: Timing
    ) -> None:
        self.kernel, self.variant = kernel, variant
        self.verify, self.timing = verify, timing

    def begin(self, operands: Operands, settings: Mapping[str, float]) -> Ready | Measurement:
        """Run the variant once and check its answer; return the measurement if that fails."""
        try:
            run = self.variant.prepare(operands, settings)
            answer = run()
        except MemoryError as error:
            return _out_of_memory(error)
        except (Exception, SystemExit) as error:  # an exception of an implementation is its outcome
            return Measurement("run_failed", message=f"{type(error).__name__}: {error}")
        if not self.verify or self.kernel.reference is None:
            return Ready(run, None)
        worst, message = error_of(answer, self.kernel, operands)
        if message:
            return Measurement("wrong_answer", verified=True, max_error=worst, message=message)
        return Ready(run, worst)

    def end(self, begun: Ready | Measurement) -> Measurement:
        """Time the variant, again if disturbed; failures are returned unchanged."""
        if isinstance(begun, Measurement):
            return begun
        try:
            best = self._tries(begun.run)
        except MemoryError as error:
            return _out_of_memory(error)
        except (Exception, SystemExit) as error:
            return Measurement("run_failed", message=f"{type(error).__name__}: {error}")
        return replace(best, verified=self.verify, max_error=begun.max_error)

    def _tries(self, run: Run) -> Measurement:
        best: Measurement | None = None
        tries = 0
        while best is None or (tries < TRIES and best.details["dirty"]):
            tries += 1
            others, idle, began = other_seconds(), idleness(), time.perf_counter()
            samples = time_runs(run, self.timing)
            wall = time.perf_counter() - began
            share = max(0.0, other_seconds() - others - TICKS) / wall
            measurement = Measurement("ok", samples.times, samples.cpu_times, samples.runs)
            slow = self.variant.device == "cpu" and dirty(measurement)
            flagged = share > OTHERS or (slow and not idleness().waited(idle, wall))
            measurement = replace(measurement, details={"dirty": flagged, "others": share})
            if best is None or not flagged or measurement.median < best.median:
                best = measurement
        return replace(best, details={**best.details, "tries": tries})


def _out_of_memory(error: MemoryError) -> Measurement:
    return Measurement("out_of_memory", message=str(error) or "out of memory")


def dirty(measurement: Measurement) -> bool:
    """Return whether wall time exceeds CPU time by so large a factor that another process ran."""
    return measurement.median > DIRTY * measurement.cpu_median


@dataclass(frozen=True)
class Idleness:
    """The reasons for which this process has not been computing so far.

    Args:
        yields: how often it gave up its processor, to sleep or for input and output.
        queued: seconds in which it could have run but another process did.
    """

    yields: int
    queued: float

    def waited(self, earlier: Idleness, wall: float) -> bool:
        """Return whether the process has waited voluntarily in the `wall` seconds since then."""
        return self.yields > earlier.yields and self.queued - earlier.queued <= OTHERS * wall


def idleness() -> Idleness:
    """Return the idleness of this thread; without ``/proc/thread-self/schedstat``, queued is 0."""
    yields = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return Idleness(yields, int(file.read().split()[1]) * 1e-9)
    except (OSError, ValueError, IndexError):
        return Idleness(yields, 0.0)


def other_seconds() -> float:
    """Return CPU seconds that all other processes have used since the computer was started.

    Children that this process has waited for are not others. 0 if the system does not report it
    (``/proc/stat``).
    """
    try:
        with open("/proc/stat", encoding="ascii") as file:
            fields = [int(field) for field in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return 0.0
    idle, waiting = fields[3], fields[4]
    return (sum(fields) - idle - waiting) / os.sysconf("SC_CLK_TCK") - cpu_seconds()


def error_of(answer: Any, kernel: Kernel, operands: Operands) -> tuple[float, str]:
    """Return an answer's largest error, relative to the largest value, and what is wrong."""
    assert kernel.reference is not None
    try:
        right = np.asarray(kernel.reference(operands))
    except (Exception, SystemExit) as failure:
        raise PredictionError(
            f"the reference of {kernel.name} failed: {type(failure).__name__}: {failure}"
        ) from failure
    given: Array = np.asarray(answer.toarray() if is_sparse(answer) else answer)
    if given.dtype.kind not in "biufc":
        return math.inf, f"the answer is {repr(answer)[:60]} in place of numbers"
    if given.shape != right.shape:
        return math.inf, f"the answer has shape {given.shape}, the right one {right.shape}"
    if not right.size:
        return 0.0, ""
    scale = float(np.abs(right).max()) or 1.0
    error = float(np.abs(given - right).max()) / scale
    if not error <= kernel.tolerance:  # NaN is wrong
        wrong = np.nan_to_num(np.abs(given - right), nan=np.inf)
        where = np.unravel_index(np.argmax(wrong), right.shape)
        place = ", ".join(str(int(i)) for i in where)
        place = f" at [{place}]" if place else ""
        return error, (f"the value{place} is {given[where]:g} and should be {right[where]:g}")
    return error, ""


def quiet_blas() -> Any:
    """Limit BLAS to one thread outside of timing: idle BLAS threads spin and take the CPU."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="blas")
