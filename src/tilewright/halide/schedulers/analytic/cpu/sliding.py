"""Sliding windows: along which dimension the members of a group can be computed row by row.

| symbol | meaning | unit |
|---|---|---|
| rate | rows of a member, along the dimension it steps in, per row of the output | 1 |
| period | rows of the reader after which the rows that it reads repeat their pattern | rows |
| step | rows of the output computed at a time: the least multiple of all periods | rows |

Along a chain of readers rates multiply: two halvings have the rate 4, and 1/4 where rows double.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from tilewright.halide.analysis.bounds import Interval, Linear, touched
from tilewright.halide.ir.algorithm import Const, Expr, Op, Variable, walk
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.regions import Window
from tilewright.halide.schedulers.analytic.grouping import Group


def windows(
    costs: CpuCosts, group: Group, largest: int = SEARCH.largest_step
) -> tuple[Window, ...]:
    """Return the longest dimensions of the output along which every member can slide.

    Every access inside the group must step forward along one dimension of its callee as the
    reader steps along its own, so that rows computed for one output row serve the next. Where
    rows are halved (a pyramid, a mosaic), a step is as many rows as make a whole one there, and
    where the output's block has several rows, as many as make whole blocks; at most `largest`.
    """
    output = costs.analysis.view.by_name[group.output]
    region = costs.analysis.regions[group.output]
    longest = sorted(
        range(1, len(output.args)), key=lambda d: float(np.max(region[d].extent)), reverse=True
    )
    steps = {d: _step(costs, group, d) for d in longest}
    return tuple(
        Window(d, step) for d, step in steps.items() if step is not None and step <= largest
    )[: SEARCH.most_windows]


def _step(costs: CpuCosts, group: Group, dimension: int) -> int | None:
    analysis = costs.analysis
    members = set(group.members)
    # For every member, the dimension along which it advances and its rows per row of the output.
    along: dict[str, tuple[int, Fraction]] = {group.output: (dimension, Fraction(1))}
    period = 1
    for name in reversed(group.members):
        if name not in along:
            continue
        func = analysis.view.by_name[name]
        if len(func.stages) > 1 and name not in costs.nested:
            return None
        own, rate = along[name]
        variable = func.args[own]
        for summary in analysis.summaries(name):
            for access in summary.accesses:
                if access.callee not in members or access.callee == name:
                    continue
                hit = advance(access.forms, variable)
                if hit is None:
                    return None
                there = hit.dimension, hit.rate * rate
                if along.setdefault(access.callee, there) != there:
                    return None
                period = math.lcm(period, (rate / hit.period).denominator)
    if not set(along) >= members:
        return None
    block = costs.block(group.output, 0)
    if block.row == dimension:
        # A block's rows are unrolled: members slide along the loop around them.
        period = math.lcm(period, block.rows)
    return math.lcm(period, *(rate.denominator for _, rate in along.values()))


class Advance(NamedTuple):
    """An access advances `rate` rows of a dimension per step; its pattern repeats in `period`."""

    dimension: int
    rate: Fraction
    period: int


@functools.lru_cache(maxsize=8192)
def advance(
    dimensions: tuple[tuple[tuple[Linear, float, float], ...], ...], variable: str
) -> Advance | None:
    """Return how an access, given as linear forms by dimension, advances with a loop variable.

    None if it does not advance, goes backwards, or depends on the variable in another way than by a
    multiple, a quotient or a remainder.
    """
    found: Advance | None = None
    for d, forms in enumerate(dimensions):
        for form, _, _ in forms:
            rate, period, depends = Fraction(0), 1, False
            for atom, c in form.terms:
                part = _advance_of(atom, variable)
                if part is None:
                    return None
                depends = depends or part[2]
                rate += Fraction(c).limit_denominator(SEARCH.largest_denominator) * part[0]
                period = math.lcm(period, part[1])
            if not depends:
                continue
            if rate <= 0 or (found is not None and (found.dimension, found.rate) != (d, rate)):
                return None
            found = Advance(d, rate, math.lcm(period, found.period if found else 1))
    return found


def _advance_of(atom: Expr, variable: str) -> tuple[Fraction, int, bool] | None:
    """Rate and period of one atom, and whether it depends on the variable at all."""
    if isinstance(atom, Variable):
        return (Fraction(1), 1, True) if atom.name == variable else (Fraction(0), 1, False)
    if not any(isinstance(node, Variable) and node.name == variable for node in walk(atom)):
        return Fraction(0), 1, False
    if isinstance(atom, Op) and atom.name in ("div", "mod"):
        value, divisor = atom.args
        if isinstance(divisor, Const) and isinstance(divisor.value, int) and divisor.value > 0:
            inner = _shift_of(value, variable)
            if inner is not None:
                rate = Fraction(inner, divisor.value) if atom.name == "div" else Fraction(0)
                return rate, divisor.value // math.gcd(divisor.value, inner), True
    return None


def _shift_of(expr: Expr, variable: str) -> int | None:
    """Return the multiple of the variable that is in a sum of it and constants."""
    if isinstance(expr, Variable):
        return 1 if expr.name == variable else None
    if isinstance(expr, Const):
        return 0
    if isinstance(expr, Op) and expr.name in ("add", "sub", "mul"):
        left, right = (_shift_of(arg, variable) for arg in expr.args)
        if left is None or right is None:
            return None
        if expr.name == "mul":
            a, b = expr.args
            if isinstance(b, Const) and isinstance(b.value, int):
                return left * b.value
            return right * a.value if isinstance(a, Const) and isinstance(a.value, int) else None
        return left + right if expr.name == "add" else left - right
    return None


def blockwise(costs: CpuCosts, group: Group) -> bool:
    """Return whether an output's block of vectors needs a block of equal width of every member.

    Members can then be computed block by block along a row without redundant work. Not where
    they read through clamped indices: a single block has no clean middle part without clamps,
    and its vectors would be gathered.
    """
    block = costs.block(group.output, 0)
    if block.vector is None or block.row is not None or costs.innermost(group.output) != 0:
        return False
    region = costs.analysis.regions[group.output]
    box = [Interval(i.lo, i.lo) for i in region]
    low = box[block.vector].lo
    box[block.vector] = Interval(low, low + block.width - 1.0)
    inside, _ = costs.member_boxes(group, tuple(box))
    if costs.nested or any(name not in inside for name in group.members):
        return False
    members = set(group.members)
    for name in group.members[:-1]:
        for summary in costs.analysis.summaries(name):
            for access in summary.accesses:
                if access.callee in members or not access.forms:
                    continue
                reach = touched(access, {}, costs.analysis.bounder, {})
                if np.all(np.isfinite(reach[costs.innermost(access.callee)].extent)):
                    return False
    return all(
        sum(float(np.max(i.extent)) == block.width for i in inside[name]) == 1
        and float(np.max(inside[name][0].extent)) == block.width
        for name in group.members
    )


def inputs_protected(costs: CpuCosts, group: Group) -> bool:
    """Return whether no member can read an input outside fixed bounds, wherever its loops are.

    Halide starts a sliding window some rows early and may then ask for more of an input than
    the pipeline needs; that is harmless only where indices are clamped.
    """
    analysis = costs.analysis
    for name in group.members[:-1]:
        for summary in analysis.summaries(name):
            for access in summary.accesses:
                if access.kind != "image" or access.callee not in analysis.parameter_names:
                    continue
                box = touched(access, {}, analysis.bounder, {})
                if not all(np.all(np.isfinite(i.extent)) for i in box):
                    return False
    return True
