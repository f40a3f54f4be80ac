"""Choosing the default model's inputs and shape by cross-validation.

Compared are sums of few and of many monomials, without the inputs that turn out not to matter
(the densities of a dense product), and with inputs that may: how far a size is aligned, the
reciprocal of a number of threads, how full a sparse product becomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilewright.prediction.complexity import Complexity
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.inputs import Inputs
from tilewright.prediction.levenberg import minimise
from tilewright.prediction.starts import monomials, starts
from tilewright.prediction.surface import Shape, value

Array: TypeAlias = np.ndarray[Any, Any]
_RESTARTS, _STEPS = 2, 40  # of a fold's model
_CLEARLY = 0.98  # an addition must cut the error to this share


@dataclass(frozen=True)
class Problem:
    """Training instances, as the choice sees them.

    Attributes:
        columns: features, and further columns computed from them, shape (n, columns).
        names: of the columns, as text for people.
        features: how many of the columns are features; the rest are expressions.
        targets: log times less their median, shape (n,).
        place: the fold of each instance, shape (n,).
        threads: columns that count threads.
        optional: columns that are tried one at a time.
        limit: the most fitted numbers.
        seed: of the starting points.
    """

    columns: Array
    names: tuple[str, ...]
    features: int
    targets: Array
    place: Array
    threads: frozenset[int]
    optional: tuple[int, ...]
    limit: int
    seed: int


@dataclass(frozen=True)
class Choice:
    """A configuration: inputs, shape, its error, and log times predicted for held-out instances."""

    inputs: Inputs
    shape: Shape
    error: float
    held_out: Array
    models: tuple[Array, ...] = ()

    def report(self, names: Sequence[str]) -> dict[str, Any]:
        """As data for people."""
        return {
            "inputs": self.inputs.describe(names),
            "terms": self.shape.terms,
            "hidden": self.shape.hidden,
            "parameters": self.shape.count,
            "error": self.error,
        }


def choose(problem: Problem) -> list[Choice]:
    """Every configuration that was tried, the best first."""
    plain = [j for j in range(problem.columns.shape[1]) if j not in problem.optional]
    every = Inputs.fit(problem.columns, plain)
    tried = [_validated(problem, every, shape) for shape in candidates(every, problem)]
    best = _best(tried)
    kept = _relevant(problem, best)
    if 0 < len(kept) < len(every):
        fewer = every.only(kept)
        tried += [_validated(problem, fewer, shape) for shape in candidates(fewer, problem)]
        best = _best(tried)
    for extra in _extras(problem, best):
        more = Inputs.fit(problem.columns, [*best.inputs.columns, *extra[0]], extra[1])
        if len(more) <= len(best.inputs):
            continue
        shapes = [s for s in candidates(more, problem) if s.terms == best.shape.terms]
        fresh = [_validated(problem, more, shape) for shape in shapes]
        tried += fresh
        if fresh and fresh[0].error < _CLEARLY * best.error:
            best = fresh[0]
    rest = sorted((c for c in tried if c is not best), key=lambda choice: choice.error)
    return [best, *rest]


def _best(tried: Sequence[Choice]) -> Choice:
    return min(tried, key=lambda choice: choice.error)


def candidates(inputs: Inputs, problem: Problem) -> list[Shape]:
    """The shapes to choose from: few or many terms, the rest of the budget hidden units."""
    p, found = len(inputs), []
    for terms in (1, 2, 4):
        hidden = (problem.limit - terms * (p + 1)) // (p + 2)
        # A model with as many numbers as instances has learnt them by heart.
        spare = (len(problem.targets) // 2 - terms * (p + 1)) // (p + 2)
        if hidden >= 0 and (terms == 1 or spare >= 0):
            found.append(Shape(p, terms, max(0, min(hidden, spare, 12))))
    if not found:
        raise PredictionError(
            f"{p} inputs need at least {p + 1} fitted numbers, more than {problem.limit}; "
            "use fewer features or a larger max_parameters"
        )
    return found


def ridge(shape: Shape) -> Array:
    """How strongly each parameter is held near zero, in units of the noise."""
    terms = np.full(shape.terms * (shape.inputs + 1), 1e-3)
    units = np.full(shape.hidden * (shape.inputs + 2), 2e-2)
    return np.concatenate([terms, units])


def score(predicted: Array, logs: Array) -> float:
    """Mean absolute relative error without the 30% of instances that run shortest.

    An error beyond 200% counts as 200%, as an outlier says nothing about the model.
    """
    long = logs >= np.quantile(logs, 0.3)
    with np.errstate(over="ignore"):
        return float(np.mean(np.minimum(np.abs(np.expm1(predicted - logs)[long]), 2.0)))


def with_ones(inputs: Array) -> Array:
    """Inputs (n, inputs) as the models take them: (inputs + 1, n), the last row of ones."""
    return np.vstack([inputs.T, np.ones(len(inputs))])


def train(
    inputs: Inputs, shape: Shape, columns: Array, targets: Array, threads: frozenset[int], seed: int
) -> Array:
    """The parameters (count,) fitted to all instances, the best of some restarts."""
    scaled = with_ones(inputs(columns))
    found = monomials(inputs, scaled, targets, threads)
    restarts = 6 if len(targets) <= 1000 else 3
    theta = starts(shape, scaled, targets, found, restarts, seed)
    weights = np.ones((restarts, len(targets)))
    fitted = minimise(shape, theta, scaled, targets, weights, ridge=ridge(shape), steps=60)
    loss = np.where(np.isfinite(fitted.loss), fitted.loss, np.inf)
    return np.asarray(fitted.theta[int(loss.argmin())])


def _validated(problem: Problem, inputs: Inputs, shape: Shape) -> Choice:
    scaled = with_ones(inputs(problem.columns))
    found = monomials(inputs, scaled, problem.targets, problem.threads)
    folds = int(problem.place.max()) + 1
    theta = np.concatenate(
        [
            starts(shape, scaled, problem.targets, found, _RESTARTS, problem.seed + fold)
            for fold in range(folds)
        ]
    )
    fold = np.repeat(np.arange(folds), _RESTARTS)
    weights = (problem.place[None, :] != fold[:, None]).astype(float)
    fitted = minimise(
        shape, theta, scaled, problem.targets, weights, ridge=ridge(shape), steps=_STEPS
    )
    models = []
    for f in range(folds):
        own = np.flatnonzero(fold == f)
        models.append(fitted.theta[own[int(fitted.loss[own].argmin())]])
    held_out = _held_out(problem, shape, models, scaled)
    error = score(held_out, problem.targets)
    error = error if np.isfinite(error) else np.inf
    return Choice(inputs, shape, error, held_out, tuple(models))


def _held_out(problem: Problem, shape: Shape, models: Sequence[Array], scaled: Array) -> Array:
    result = np.empty(len(problem.targets))
    for fold, model in enumerate(models):
        out = problem.place == fold
        result[out] = value(shape, model[None], scaled[:, out])[0]
    return result


def _relevant(problem: Problem, choice: Choice) -> list[int]:
    """Inputs without which the held-out error grows: each is shuffled in turn."""
    random = np.random.default_rng([problem.seed, 3])
    scaled = with_ones(choice.inputs(problem.columns))
    kept = []
    for i in range(len(choice.inputs)):
        shuffled = scaled.copy()
        shuffled[i] = random.permutation(shuffled[i])
        predicted = _held_out(problem, choice.shape, choice.models, shuffled)
        if score(predicted, problem.targets) > 1.02 * choice.error:
            kept.append(i)
    return kept


def _extras(problem: Problem, best: Choice) -> list[tuple[list[int], list[int]]]:
    """Additions worth trying: columns, and columns whose reciprocal is tried."""
    found: list[tuple[list[int], list[int]]] = []
    used = [j for j in best.inputs.columns if j in problem.threads]
    if used:
        found.append(([], used))
    residual = np.clip(problem.targets - best.held_out, -0.3, 0.3)
    strong: list[tuple[float, int]] = []
    for j in problem.optional:
        column = problem.columns[:, j]
        if column.min() == column.max():
            continue
        if problem.names[j].startswith("("):  # work: its influence is not a straight line
            found.append(([j], []))
            continue
        strength = abs(float(np.corrcoef(column, residual)[0, 1]))
        if strength > 3.0 * len(column) ** -0.5:
            strong.append((strength, j))
    return found + [([j], []) for _, j in sorted(strong, reverse=True)[:2]]


def expressions(
    names: Sequence[str], table: Array, complexity: str | None, work: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """Columns beside the features: those always used, and those to try.

    For two densities d, e and a product of sizes c, a product of sparse operands has about
    ``c d e / (1 + k d e)`` non-zeros, k being one of the sizes; each is tried.
    """
    always = [complexity] if complexity is not None else []
    always += list(work or [])
    optional: list[str] = []
    whole = [name for name, column in zip(names, table.T, strict=True) if _is_size(column)]
    share = [name for name, column in zip(names, table.T, strict=True) if _is_density(column)]
    if complexity is not None and work is None and len(share) == 2:
        d, e = share
        optional += [
            f"({complexity}) * {d} * {e} / (1 + {size} * {d} * {e})"
            for size in Complexity(complexity, tuple(names)).names
            if size in whole
        ]
    optional += [" + ".join(f"max(1 - {name} % {q}, 0)" for q in (2, 4, 8)) for name in whole]
    return always, optional


def _is_size(column: Array) -> bool:
    return bool((column == np.round(column)).all() and column.min() >= 1 and column.max() >= 32)


def _is_density(column: Array) -> bool:
    return bool(column.min() > 0 and column.max() <= 1 and len(np.unique(column)) > 2)
