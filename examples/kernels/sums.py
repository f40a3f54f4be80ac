"""Running sums by NumPy and by Python: a kernel with two variants, to predict their run times.

Usage: ``tilewright predict collect examples/kernels/sums.py:running_sum -o sums.csv``
"""

import numpy as np

from tilewright.prediction import from_callable


def make(n, rng):
    return {"values": rng.random(int(n))}


def by_numpy(values):
    return np.cumsum(values)


def by_python(values):
    total, out = 0.0, np.empty_like(values)
    for i, value in enumerate(values):
        out[i] = total = total + value
    return out


running_sum = from_callable(
    by_numpy,
    {"n": (1_000, 50_000)},
    "n",  # the number of operations, an expression of the features
    name="running_sum",
    make=make,
    reference=by_numpy,
    variants={"by_python": by_python},
)
