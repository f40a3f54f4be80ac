"""Decide which Funcs may be computed inside the blocks of another.

Funcs are rejected as members if they cannot be computed there, or if we cannot predict the region
that Halide will allocate per block. The threads and shared memory of a block must be known before
the pipeline is compiled.
"""

from __future__ import annotations

import numpy as np

from tilewright.halide.analysis.bounds import Interval, stage_env
from tilewright.halide.analysis.summaries import Analysis, nothing_to_do
from tilewright.halide.ir.algorithm import Call, Const, Expr, Op, Stage, Variable
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH

_PLAIN = frozenset("add sub mul div min max select cast eq ne lt le gt ge and or not".split())
_TRANSPARENT = ("likely", "promise_clamped", "unsafe_promise_clamped", "abs", "strict_")


def why_not_member(analysis: Analysis, name: str) -> str:
    """Return why a Func cannot be a member of any group; empty if it can."""
    for stage in analysis.view.stages(name):
        if nothing_to_do(stage):
            continue
        if not any(loop.kind == "pure" for loop in stage.loops):
            return f"{name} has a stage without parallel loops"
        if analysis.summaries(name)[stage.index].scatter and not _bounded(analysis, name, stage):
            return f"{name} scatters to places without bounds"
    return ""


def _bounded(analysis: Analysis, name: str, stage: Stage) -> bool:
    """Return whether the places that a stage scatters to have bounds.

    A block then allocates them together with the region that it reads.
    """
    func = analysis.view.by_name[name]
    env = stage_env(func, stage, analysis.regions[name], analysis.bounder)
    memo: dict[int, Interval] = {}
    places = (analysis.bounder.bound(arg, env, memo) for arg in stage.args)
    return all(bool(np.all(np.isfinite(place.extent))) for place in places)


def why_not_read(analysis: Analysis, reader: str, member: str) -> str:
    """Return why `member` cannot be computed in the blocks of its `reader`; empty if it can."""
    if reader in analysis.view.algorithm.sliced:
        # Halide clamps the coordinates to the reduction's domain, so regions vary between blocks.
        return f"{reader} reads {member} at coordinates that are clamped"
    algorithm = analysis.view.algorithm
    whole = set(algorithm.partials) - algorithm.sliced
    if any(copy.name == member and copy.original in whole for copy in algorithm.copies):
        # Conditions guard the tiles of an update. Their threads need a number of points that is not
        # constant, which the compiler keeps in memory: 1,250 bytes per thread in two products.
        return f"{reader} adds {member} in an update, whose tiles have conditions"
    for stage in analysis.view.stages(reader):
        for call in stage.calls:
            if call.name == member and call.kind == "func":
                for arg in call.args:
                    if not _predictable(arg):
                        return f"{reader} reads {member} at coordinates that wrap around"
    return ""


def _predictable(index: Expr) -> bool:
    """Return whether an index moves with the loops in the same way in every tile."""
    seen: set[int] = set()
    stack = [index]
    while stack:
        node = stack.pop()
        if id(node) in seen or isinstance(node, Const | Variable):
            continue
        seen.add(id(node))
        if isinstance(node, Call):
            if node.kind in ("func", "image"):
                continue  # Loaded values have bounds that do not depend on the tile.
            if node.kind == "intrinsic" and not node.name.startswith(_TRANSPARENT):
                return False
        elif node.name == "mod":
            period = node.args[1]
            if not isinstance(period, Const) or float(period.value) > SEARCH.largest_period:
                return False
        elif node.name not in _PLAIN and isinstance(node, Op):
            return False
        stack.extend(node.args)
    return True
