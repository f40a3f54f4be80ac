"""Models of C kernels, fitted to measurements that ship with the package.

``benchmarks/patterns_ranking.py --ship`` writes ``cpu_points.json``. Its ``about`` says when and
where its points were measured, and how well models rank an unseen stencil.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

from tilewright.patterns import nodes as n
from tilewright.patterns.ranking.cpu import CPU_FEATURES
from tilewright.patterns.ranking.evaluation import fitted
from tilewright.patterns.ranking.forest import RandomisedTrees
from tilewright.patterns.ranking.models import GeometricMean, PerformanceModel
from tilewright.patterns.ranking.nearest import NearestNeighbours
from tilewright.patterns.ranking.points import MeasuredProgram, read_measured
from tilewright.patterns.ranking.trend import TrendAndTrees
from tilewright.patterns.rewriting.lowering import store
from tilewright.patterns.rewriting.rule import apply_at, sites

CPU_POINTS = Path(__file__).with_name("cpu_points.json")


@cache
def cpu_points() -> tuple[MeasuredProgram, ...]:
    """Return the measured C kernels that ship with the package."""
    return tuple(read_measured(CPU_POINTS, CPU_FEATURES))


def cpu_model(program: n.Pattern) -> tuple[PerformanceModel, str]:
    """Return the model for ranking a program's C kernels, and its name.

    In evaluations on unseen programs, `RandomisedTrees` fitted to stencils ranked other stencils
    best. For other programs, the mean of `TrendAndTrees` and `NearestNeighbours` was best, both
    fitted to programs that are not stencils. Trees need scikit-learn; without it,
    `NearestNeighbours` ranks all programs.
    """
    return _cpu_model(is_stencil(program), importlib.util.find_spec("sklearn") is not None)


def is_stencil(program: n.Pattern) -> bool:
    """Return whether a program computes from windows taken directly from its inputs."""
    if not any(isinstance(p, n.Slide) for p in n.walk(program)):
        return False
    storing = store("global")  # applies to stages whose results another stage reads
    stages = (apply_at(storing, site) for site in sites(program) if not site.around)
    return not any(isinstance(made, n.Pattern) for made in stages)


@cache
def _cpu_model(stencil: bool, trees: bool) -> tuple[PerformanceModel, str]:
    from tilewright.patterns.programs import APPLICATIONS, LINEAR_ALGEBRA

    others = {**LINEAR_ALGEBRA, **APPLICATIONS}
    points = cpu_points()
    if not trees:
        model: PerformanceModel = NearestNeighbours()
        called = "nearest neighbours"
    elif stencil:
        points = tuple(p for p in points if p.program not in others)
        model, called = RandomisedTrees(), "randomised trees"
    else:
        points = tuple(p for p in points if p.program in others)
        model = GeometricMean((NearestNeighbours(), TrendAndTrees()))
        called = "nearest neighbours, a trend and trees"
    count = sum(len(p.seconds) for p in points)
    return fitted(model, points), f"{called} from {count} measured kernels"
