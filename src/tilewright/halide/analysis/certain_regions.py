"""Regions that are required for certain, whatever Halide makes of conditions on loop variables.

The regions of `Analysis` ignore conditions, so they may be larger than those that Halide requires.
Here they are never larger: a read under a condition counts only where the condition is known to
hold. Both are the same where nothing is read under a condition (`guarded_reads`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.bounds import (
    Access,
    Bound,
    Box,
    Env,
    Interval,
    accesses_of,
    least,
    most,
    stage_env,
    touched,
    union_boxes,
)
from tilewright.halide.analysis.guarded_reads import (
    NOTHING,
    Limits,
    guarded_reads,
    limits_of,
    narrowing_predicates,
)
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, StageSummary
from tilewright.halide.ir.algorithm import Expr, Func, Stage
from tilewright.halide.ir.expressions import uses

# Whether a bound is that of an empty interval, element by element.
_Rows = bool | npt.NDArray[np.bool_]


@dataclass(frozen=True)
class GuardedAccess(Access):
    """Accesses that are made only where loop variables are in `limits`.

    `only` says that nothing else reads the callee: without them, it is not computed at all.
    """

    limits: Limits = field(default_factory=dict)
    only: bool = False


class CertainRegions(Analysis):
    """Regions and extents that Halide requires at least; see the module's description.

    Intervals that are empty, or not known, are `NOTHING`. In a loop whose iterations are judged by
    a few of them (`in_loops`), reads under conditions on loop variables do not count at all, since
    other iterations may be elsewhere.
    """

    def __init__(
        self, view: View, output_boxes: Mapping[str, Box], scalars: Mapping[str, float]
    ) -> None:
        super().__init__(view, output_boxes, scalars)
        self._guarded: dict[str, tuple[StageSummary, ...]] = {}
        self._inside = False
        self._reads: dict[str, int] = {}
        for func in view.funcs:
            for stage in func.stages:
                for call in stage.calls:
                    if call.name != func.name:
                        self._reads[call.name] = self._reads.get(call.name, 0) + 1

    def in_loops(self) -> Analysis:
        """Return the analysis of what every iteration of a loop requires."""
        other = copy.copy(self)
        other._inside = True
        return other

    def summaries(self, name: str) -> tuple[StageSummary, ...]:
        """Return the summaries of a Func's stages, with a `GuardedAccess` per guarded read."""
        known = self._guarded.get(name)
        if known is None:
            pairs = zip(self.view.stages(name), super().summaries(name), strict=True)
            known = self._guarded[name] = tuple(self._with_guards(*pair) for pair in pairs)
        return known

    def _with_update(self, func: Func, stage: Stage, summary: StageSummary, box: Box) -> Box:
        """Return `box` with what an update certainly writes and reads of its own Func."""
        env = self._narrowed(stage_env(func, stage, box, self.bounder), stage)
        written = tuple(self.bounder.bound(arg, env, {}) for arg in stage.args)
        grown = union_boxes(box, _certain(written, [(arg,) for arg in stage.args], env))
        for access in summary.reads(func.name):
            grown = union_boxes(grown, self._touched(access, env))
        return grown

    def read_in(self, name: str, index: int, env: Env) -> dict[str, Box]:
        """Return what a stage reads of every other Func and image at least in loops over `env`."""
        env = self._narrowed(env, self.view.stages(name)[index])
        result: dict[str, Box] = {}
        for access in self.summaries(name)[index].accesses:
            if access.callee != name:
                part = self._touched(access, env)
                result[access.callee] = union_boxes(result.get(access.callee), part)
        return result

    def _with_guards(self, stage: Stage, summary: StageSummary) -> StageSummary:
        guarded = guarded_reads(stage)
        if not guarded:
            return summary
        under = {id(call) for call, _ in guarded}
        accesses = [*accesses_of([c for c in stage.calls if id(c) not in under], self.linear)]
        for call, conditions in guarded:
            limits = limits_of(conditions, stage, self.linear)
            only = self._reads.get(call.name) == 1
            accesses += [
                GuardedAccess(a.callee, a.kind, a.forms, a.count, limits, only)
                for a in accesses_of([call], self.linear)
            ]
        return replace(summary, accesses=tuple(accesses))

    def _narrowed(self, env: Env, stage: Stage) -> Env:
        """Return the ranges of a stage's loops under its predicates."""
        predicates = narrowing_predicates(stage)
        return self._limited(env, limits_of(predicates, stage, self.linear)) if predicates else env

    def _limited(self, env: Env, limits: Limits) -> Env:
        limited = dict(env)
        for name, limit in limits.items():
            known = limited.get(name, NOTHING)
            inside = NOTHING if self._inside else limit
            limited[name] = Interval(most(known.lo, inside.lo), least(known.hi, inside.hi))
        return limited

    def _touched(self, access: Access, env: Env) -> Box:
        """Return the box that an access touches at least."""
        forms = [[atom for form, _, _ in dim for atom, _ in form.terms] for dim in access.forms]
        if not isinstance(access, GuardedAccess):
            return _certain(touched(access, env, self.bounder, {}), forms, env)
        env = self._limited(env, access.limits)
        box = _certain(touched(access, env, self.bounder, {}), forms, env)
        if access.only:
            return box
        # Something else may require the callee although nothing is read here.
        return _without(box, [_empty(env, access.limits)] * len(box))


def _certain(box: Box, used: list[list[Expr]] | list[tuple[Expr]], env: Env) -> Box:
    """Return a box without the intervals that use a variable with an empty range.

    Args:
        box: The intervals of some coordinates.
        used: The expressions that each of these coordinates consists of.
        env: The ranges of variables.
    """
    names = [name for name, inside in env.items() if np.any(np.asarray(inside.lo) > inside.hi)]
    if not names:
        return box
    rows = [
        _empty(env, [name for name in names if any(uses(e, {name}) for e in parts)])
        for parts in used
    ]
    return _without(box, rows)


def _empty(env: Env, names: Mapping[str, Interval] | list[str]) -> _Rows:
    """Return where any of these variables has an empty range."""
    rows: _Rows = False
    for name in names:
        rows = rows | (np.asarray(env[name].lo) > env[name].hi)
    return rows


def _without(box: Box, rows: list[_Rows]) -> Box:
    """Return a box whose intervals are `NOTHING` in the given rows."""

    def kept(bound: Bound, empty: _Rows, nothing: Bound) -> Bound:
        return np.where(empty, nothing, bound) if np.any(empty) else bound

    return tuple(
        Interval(kept(part.lo, empty, NOTHING.lo), kept(part.hi, empty, NOTHING.hi))
        for part, empty in zip(box, rows, strict=True)
    )
