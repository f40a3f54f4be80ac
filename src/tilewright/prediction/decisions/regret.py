"""Regret: the cost of choices among variants, compared with the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilewright.prediction.errors import PredictionError

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Regret:
    """Time of the chosen variants over that of the best, query by query.

    Attributes:
        ratios: chosen over best, shape (queries,); 1 where the best was chosen.
        total: summed time of the chosen over that of the best.
        best_single: the variant whose summed time is least, used for every query; the first if
            none has the times of all queries.
        vs_best_single: its summed time over that of the chosen; None if no variant has the times
            of all queries.
        right: share of the queries for which the best variant was chosen.
    """

    ratios: Array
    total: float
    best_single: str
    vs_best_single: float | None
    right: float

    @property
    def mean(self) -> float:
        """Mean relative excess: 0 if the best was always chosen."""
        return float(self.ratios.mean() - 1)

    @property
    def worst(self) -> float:
        """The largest relative excess."""
        return float(self.ratios.max() - 1)

    @property
    def geometric_mean(self) -> float:
        """Geometric mean of the ratios."""
        return float(np.exp(np.log(self.ratios).mean()))

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON data."""
        return {
            "mean": self.mean,
            "worst": self.worst,
            "geometric_mean": self.geometric_mean,
            "total": self.total,
            "right": self.right,
            "best_single": self.best_single,
            "vs_best_single": self.vs_best_single,
        }


def regret(times: Mapping[str, Sequence[float] | Array], chosen: Sequence[str]) -> Regret:
    """Compare choices with the measured times of every variant, row by row.

    Args:
        times: seconds of each variant for every query; NaN or infinity where it failed.
        chosen: the variant chosen for every query.

    Raises:
        PredictionError: no queries, tables of different lengths, an unknown variant, or a query
            for which no variant or not the chosen one has a time.

    >>> regret({"a": [1.0, 4.0], "b": [2.0, 2.0]}, ["a", "a"]).to_dict()["mean"]
    0.5
    """
    names = list(times)
    rows = [np.asarray(times[name], dtype=float) for name in names]
    if not names or not len(chosen) or any(len(row) != len(chosen) for row in rows):
        raise PredictionError("give every variant's time and the choice for each query")
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        raise PredictionError(f"{unknown[0]!r} was chosen, but there are {', '.join(names)}")
    table = np.where(np.isfinite(rows), rows, np.inf)
    best = table.min(axis=0)
    picks = np.array([names.index(name) for name in chosen])
    taken = table[picks, np.arange(len(chosen))]
    bad = np.flatnonzero(~np.isfinite(taken))
    if len(bad):
        raise PredictionError(f"query {bad[0]}: {chosen[bad[0]]!r} has no time; measure it first")
    sums = table.sum(axis=1)
    single = int(sums.argmin())
    return Regret(
        taken / best,
        float(taken.sum() / best.sum()),
        names[single],
        float(sums[single] / taken.sum()) if np.isfinite(sums[single]) else None,
        float((taken <= best).mean()),
    )
