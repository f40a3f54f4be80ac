"""Measured points that ship with the package, to fit models of C kernels to.

``cpu_points.json`` is written by ``benchmarks/patterns_ranking.py --ship``. Its ``about`` says when
and where its points were measured, and how well models rank a stencil that they have not seen.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

from tilewright.patterns import nodes as n
from tilewright.patterns.ranking.cpu import CPU_FEATURES
from tilewright.patterns.ranking.evaluation import fitted
from tilewright.patterns.ranking.models import GeometricMean, PerformanceModel
from tilewright.patterns.ranking.nearest import NearestNeighbours
from tilewright.patterns.ranking.points import MeasuredProgram, read_measured
from tilewright.patterns.ranking.trend import TrendAndTrees
from tilewright.patterns.rewriting.lowering import store
from tilewright.patterns.rewriting.rule import apply_at, sites

CPU_POINTS = Path(__file__).with_name("cpu_points.json")


@cache
def cpu_points() -> tuple[MeasuredProgram, ...]:
    """Return the points of C kernels that come with the package."""
    return tuple(read_measured(CPU_POINTS, CPU_FEATURES))


def cpu_model(program: n.Pattern) -> tuple[PerformanceModel, str]:
    """Return the model that ranks a program's C kernels best, and what it is called.

    Of programs that were left out, stencils are ranked best by `TrendAndTrees` that has learnt from
    the other stencils, other programs by its mean with `NearestNeighbours` over programs that are
    no stencils. Both need scikit-learn; without it, the nearest neighbours rank everything.
    """
    return _cpu_model(is_stencil(program), importlib.util.find_spec("sklearn") is not None)


def is_stencil(program: n.Pattern) -> bool:
    """Return whether a program computes from windows of its inputs, without a stage before them."""
    if not any(isinstance(p, n.Slide) for p in n.walk(program)):
        return False
    storing = store("global")  # applies to stages whose results others read
    stages = (apply_at(storing, site) for site in sites(program) if not site.around)
    return not any(isinstance(made, n.Pattern) for made in stages)


@cache
def _cpu_model(stencil: bool, trees: bool) -> tuple[PerformanceModel, str]:
    from tilewright.patterns.programs import STENCILS

    points = cpu_points()
    if not trees:
        model: PerformanceModel = NearestNeighbours()
        called = "nearest neighbours"
    elif stencil:
        points = tuple(p for p in points if p.program in STENCILS)
        model, called = TrendAndTrees(), "a trend and trees"
    else:
        points = tuple(p for p in points if p.program not in STENCILS)
        model = GeometricMean((NearestNeighbours(), TrendAndTrees()))
        called = "nearest neighbours, a trend and trees"
    count = sum(len(p.seconds) for p in points)
    return fitted(model, points), f"{called} from {count} measured kernels"
