"""The measurements of a calibration, in a worker process.

All kernels take turns in rounds, so that a disturbance of some seconds affects only a few samples
of each. The best sample counts. Kernels on one core are timed by the thread's CPU time, which does
not include the time of other programs; kernels on all cores are timed by wall time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.halide.calibration.kernels import (
    Microbenchmark,
    chasing,
    copying,
    counting,
    faulting,
    gathering,
    tasking,
)

# Least bytes per call of a copying kernel: a fraction of a millisecond.
CALL_BYTES = 4 << 20
# Sizes of arrays to measure the memory rate: larger than a core's part of any third-level cache.
LEAST_MEMORY_BYTES = 64 << 20
MOST_MEMORY_BYTES = 256 << 20
# Larger than the blocks that C libraries keep after free (glibc: up to 32 MiB).
FAULT_BYTES = 40 << 20
CHASE_STEPS = 20_000
CLOCK_STEPS = 20_000
GATHER_PASSES = 300
FEW_TASKS, MANY_TASKS, TASK_LOOPS = 16, 64, 20
# After this pause, the threads of Halide's pool are asleep.
PAUSE_SECONDS = 0.002
# Least samples to converge, and maximum number of calls, per kernel.
LEAST_SAMPLES, MOST_SAMPLES = 5, 200
CALLS_PER_ROUND = 3
# A kernel has converged if this many further samples are within this share of the best.
NEXT_BEST = 2
SETTLED_SPREAD = 0.1
# A sample on all cores is valid if the CPU time is at least this share of cores x wall time.
WORKING_SHARE = 0.85
# The value of the spread in JSON if there are too few samples.
UNKNOWN_SPREAD = 1e9


@dataclass
class Series:
    """The samples of one kernel, in seconds per call.

    Before each sample there is a `pause` in seconds. A sample of a parallel kernel is valid if its
    CPU time is at least `least_cores` times its wall time; others are counted as `disturbed`.
    """

    kernel: Microbenchmark
    pause: float = 0.0
    least_cores: float = 0.0
    disturbed: int = 0
    samples: list[float] = field(default_factory=list)

    def sample(self) -> None:
        """Time one call."""
        if self.pause:
            time.sleep(self.pause)
        if not self.kernel.parallel:
            start = time.thread_time()
            self.kernel.run()
            self.samples.append(time.thread_time() - start)
            return
        start, used = time.perf_counter(), time.process_time()
        self.kernel.run()
        seconds, used = time.perf_counter() - start, time.process_time() - used
        if used >= self.least_cores * seconds:
            self.samples.append(seconds)
        else:
            self.disturbed += 1

    @property
    def tries(self) -> int:
        """The number of valid and disturbed samples."""
        return len(self.samples) + self.disturbed

    @property
    def best(self) -> float:
        """The best time in seconds per unit of the kernel's amount."""
        return min(self.samples, default=math.inf) / self.kernel.amount

    @property
    def spread(self) -> float:
        """The relative difference between the best and the (`NEXT_BEST` + 1)-th best sample."""
        ordered = sorted(self.samples)
        if len(ordered) <= NEXT_BEST or ordered[0] <= 0.0:
            return float("inf")
        return ordered[NEXT_BEST] / ordered[0] - 1.0

    @property
    def settled(self) -> bool:
        """Whether several samples agree with the best."""
        return len(self.samples) >= LEAST_SAMPLES and self.spread <= SETTLED_SPREAD


