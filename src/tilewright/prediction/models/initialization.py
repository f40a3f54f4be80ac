"""Starting points of training: a sum of few monomials from a convex fit, and a linear fit.

Non-linear least squares finds a minimum near its start. Fitting a sum of monomials with small whole
exponents (n, m n, m n k / threads, ...) and non-negative coefficients is a convex problem, and its
largest terms are close to the actual work of a kernel.
"""

from __future__ import annotations

from itertools import product
from typing import Any, TypeAlias

import numpy as np

from tilewright.prediction.models.inputs import ModelInputs
from tilewright.prediction.models.surface import Shape

Array: TypeAlias = np.ndarray[Any, Any]
_MOST = 220  # monomials of the convex fit


def monomials(
    inputs: ModelInputs, scaled: Array, targets: Array, reciprocal: frozenset[int]
) -> Array:
    """Return terms (count, inputs + 1) in standardised inputs, largest share of time first.

    Args:
        inputs: the definitions of the inputs.
        scaled: values of the inputs with a row of ones, shape (inputs + 1, n).
        targets: log times less their median, shape (n,).
        reciprocal: columns, such as threads, that may divide.
    """
    from scipy.optimize import nnls  # importing it takes longer than a prediction

    choices: list[tuple[int, ...]] = [
        (0,) if f != "log" else (-1, 0, 1) if j in reciprocal else (0, 1)
        for j, f in zip(inputs.columns, inputs.functions, strict=True)
    ]
    exponents = _products(choices)
    weights = exponents * inputs.std
    # Columns relative to the measured time, so that the fit is of the relative error.
    columns = np.exp(np.clip(weights @ scaled[:-1] - targets, -300, 300))
    size = columns.mean(axis=1)
    columns /= size[:, None]
    trust = np.ones(len(targets))
    for _ in range(3):
        coefficients, _ = nnls((columns * trust).T, trust, maxiter=20 * len(columns))
        error = np.abs(coefficients @ columns - 1)
        bend = 2 * max(float(np.median(error)), 1e-3)
        trust = np.sqrt(np.minimum(1.0, bend / np.maximum(error, 1e-12)))
    share = (coefficients[:, None] * columns).max(axis=1)
    order = np.argsort(-share)
    order = order[coefficients[order] > 0]
    constants = np.log(coefficients[order] / size[order])
    return np.column_stack([weights[order], constants])


def _products(choices: list[tuple[int, ...]]) -> Array:
    """Return all combinations of exponents; if there are too many, of few inputs at a time."""
    total = float(np.prod([float(len(choice)) for choice in choices]))
    if total <= _MOST:
        every = list(product(*choices))
        return np.array(every, dtype=float).reshape(len(every), len(choices))
    rows = {(0,) * len(choices)}
    frontier = set(rows)
    while frontier and len(rows) < _MOST:
        frontier = {
            (*row[:i], e, *row[i + 1 :])
            for row in frontier
            for i, choice in enumerate(choices)
            if row[i] == 0
            for e in choice
            if e
        } - rows
        rows |= set(sorted(frontier)[: _MOST - len(rows)])
    return np.array(sorted(rows), dtype=float)


def starts(
    shape: Shape, scaled: Array, targets: Array, found: Array, restarts: int, seed: int
) -> Array:
    """Return starting points (restarts, count), first those of the convex and the linear fit."""
    random = np.random.default_rng([seed, 2])
    gram = scaled @ scaled.T + 1e-6 * np.eye(len(scaled))
    linear = np.linalg.solve(gram, scaled @ targets)
    theta = np.zeros((restarts, shape.count))
    terms, units, outputs = shape.split(theta)
    for restart in range(restarts):
        if restart % 2 == 0 and shape.terms > 1 and len(found):
            own = found[: shape.terms]
            if restart:
                own = own * random.uniform(0.8, 1.2, own.shape)
            terms[restart, : len(own)] = own
            for k in range(len(own), shape.terms):  # spare terms start small
                terms[restart, k] = linear * random.uniform(0.0, 1.5, len(linear))
                terms[restart, k, -1] = linear[-1] - 3
        else:
            terms[restart] = linear * random.uniform(0.0, 1.5, (shape.terms, len(linear)))
            terms[restart, 0] = linear
            terms[restart, :, -1] = linear[-1] - np.log(shape.terms)
    units[:] = random.normal(0, max(1, shape.inputs) ** -0.5, units.shape)
    outputs[:] = random.normal(0, 0.1, outputs.shape)
    return theta
