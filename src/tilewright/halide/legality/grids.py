"""Check whether a device can run the kernels of a schedule at the pipeline's estimates."""

from __future__ import annotations

import math

from tilewright.halide.analysis.gpu_launches import Launch, launches, number
from tilewright.halide.analysis.scheduled_nest import UNKNOWN, sized_nest
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.legality.violations import Limits, Violation

_AXES = "xyz"


def launch_problems(schedule: Schedule, algorithm: Algorithm, limits: Limits) -> list[Violation]:
    """Return the grids, blocks and shared memory that exceed a device's limits.

    `algorithm` has the schedule's clones. The result is empty if sizes are unknown.
    """
    nest = sized_nest(algorithm, schedule)
    if nest is None:
        return []
    try:
        kernels = launches(nest)
    except UNKNOWN:
        return []
    found = []
    for launch in kernels:
        name = algorithm.funcs[launch.func].name
        for kind, message in _problems(launch, schedule.target, limits):
            found.append(Violation(kind, name, launch.stage, message))
    return found


def _problems(launch: Launch, target: str, limits: Limits) -> list[tuple[str, str]]:
    found = []
    # Only CUDA bounds the number of blocks in each dimension.
    grid = limits.grid if "cuda" in target.split("-") else (2**31 - 1,) * 3
    for axis, count, most in zip(_AXES, launch.grid, grid, strict=True):
        if number(count) > most:
            found.append(
                (
                    "grid",
                    f"its kernel has {number(count):,} blocks in {axis}; the maximum is {most:,}; "
                    "use larger tiles, or fuse its block loops",
                )
            )
    threads = math.prod(number(count) for count in launch.block)
    if threads > limits.threads_per_block:
        most = limits.threads_per_block
        found.append(("threads", f"a block has {threads} threads; the maximum is {most}"))
    available, used = limits.shared_memory_bytes, number(launch.shared_bytes)
    if available is not None and used > available:
        message = f"a block needs {used} bytes of shared memory; the device has {available}"
        found.append(("shared_memory", message))
    return found
