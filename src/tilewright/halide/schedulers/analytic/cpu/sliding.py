"""Sliding windows: the dimensions along which members of a group can be computed row by row.

| symbol | meaning | unit |
|---|---|---|
| row | all points with the same coordinate along the sliding dimension | |
| rate | rows by which a member advances per row of the output | 1 |
| period | rows of the reader after which the pattern of the rows that it reads repeats | rows |
| step | rows of the output computed at a time: the least common multiple of the periods | rows |

Rates multiply along a chain of readers: two halvings have the rate 4, two doublings 1/4.
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
    """Return windows along the longest dimensions of the output in which every member can slide.

    Each access within the group must advance along one dimension of the callee when the reader
    advances, so that the next output row can reuse rows. If rows are halved (a pyramid, a mosaic),
    a step is the number of output rows per complete row of each member. If the output's block has
    several rows, a step consists of complete blocks. Windows of more than `largest` rows are
    omitted.
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
    # Per member: the dimension along which it advances, and its rows per row of the output.
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
        # The rows of a block are unrolled; members slide along the loop around them.
        period = math.lcm(period, block.rows)
    return math.lcm(period, *(rate.denominator for _, rate in along.values()))


class Advance(NamedTuple):
    """An access advances `rate` rows per step of a dimension; its pattern has this `period`."""

    dimension: int
    rate: Fraction
    period: int


@functools.lru_cache(maxsize=8192)
def advance(
    dimensions: tuple[tuple[tuple[Linear, float, float], ...], ...], variable: str
) -> Advance | None:
    """Return how an access advances with a loop variable.

    Returns None if it does not advance, moves backwards, or uses the variable other than in a
    multiple, a quotient or a remainder. `dimensions` holds the linear forms of each dimension.
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
    """Return (rate, period, whether it depends on the variable) of an atom, None if unknown."""
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
    """Return the coefficient of the variable in a linear expression, None if it is not linear."""
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
    """Return whether a block of the output requires a block of the same width of each member.

    Members can then be computed block by block along a row without recomputation. It is false if
    members read at clamped indices: Halide cannot partition a single block into borders and a body
    without clamps, so that its vectors would be gathered.
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
    """Return whether members read inputs only within fixed bounds, for any region computed.

    Halide starts a sliding window some rows early and may then require more of an input than the
    pipeline itself. This is harmless only if indices are clamped.
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
