"""Convert a recorded schedule to an observation for `fitting`: kernel counts with their cycles."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.fitting import Observation
from tilewright.halide.schedulers.analytic.gpu.nest_costs import kernels_of
from tilewright.halide.schedulers.analytic.gpu.nest_work import KernelWork
from tilewright.machines import GpuMachine

# The distance to a recorded kernel with another name; larger than any difference in size.
_OTHER = 1e3


def observation(
    program: str,
    nest: ScheduledNest,
    machine: GpuMachine,
    c: GpuConstants,
    seconds: float,
    kernels: Sequence[Mapping[str, Any]] = (),
) -> Observation:
    """Return a measured schedule with the counts of its kernels.

    Args:
        program: The program that the schedule belongs to.
        nest: The scheduled nest.
        machine: The GPU.
        c: The model's constants.
        seconds: Measured time of the whole run.
        kernels: The recorded launches, if known: each with its name in PTX (``kernel``),
            ``blocks``, ``threads`` and ``cycles``.
    """
    work, counts = kernels_of(nest, machine, c)
    found = matched(work, kernels)
    cycles = tuple(math.nan if each is None else float(each["cycles"]) for each in found)
    runs = tuple(kernel.runs for kernel in work)
    return Observation(program, seconds, tuple(counts), runs, cycles if kernels else ())


def matched(
    work: Sequence[KernelWork], kernels: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any] | None]:
    """Return the recorded launch of each kernel; None for kernels without one.

    Name and stage must match. Among several matches, the closest in blocks and threads is taken.
    """
    left = list(kernels)
    found: list[Mapping[str, Any] | None] = []
    for part in work:
        best = min(left, key=lambda kernel: _distance(part, kernel), default=None)
        if best is not None:
            left.remove(best)
        alike = best is not None and _distance(part, best) < _OTHER
        found.append(best if alike else None)
    return found


def _distance(part: KernelWork, kernel: Mapping[str, Any]) -> float:
    match = re.match(r"_kernel_(.*?)(?:__?\d+)?_s(\d+)_", kernel["kernel"])
    name = part.func.split("$")[0]
    same = match is not None and (match[1], int(match[2])) == (name, part.stage)
    blocks = math.log(part.blocks / math.prod(kernel["blocks"]))
    threads = math.log(math.prod(part.block) / math.prod(kernel["threads"]))
    return (0.0 if same else _OTHER) + abs(blocks) + abs(threads)
