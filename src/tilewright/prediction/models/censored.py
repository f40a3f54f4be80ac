"""Models of runs some of which were stopped: their times are longer than what was measured.

Left out, the slow runs would be missing, and the slower half of what was measured near the limit;
taken as they are, they would be too fast. Their times are completed instead. A model of the runs
that ended gives the shape; a censored regression (Tobin 1958, "Estimation of relationships for
limited dependent variables"), fitted by expectation maximisation (Schmee and Hahn 1979, "A simple
method for regression analysis with censored data"), corrects it by what the limits say. Times are
then drawn rather than their means taken, which have no scatter and make intervals too narrow
(Rubin 1987, "Multiple imputation").

| symbol | meaning | shape, unit |
|---|---|---|
| `logs` | logarithms of the times, and of the limits of stopped runs | (n,), log seconds |
| `design` | 1, the log times that the model of ended runs predicts, and its inputs | (n, columns) |
| `middle` | mean log time of each run by the censored regression | (n,), log seconds |
| σ, `scatter` | standard deviation of log times around it | log |
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tilewright.prediction.errors import PredictionError
from tilewright.prediction.models.augmented import Augmented
from tilewright.prediction.models.estimator import Estimator
from tilewright.prediction.models.inputs import ModelInputs
from tilewright.prediction.models.tables import names_of, table, times

Array: TypeAlias = np.ndarray[Any, Any]
_ROUNDS = 1000
_SETTLED = 1e-6  # of σ
_RIDGE = 1e-4  # of the coefficients, per run
_LEAST_SCATTER, _MOST_SPREAD = 1e-3, 1.0  # log
_FEWEST = 10  # runs that ended
_TAKEN = ("complexity", "levels", "seed", "threads", "work")


def fit_censored(model: Estimator, X: Any, y: Any, censored: Any) -> Estimator:
    """Fit a model to runs of which some were stopped; returns it.

    Args:
        model: any estimator. `Augmented` completes the times of the runs that were stopped.
        X: the runs' features, as for ``fit``.
        y: seconds, shape (n,); of a run that was stopped, those that it had taken.
        censored: whether each run was stopped, booleans (n,).

    Raises:
        PredictionError: as ``fit``, or fewer than ten runs ended.
    """
    names = names_of(X, model.features)
    data = table(X, names, model.levels)
    seconds, stopped = times(y, len(data)), np.asarray(censored, dtype=bool)
    if stopped.shape != seconds.shape:
        raise PredictionError(f"censored has shape {stopped.shape}, and the times {seconds.shape}")
    if stopped.any():
        if (ended := int((~stopped).sum())) < _FEWEST:
            raise PredictionError(
                f"{ended} runs ended, {int(stopped.sum())} were stopped; at least {_FEWEST} have "
                "to end: raise the time limit"
            )
        seconds = _completed(_small(model, names), data, seconds, stopped)
    return model.fit(data if model.features else X, seconds)


def _small(model: Estimator, names: tuple[str, ...]) -> Augmented:
    """Return a model of the same inputs that completes times."""
    given = model.get_params()
    limit = given.get("max_parameters")
    settings = {name: given[name] for name in _TAKEN if given.get(name) is not None}
    if model.kind in ("augmented", "auto") and limit is not None:
        settings["max_parameters"] = limit
    if "max_seconds" in given:
        settings["max_seconds"] = given["max_seconds"]
    return Augmented(features=names, folds=5, **settings)


def _completed(model: Augmented, data: Array, seconds: Array, stopped: Array) -> Array:
    """Return the times, those of stopped runs drawn from above their limits."""
    ended, logs = ~stopped, np.log(seconds)
    model.fit(data[ended], seconds[ended])
    known = np.log(model._centre(data))
    rows, held_out = model.held_out_
    known[np.flatnonzero(ended)[rows]] = held_out
    inputs = ModelInputs.fit(model._with_complexity(data))
    design = np.column_stack([np.ones(len(data)), known, inputs(model._with_complexity(data))])
    middle, scatter = _censored_regression(design, logs, stopped)
    spread = np.minimum(np.asarray(model._spread(data[stopped])), _MOST_SPREAD)
    random = np.random.default_rng([model.seed, 6])
    drawn = _drawn_above(logs[stopped], middle[stopped], np.hypot(scatter, spread), random)
    logs[stopped] = drawn
    return np.asarray(np.exp(logs))


def _censored_regression(design: Array, logs: Array, stopped: Array) -> tuple[Array, float]:
    """Return the mean of each run's log time, (n,), and the standard deviation around it."""
    gram = design.T @ design + _RIDGE * len(logs) * np.eye(design.shape[1])
    prior = np.zeros(design.shape[1])
    prior[1] = 1.0  # the model's prediction as it is
    full, scatter = logs.copy(), 1.0
    middle = design @ prior
    for _ in range(_ROUNDS):
        mean, variance = _above(logs[stopped], middle[stopped], scatter)
        full[stopped] = mean
        middle = design @ (prior + np.linalg.solve(gram, design.T @ (full - design @ prior)))
        squares = float(((full - middle) ** 2).sum() + variance.sum())
        before, scatter = scatter, max((squares / len(logs)) ** 0.5, _LEAST_SCATTER)
        if abs(scatter - before) <= _SETTLED * scatter:
            break
    return middle, scatter


def _above(limits: Array, middle: Array, scatter: float) -> tuple[Array, Array]:
    """Return means and variances of normal log times above their limits, (n,) each."""
    from scipy.special import log_ndtr

    below = (limits - middle) / scatter
    hazard = np.exp(-0.5 * below**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(-below))
    share = np.clip(1 + below * hazard - hazard**2, 0.0, 1.0)
    return np.maximum(middle + scatter * hazard, limits), scatter**2 * share


def _drawn_above(limits: Array, middle: Array, scale: Array, random: np.random.Generator) -> Array:
    """Return normal log times above their limits, drawn at random, shape (n,)."""
    from scipy.special import log_ndtr, ndtri_exp

    share = log_ndtr(-(limits - middle) / scale) + np.log(1 - random.random(len(limits)))
    return np.asarray(np.maximum(middle - scale * ndtri_exp(share), limits))
