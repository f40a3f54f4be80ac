"""Ranking of derived programs before any of them runs, after Lift 2020, sections 5 to 8.

The modules, in the order in which data flows: `points` (measured programs), `models` (the interface
of models), `nearest` (the paper's model), `forest` (randomised trees), `trend` (a linear trend and
trees), `estimate` (an estimate without measurements), `evaluation` (how well a model ranks unseen
programs), `trained` (models for C kernels, from measurements that ship with the package),
`candidates` (the kernels of a program, and their ranking).
"""

from tilewright.patterns.ranking.candidates import KernelCandidate, candidates, rank, table
from tilewright.patterns.ranking.cpu import CPU_FEATURES, cpu_features, cpu_vector
from tilewright.patterns.ranking.estimate import StaticEstimate
from tilewright.patterns.ranking.evaluation import (
    RankingQuality,
    fitted,
    leave_one_program_out,
    quality,
    redundancy,
    rows,
    summary,
)
from tilewright.patterns.ranking.forest import RandomisedTrees
from tilewright.patterns.ranking.models import (
    FromRunTimes,
    GeometricMean,
    PerformanceModel,
    RunTimeModel,
)
from tilewright.patterns.ranking.nearest import NearestNeighbours
from tilewright.patterns.ranking.points import (
    FEATURES,
    MeasuredProgram,
    read_measured,
    write_measured,
)
from tilewright.patterns.ranking.trained import cpu_model, cpu_points
from tilewright.patterns.ranking.trend import TrendAndTrees

__all__ = [
    "CPU_FEATURES",
    "FEATURES",
    "FromRunTimes",
    "GeometricMean",
    "KernelCandidate",
    "MeasuredProgram",
    "NearestNeighbours",
    "PerformanceModel",
    "RandomisedTrees",
    "RankingQuality",
    "RunTimeModel",
    "StaticEstimate",
    "TrendAndTrees",
    "candidates",
    "cpu_features",
    "cpu_model",
    "cpu_points",
    "cpu_vector",
    "fitted",
    "leave_one_program_out",
    "quality",
    "rank",
    "read_measured",
    "redundancy",
    "rows",
    "summary",
    "table",
    "write_measured",
]
