"""Chooses the default model's inputs and shape by cross-validation.

The candidates have few or many monomials, lack inputs without effect (the densities of a dense
product), have additional inputs (see `tilewright.prediction.models.candidate_inputs`, and the
reciprocal of a number of threads), and are held more or less close to the prior.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from tilewright.prediction.errors import PredictionError
from tilewright.prediction.models import candidate_inputs as extras
from tilewright.prediction.models.initialization import monomials, starts
from tilewright.prediction.models.inputs import ModelInputs
from tilewright.prediction.models.levenberg_marquardt import minimise
from tilewright.prediction.models.surface import Shape, value

Array: TypeAlias = np.ndarray[Any, Any]
_RESTARTS, _STEPS = 2, 40  # of a fold's model
_CLEARLY = 0.98  # an addition must cut the error to this share
_CERTAIN = 1.5  # and by this many standard errors
_PROMISING, _TRAINED, _ROUNDS = (
    0.98,
    2,
    3,
)  # additions: largest accepted ratio, number per round, rounds
_STIFFNESS = (0.25, 4.0)
_EXPONENTS = 3e-3
_SHARE = 4  # fitted numbers per input; with fewer, the strongest inputs alone are tried as well
_FAR, _FARTHEST, _DISTRUST = 1.5, 2.0, 10.0  # in log time: see `train`
_CAP, _LEAST_CAP = 10.0, 0.03  # cap of an error, in medians: disturbed runs would hide differences


@dataclass(frozen=True)
class SelectionProblem:
    """The training instances of a selection.

    Attributes:
        columns: features, and further columns computed from them, shape (n, columns).
        names: the names of the columns, as text for people.
        features: how many of the columns are features; the rest are expressions.
        targets: log times less their median, shape (n,).
        place: the fold of each instance, shape (n,).
        threads: columns that count threads.
        optional: columns that are tried one at a time.
        limit: the maximum number of fitted numbers.
        seed: the seed of the starting points.
        cap: larger relative errors count as this one.
        until: the time after which nothing further is tried, by ``time.thread_time``.
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
    cap: float = 2.0
    until: float = np.inf

    def late(self) -> bool:
        """Return whether the time to try more is over."""
        return time.thread_time() > self.until


