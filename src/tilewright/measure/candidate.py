"""Candidates, limits and measurements: plain data that crosses process boundaries."""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, Literal, get_args

Status = Literal[
    "ok", "build_failed", "run_failed", "wrong_answer", "timeout", "out_of_memory", "crashed"
]
STATUSES: tuple[str, ...] = get_args(Status)


@dataclass(frozen=True)
class Candidate:
    """One way to run a program, as data from which another process can build it.

    `builder` is ``"package.module:function"`` or ``"path/file.py:function"``. A worker process
    calls the function with `payload` (picklable data: numbers, strings, bytes, lists, dicts). The
    function returns an object with

    - ``run()``: the work to time;
    - ``verify() -> VerifyResult``, optional: runs and checks the answer;
    - ``recheck() -> VerifyResult``, optional: called if ``verify`` fails, and decides; it may build
      something, and has the time limit of a build;
    - ``sync()``, optional: waits until a device has finished what ``run`` started;
    - ``details() -> dict``, optional: JSON data for the measurement, called at the end.

    `key` names the candidate in events and results. `env` is set in the worker's environment
    before the builder is imported. Modules that the workers' server has preloaded have read
    the environment before.
    """

    builder: str
    payload: Any = field(default=None, hash=False)
    key: str = ""
    env: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class VerifyResult:
    """Whether an answer is right; if not, with the reason and the largest error."""

    ok: bool
    message: str = ""
    max_error: float | None = None


@dataclass(frozen=True)
class RunLimits:
    """Limits of a candidate; beyond them it is killed with all its children.

    `build_seconds` bounds building, `run_seconds` one run (and, doubled because builds may
    share the machine then, the verification). `memory_bytes` bounds the resident memory of the
    worker and its children together, including the preloaded modules that a worker inherits from
    its server (some 100 MB with a compiler). `output_bytes` is how much of a candidate's output is
    kept: its beginning and its end; the rest is dropped.
    """

    build_seconds: float = 60.0
    run_seconds: float = 10.0
    memory_bytes: int = 8 << 30
    output_bytes: int = 16 << 10


@dataclass(frozen=True)
class Timing:
    """Settings for timing a candidate.

    After `warmup` runs, samples are taken until the standard error of their median is below
    `precision` times the median (at least `min_samples`), or `max_samples` are taken, or
    `seconds` are used. A sample is the mean of as many runs as fill `sample_seconds`, at
    least one. A candidate whose one run takes longer than `seconds` is sampled once.

    With `cutoff`, a candidate is cut short once two samples exceed it (seconds); its
    measurement is then a lower bound. `cutoff_ratio` does the same relative to the best
    median that the same `Workers` have seen so far among those that have such a ratio.
    """

    warmup: int = 1
    min_samples: int = 5
    max_samples: int = 100
    seconds: float = 1.0
    sample_seconds: float = 0.005
    precision: float = 0.005
    cutoff: float | None = None
    cutoff_ratio: float | None = None
    verify: bool = True


@dataclass(frozen=True)
class Measurement:
    """The measured time of a candidate, or how it failed.

    Times are in seconds. `times` has one entry per sample (the mean of its runs), `cpu_times`
    the CPU time of the same runs, summed over threads, and `runs` counts every timed run.
    `lower_bound` says that timing was cut short because the candidate was clearly slower than
    the best. `peak_memory` is the largest resident size seen, in bytes. `output` is the candidate's
    output, cut to its limit. `details` is JSON data from the candidate.
    """

    status: Status
    times: tuple[float, ...] = ()
    cpu_times: tuple[float, ...] = ()
    runs: int = 0
    verified: bool = False
    max_error: float | None = None
    lower_bound: bool = False
    build_seconds: float | None = None
    peak_memory: int = 0
    message: str = ""
    output: str = ""
    machine: str = ""
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def ok(self) -> bool:
        """Whether the candidate ran to the end with the right answer, if that was checked."""
        return self.status == "ok"

    @property
    def median(self) -> float:
        """Median of the samples in seconds; infinite when there are none."""
        return statistics.median(self.times) if self.times else math.inf

    @property
    def minimum(self) -> float:
        """Fastest sample in seconds; infinite when there are none."""
        return min(self.times, default=math.inf)

    @property
    def cpu_median(self) -> float:
        """Median CPU seconds of a run; infinite when there are no samples."""
        return statistics.median(self.cpu_times) if self.cpu_times else math.inf

    @property
    def spread(self) -> float:
        """Robust standard deviation of the samples, relative to their median."""
        return relative_spread(self.times)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data; `from_json` reads it back."""
        data = asdict(replace(self, details={}))
        data["times"], data["cpu_times"] = list(self.times), list(self.cpu_times)
        data["details"] = dict(self.details)
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Measurement:
        """Read what `to_json` wrote.

        Raises:
            ValueError: the status is unknown, or a value is of another type.
        """
        if data["status"] not in STATUSES:
            raise ValueError(f"unknown measurement status {data['status']!r}")
        known = {k: v for k, v in data.items() if k in Measurement.__dataclass_fields__}
        for name in ("times", "cpu_times"):
            known[name] = tuple(known.get(name, ()))
            if not all(isinstance(t, float) or type(t) is int for t in known[name]):
                raise ValueError(f"{name} are {str(known[name])[:60]}; they must be numbers")
        for name, kind in (("message", str), ("output", str), ("machine", str), ("details", dict)):
            if not isinstance(known.get(name, kind()), kind):
                raise ValueError(f"{name} is {str(known[name])[:60]}; it is of the wrong type")
        return Measurement(**known)


def relative_spread(samples: tuple[float, ...] | list[float]) -> float:
    """Return 1.4826 times the median absolute deviation over the median; 0 below two samples.

    For normally distributed samples this estimates their relative standard deviation, and
    outliers do not move it.
    """
    if len(samples) < 2:
        return 0.0
    middle = statistics.median(samples)
    deviation = statistics.median(abs(s - middle) for s in samples)
    return 1.4826 * deviation / middle if middle > 0 else 0.0


@cache
def machine_id() -> str:
    """Return a short name for this machine: host, processor, usable CPUs."""
    import os

    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as cpuinfo:
            for line in cpuinfo:
                if line.startswith("model name"):
                    model = line.split(":", 1)[1].strip()
                    break
    except OSError:
        pass  # not Linux: use the platform's name
    return f"{platform.node()}, {model}, {len(os.sched_getaffinity(0))} CPUs"
