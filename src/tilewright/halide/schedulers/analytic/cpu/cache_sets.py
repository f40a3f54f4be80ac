"""Conflict misses: how many rows at power-of-two distances stay in the first cache.

A set-associative cache maps each line to one set, chosen by the address; a set holds one line per
way. If the distance between rows is a multiple of the size of a way, the lines of a column all
map to the same set::

    rows 4096 bytes apart, 8 ways of 4096 bytes: if a block reads 32 rows in turn, only 8 stay

| symbol | meaning | unit |
|---|---|---|
| way | bytes of the cache with one line per set | bytes |
| ways | lines per set | count |
| sets | different sets that the lines of a column map to | count |
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tilewright.halide.analysis.reductions import accumulates
from tilewright.halide.analysis.summaries import Analysis, StageSummary
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.operation_cycles import Innermost, across
from tilewright.halide.schedulers.analytic.cpu.register_block import natural_lanes


def most_rows(
    summary: StageSummary,
    loops: Mapping[int, str],
    analysis: Analysis,
    model: CpuModel,
    innermost: Innermost,
) -> tuple[tuple[int, int], ...]:
    """Return (dimension, most rows of a block) where a reduction reads across rows.

    They stay in the first cache, and are one vector at most. `loops` maps dimensions of the Func to
    the stage's pure loops. The result is empty for other stages: they read each line only once, or
    again before it is evicted.
    """
    if not accumulates(summary):
        return ()
    found: dict[int, int] = {}
    for d, loop in loops.items():
        for load in summary.loads:
            if load.indirect or loop not in load.strides:
                continue
            # Lanes loaded one by one gain nothing from more vectors, but keep more lines busy.
            steps, rows = load.strides[loop], natural_lanes(summary, model)
            if steps is not None:
                if not across(load, steps, innermost):
                    continue
                between = distances(analysis, load.callee)
                apart = abs(sum(a * b for a, b in zip(steps, between, strict=False)))
                stay = rows_that_stay(apart, model)
                rows = min(stay, rows) if apart >= model.constants.least_vector_bytes else stay
            found[d] = min(found.get(d, rows), rows)
    return tuple(found.items())


def distances(analysis: Analysis, name: str) -> list[float]:
    """Return the stride of each dimension of a Func or input, in bytes."""
    size = float(analysis.element_bytes.get(name, SEARCH.unknown_bytes))
    found = []
    for part in analysis.regions.get(name, ()):
        found.append(size)
        extent = float(np.max(part.extent))
        size *= extent if math.isfinite(extent) else SEARCH.unknown_extent
    return found


def rows_that_stay(apart: float, model: CpuModel) -> int:
    """Return how many lines at distances of `apart` bytes the first cache holds.

    With 8 ways of 4096 bytes and lines of 64:

    - 4096 bytes apart: 8, because all map to one set.
    - 1024 bytes apart: 32, in four sets.
    - 4160 bytes apart: 512, the whole cache.
    """
    c = model.constants
    return lines_that_stay(apart, model.l1_bytes, c.way_bytes, c.line_bytes)


def lines_that_stay(apart: float, size: float, way: float, line: float) -> int:
    """Return how many lines at distances of `apart` bytes a cache holds.

    Args:
        apart: the distance, in bytes.
        size: the size of the cache, in bytes.
        way: the size of one of its ways, in bytes.
        line: the size of a line, in bytes.
    """
    shared = math.gcd(int(apart), int(way)) if apart else int(way)
    sets = max(int(way) // max(shared, int(line)), 1)
    return max(int(size) // int(way), 1) * sets
