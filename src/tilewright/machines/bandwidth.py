"""Memory bandwidth of the CPU, measured in a fraction of a second."""

from __future__ import annotations

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tilewright.machines.cpu import CpuMachine

_SMALLEST = 32 << 20
_LARGEST = 256 << 20


def measure_bandwidth(machine: CpuMachine, seconds: float = 0.3) -> float:
    """Measure bytes per second of large copies on all cores, reads and writes counted.

    Each of two arrays is twice the last-level cache (32 MiB to 256 MiB), split among the cores;
    the best of the copies done within about `seconds` counts. Memory for both is needed.
    """
    size = min(_LARGEST, max(_SMALLEST, 2 * machine.last_level_bytes))
    part = max(1, size // machine.cores)
    pairs = [
        (np.zeros(part, dtype=np.uint8), np.ones(part, dtype=np.uint8))
        for _ in range(machine.cores)
    ]
    best = float("inf")
    with ThreadPoolExecutor(machine.cores) as pool:
        end = time.perf_counter() + seconds
        rounds = 0
        # At least two rounds: the first one maps the pages.
        while rounds < 2 or time.perf_counter() < end:
            start = time.perf_counter()
            list(pool.map(lambda pair: np.copyto(pair[0], pair[1]), pairs))
            best = min(best, time.perf_counter() - start)
            rounds += 1
    return 2.0 * part * machine.cores / best


def with_bandwidth(machine: CpuMachine, seconds: float = 0.3) -> CpuMachine:
    """Return the same machine with its memory bandwidth measured."""
    return dataclasses.replace(machine, memory_bandwidth=measure_bandwidth(machine, seconds))
