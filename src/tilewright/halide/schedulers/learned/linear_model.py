"""The linear cost model: a time is a sum of terms with fitted coefficients.

Coefficients are positive and near 1 without evidence: their logarithms have a normal prior. They
maximise the posterior of the logarithms of measured times, in which each pipeline has an unknown
factor, with a robust loss, because a few schedules do what no term counts.

| symbol | meaning | shape, unit |
|---|---|---|
| N, K | labels; terms of `term_counts.TERMS` | count |
| `terms` | the terms of each label | (N, K), cycles |
| `times` | logarithms of measured times, each pipeline up to a constant | (N,) |
| `groups` | the pipeline of each label | (N,) |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
# Standard deviation of the logarithms of coefficients before fitting: a factor of 2.7.
SPREAD = 1.0
# Standard deviation of the logarithms of times, and the size (in natural logarithms) from which
# deviations count in proportion.
DEVIATION, ROBUST = 0.35, 1.0
# The evidence of a label: schedules of a pipeline resemble each other, so that ten count as one.
EVIDENCE = 0.1
ITERATIONS = 300


def fitted_coefficients(
    terms: Array, times: Array, groups: Sequence[str], start: Array | None = None
) -> Array:
    """Return the coefficients of terms, shape (K,), fitted to labels.

    A pipeline's labels together weigh as much as the square root of their number. `start` has the
    coefficients without evidence, by default 1.
    """
    from scipy.optimize import minimize

    _, of = np.unique(np.asarray(groups), return_inverse=True)
    sizes = np.bincount(of)
    weights = 1.0 / np.sqrt(sizes[of])
    weights /= weights.mean()
    shares = np.bincount(of, weights=weights)
    scale = EVIDENCE / DEVIATION**2

    def centred(values: Array) -> Array:
        return np.asarray(np.bincount(of, weights=weights * values) / shares)[of]

    middle = np.zeros(terms.shape[1]) if start is None else np.log(start)

    def loss(logarithms: Array) -> tuple[float, Array]:
        coefficients = np.exp(logarithms)
        sums = terms @ coefficients
        off = np.log(sums) - times
        off = off - centred(off)
        size = np.abs(off)
        value = np.where(size < ROBUST, off**2 / 2.0, ROBUST * (size - ROBUST / 2.0))
        slope = np.clip(off, -ROBUST, ROBUST)
        slope = weights * (slope - centred(slope))
        gradient = (slope / sums) @ terms * coefficients
        moved = logarithms - middle
        penalty = float((moved**2).sum()) / (2.0 * SPREAD**2)
        total = scale * float(weights @ value) + penalty
        return total, scale * gradient + moved / SPREAD**2

    found = minimize(loss, middle, jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS})
    return np.exp(np.asarray(found.x, dtype=np.float64))
