"""Errors of the prediction room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.errors import TilewrightError


class PredictionError(TilewrightError, ValueError):
    """Data, an expression or a model file that cannot be used; says what and what to do."""


@contextmanager
def scikit_learn_for(what: str) -> Iterator[None]:
    """Around an import of scikit-learn, which is optional: says who needs it and how to get it."""
    try:
        yield
    except ImportError as error:
        raise PredictionError(
            f"{what} is fitted by scikit-learn, which cannot be imported ({error}): "
            "pip install 'tilewright[prediction]', or use Augmented"
        ) from error
