"""Expected improvement and its search over the feasible set (Section 3.3).

| symbol | meaning | shape, unit |
|---|---|---|
| `mean`, `variance` | of the noise-free objective f at each candidate | (n,), outputs, outputs² |
| `best` | the value to improve on | outputs |
| z | (best - mean) / deviation | (n,), 1 |
| EI | E[max(best - f, 0)] = deviation (z Phi(z) + phi(z)) | (n,), outputs |
| Phi, phi | distribution and density of the standard normal | |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from scipy.special import log_ndtr, ndtr

from tilewright.tuning.space.space import Space

Array: TypeAlias = np.ndarray[Any, Any]
Score: TypeAlias = Callable[[Array], Array]
# The nearest values of a numeric parameter with more of them that are neighbours.
NEAREST = 12


def log_expected_improvement(mean: Array, variance: Array, best: float) -> Array:
    """Return logarithm of E[max(best - f, 0)] for f normal with these means and variances.

    Given the variance of the noise-free value, it is the paper's noise-free expected
    improvement. The logarithm keeps far-away candidates comparable where the improvement
    itself underflows.
    """
    deviation = np.sqrt(variance)
    z = (best - mean) / deviation
    low = z <= -6
    near = np.where(low, 0.0, z)
    score = np.log(near * ndtr(near) + np.exp(-0.5 * near * near) / np.sqrt(2 * np.pi))
    if low.any():
        # far below: phi(z) + z Phi(z) = phi(z) (1 - |z| Phi(z) / phi(z)), from the tail ratio
        far = z[low]
        density = -0.5 * far * far - 0.5 * np.log(2 * np.pi)
        ratio = np.exp(log_ndtr(far) - density) * -far
        score[low] = density + np.log(np.maximum(1.0 - ratio, 0.5 / (far * far + 2.0)))
    return np.asarray(score + np.log(deviation))


def local_search(
    space: Space,
    score: Score,
    starts: Array,
    *,
    steps: int = 20,
    most: int = NEAREST,
) -> tuple[Array, Array]:
    """Climb from each start to a local optimum: no one-parameter neighbour scores higher.

    Args:
        space: the space.
        score: the scores of codes, shape (count,), larger is better.
        starts: codes, shape (starts, width).
        steps: maximum number of moves per climb.
        most: as for `Space.neighbours`.

    Returns:
        every code scored on the way, and the scores.
    """
    here = starts
    value = score(here)
    met, values = [here], [value]
    for _ in range(steps):
        if len(here) == 0:
            break
        codes, sizes = space.neighbourhoods(here, most)
        if len(codes) == 0:
            break
        scores = score(codes)
        met.append(codes)
        values.append(scores)
        ends = np.cumsum(sizes)
        moved, reached = [], []
        for i, end in enumerate(ends):
            if sizes[i] == 0:
                continue
            best = end - sizes[i] + int(scores[end - sizes[i] : end].argmax())
            if scores[best] > value[i]:
                moved.append(codes[best])
                reached.append(scores[best])
        if not moved:
            break
        # climbs that meet continue as one
        _, kept = np.unique(np.array(moved), axis=0, return_index=True)
        here, value = np.array(moved)[np.sort(kept)], np.array(reached)[np.sort(kept)]
    return np.concatenate(met), np.concatenate(values)
