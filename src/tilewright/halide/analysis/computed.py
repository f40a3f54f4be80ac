"""Compute the extents of each Func that are computed at a time under a schedule.

A Func at root is computed completely at once. Of a Func at a consumer's loop, one iteration of that
loop computes the region that it requires. Values that are kept from the previous iteration are not
subtracted; `legality.sliding.partial_axes` names the dimensions where there may be some. Extents
may be arrays of shape (N,), to evaluate N sizes of the outputs together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tilewright.halide.analysis.bounds import (
    Bound,
    Box,
    Interval,
    stage_env,
    union_boxes,
)
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.nest import stage_schedules
from tilewright.halide.ir.schedule import FuncSchedule, Level, Schedule, Split, StageSchedule

Place = tuple[int, int, str]


class Computed:
    """The extents of every Func that are computed at a time.

    All loops are at their first iteration, or at their last one with `last`. Both matter: where
    coordinates are clamped, the region is smaller at one of the borders.

    Args:
        schedule: The schedule.
        analysis: The algorithm with the schedule's clones and without inlining, with the regions of
            the outputs and the values of parameters.
        last: Whether loops are at their last iteration.
    """

    def __init__(self, schedule: Schedule, analysis: Analysis, *, last: bool = False) -> None:
        self._last = last
        self._algorithm = analysis.view.algorithm
        self._analysis = analysis
        self._entries = {entry.func: entry for entry in schedule.funcs}
        self._known: dict[int, Box | None] = {}
        # Cache per loop: several Funcs may be computed at one loop.
        self._within: dict[Place, dict[str, Box]] = {}

    def extents(self, func: int) -> tuple[Bound, ...]:
        """Return the extents of a Func that are computed at a time; NaN if they are unknown.

        If stages of the consumer require different extents, each result is the smallest of them.
        """
        box = self._box(func)
        if box is None:
            return (math.nan,) * len(self._algorithm.funcs[func].args)
        return tuple(interval.extent for interval in box)

    def _box(self, func: int) -> Box | None:
        if func not in self._known:
            entry = self._entries.get(func)
            name = self._algorithm.funcs[func].name
            if entry is None or entry.compute.kind != "at":
                self._known[func] = self._analysis.regions.get(name)
            else:
                self._known[func] = self._places(func, entry.compute)
        return self._known[func]

    def _places(self, func: int, level: Level) -> Box | None:
        """Return the box that an iteration of a loop requires, the smallest over stages."""
        name = self._algorithm.funcs[func].name
        found: Box | None = None
        host = self._entries[level.func]
        for stage, nest in stage_schedules(self._algorithm, host):
            if any(loop.name == level.loop for loop in nest.loops):
                place = level.func, stage.index, level.loop
                if place not in self._within:
                    self._within[place] = self._wanted(host, stage.index, nest, level.loop)
                wanted = self._within[place]
                if name in wanted:
                    found = _smaller(found, wanted[name])
        return found

    def _wanted(
        self, host: FuncSchedule, stage: int, nest: StageSchedule, loop: str
    ) -> dict[str, Box]:
        """Return the boxes that an iteration of a loop requires of all Funcs computed in it."""
        box = self._box(host.func)
        func = self._algorithm.funcs[host.func]
        if box is None:
            return {}
        definition = func.stages[stage]
        env = stage_env(func, definition, box, self._analysis.bounder)
        names = {f"v{d}": arg for d, arg in enumerate(func.args)}
        names |= {f"r{i}": rvar.name for i, rvar in enumerate(definition.rvars)}
        whole = {loop: env[name].extent for loop, name in names.items() if name in env}
        covered = _covered(nest, loop, whole)
        for canonical, extent in covered.items():
            interval = env[names[canonical]]
            low = interval.hi - extent + 1.0 if self._last else interval.lo
            env[names[canonical]] = Interval(low, low + extent - 1.0)
        analysis = self._analysis.in_loops()
        wanted = analysis.read_in(func.name, stage, env)
        for other in reversed(self._algorithm.funcs[: host.func]):
            entry = self._entries.get(self._algorithm.order[other.name])
            at_root = entry is not None and entry.compute.kind == "root"
            if other.name not in wanted or at_root or other.extern is not None:
                continue
            grown = analysis.func_region(other.name, wanted[other.name])
            for callee, part in analysis.required_by(other.name, grown).items():
                wanted[callee] = union_boxes(wanted.get(callee), part)
        return wanted


def _covered(nest: StageSchedule, loop: str, whole: Mapping[str, Bound]) -> dict[str, Bound]:
    """Return the extents that a definition's loops cover in one iteration of `loop`.

    Args:
        nest: The stage's nest.
        loop: A loop of the nest.
        whole: The extents of the definition's loops, by canonical name.
    """
    extents: dict[str, Bound] = dict(whole)
    for change in nest.splits:
        if isinstance(change, Split):
            old = extents[change.old]
            extents[change.outer] = np.ceil(np.asarray(old) / change.factor)
            extents[change.inner] = np.minimum(old, change.factor)
        else:
            extents[change.fused] = extents[change.inner] * extents[change.outer]
    order = [scheduled.name for scheduled in nest.loops]
    inside = set(order[: order.index(loop)])
    covered: dict[str, Bound] = {
        name: extents[name] if name in inside else np.ones_like(extents[name]) for name in order
    }
    covered[loop] = np.minimum(extents[loop], 1.0)
    for change in reversed(nest.splits):
        if isinstance(change, Split):
            outer, inner = covered.pop(change.outer), covered.pop(change.inner)
            covered[change.old] = np.minimum(
                (outer - 1.0) * change.factor + inner, extents[change.old]
            )
        else:
            fused = covered.pop(change.fused)
            full = np.asarray(fused) >= extents[change.fused]
            covered[change.inner] = np.where(full, extents[change.inner], 1.0)
            covered[change.outer] = np.where(full, extents[change.outer], 1.0)
    return {name: extent for name, extent in covered.items() if name in whole}


def _smaller(a: Box | None, b: Box) -> Box:
    """Return the box that has, in each dimension, the shorter interval of two boxes."""
    if a is None:
        return b
    shorter = [
        (np.asarray(p.extent) <= np.asarray(q.extent), p, q) for p, q in zip(a, b, strict=True)
    ]
    return tuple(
        Interval(np.where(first, p.lo, q.lo), np.where(first, p.hi, q.hi))
        for first, p, q in shorter
    )
