"""Give loops and registers inside GPU blocks a constant extent where Halide finds none.

Halide cannot relate the two ends of a range to each other if they are, for example, multiples of a
coordinate. It then launches too many threads (see `tilewright.halide.execution.lowered_launches`),
or finds no constant bound of what a thread keeps in registers, or of its unrolled loops, and
refuses the schedule. The latter gets a promised extent (`DimensionBounds`). Threads are settled by
a split::

    before                                   after
    for x in lo(block)..hi(block) threads    for x_o in 0..(hi(block) - lo(block) + n) / n:
      f[x] = ..                                for x_i in 0..n threads:
                                                 if in range: f[lo(block) + n * x_o + x_i] = ..

`n` is the largest number of iterations over all blocks, so the new loop runs once.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tilewright.halide.analysis.gpu_launches import number
from tilewright.halide.analysis.nest_parts import Corner
from tilewright.halide.analysis.nest_structure import StageKey
from tilewright.halide.analysis.scheduled_nest import UNKNOWN, ScheduledNest, sized_nest
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.schedule import (
    DimensionBounds,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)

_FRACTIONS = tuple(k / 24.0 for k in range(25))  # of the blocks in each dimension, as for launches


def bounded_threads(schedule: Schedule, algorithm: Algorithm) -> Schedule | None:
    """Return the schedule with constant thread loops in blocks; None if there is none to change."""
    extents = _thread_extents(schedule, algorithm)
    funcs = list(schedule.funcs)
    for i, entry in enumerate(funcs):
        stages = tuple(
            _bounded(
                nest, {name: n for (key, name), n in extents.items() if key == (entry.func, s)}
            )
            for s, nest in enumerate(entry.stages)
        )
        if entry.compute.kind == "at" and tuple(stages) != entry.stages:
            funcs[i] = replace(entry, stages=tuple(stages))
    changed = replace(schedule, funcs=tuple(funcs))
    return None if changed == schedule else changed


def bounded_registers(schedule: Schedule, algorithm: Algorithm, func: str) -> Schedule | None:
    """Return the schedule with promised extents of a Func in registers; None if not possible.

    Each extent is the largest that Halide may infer for any block (`ScheduledNest.at_most`).
    """
    nest = _everywhere(schedule, algorithm)
    if nest is None:
        return None
    names = nest.structure.names
    most: dict[int, float] = {}
    try:
        stored = [item for item in nest.allocations if names[item.func] == func]
        for item in stored:
            order = nest.structure.entries[item.func].storage_order or range(len(item.extents))
            for dimension, extent in zip(order, nest.at_most(item), strict=True):
                most[dimension] = max(most.get(dimension, 1.0), float(np.max(extent)))
    except UNKNOWN:
        return None
    if not stored or not all(map(math.isfinite, most.values())):
        return None
    funcs = list(schedule.funcs)
    for i, entry in enumerate(funcs):
        if entry.func == stored[0].func and entry.memory == "register" and not entry.bounds:
            promised = tuple(DimensionBounds(d, int(extent)) for d, extent in sorted(most.items()))
            funcs[i] = replace(entry, bounds=promised)
            return replace(schedule, funcs=tuple(funcs))
    return None


def _everywhere(schedule: Schedule, algorithm: Algorithm) -> ScheduledNest | None:
    """Return the nest at points spread over the blocks; None if sizes are unknown."""
    nest = sized_nest(with_clones(algorithm, schedule.clones), schedule)
    even, odd = np.meshgrid(_FRACTIONS, _FRACTIONS)
    return None if nest is None else nest.standing_at(Corner(even.ravel(), odd.ravel()))


def _thread_extents(schedule: Schedule, algorithm: Algorithm) -> dict[tuple[StageKey, str], int]:
    """Return the largest number of iterations of each thread loop, where it is known."""
    nest = _everywhere(schedule, algorithm)
    found: dict[tuple[StageKey, str], int] = {}
    try:
        for loop in nest.loops if nest else ():
            if loop.mapping == "gpu_thread":
                key = loop.stage, loop.name
                found[key] = max(found.get(key, 0), number(loop.extent))
    except UNKNOWN:
        return {}
    return {key: extent for key, extent in found.items() if extent > 0}


def _bounded(nest: StageSchedule, extents: dict[str, int]) -> StageSchedule:
    """Return a nest whose thread loops of unknown extent are split by these extents."""
    constant = {change.inner for change in nest.splits if isinstance(change, Split)}
    names = {loop.name for loop in nest.loops}
    splits, loops, outer = list(nest.splits), [], []
    for loop in nest.loops:
        new = f"{loop.name}_n", f"{loop.name}_m"
        unknown = loop.mapping == "gpu_thread" and loop.name not in constant
        if not unknown or loop.name not in extents or not names.isdisjoint(new):
            loops.append(loop)
            continue
        splits.append(Split(loop.name, *new, extents[loop.name], "guard_with_if"))
        loops.append(replace(loop, name=new[1]))
        outer.append(ScheduledLoop(new[0], partition=loop.partition))
    if not outer:
        return nest
    # The new loops run outside all threads, but inside the serial loops that already do.
    last = max(i for i, loop in enumerate(loops) if loop.mapping == "gpu_thread")
    return replace(
        nest, splits=tuple(splits), loops=(*loops[: last + 1], *outer, *loops[last + 1 :])
    )