class Calibrator:
    """Measures the processor that it runs on, in a measuring worker.

    The payload has `cores`, `vector_bytes`, `l1_bytes` and `l2_bytes` (per core), `l3_bytes`,
    `memory_bytes` (None if unknown) and `seconds`, the time limit of the rounds.
    """

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Compile the kernels and fill their arrays."""
        self._seconds = float(payload["seconds"])
        self._series = {
            kernel.name: _series(kernel, int(payload["cores"])) for kernel in kernels_for(payload)
        }
        self._rounds = 0

    def run(self) -> None:
        """Measure in rounds until all kernels have converged or the time limit is reached."""
        end = time.perf_counter() + self._seconds
        for series in self._series.values():
            series.kernel.run()  # touch pages and start threads
        while time.perf_counter() < end:
            waiting = [s for s in self._series.values() if not s.settled]
            if not waiting or all(s.tries >= MOST_SAMPLES for s in waiting):
                break
            self._rounds += 1
            for series in waiting:
                for _ in range(CALLS_PER_ROUND):
                    series.sample()
                if time.perf_counter() > end and self._rounds > 1:
                    break

    def details(self) -> dict[str, Any]:
        """Return the quantities as JSON data."""
        return {"quantities": quantities(self._series), "rounds": self._rounds}


def _series(kernel: Microbenchmark, cores: int) -> Series:
    if kernel.name.startswith("launch"):
        return Series(kernel, pause=PAUSE_SECONDS)
    return Series(kernel, least_cores=WORKING_SHARE * cores)


def kernels_for(machine: Mapping[str, Any]) -> list[Microbenchmark]:
    """Return the kernels for a machine's caches and cores."""
    cores, lanes = int(machine["cores"]), max(4, int(machine["vector_bytes"]) // 4)
    l2 = int(machine["l2_bytes"])
    l3 = max(int(machine["l3_bytes"]), l2)
    known = machine["memory_bytes"] or 2**40
    memory = min(max(2 * l3, LEAST_MEMORY_BYTES), MOST_MEMORY_BYTES, known // 8)
    # Within the second level; larger than it, but within a core's part of the third.
    sizes = {"l2": max(l2 // 2, 2 * int(machine["l1_bytes"])), "l3": min(4 * l2, l3 // 2)}
    found = [counting("clock", CLOCK_STEPS), gathering("gather", GATHER_PASSES, lanes)]
    for name, size in sizes.items():
        passes = max(1, CALL_BYTES // size)
        found.append(copying(f"{name}_core", size, passes, 1, lanes))
        if cores > 1:
            found.append(copying(f"{name}_all", size, passes, cores, lanes))
    found.append(copying("memory_core", memory, 1, 1, lanes))
    if cores > 1:
        found.append(copying("memory_all", memory // cores, 1, cores, lanes))
    for name, size in (*sizes.items(), ("memory", memory)):
        found.append(chasing(f"{name}_latency", size, CHASE_STEPS))
    found += [
        faulting("fault_fresh", FAULT_BYTES, True),
        faulting("fault_kept", FAULT_BYTES, False),
    ]
    if cores > 1:
        found += [
            tasking("tasks_few", FEW_TASKS, TASK_LOOPS, lanes, True),
            tasking("tasks_many", MANY_TASKS, TASK_LOOPS, lanes, True),
            tasking("tasks_serial", MANY_TASKS, TASK_LOOPS, lanes, False),
            tasking("launch", cores, 1, lanes, True),
            tasking("launch_serial", cores, 1, lanes, False),
        ]
    return found


def quantities(series: Mapping[str, Series]) -> dict[str, dict[str, Any]]:
    """Return the quantities computed from the kernels' times, each with unit and spread."""

    def figure(unit: str, names: tuple[str, ...], value: Callable[..., float]) -> dict[str, Any]:
        used = [series[name] for name in names]
        return {
            "value": value(*(s.best for s in used)),
            "unit": unit,
            "spread": round(max(s.spread for s in used), 4),
            "samples": min(len(s.samples) for s in used),
            "settled": all(s.settled for s in used),
        }

    found = {
        "clock": figure("Hz", ("clock",), lambda s: 1.0 / s),
        "gather": figure("seconds per value", ("gather",), lambda s: s),
        "fault": figure("seconds per byte", ("fault_fresh", "fault_kept"), lambda a, b: a - b),
    }
    for name in series:
        if name.endswith(("_core", "_all")):
            found[name] = figure("bytes per second", (name,), lambda s: 1.0 / s)
        if name.endswith("_latency"):
            found[name] = figure("seconds", (name,), lambda s: s)
    if "tasks_few" in series:
        cores = int(series["launch"].kernel.output.dim(1).extent())
        span = MANY_TASKS - FEW_TASKS

        def task(few: float, many: float, serial: float) -> float:
            # The overhead per task on one core.
            return max((many - few) / span * cores - serial / MANY_TASKS, 0.0)

        found["task"] = figure("seconds", ("tasks_few", "tasks_many", "tasks_serial"), task)
        found["launch"] = figure(
            "seconds", ("launch", "launch_serial"), lambda a, b: max(a - b / cores, 0.0)
        )
    for name, entry in found.items():
        if not math.isfinite(entry["value"]) or (
            entry["value"] <= 0.0 and name not in ("task", "launch")
        ):
            # The difference is not positive, or there are no samples.
            entry.update(value=0.0, settled=False)
        if not math.isfinite(entry["spread"]):
            entry["spread"] = UNKNOWN_SPREAD
    return found
