"""Errors of the prediction room."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.errors import TilewrightError


class PredictionError(TilewrightError, ValueError):
    """Data, an expression or a model file cannot be used; the message names cause and cure."""


class WrongTypeError(PredictionError, TypeError):
    """Data that cannot be numbers; also a TypeError, as scikit-learn's users expect."""


def not_fitted(message: str) -> PredictionError:
    """Return an error that is scikit-learn's `NotFittedError`, too, where that is imported."""
    theirs = sys.modules.get("sklearn.exceptions")
    bases = (PredictionError, AttributeError if theirs is None else theirs.NotFittedError)
    found: PredictionError = type("NotFittedError", bases, {})(message)
    return found


@contextmanager
def scikit_learn_for(what: str) -> Iterator[None]:
    """Wrap an import of scikit-learn, which is optional: an error says how to install it."""
    try:
        yield
    except ImportError as error:
        raise PredictionError(
            f"{what} is fitted by scikit-learn, which cannot be imported ({error}): "
            "pip install 'tilewright[prediction]', or use Augmented"
        ) from error
