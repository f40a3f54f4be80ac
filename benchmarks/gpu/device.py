"""What the device can do, by probes, and the constants of the GPU model that follow from it.

Every probe is a Halide pipeline scheduled by hand and measured as every other (`gpu.probes`), so
that the figures are those that a Halide kernel can reach. The pieces that follow schedule with
the fitted constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from gpu import probes
from gpu.pieces import Piece, Setting
from tilewright.halide.comparison import source_of
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.warps import SECTOR_BYTES
from tilewright.machines import GpuMachine
from tilewright.measure import RunLimits, Timing

_TIMING = Timing(min_samples=5, max_samples=30, seconds=0.5, sample_seconds=0.002)
_QUICK = Timing(min_samples=3, max_samples=5, seconds=0.2)
# Without these two there is no roofline, and the device is not worth measuring on.
NEEDED = ("copy", "chain")
LAUNCHES = 64
SMALL_LAUNCHES = 4
PASSES = 16
STEPS = 1 << 14
SMALL_STEPS = 64
LINE_BYTES = 128  # of the second cache (CUDA C++ Programming Guide)
PROBES_AT_ONCE = 3


@dataclass(frozen=True)
class Probe:
    """A pipeline of `gpu.probes` with its arguments, and what makes the contents of its inputs."""

    name: str
    arguments: Mapping[str, int]
    contents: Mapping[str, Callable[[], Any]] = field(default_factory=dict)


def all_probes(machine: GpuMachine, small: bool) -> dict[str, Probe]:
    """The probes at sizes that suit the machine, by what they are for."""
    large = 1 << 16 if small else 1 << 26
    half = 1 << max(int(np.log2(machine.l2_bytes / 2 / 4)), 12)  # half of the second cache
    links = 1 << 12 if small else 1 << int(np.ceil(np.log2(4 * machine.l2_bytes / 4)))
    steps = SMALL_STEPS if small else STEPS
    # Every run visits the same places: twice as many lines as the second cache holds.
    far = SMALL_STEPS if small else max(STEPS, 2 * machine.l2_bytes // LINE_BYTES)
    warps = machine.sms * probes.WARP
    found = [
        Probe("copy", {"size": large}),
        Probe("chain", {"size": large}),
        Probe("launches", {"size": SMALL_LAUNCHES if small else LAUNCHES}),
        Probe("second_cache", {"size": 1 << 12 if small else half, "passes": PASSES}),
        Probe("dependent", {"size": warps, "steps": steps}),
        Probe("chase", {"size": links, "steps": far}, {"input": partial(cycle, links)}),
        Probe(
            "shared_chase", {"size": warps, "steps": steps}, {"input": partial(cycle, probes.TABLE)}
        ),
        Probe("shared_reads", {"size": 16 * probes.THREADS * (4 if small else machine.sms)}),
        Probe(
            "additions",
            {"size": large >> 2},
            {"input": partial(random_bins, large >> 2)},
        ),
    ]
    return {probe.name: probe for probe in found}


def cycle(size: int) -> np.ndarray[Any, Any]:
    """Links that visit all of `size` places in random order and return to the first."""
    order = np.concatenate([[0], 1 + np.random.default_rng(0).permutation(size - 1)])
    links = np.empty(size, np.int32)
    links[order] = np.roll(order, -1)
    return links


def random_bins(size: int) -> np.ndarray[Any, Any]:
    """Random numbers of bins."""
    return np.random.default_rng(0).integers(0, probes.BINS, size, dtype=np.int32)


def measure(setting: Setting) -> dict[str, Any]:
    """Measure every probe; the figures of a roofline and the constants that follow.

    Raises:
        RuntimeError: the copy or the chain did not run.
    """
    chosen = all_probes(setting.machine, setting.small)
    # Probes are built at once; the token of the timings lets one at a time use the device.
    with ThreadPoolExecutor(PROBES_AT_ONCE) as pool:
        results = pool.map(partial(_one, setting=setting), chosen.values())
        found: dict[str, Any] = dict(zip(chosen, results, strict=True))
    for name in NEEDED:
        if "seconds" not in found[name]:
            raise RuntimeError(f"{name}: {found[name]['failure']}")
    size = chosen["copy"].arguments["size"]
    seconds = {name: entry["seconds"] for name, entry in found.items() if "seconds" in entry}
    return {
        "size": size,
        **found,
        "bytes_per_second": 8.0 * size / seconds["copy"],
        "flops_per_second": 2.0 * probes.CHAIN * size / seconds["chain"],
        "constants": fit(seconds, chosen, setting.machine),
    }


def _one(probe: Probe, setting: Setting) -> dict[str, Any]:
    algorithm = load(getattr(probes, probe.name)(**probe.arguments))
    by_hand = partial(getattr(probes, f"{probe.name}_by_hand"), **probe.arguments)
    variant = Variant(handwritten=source_of(by_hand), target=setting.target, name=probe.name)
    with Session(
        algorithm,
        targets=[setting.target],
        contents={name: make() for name, make in probe.contents.items()},
        verify=False,
        limits=RunLimits(build_seconds=60.0, run_seconds=30.0),
        timing=_QUICK if setting.small else _TIMING,
        deadline=setting.deadline,
    ) as session:
        measured = list(session.measure([variant]))
    if not measured:
        return {"failure": "there was no time for it"}
    measurement = measured[0].measurement
    if not measurement.ok:
        return {"failure": f"{measurement.status}: {measurement.message}"}
    return {"seconds": measurement.minimum, "median": measurement.median}


def fit(
    seconds: Mapping[str, float], chosen: Mapping[str, Probe], machine: GpuMachine
) -> dict[str, float]:
    """Constants of `GpuConstants` from the probes' times; what was not measured is left out.

    Args:
        seconds: the least time of each probe that ran.
        chosen: the probes, with their sizes.
        machine: its clock turns seconds into cycles.

    Returns:
        Values by the constants' names. Times of the probes include one launch, which is
        subtracted where the launches were measured.
    """
    default, found = GpuConstants(), {}
    clock = machine.clock_hz
    if clock is None:
        return {}
    launch = 0.0
    if "launches" in seconds:
        launch = seconds["launches"] / chosen["launches"].arguments["size"]
        found["launch_seconds"] = launch
        # The cost of a launch stays what it is to the time of one.
        found["launch_cost"] = default.launch_cost * launch / default.launch_seconds

    def cycles(name: str) -> float | None:
        """Of one probe without its launch."""
        return max(seconds[name] - launch, 1e-9) * clock if name in seconds else None

    def steps(name: str) -> int:
        return chosen[name].arguments["steps"]

    taken = cycles("dependent")
    if taken is not None:
        # A kernel has other work for every second operation (`arithmetic_latency`).
        found["arithmetic_latency"] = taken / steps("dependent") / 2.0
    taken = cycles("chase")
    if taken is not None:
        found["memory_latency"] = taken / steps("chase")
        latency = found.get("arithmetic_latency", default.arithmetic_latency)
        found["global_cost"] = found["memory_latency"] / latency
        found["store_cost"] = found["global_cost"] * default.store_cost / default.global_cost
        found["alone_cost"] = found["global_cost"]
    taken = cycles("shared_chase")
    if taken is not None:
        found["shared_latency"] = taken / steps("shared_chase")
    taken = cycles("shared_reads")
    if taken is not None:
        read = 4.0 * probes.TABLE * chosen["shared_reads"].arguments["size"]
        found["cache_bytes_per_cycle"] = read / taken / machine.sms
        # The first cache is the same memory, and serves sectors at the same rate.
        found["sector_cycles"] = SECTOR_BYTES / found["cache_bytes_per_cycle"]
    taken = cycles("additions")
    if taken is not None:
        found["atomics_per_cycle"] = chosen["additions"].arguments["size"] / taken
    taken = cycles("second_cache")
    if taken is not None and "copy" in seconds:
        arguments = chosen["second_cache"].arguments
        cached = 4.0 * arguments["size"] * arguments["passes"] / taken
        copied = 8.0 * chosen["copy"].arguments["size"] / (seconds["copy"] * clock)
        found["l2_factor"] = max(cached / copied, 1.0)
    known = asdict(default)
    return {name: float(value) for name, value in found.items() if name in known}


def pieces(setting: Setting) -> list[Piece]:
    """One piece: everything else refers to it."""
    return [Piece("device", 60.0, measure, essential=True)]


def results(setting: Setting, done: dict[str, Any]) -> dict[str, Any]:
    """None of its own: it is part of the others' results."""
    return {}
