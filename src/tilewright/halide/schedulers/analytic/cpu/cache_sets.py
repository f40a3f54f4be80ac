"""How many rows fit in the first cache at a time, where they lie a power of two apart.

A cache keeps a line in one of the few places that its address allows. The lines of a column share
these places if the distance of the rows is a multiple of a way::

    rows 4096 bytes apart, 8 ways of 4096 bytes: of 32 rows that a block reads in turn, 8 stay

| symbol | meaning | unit |
|---|---|---|
| way | the part of the cache with one place for each address | bytes |
| ways | lines that share their places | count |
| sets | different places of the lines of a column | count |
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tilewright.halide.analysis.summaries import Analysis, StageSummary
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.operation_cycles import Innermost, across
from tilewright.halide.schedulers.analytic.cpu.register_block import accumulates


def most_rows(
    summary: StageSummary,
    loops: Mapping[int, str],
    analysis: Analysis,
    model: CpuModel,
    innermost: Innermost,
) -> tuple[tuple[int, int], ...]:
    """Return the dimensions along which a reduction reads rows, and how many of these stay.

    `loops` names the stage's pure loop of each dimension of the Func that has one. Other stages,
    which read a line of each row once or soon again, have no limit.
    """
    if not accumulates(summary):
        return ()
    found: dict[int, int] = {}
    for d, loop in loops.items():
        for load in summary.loads:
            steps = load.strides.get(loop)
            if load.indirect or not steps or not across(load, steps, innermost):
                continue
            distances = _distances(analysis, load.callee)
            apart = sum(a * b for a, b in zip(steps, distances, strict=False))
            rows = rows_that_stay(abs(apart), model)
            found[d] = min(found.get(d, rows), rows)
    return tuple(found.items())


def _distances(analysis: Analysis, name: str) -> list[float]:
    """Return the bytes between neighbours in each dimension of a Func or input."""
    size = float(analysis.element_bytes.get(name, SEARCH.unknown_bytes))
    found = []
    for part in analysis.regions.get(name, ()):
        found.append(size)
        extent = float(np.max(part.extent))
        size *= extent if math.isfinite(extent) else SEARCH.unknown_extent
    return found


def rows_that_stay(apart: float, model: CpuModel) -> int:
    """Return how many lines, each `apart` bytes from the one before, the first cache holds.

    With 8 ways of 4096 bytes and lines of 64:

    - 4096 bytes apart: 8, for all share one set.
    - 1024 bytes apart: 32, in four sets.
    - 4160 bytes apart: 512, all lines of the cache.
    """
    c = model.constants
    way = int(c.way_bytes)
    shared = math.gcd(int(apart), way) if apart else way
    sets = max(way // max(shared, int(c.line_bytes)), 1)
    return max(int(model.l1_bytes) // way, 1) * sets
