"""Measured points that ship with the package, to fit models of C kernels to.

``cpu_points.json`` is written by ``benchmarks/patterns_ranking.py --ship``. Its ``about`` says when
and where its points were measured, and how well models rank a stencil that they have not seen.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tilewright.patterns.ranking.cpu import CPU_FEATURES
from tilewright.patterns.ranking.evaluation import fitted
from tilewright.patterns.ranking.models import PerformanceModel
from tilewright.patterns.ranking.nearest import NearestNeighbours
from tilewright.patterns.ranking.points import MeasuredProgram, read_measured

CPU_POINTS = Path(__file__).with_name("cpu_points.json")


@cache
def cpu_points() -> tuple[MeasuredProgram, ...]:
    """Return the points of C kernels that come with the package."""
    return tuple(read_measured(CPU_POINTS, CPU_FEATURES))


@cache
def cpu_model() -> PerformanceModel:
    """Return the paper's model, which has learnt from them."""
    return fitted(NearestNeighbours(), cpu_points())
