"""Models of runs of which some were stopped, so that their times are only known to be longer.

Left out, the slow runs would be missing; taken as they are, they would be too fast. Their times
are completed instead: a model is fitted, gives the mean of each stopped run's log time above its
limit, and is fitted again, until that settles (Schmee and Hahn 1979, "A simple method for
regression analysis with censored data"). In the end times are drawn in place of the means, which
have no scatter, as the intervals would otherwise be too narrow (Rubin 1987, "Multiple imputation").

| symbol | meaning | shape, unit |
|---|---|---|
| `limits` | logarithms of the times after which runs were stopped | (stopped,), log seconds |
| `middle` | log times that the model predicts for them | (stopped,), log seconds |
| σ, `scatter` | robust standard deviation of the held-out residuals of runs that ended | log |
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tilewright.prediction.errors import PredictionError
from tilewright.prediction.models.augmented import Augmented
from tilewright.prediction.models.estimator import Estimator
from tilewright.prediction.models.tables import names_of, table, times

Array: TypeAlias = np.ndarray[Any, Any]
_ROUNDS = 5
_SETTLED = 0.1  # of σ: a mean change of the completed log times
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
    limits, logs = np.log(seconds[stopped]), np.log(seconds)
    random = np.random.default_rng([model.seed, 6])
    model.fit(data[~stopped], seconds[~stopped])
    beyond = np.minimum(model._spread(data[stopped]), _MOST_SPREAD)
    held_out = logs[~stopped][model.held_out_[0]] - model.held_out_[1]
    for _ in range(_ROUNDS):
        scatter = max(1.4826 * float(np.median(np.abs(held_out))), _LEAST_SCATTER)
        middle, scale = np.log(model._centre(data[stopped])), np.hypot(scatter, beyond)
        before = logs[stopped]
        logs[stopped] = _mean_above(limits, middle, scale)
        if np.abs(logs[stopped] - before).mean() <= _SETTLED * scatter:
            break
        model.fit(data, np.exp(logs))
        rows, found = model.held_out_
        held_out = (logs[rows] - found)[~stopped[rows]]
    logs[stopped] = _drawn_above(limits, middle, scale, random)
    return np.asarray(np.exp(logs))


def _mean_above(limits: Array, middle: Array, scale: Array) -> Array:
    """Return the means of normal log times above their limits, shape (n,)."""
    from scipy.special import log_ndtr

    below = (limits - middle) / scale
    hazard = np.exp(-0.5 * below**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(-below))
    return np.asarray(np.maximum(middle + scale * hazard, limits))


def _drawn_above(limits: Array, middle: Array, scale: Array, random: np.random.Generator) -> Array:
    """Return normal log times above their limits, drawn at random, shape (n,)."""
    from scipy.special import log_ndtr, ndtri_exp

    share = log_ndtr(-(limits - middle) / scale) + np.log(1 - random.random(len(limits)))
    return np.asarray(np.maximum(middle - scale * ndtri_exp(share), limits))