@dataclass(frozen=True)
class ScoredConfiguration:
    """A configuration with its error, and log times predicted for held-out instances."""

    inputs: ModelInputs
    shape: Shape
    error: float
    held_out: Array
    models: tuple[Array, ...] = ()
    stiffness: float = 1.0

    def report(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the configuration as data for people."""
        return {
            "inputs": self.inputs.describe(names),
            "terms": self.shape.terms,
            "hidden": self.shape.hidden,
            "parameters": self.shape.count,
            "stiffness": self.stiffness,
            "error": self.error,
        }


def choose(problem: SelectionProblem) -> list[ScoredConfiguration]:
    """Return every configuration that was tried, the best first."""
    plain = [j for j in range(problem.columns.shape[1]) if j not in problem.optional]
    every = ModelInputs.fit(problem.columns, plain)
    strongest = every.strongest(problem.columns, problem.targets, max(1, problem.limit // _SHARE))
    tried = [
        _validated(problem, inputs, shape)
        for inputs in ([every] if strongest is every else [every, strongest])
        for shape in candidates(inputs, problem)
    ]
    if not tried:
        raise PredictionError(
            f"even one input needs 2 fitted numbers, more than {problem.limit}; use a larger "
            "max_parameters"
        )
    best = _best(tried)
    problem = capped(problem, best.held_out)
    tried = [replace(c, error=score(c.held_out, problem.targets, problem.cap)) for c in tried]
    best = _best(tried)
    kept = _relevant(problem, best)
    if 0 < len(kept) < len(every) and not problem.late():
        fewer = every.only(kept)
        tried += [_validated(problem, fewer, shape) for shape in candidates(fewer, problem)]
        best = _best(tried)
    best = _without_densities(problem, best, tried)
    best = _with_additions(problem, best, tried)
    for stiffness in _STIFFNESS:
        if problem.late():
            break
        tried.append(_validated(problem, best.inputs, best.shape, stiffness))
        if _clearly_better(problem, tried[-1], best):
            best = tried[-1]
    rest = sorted((c for c in tried if c is not best), key=lambda choice: choice.error)
    return [best, *rest]


def capped(problem: SelectionProblem, held_out: Array) -> SelectionProblem:
    """Return the problem with a cap of errors that suits these held-out log times."""
    errors = np.abs(held_out - problem.targets)[_long(problem.targets)]
    cap = min(problem.cap, max(_CAP * float(np.median(errors)), _LEAST_CAP))
    return replace(problem, cap=cap)


def _without_densities(
    problem: SelectionProblem, best: ScoredConfiguration, tried: list[ScoredConfiguration]
) -> ScoredConfiguration:
    """Return the best model without densities, if these do not clearly help.

    Times of sparse operands follow their non-zeros, times of dense operands their shapes. The
    further inputs to try depend on this decision (see `_promising`), so it must not be left to
    chance.
    """
    columns = best.inputs.columns
    kept = [i for i, j in enumerate(columns) if not extras.is_density(problem.columns[:, j])]
    if not 0 < len(kept) < len(columns) or problem.late():
        return best
    dense = best.inputs.only(kept)
    fresh = [_validated(problem, dense, shape) for shape in candidates(dense, problem)]
    tried += fresh
    simpler = _best(fresh)
    return best if _clearly_better(problem, best, simpler) else simpler


def _clearly_better(
    problem: SelectionProblem, new: ScoredConfiguration, best: ScoredConfiguration
) -> bool:
    """Return whether an addition helps clearly, by paired errors: many look good by chance."""
    gain = _errors(best.held_out, problem.targets, problem.cap)
    gain -= _errors(new.held_out, problem.targets, problem.cap)
    certain = _CERTAIN * float(gain.std()) * len(gain) ** -0.5
    return new.error < _CLEARLY * best.error and float(gain.mean()) > certain


def _with_additions(
    problem: SelectionProblem, best: ScoredConfiguration, tried: list[ScoredConfiguration]
) -> ScoredConfiguration:
    """Add the most promising further inputs one after the other, while that clearly helps."""
    refused: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    for _ in range(_ROUNDS):
        improved = False
        for columns, reciprocals in _promising(problem, best, refused):
            if problem.late():
                return best
            refused.add((columns, reciprocals))
            more = ModelInputs.fit(
                problem.columns,
                [*dict.fromkeys(best.inputs.columns), *columns],
                [*_reciprocals(best.inputs), *reciprocals],
            )
            if len(more) <= len(best.inputs):
                continue
            shapes = [s for s in candidates(more, problem) if s.terms == best.shape.terms]
            fresh = [_validated(problem, more, shape) for shape in shapes]
            tried += fresh
            if fresh and _clearly_better(problem, fresh[0], best):
                best, improved = fresh[0], True
                break
        if not improved:
            break
    return best


def _reciprocals(inputs: ModelInputs) -> list[int]:
    return [
        j
        for j, function in zip(inputs.columns, inputs.functions, strict=True)
        if function == "reciprocal"
    ]


def _best(tried: Sequence[ScoredConfiguration]) -> ScoredConfiguration:
    return min(tried, key=lambda choice: choice.error)


def candidates(inputs: ModelInputs, problem: SelectionProblem) -> list[Shape]:
    """Return the shapes to choose from: few or many terms, the rest of the budget hidden units.

    There is none if the limit is below one number per input.
    """
    p, found = len(inputs), []
    for terms in (1, 2, 4):
        hidden = (problem.limit - terms * (p + 1)) // (p + 2)
        # A model with as many numbers as instances has memorised them.
        spare = (len(problem.targets) // 2 - terms * (p + 1)) // (p + 2)
        if hidden >= 0 and (terms == 1 or spare >= 0):
            found.append(Shape(p, terms, max(0, min(hidden, spare, 12))))
    return found


def ridge(shape: Shape, stiffness: float = 1.0) -> Array:
    """Return the ridge strength of each parameter, in units of the noise."""
    terms: Array = np.full((shape.terms, shape.inputs + 1), 1e-3)
    if shape.terms > 1:  # a single term is the linear path; further terms may take absurd exponents
        terms[:, :-1] = _EXPONENTS
    terms = terms.ravel()
    units = np.full(shape.hidden * (shape.inputs + 2), 2e-2)
    return stiffness * np.concatenate([terms, units])


def score(predicted: Array, logs: Array, cap: float = 2.0) -> float:
    """Return mean absolute relative error without the 30% of instances that run shortest.

    An error beyond ``cap`` counts as ``cap``, because an outlier says nothing about the model.
    """
    error = float(_errors(predicted, logs, cap).mean())
    return error if np.isfinite(error) else np.inf


def _errors(predicted: Array, logs: Array, cap: float) -> Array:
    """Return the relative errors, at most ``cap``, of the instances that do not run shortest."""
    with np.errstate(over="ignore"):
        return np.asarray(np.minimum(np.abs(np.expm1(predicted - logs)[_long(logs)]), cap))


def _long(logs: Array) -> Array:
    return np.asarray(logs >= np.quantile(logs, 0.3))


def with_ones(inputs: Array) -> Array:
    """Return inputs (n, inputs) as the models take them: (inputs + 1, n), the last row of ones."""
    return np.vstack([inputs.T, np.ones(len(inputs))])


def train(
    choice: ScoredConfiguration,
    columns: Array,
    targets: Array,
    threads: frozenset[int],
    seed: int,
    probes: Array,
) -> tuple[Array, float]:
    """Return parameters (count,) fitted to all instances, and the share of distant probes.

    They are the best of several restarts.

    A sum of monomials may fit every instance and be absurd between them. The models of the folds
    are not absurd at the same points, so the distance from their median is added to the loss. A
    probe is distant if the model is far from those of the folds there.

    Args:
        choice: the configuration, with the folds' models.
        columns: those of all instances, shape (n, columns).
        targets: log times less their median, shape (n,).
        threads: columns that count threads.
        seed: the seed of the starting points.
        probes: columns of made-up queries, shape (probes, columns).
    """
    inputs, shape = choice.inputs, choice.shape
    scaled = with_ones(inputs(columns))
    found = monomials(inputs, scaled, targets, threads)
    restarts = 6 if len(targets) <= 1000 else 3
    theta = starts(shape, scaled, targets, found, restarts, seed)
    weights = np.ones((restarts, len(targets)))
    held = ridge(shape, choice.stiffness)
    fitted = minimise(shape, theta, scaled, targets, weights, ridge=held, steps=60)
    best, far = steadiest(choice, fitted.theta, fitted.loss, probes)
    return np.asarray(fitted.theta[best]), far


def steadiest(
    choice: ScoredConfiguration, theta: Array, loss: Array, probes: Array
) -> tuple[int, float]:
    """Return the best of these fits (B, count) with losses (B,), and its share of distant probes.

    See `train`.
    """
    asked = with_ones(choice.inputs(probes))
    middle = np.median(value(choice.shape, np.stack(choice.models), asked), axis=0)
    away = np.minimum(np.abs(value(choice.shape, theta, asked) - middle), _FARTHEST)
    loss = loss * (1 + _DISTRUST * np.nan_to_num(away, nan=_FARTHEST) ** 2).mean(axis=1)
    loss = np.where(np.isfinite(loss), loss, np.inf)
    best = int(loss.argmin())
    return best, float(np.mean(away[best] > _FAR))


def _validated(
    problem: SelectionProblem, inputs: ModelInputs, shape: Shape, stiffness: float = 1.0
) -> ScoredConfiguration:
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
    held = ridge(shape, stiffness)
    fitted = minimise(shape, theta, scaled, problem.targets, weights, ridge=held, steps=_STEPS)
    models = []
    for f in range(folds):
        own = np.flatnonzero(fold == f)
        models.append(fitted.theta[own[int(fitted.loss[own].argmin())]])
    held_out = _held_out(problem, shape, models, scaled)
    error = score(held_out, problem.targets, problem.cap)
    return ScoredConfiguration(inputs, shape, error, held_out, tuple(models), stiffness)


def _held_out(
    problem: SelectionProblem, shape: Shape, models: Sequence[Array], scaled: Array
) -> Array:
    result = np.empty(len(problem.targets))
    for fold, model in enumerate(models):
        out = problem.place == fold
        result[out] = value(shape, model[None], scaled[:, out])[0]
    return result


def _relevant(problem: SelectionProblem, choice: ScoredConfiguration) -> list[int]:
    """Return inputs without which the held-out error grows: each is shuffled in turn."""
    random = np.random.default_rng([problem.seed, 3])
    scaled = with_ones(choice.inputs(problem.columns))
    kept = []
    for i in range(len(choice.inputs)):
        shuffled = scaled.copy()
        shuffled[i] = random.permutation(shuffled[i])
        predicted = _held_out(problem, choice.shape, choice.models, shuffled)
        if score(predicted, problem.targets, problem.cap) > 1.02 * choice.error:
            kept.append(i)
    return kept


def _promising(
    problem: SelectionProblem,
    best: ScoredConfiguration,
    refused: set[tuple[tuple[int, ...], tuple[int, ...]]],
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return additions worth training with: columns, and columns whose reciprocal is added."""
    used = set(best.inputs.columns)
    sparse = any(extras.is_density(problem.columns[:, j]) for j in used)
    wanted: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    values: list[Array] = []
    for j in problem.optional:
        column = problem.columns[:, j]
        # The time of sparse operands depends on their non-zeros, not on blocks.
        if sparse and not problem.names[j].startswith(extras.OF_NON_ZEROS):
            continue
        if j not in used and ((j,), ()) not in refused and column.min() < column.max():
            wanted.append(((j,), ()))
            values.append(np.log(column) if column.min() > 0 else column)
    for j in sorted(problem.threads & used):
        column = problem.columns[:, j]
        if j not in _reciprocals(best.inputs) and ((), (j,)) not in refused and column.min() > 0:
            wanted.append(((), (j,)))
            values.append(1 / column)
    if not wanted:
        return []
    folds = extras.Folds(
        best.models,
        with_ones(best.inputs(problem.columns)),
        problem.targets,
        problem.place,
        ridge(best.shape, best.stiffness),
    )
    left = extras.gains(best.shape, folds, np.stack(values), problem.cap)
    enough = 1.0 if sparse else _PROMISING
    order = [i for i in np.argsort(left, kind="stable") if left[i] < enough]
    return [wanted[i] for i in order[:_TRAINED]]
