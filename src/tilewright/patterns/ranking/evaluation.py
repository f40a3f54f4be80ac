"""Evaluation of how well a model ranks unseen programs (Lift 2020, sections 7 and 8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilewright.patterns.errors import PatternError
from tilewright.patterns.ranking.models import PerformanceModel
from tilewright.patterns.ranking.points import MeasuredProgram

Array: TypeAlias = np.ndarray[Any, Any]

GOOD_ENOUGH = 0.9  # share of the best performance that a search looks for (section 8.2)
BINS = 10  # bins per feature, for entropies; chosen: the paper does not state its number


@dataclass(frozen=True, slots=True)
class RankingQuality:
    """The quality of a ranking of one program at one set of sizes.

    Args:
        program: the name of the program.
        sizes: the values of its sizes, by name.
        points: the number of ranked points.
        correlation: Pearson's correlation of predicted and measured performance; 0 if one is
            constant.
        runs: the number of points to run, best prediction first, until one has 90% of the best
            performance; the mean over all orders of equal predictions.
        random_runs: the same mean for points in random order.
    """

    program: str
    sizes: Mapping[str, int]
    points: int
    correlation: float
    runs: float
    random_runs: float


def rows(qualities: Mapping[str, Sequence[RankingQuality]]) -> list[dict[str, Any]]:
    """Return one row of plain data per model and program, from qualities by model name."""
    return [
        {
            "program": q.program,
            "model": model,
            "points": q.points,
            "correlation": q.correlation,
            "runs_to_90": q.runs,
            "random_runs": q.random_runs,
        }
        for model, each in qualities.items()
        for q in each
    ]


def leave_one_program_out(
    programs: Sequence[MeasuredProgram],
    model: Callable[[], PerformanceModel],
    training: Sequence[MeasuredProgram] = (),
) -> list[RankingQuality]:
    """Rank each program with a model fitted to all programs of other names.

    Args:
        programs: measured programs; several sizes of a program have the same name.
        model: returns a new model, which is fitted once per name.
        training: programs that are only learned from, not ranked.

    Raises:
        PatternError: all programs have the same name, so none can be learned from.
    """
    found: dict[int, RankingQuality] = {}
    for name in dict.fromkeys(p.program for p in programs):
        others = [p for p in (*programs, *training) if p.program != name]
        if not others:
            raise PatternError(f"all programs are called {name}: measure one of another name")
        learnt = fitted(model(), others)
        for i, p in enumerate(programs):
            if p.program == name:
                found[i] = quality(p, learnt.predict(p.features))
    return [found[i] for i in range(len(programs))]


def fitted(model: PerformanceModel, programs: Sequence[MeasuredProgram]) -> PerformanceModel:
    """Return the model after fitting it to the points of at least one program."""
    features = np.concatenate([p.features for p in programs])
    model.fit(features, np.concatenate([p.performance for p in programs]))
    return model


def quality(p: MeasuredProgram, predicted: Array) -> RankingQuality:
    """Return the quality of predicted performance, of shape (points,), for a measured program.

    Raises:
        PatternError: a prediction is not finite.
    """
    if not np.isfinite(predicted).all():
        raise PatternError(f"{p.program}: a predicted performance is not finite")
    count = len(p.seconds)
    good = p.performance >= GOOD_ENOUGH
    return RankingQuality(
        p.program,
        p.sizes,
        count,
        correlation(predicted, p.performance),
        runs_until(predicted, good),
        runs_until(np.zeros(count), good),
    )


def runs_until(predicted: Array, good: Array) -> float:
    """Return the expected number of runs until a good point, best prediction first.

    Points of equal prediction run in random order: among m points with g good ones, the first good
    one is run number (m + 1) / (g + 1) on average.

    Args:
        predicted: predicted performance of shape (points,); larger is better.
        good: booleans of shape (points,), at least one of them true.
    """
    _, place = np.unique(-predicted, return_inverse=True)
    sizes, goods = np.bincount(place), np.bincount(place, weights=good)
    first = int(np.argmax(goods > 0))
    return float(sizes[:first].sum() + (sizes[first] + 1) / (goods[first] + 1))


def correlation(a: Array, b: Array) -> float:
    """Return Pearson's correlation of two arrays of shape (points,); 0 if one is constant."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def summary(found: Sequence[RankingQuality]) -> dict[str, float]:
    """Return the figures of the paper over programs and sizes.

    ``fewer_runs_than_random`` is the ratio of the mean numbers of runs.
    """
    runs = [q.runs for q in found]
    return {
        "correlation_median": float(np.median([q.correlation for q in found])),
        "runs_to_90_median": float(np.median(runs)),
        "runs_to_90_worst": float(np.max(runs)),
        "fewer_runs_than_random": float(np.mean([q.random_runs for q in found]) / np.mean(runs)),
    }


def redundancy(programs: Sequence[MeasuredProgram]) -> dict[str, float]:
    """Return the redundancy of each feature with the performance (section 7.1), from 0 to 0.5.

    Redundancy is the mutual information over the sum of both entropies. Values are divided into
    `BINS` bins with equal numbers of points, or fewer bins if many values are equal.
    """
    table = np.concatenate([p.features for p in programs])
    performance = _binned(np.concatenate([p.performance for p in programs]))
    names = programs[0].names
    return {name: _redundancy(_binned(table[:, i]), performance) for i, name in enumerate(names)}


def _binned(values: Array) -> Array:
    edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1]))
    return np.searchsorted(edges, values, side="right")


def _redundancy(a: Array, b: Array) -> float:
    alone = _entropy(a) + _entropy(b)
    together = _entropy(a * (int(b.max()) + 1) + b)
    return float((alone - together) / alone) if alone > 0 else 0.0


def _entropy(values: Array) -> float:
    counts = np.unique(values, return_counts=True)[1]
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())
