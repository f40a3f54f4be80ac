"""Candidates for further inputs, and a quick test of which are worth training with.

The work of a kernel is not always a product of powers of its sizes: an operand's rows may be empty,
a product of sparse operands fills up, vectors and blocks are padded, strides of powers of two
collide in caches, work is distributed over threads in whole rows. Each such expression is rated by
the held-out error after one Gauss-Newton step with it, which needs no training.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from tilewright.prediction.models.surface import Shape, value_and_jacobian

Array: TypeAlias = np.ndarray[Any, Any]
_PADDED = (4, 8, 16, 32, 64)
_SHARED = (1, 4, 16)  # sizes of the whole blocks that threads share
_STRIDES = (16, 64, 256)
_DAMPING = 1e-2
_MOST = 60  # expressions
OF_NON_ZEROS = ("1 + ", "min(")  # beginnings of expressions that may matter for sparse operands


def expressions(names: Sequence[str], table: Array, threads: Sequence[str] = ()) -> list[str]:
    """Return expressions of the features that may matter, the likeliest first.

    Sizes are features of whole numbers, densities those between 0 and 1.

    Args:
        names: the names of the features.
        table: instances, shape (n, features).
        threads: names of the features that count threads.
    """
    columns = {
        name: column
        for name, column in zip(names, table.T, strict=True)
        if name.isidentifier() and not keyword.iskeyword(name)  # else no expression can have it
    }
    threads = [name for name in threads if name in columns]
    sizes = [name for name, column in columns.items() if _is_size(column) and name not in threads]
    shares = [name for name, column in columns.items() if is_density(column)]
    found = [f"1 + {s} * {d}" for d in shares for s in sizes]
    found += [f"1 + {s} * {d} * {e}" for d, e in combinations(shares, 2) for s in sizes]
    found += [f"min({t}, 2)" for t in threads]
    found += [f"min({s}, {r})" for s, r in combinations(sizes, 2)]
    least = {name: int(columns[name].min()) for name in sizes}
    return [*found, *_blocked(least, threads)][:_MOST]


def _blocked(sizes: Mapping[str, int], threads: Sequence[str]) -> list[str]:
    """Return expressions for the used share of the blocks into which libraries divide sizes.

    `sizes` has the least value of each: what a smaller one wastes of a block is unknown, and
    would be far outside the range of the others.
    """
    found = [" + ".join(f"max(1 - {s} % {q}, 0)" for q in (2, 4, 8)) for s in sizes]
    # At least the smallest, so that they have a value for any query.
    kept = [f"max({s}, {least})" for s, least in sizes.items()]
    for t in (f"max({name}, 1)" for name in threads):
        found += [f"ceil({s} / ({q} * {t})) * {q} * {t} / {s}" for q in _SHARED for s in kept]
    found += [f"ceil({s} / {q}) * {q} / {s}" for q in _PADDED for s in kept]
    found += [f"max(1 - {s} % {q}, 0)" for q in _STRIDES for s in sizes]
    return found


def _is_size(column: Array) -> bool:
    return bool((column == np.round(column)).all() and column.min() >= 1 and column.max() >= 32)


def is_density(column: Array) -> bool:
    """Return whether a feature looks like a density: in (0, 1], with more than two values."""
    return bool(column.min() > 0 and column.max() <= 1 and len(np.unique(column)) > 2)


@dataclass(frozen=True)
class Folds:
    """Models of cross-validation.

    Attributes:
        models: parameters of each fold's model.
        scaled: its inputs, (inputs + 1, n).
        targets: log times, shape (n,).
        place: the fold of each instance, shape (n,).
        ridge: strength for each parameter.
    """

    models: Sequence[Array]
    scaled: Array
    targets: Array
    place: Array
    ridge: Array


def gains(shape: Shape, folds: Folds, candidates: Array, cap: float = 0.5) -> Array:
    """Return the share of the held-out error that remains after one step with each candidate.

    Args:
        shape: the shape of the models.
        folds: the models of the folds, and their data.
        candidates: columns to judge, shape (candidates, n).
        cap: larger residuals count as this one.

    Returns:
        Shape (candidates,), the error relative to that after a step without any.
    """
    spread = candidates.std(axis=1, keepdims=True)
    added = (candidates - candidates.mean(axis=1, keepdims=True)) / np.where(spread, spread, 1.0)
    count, wide = shape.count, shape.terms + shape.hidden
    long = folds.targets >= np.quantile(folds.targets, 0.3)
    error, plain = np.zeros(len(candidates)), 0.0
    for fold, theta in enumerate(folds.models):
        current, jacobian = value_and_jacobian(shape, theta[None], folds.scaled)
        residual, base = (current - folds.targets)[0], jacobian[0]
        kept, out = folds.place != fold, (folds.place == fold) & long
        # The constants' derivatives are those of each term's and unit's argument.
        slope = base[: wide * (shape.inputs + 1)].reshape(wide, shape.inputs + 1, -1)[:, -1]
        scale = max(1.4826 * float(np.median(np.abs(residual[kept]))), 1e-4)
        trust = np.minimum(1.0, 1.5 * scale / np.maximum(np.abs(residual[kept]), 1e-300))
        pull = np.concatenate([folds.ridge, np.full(wide, folds.ridge[-1])])
        pull = pull * min(scale, 0.05) ** 2 * kept.sum()
        size = count + wide
        gram, right = np.empty((len(added), size, size)), np.empty((len(added), size))
        weighted = base[:, kept] * trust
        gram[:, :count, :count] = weighted @ base[:, kept].T
        right[:, :count] = weighted @ residual[kept]
        more = added[:, None, :] * slope
        more_weighted = more[:, :, kept] * trust
        gram[:, count:, :count] = more_weighted @ base[:, kept].T
        gram[:, :count, count:] = gram[:, count:, :count].transpose(0, 2, 1)
        gram[:, count:, count:] = more_weighted @ more[:, :, kept].transpose(0, 2, 1)
        right[:, count:] = more_weighted @ residual[kept]
        diagonal = np.arange(size)
        own = gram[:, diagonal, diagonal]
        gram[:, diagonal, diagonal] += pull + _DAMPING * (own + 1e-3 * own.mean())
        try:
            step = np.linalg.solve(gram, right[..., None])[..., 0]
            alone = np.linalg.solve(gram[0, :count, :count], right[0, :count])
        except np.linalg.LinAlgError:
            return np.ones(len(candidates))
        moved = step[:, :count] @ base[:, out]
        moved += (step[:, None, count:] @ more[:, :, out])[:, 0]
        error += np.minimum(np.abs(residual[out] - moved), cap).sum(axis=1)
        plain += np.minimum(np.abs(residual[out] - alone @ base[:, out]), cap).sum()
    return np.asarray(error / max(plain, 1e-300))
