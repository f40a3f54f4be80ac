"""Reading a saved model of any kind."""

from __future__ import annotations

from pathlib import Path

from tilewright.prediction.models import augmented, auto, boosted, forest
from tilewright.prediction.models import nnc_paper as paper
from tilewright.prediction.models.estimator import Estimator

__all__ = ["KINDS", "Estimator", "load"]

KINDS = (
    augmented.Augmented,
    auto.Auto,
    boosted.Boosted,
    boosted.GaussianProcess,
    forest.Forest,
    paper.C,
    paper.LRC,
    paper.NLRC,
    paper.NN,
    paper.NNC,
)


def load(path: str | Path) -> Estimator:
    """Return the model in a file that `Estimator.save` wrote, of whatever kind it is.

    Raises:
        PredictionError: the file is missing, is not a model, or has another schema version.
    """
    return Estimator.load(path)
