"""The timing loop, run inside the worker process."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .candidate import Timing, relative_spread
from .collection import collection_paused

_MAX_INNER = 1_000_000


@dataclass(frozen=True)
class Samples:
    """Seconds per run, one entry per sample; `lower_bound` if cut short as clearly slower."""

    times: tuple[float, ...]
    cpu_times: tuple[float, ...]
    runs: int
    lower_bound: bool


def settled(times: Sequence[float], timing: Timing) -> bool:
    """Return whether the median of `times` is precise enough.

    The standard error of a median of n normal samples is 1.2533 sigma / sqrt(n); sigma is
    estimated from the median absolute deviation, which outliers do not move.
    """
    if len(times) < max(timing.min_samples, 1):
        return False
    error = 1.2533 * relative_spread(list(times)) / math.sqrt(len(times))
    return error <= timing.precision


def cpu_seconds() -> float:
    """Return CPU seconds used so far by this process, all threads, and its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def time_runs(
    run: Callable[[], object],
    timing: Timing,
    *,
    sync: Callable[[], object] | None = None,
    beat: Callable[[], object] | None = None,
    cutoff: float | None = None,
) -> Samples:
    """Time `run` as `timing` says.

    `sync` is called at the end of every sample, inside the timed span. `beat` is called between
    samples, to show a watchdog that no single run hangs. `cutoff` (seconds) overrides that of
    `timing` where it is smaller.
    """
    limits = [c for c in (cutoff, timing.cutoff) if c is not None]
    limit = min(limits, default=math.inf)

    sample = _sampler(run, sync, beat)
    with collection_paused():
        began = time.perf_counter()
        wall = cpu = 0.0
        for _ in range(max(timing.warmup, 0)):
            wall, cpu = sample(1)
            if wall > timing.seconds:
                # A run this long has warmed up within itself; another would exceed the budget.
                return Samples((wall,), (cpu,), 1, wall > limit)
        times: list[float] = []
        cpus: list[float] = []
        runs = 0
        count = _inner(wall, timing) if timing.warmup > 0 else 1
        while True:
            wall, cpu = sample(count)
            times.append(wall)
            cpus.append(cpu)
            runs += count
            if len(times) >= 2 and min(times) > limit:
                return Samples(tuple(times), tuple(cpus), runs, True)
            used = time.perf_counter() - began
            if len(times) >= timing.max_samples or used >= timing.seconds:
                break
            if settled(times, timing):
                break
            if len(times) == 1 and _inner(wall, timing) > 2 * count:
                # The warm-up was much slower than a warm run: the sample was too short.
                count = _inner(wall, timing)
                times.clear()
                cpus.clear()
        return Samples(tuple(times), tuple(cpus), runs, min(times) > limit)


def _sampler(
    run: Callable[[], object],
    sync: Callable[[], object] | None,
    beat: Callable[[], object] | None,
) -> Callable[[int], tuple[float, float]]:
    """Return a function that takes a sample of a number of runs: wall and CPU seconds per run."""

    def sample(count: int) -> tuple[float, float]:
        if beat is not None:
            beat()
        cpu, wall = cpu_seconds(), time.perf_counter()
        for _ in range(count):
            run()
        if sync is not None:
            sync()
        return (time.perf_counter() - wall) / count, (cpu_seconds() - cpu) / count

    return sample


def _inner(seconds: float, timing: Timing) -> int:
    """Return the number of runs of the given length (seconds) that fill a sample."""
    if seconds <= 0:
        return _MAX_INNER
    return min(max(math.ceil(timing.sample_seconds / seconds), 1), _MAX_INNER)
