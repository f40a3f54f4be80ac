"""Reading a saved model of any kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.prediction.models import (
    adapted,
    augmented,
    auto,
    boosted,
    forest,
    gaussian_process,
)
from tilewright.prediction.models import nnc_paper as paper
from tilewright.prediction.models.estimator import Estimator

__all__ = ["KINDS", "Estimator", "load", "model_from_dict"]

KINDS = (
    adapted.Adapted,
    augmented.Augmented,
    auto.Auto,
    boosted.Boosted,
    gaussian_process.GaussianProcess,
    forest.Forest,
    paper.C,
    paper.LRC,
    paper.NLRC,
    paper.NN,
    paper.NNC,
)


def load(path: str | Path) -> Estimator:
    """Return the model in a file that `Estimator.save` wrote, of any kind.

    Raises:
        PredictionError: the file is missing, is not a model, or has another schema version.
    """
    return Estimator.load(path)


def model_from_dict(data: dict[str, Any]) -> Estimator:
    """Return the inverse of `Estimator.to_dict`, for a model of any kind.

    `Estimator.from_dict` knows the kinds that have been imported, which are all of them here.

    Raises:
        PredictionError: not such data, or of another schema version.
    """
    return Estimator.from_dict(data)
