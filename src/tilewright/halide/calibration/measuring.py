"""The measurements of a calibration, inside a worker process.

All kernels take turns in rounds, so that a disturbance of some seconds meets each of them a few
times only, and the best of each counts. What runs on one core is timed by the thread's CPU time,
which other programs' work does not lengthen; what runs on all cores by the wall's.
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

# Bytes that one call of a copying kernel moves, at least: a fraction of a millisecond.
CALL_BYTES = 4 << 20
# Arrays for the rate of memory: beyond any part of a third level that is a core's own.
LEAST_MEMORY_BYTES = 64 << 20
MOST_MEMORY_BYTES = 256 << 20
# Larger than what C libraries keep when it is freed (glibc: 32 MiB).
FAULT_BYTES = 40 << 20
CHASE_STEPS = 20_000
CLOCK_STEPS = 20_000
GATHER_PASSES = 300
FEW_TASKS, MANY_TASKS, TASK_LOOPS = 16, 64, 20
# A pause after which the threads of Halide's pool sleep.
PAUSE_SECONDS = 0.002
# Samples of each kernel: at least, and at most.
LEAST_SAMPLES, MOST_SAMPLES = 5, 200
CALLS_PER_ROUND = 3
# The best has settled when the next this many are within this much of it.
NEXT_BEST = 2
SETTLED_SPREAD = 0.1
# A sample on all cores counts where they have worked for it this share of the time.
WORKING_SHARE = 0.85
# The spread in JSON if there are too few samples for one.
UNKNOWN_SPREAD = 1e9


@dataclass
class Series:
    """The samples of one kernel, in seconds per call.

    A sample on all cores counts where `least_cores` have worked for it all the time.
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
        """Samples, and those that were disturbed."""
        return len(self.samples) + self.disturbed

    @property
    def best(self) -> float:
        """Seconds per unit of the kernel's amount."""
        return min(self.samples, default=math.inf) / self.kernel.amount

    @property
    def spread(self) -> float:
        """The relative distance of the next best samples from the best."""
        ordered = sorted(self.samples)
        if len(ordered) <= NEXT_BEST or ordered[0] <= 0.0:
            return float("inf")
        return ordered[NEXT_BEST] / ordered[0] - 1.0

    @property
    def settled(self) -> bool:
        """Whether the best has been seen more than once."""
        return len(self.samples) >= LEAST_SAMPLES and self.spread <= SETTLED_SPREAD


class Calibrator:
    """Measures the processor it runs on; the builder of a measuring worker.

    The payload has `cores`, `vector_bytes`, `l1_bytes`, `l2_bytes` (a core's share), `l3_bytes`,
    `memory_bytes` (None if unknown) and `seconds`, what the rounds may take.
    """

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Compile the kernels and fill their arrays."""
        self._seconds = float(payload["seconds"])
        self._series = {
            kernel.name: _series(kernel, int(payload["cores"])) for kernel in kernels_for(payload)
        }
        self._rounds = 0

    def run(self) -> None:
        """Measure in rounds until everything has settled or time is up."""
        end = time.perf_counter() + self._seconds
        for series in self._series.values():
            series.kernel.run()  # touches pages, wakes threads
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
        """Return the quantities, as plain data."""
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
    # Well inside the second level; beyond it, but inside a core's part of the third.
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
    """Return the quantities computed from the kernels' times, each with its samples."""

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
            # The overhead of a task on one of the cores.
            return max((many - few) / span * cores - serial / MANY_TASKS, 0.0)

        found["task"] = figure("seconds", ("tasks_few", "tasks_many", "tasks_serial"), task)
        found["launch"] = figure(
            "seconds", ("launch", "launch_serial"), lambda a, b: max(a - b / cores, 0.0)
        )
    for name, entry in found.items():
        if not math.isfinite(entry["value"]) or (
            entry["value"] <= 0.0 and name not in ("task", "launch")
        ):
            # The difference is not positive, or nothing was sampled.
            entry.update(value=0.0, settled=False)
        if not math.isfinite(entry["spread"]):
            entry["spread"] = UNKNOWN_SPREAD
    return found
