"""Bootstrap confidence intervals, for times and for ratios of times.

| symbol | meaning | shape, unit |
|---|---|---|
| `samples` | times, one per round | (n,), seconds |
| `numerator`, `denominator` | times of two candidates in the same rounds | (n,), seconds |
| `quotients` | their ratio, round by round | (n,), 1 |
| `picks` | samples drawn with replacement | (resamples, n), index |
| `confidence` | probability that the interval covers the statistic | 1 |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ConfidenceInterval:
    """An estimate and the ends of its confidence interval."""

    estimate: float
    low: float
    high: float


def bootstrap_interval(
    samples: Sequence[float] | FloatArray,
    *,
    statistic: Callable[..., FloatArray] = np.median,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> ConfidenceInterval:
    """Return the percentile bootstrap interval (Efron 1979) of a statistic of `samples`.

    `statistic` takes an array and ``axis=``. Raises ValueError when there are no samples.

    >>> bootstrap_interval([1.0, 1.0, 1.0]).high
    1.0
    """
    values = np.asarray(samples, dtype=float)
    if values.size == 0:
        raise ValueError("no samples to take an interval of")
    picks = np.random.default_rng(seed).integers(0, values.size, (resamples, values.size))
    tail = 50 * (1 - confidence)
    low, high = np.percentile(statistic(values[picks], axis=1), [tail, 100 - tail])
    return ConfidenceInterval(float(statistic(values, axis=0)), float(low), float(high))


def ratio_interval(
    numerator: Sequence[float],
    denominator: Sequence[float],
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> ConfidenceInterval:
    """Return the bootstrap interval of the ratio of two candidates' times, paired by round.

    Entry i of both comes from the same interleaved round, so that what slowed the machine
    then cancels in their quotient; the statistic is the median of the quotients. Raises
    ValueError when the lengths differ or are zero.
    """
    if len(numerator) != len(denominator):
        raise ValueError(f"{len(numerator)} rounds against {len(denominator)}: not pairs")
    quotients = np.asarray(numerator, dtype=float) / np.asarray(denominator, dtype=float)
    return bootstrap_interval(quotients, confidence=confidence, resamples=resamples, seed=seed)
