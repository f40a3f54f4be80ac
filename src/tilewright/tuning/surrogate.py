"""The model of the objective: what is expected of a configuration, and how surely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from tilewright.tuning.encoding import Encoder
from tilewright.tuning.forest import Forest, grow
from tilewright.tuning.gp import Hyperparameters, MarginalLikelihood, Posterior, fit
from tilewright.tuning.settings import Settings

Array: TypeAlias = np.ndarray[Any, Any]
_EVERY_FIT = 40
_FULL_FIT = 8


class Surrogate(Protocol):
    """Means and variances of the noise-free (transformed) objective at points."""

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance at ``points``, shapes (count,)."""


@dataclass(frozen=True)
class ForestSurrogate:
    """A random forest: mean over trees, and how far the trees disagree (the paper's RF)."""

    forest: Forest

    def predict(self, points: Array) -> tuple[Array, Array]:
        """As `Surrogate.predict`."""
        each = self.forest.each(points)
        return each.mean(axis=0), np.maximum(each.var(axis=0), 1e-6)


@dataclass(frozen=True)
class Transform:
    """The objective as it is modelled: logarithm where it helps, then standardised."""

    log: bool
    shift: float
    scale: float

    def __call__(self, values: Array) -> Array:
        """Objective values, shape (n,), to modelled ones."""
        raw = np.log(values) if self.log else values
        return np.asarray((raw - self.shift) / self.scale)


def transform_of(values: Array, settings: Settings) -> Transform:
    """The transform for observed values: the logarithm if wanted and all are positive."""
    log = settings.log_objective and bool((values > 0).all())
    raw = np.log(values) if log else values
    scale = float(raw.std())
    return Transform(log, float(raw.mean()), scale if scale > 0 else 1.0)


@dataclass(frozen=True)
class Fitted:
    """A surrogate of observations and the hyperparameters to start the next fit from."""

    surrogate: Surrogate
    theta: tuple[float, ...]


def fit_surrogate(
    encoder: Encoder,
    codes: Array,
    outputs: Array,
    settings: Settings,
    rng: np.random.Generator,
    theta: tuple[float, ...] = (),
    extra_noise: Array | None = None,
) -> Fitted:
    """Fit the model that the settings ask for.

    The Gaussian process is fitted from the previous optimum ``theta`` at every decision while
    there are few observations, later less often; from fresh starting points now and then.

    Args:
        encoder: embeds codes.
        codes: observed codes, shape (n, width). outputs: transformed objective, shape (n,).
        settings: which model, with which priors.
        rng: draws starting points.
        theta: hyperparameters of the previous decision, or nothing.
        extra_noise: variance added to each observation's noise, or None.
    """
    points = encoder(codes)
    if settings.surrogate == "rf":
        return Fitted(ForestSurrogate(grow(points, outputs, rng, trees=48, share=0.7)), ())
    count = len(codes)
    fresh = count < _EVERY_FIT or count % _FULL_FIT == 0 or not theta
    refit = fresh or count < 2 * _EVERY_FIT or count % 3 == 0
    hyper = Hyperparameters(np.array(theta))
    if refit or len(theta) != len(encoder.labels) + 2:
        likelihood = MarginalLikelihood(
            points, outputs, encoder.blocks, settings.priors, extra_noise
        )
        hyper = fit(
            likelihood,
            rng,
            previous=np.array(theta) if theta else None,
            draws=8 if fresh else 0,
            starts=1 if theta else 3,
            iterations=25 if fresh else 8,
        )
    posterior = Posterior(points, outputs, encoder.blocks, hyper, extra_noise)
    return Fitted(posterior, tuple(float(t) for t in hyper.theta))
