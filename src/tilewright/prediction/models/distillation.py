"""Trains a small model on what a larger one says between the instances (distillation).

A few hundred instances leave much of the space between them open, and a Gaussian process fills it
better than a surface of few numbers, which in turn knows the kernel's monomials. The weighted mean
of both, in log time, is the teacher: the surface is trained on its answers to made-up queries
and on the instances (Bucila et al. 2006, "Model compression"; Hinton et al. 2015). The number of
fitted numbers stays the same. The models of the folds are trained on answers of teachers without
their fold, so that their errors stay comparable and calibrate the intervals.

| symbol | meaning | shape, unit |
|---|---|---|
| `share` | weight of the process in the teacher | 1 |
| `made` | made-up queries: each feature's value is that of a random instance | (made, features) |
| `taught` | answers of each fold's teacher, then of that of all | (folds + 1, n + made), log |
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tilewright.prediction.models.gaussian_process import GaussianProcess
from tilewright.prediction.models.initialization import monomials, starts
from tilewright.prediction.models.levenberg_marquardt import minimise
from tilewright.prediction.models.model_selection import (
    ScoredConfiguration,
    SelectionProblem,
    ridge,
    score,
    steadiest,
    with_ones,
)
from tilewright.prediction.models.surface import value

Array: TypeAlias = np.ndarray[Any, Any]
MADE = 500  # queries
_SHARES = np.linspace(0.0, 1.0, 21)
_OF_MADE = 0.5  # weight of the made-up queries in the loss; the instances have the rest
_OF_TEACHER = 0.5  # of an instance's target; the rest is its measured time
_EASED = 0.1  # of the ridge: the teacher's answers have no noise
_RESTARTS, _STEPS = 1, 40  # of a fold's model, beside that of the fold
_FINAL_RESTARTS, _FINAL_STEPS = 2, 100
_LEAST = 1e-300  # seconds, whose logarithm is finite


def shuffled(data: Array, seed: int) -> Array:
    """Return made-up queries: each feature's value from a random instance, (made, features)."""
    random = np.random.default_rng([seed, 6])
    rows = random.integers(0, len(data), (MADE, data.shape[1]))
    return np.take_along_axis(data, rows, axis=0)


class Teacher:
    """The weighted mean, in log time, of a configuration and a Gaussian process.

    Args:
        problem: the instances.
        choice: the configuration, with the models of the folds.
        theta: its parameters fitted to all instances, shape (count,).
        process: fitted to the same instances, in the order of the problem.
        centre: the median log time.
        data: the features of the instances, shape (n, features).
    """

    def __init__(
        self,
        problem: SelectionProblem,
        choice: ScoredConfiguration,
        theta: Array,
        process: GaussianProcess,
        centre: float,
        data: Array,
    ) -> None:
        self._problem, self._choice, self._centre = problem, choice, centre
        self._models = np.stack([*choice.models, theta])
        folds = range(len(choice.models))
        lesser = [process.without(np.flatnonzero(problem.place == fold)) for fold in folds]
        self._processes = [*lesser, process]
        self._own = self._answers(data)
        held_out = self._own[problem.place, np.arange(len(data))]
        errors = [
            score(s * held_out + (1 - s) * choice.held_out, problem.targets, problem.cap)
            for s in _SHARES
        ]
        self.share = float(_SHARES[int(np.argmin(errors))])

    def _answers(self, data: Array) -> Array:
        """Return log times less their median by each fold's process and that of all instances."""
        found = [process.predict(data) for process in self._processes]
        return np.asarray(np.log(np.maximum(np.stack(found), _LEAST)) - self._centre)

    def folds(self, made: Array, columns: Array) -> ScoredConfiguration:
        """Return the configuration with models of the folds that are trained on the answers.

        Args:
            made: made-up queries, shape (made, features).
            columns: their columns, shape (made, columns).
        """
        problem, choice = self._problem, self._choice
        inputs = np.vstack([problem.columns, columns])
        self._scaled = with_ones(choice.inputs(inputs))
        answers = np.hstack([self._own, self._answers(made)])
        surface = value(choice.shape, self._models, self._scaled)
        self._taught = self.share * answers + (1 - self.share) * surface
        own = self._taught[:, : len(problem.targets)]
        own += (1 - _OF_TEACHER) * (problem.targets - own)
        each = np.arange(len(choice.models))
        theta, loss, of = self._fitted(self._models[:-1], each, _RESTARTS, _STEPS)
        models = [theta[int(np.where(of == fold, loss, np.inf).argmin())] for fold in each]
        held_out = np.empty(len(problem.targets))
        for fold, model in enumerate(models):
            out = np.flatnonzero(problem.place == fold)
            held_out[out] = value(choice.shape, model[None], self._scaled[:, out])[0]
        error = score(held_out, problem.targets, problem.cap)
        return replace(choice, error=error, held_out=held_out, models=tuple(models))

    def student(self, folds: ScoredConfiguration, probes: Array) -> tuple[Array, float]:
        """Return parameters trained on the answers of all instances, as `train` returns them.

        Args:
            folds: what `folds` returned.
            probes: columns of further queries, shape (probes, columns).
        """
        first = self._models[::-1]
        every = np.full(len(first), len(first) - 1)
        theta, loss, _ = self._fitted(first, every, _FINAL_RESTARTS, _FINAL_STEPS)
        best, far = steadiest(folds, theta, loss, probes)
        return np.asarray(theta[best]), far

    def _fitted(
        self, first: Array, of: Array, restarts: int, steps: int
    ) -> tuple[Array, Array, Array]:
        """Train on the answers of the teachers `of` (B,), from `first` (B, count) and restarts.

        Returns parameters, losses, and whose answers they were trained on.
        """
        problem, choice = self._problem, self._choice
        count, made = len(problem.targets), self._scaled.shape[1] - len(problem.targets)
        own = self._scaled[:, :count]
        found = monomials(choice.inputs, own, problem.targets, problem.threads)
        teachers = np.unique(of)
        more = [
            starts(choice.shape, own, problem.targets, found, restarts, problem.seed + int(teacher))
            for teacher in teachers
        ]
        of = np.concatenate([of, np.repeat(teachers, restarts)])
        weights = np.full((len(of), count + made), _OF_MADE / made)
        kept = problem.place != of[:, None]
        weights[:, :count] = (1 - _OF_MADE) * kept / kept.sum(axis=1, keepdims=True)
        done = minimise(
            choice.shape,
            np.concatenate([first, *more]),
            self._scaled,
            self._taught[of],
            weights,
            ridge=ridge(choice.shape, _EASED * choice.stiffness),
            steps=steps,
            relative=1.0,
        )
        return done.theta, np.where(np.isfinite(done.loss), done.loss, np.inf), of
