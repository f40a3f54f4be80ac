"""What the register blocks of a stage depend on besides its summary: segments and borders.

Where coordinates are clamped, Halide computes the blocks at the ends of a row in separate loops,
with loads lane by lane. An end has no such blocks if no coordinate leaves its range there, for
example if an output reads a clamped input at its own coordinates only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np

from tilewright.halide.analysis.bounds import Bounder, Env, Interval, stage_env
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Call, Expr, Op, Stage, Variable, walk
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.operation_cycles import Innermost
from tilewright.halide.schedulers.analytic.cpu.register_block import crossings
from tilewright.halide.schedulers.analytic.cpu.streams import streams_of

BOTH = 2
CHOICES = ("select", "min", "max")  # operations that clamp coordinates
Ends = tuple[tuple[int, int], ...]  # (dimension, ends of the rows along it that are clamped)


class StageFacts:
    """Facts on the stages of one analysis; each is found once."""

    def __init__(self, analysis: Analysis, model: CpuModel, innermost: Innermost) -> None:
        self._analysis, self._model, self._innermost = analysis, model, innermost
        self._streams: dict[tuple[str, int], int] = {}
        self._ends: dict[tuple[str, int], Ends] = {}
        self._crossed: dict[tuple[str, int, str | None], tuple[str, ...]] = {}

    def streams(self, name: str, index: int) -> int:
        """Return the loads of a stage that start a segment in each step (see `streams`)."""
        known = self._streams.get((name, index))
        if known is None:
            stage, env = self._ranges(name, index)
            summary = self._analysis.summaries(name)[index]
            extents = {loop.name: float(np.max(env[loop.name].extent)) for loop in stage.loops}
            given = (summary, extents, self._analysis, self._model, self._innermost)
            known = self._streams[name, index] = streams_of(*given)
        return known

    def ends(self, name: str, index: int) -> Ends:
        """Return the clamped ends of rows along each dimension, 0 to 2."""
        known = self._ends.get((name, index))
        if known is None:
            stage, env = self._ranges(name, index)
            loops = {loop.name for loop in stage.loops if loop.kind == "pure"}
            known = self._ends[name, index] = tuple(
                (d, clamped_ends(stage, arg.name, env, self._analysis.bounder))
                for d, arg in enumerate(stage.args)
                if isinstance(arg, Variable) and arg.name in loops
            )
        return known

    def crossed(self, name: str, index: int, vector: str | None) -> tuple[str, ...]:
        """Return the callees whose rows vectors of a stage cross (see `crossings`)."""
        known = self._crossed.get((name, index, vector))
        if known is None:
            summary = self._analysis.summaries(name)[index]
            known = self._crossed[name, index, vector] = crossings(summary, vector, self._innermost)
        return known

    def _ranges(self, name: str, index: int) -> tuple[Stage, Env]:
        func, stage = self._analysis.view.by_name[name], self._analysis.view.stages(name)[index]
        region = self._analysis.regions[name]
        return stage, stage_env(func, stage, region, self._analysis.bounder)


def clamped_ends(stage: Stage, loop: str, env: Env, bounder: Bounder) -> int:
    """Return the number of ends of a loop at which a coordinate is clamped (0, 1 or 2).

    Args:
        stage: the stage.
        loop: the loop.
        env: the ranges of all loops of the stage.
        bounder: finds the ranges of expressions.
    """
    choices = _choices(stage, loop)
    if choices is None:
        return BOTH
    memo: dict[int, Interval] = {}
    found: set[str] = set()
    for name, limit, inside in choices:
        at, of = bounder.bound(limit, env, memo), bounder.bound(inside, env, memo)
        above = name == "min" and np.max(of.hi) > np.min(at.lo)
        below = name == "max" and np.min(of.lo) < np.max(at.hi)
        if above or below:
            found.add(name)
    return len(found)


def _choices(stage: Stage, loop: str) -> tuple[tuple[str, Expr, Expr], ...] | None:
    """Return each minimum or maximum in coordinates that varies with a loop, by its operands.

    The first operand is the one that does not vary, the second one the other without clamps. None
    if a coordinate is selected, or both operands vary.
    """
    key = "choices in coordinates", loop
    if key not in stage.derived:
        stage.derived[key] = _found_choices(stage, loop)
    return cast("tuple[tuple[str, Expr, Expr], ...] | None", stage.derived[key])


def _found_choices(stage: Stage, loop: str) -> tuple[tuple[str, Expr, Expr], ...] | None:
    varies = _Varying(loop)
    coordinates = [
        arg for call in stage.calls if call.kind in ("func", "image") for arg in call.args
    ]
    found = []
    for node in walk(*coordinates):
        if not isinstance(node, Op) or node.name not in CHOICES or not varies(node):
            continue
        sides = sorted(node.args, key=varies)
        if node.name == "select" or varies(sides[0]):
            return None
        found.append((node.name, sides[0], _unclamped(sides[1], varies)))
    return tuple(found)


class _Varying:
    """Whether an expression depends on a loop, except through what it loads."""

    def __init__(self, loop: str) -> None:
        self._loop = loop
        self._known: dict[int, bool] = {}

    def __call__(self, expr: Expr) -> bool:
        for node in walk(expr) if id(expr) not in self._known else ():
            if id(node) not in self._known:
                parts = self._parts(node)
                self._known[id(node)] = any(self._known.get(id(part), False) for part in parts) or (
                    isinstance(node, Variable) and node.name == self._loop
                )
        return self._known[id(expr)]

    @staticmethod
    def _parts(node: Expr) -> Iterator[Expr]:
        if isinstance(node, Op) or (isinstance(node, Call) and node.kind not in ("func", "image")):
            yield from node.args


def _unclamped(expr: Expr, varies: _Varying) -> Expr:
    """Return what the minima and maxima at the root of a coordinate are taken of."""
    while isinstance(expr, Op | Call):
        clamp = isinstance(expr, Op) and expr.name in ("min", "max")
        mark = isinstance(expr, Call) and expr.name.startswith("likely")
        inner = [arg for arg in expr.args if varies(arg)] if clamp or mark else []
        if len(inner) != 1:
            break
        expr = inner[0]
    return expr
