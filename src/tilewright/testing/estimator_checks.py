"""Conformance checks for models of run time."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.prediction import Estimator

Array: TypeAlias = np.ndarray[Any, Any]
FEATURES = ("m", "n")
# The times of the training instances, and the largest median error that a model may have.
SECONDS_PER_OPERATION, LEAST_SECONDS = 1e-9, 1e-6
MOST_ERROR = 0.5


def check_estimator(model: Estimator, *, instances: int = 80, seed: int = 0) -> None:
    """Check a model of run times: it learns, repeats itself, and can be stored.

    Args:
        model: not fitted; it is fitted to times of a kernel with the features ``m`` and ``n``
            and the complexity ``m*n``, and keeps its other settings.
        instances: the number of training instances.
        seed: the seed from which instances are drawn.

    Raises:
        AssertionError: the model fails a check; the message names it.
    """
    rng = np.random.default_rng(seed)
    table = np.exp2(rng.uniform(4.0, 10.0, (instances, 2))).round()
    times = LEAST_SECONDS + SECONDS_PER_OPERATION * table.prod(axis=1)
    table.flags.writeable = times.flags.writeable = False
    model.set_params(features=FEATURES, complexity="m*n")
    _check_unfitted(model, table)
    fitted = model.fit(table, times)
    assert fitted is model, "fit must return the model"
    predicted = _predictions(model, table)
    error = float(np.median(np.abs(predicted / times - 1.0)))
    assert error <= MOST_ERROR, (
        f"after fitting, half of the training instances are off by {error:.0%} or more"
    )
    queries = np.exp2(rng.uniform(4.0, 10.0, (instances, 2))).round()
    predicted = _predictions(model, queries)
    _check_rows(model, queries, predicted)
    _check_stored(model, queries, predicted)
    again = type(model)(**model.get_params()).fit(table, times)
    assert np.array_equal(_predictions(again, queries), predicted), (
        "fitted again to the same instances, it predicts other times: use no randomness but its "
        "seed"
    )


def _check_unfitted(model: Estimator, table: Array) -> None:
    try:
        model.predict(table)
    except TilewrightError:
        return
    raise AssertionError("a model that is not fitted predicts: it must raise PredictionError")


def _predictions(model: Estimator, table: Array) -> Array:
    """Return predicted times, which are positive numbers, one per row."""
    found = np.asarray(model.predict(table))
    assert found.shape == (len(table),), (
        f"predictions for {len(table)} rows have the shape {found.shape}"
    )
    assert np.isfinite(found).all(), "a predicted time is not a number"
    assert (found > 0).all(), f"a predicted time is {found.min()}, not above zero"
    return found


def _check_rows(model: Estimator, table: Array, predicted: Array) -> None:
    """Check that a row's prediction does not depend on the other rows of the call."""
    order = np.arange(len(table))[::-1]
    backwards = _predictions(model, table[order])
    alone = np.concatenate([_predictions(model, row[None]) for row in table[:5]])
    same = np.allclose(backwards, predicted[order], rtol=1e-9)
    assert same, "a prediction depends on the order of the rows"
    assert np.allclose(alone, predicted[:5], rtol=1e-9), "a prediction depends on the other rows"
    assert _predictions(model, table[:1]).shape == (1,)
    empty = np.asarray(model.predict(table[:0]))
    assert empty.shape == (0,), f"of no rows it predicts {empty!r}"


def _check_stored(model: Estimator, table: Array, predicted: Array) -> None:
    """Check that the model can be written as JSON and read again."""
    try:
        text = json.dumps(model.to_dict())
        read = type(model).from_dict(json.loads(text))
    except (TilewrightError, TypeError, ValueError) as error:
        raise AssertionError(f"the fitted model cannot be stored: {error}") from None
    assert type(read) is type(model), f"stored and read again it is a {type(read).__name__}"
    found = _predictions(read, table)
    assert np.allclose(found, predicted, rtol=1e-9), "stored and read again it predicts other times"
