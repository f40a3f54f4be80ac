"""The model of the objective: the expected value of a configuration, with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from scipy.special import log_ndtr
from scipy.special import ndtri as norm_ppf

from tilewright.tuning.bayes.encoding import Encoder
from tilewright.tuning.bayes.forest import GrownTrees, grow
from tilewright.tuning.bayes.gp import Hyperparameters, MarginalLikelihood, Posterior, fit
from tilewright.tuning.bayes.logarithms import logarithms
from tilewright.tuning.bayes.many import has_many, priors_of
from tilewright.tuning.settings import Settings

Array: TypeAlias = np.ndarray[Any, Any]
_EVERY_FIT = 40
_FULL_FIT = 8


class Surrogate(Protocol):
    """Means and variances of the noise-free (transformed) objective at points."""

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Return mean and variance at ``points``, shapes (count,)."""


@dataclass(frozen=True)
class ForestSurrogate:
    """A random forest: mean and variance over trees (the paper's RF)."""

    forest: GrownTrees

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Predict like `Surrogate.predict`."""
        each = self.forest.each(points)
        return each.mean(axis=0), np.maximum(each.var(axis=0), 1e-6)


def forest_surrogate(points: Array, outputs: Array, rng: np.random.Generator) -> ForestSurrogate:
    """Return the forest of outputs, shape (n,), at points, shape (n, features)."""
    return ForestSurrogate(grow(points, outputs, rng, trees=48, share=0.7))


@dataclass(frozen=True)
class Outputs:
    """The objective as it is modelled, standardised, shape (n,).

    ``slope`` is the relative change of the objective per unit of the modelled one near the best (0
    if it has values of both signs), to convert improvements.
    """

    values: Array
    slope: float


def transform(
    values: Array, settings: Settings, reach: float = 0.0, distinct: bool = False
) -> Outputs:
    """Objective values, shape (n,), to modelled ones, as the settings say.

    ``clipped`` is the logarithm, with values above a quantile compressed towards it, so that very
    slow configurations do not cost the model its resolution among the fast ones. ``rank`` gives the
    normal scores of the ranks. ``log`` is the paper's logarithm.

    Args:
        values: the objective.
        settings: how it is modelled.
        reach: distance above the best, in logarithms, below which nothing is clipped: among few,
            good configurations the quantile is too low.
        distinct: equal values count once for the quantile. Where most changes have no effect, most
            values equal the best, and the quantile of all would clip every value to it.
    """
    found = logarithms(values)
    logs = values if found is None else found
    if settings.objective == "rank":
        from scipy.stats import rankdata  # 28 MB, which this choice alone needs

        raw = norm_ppf((rankdata(values) - 0.5) / len(values))
    elif settings.objective == "clipped":
        ranked = np.unique(logs) if distinct else logs
        limit = max(float(np.quantile(ranked, settings.clip)), float(logs.min()) + reach)
        raw = np.where(logs > limit, limit + settings.clipped_slope * (logs - limit), logs)
    elif settings.objective == "log":
        raw = logs
    else:
        raw = values
    scale = float(raw.std())
    outputs = (raw - raw.mean()) / (scale if scale > 0 else 1.0)
    near = np.argsort(values, kind="stable")[: max(2, len(values) // 5)]
    rise = float(np.ptp(outputs[near]))
    slope = float(np.ptp(logs[near])) / rise if found is not None and rise > 0 else 0.0
    return Outputs(np.asarray(outputs), slope)


def uncensored(
    posterior: Posterior, points: Array, outputs: Array, bounded: Array, blocks: Array
) -> Posterior:
    """Impute censored outputs by their truncated-normal mean and refit (one EM step).

    The output of an evaluation that was cut short at ``b`` is only known to be above ``b``. It is
    replaced by the mean of its predicted distribution, truncated at ``b`` (one step of the EM
    algorithm for censored data).

    Source: Dempster, Laird and Rubin, Maximum Likelihood from Incomplete Data, 1977, sec. 4.2.

    Args:
        posterior: as fitted to all outputs; its hyperparameters are kept.
        points: shape (n, features).
        outputs: shape (n,).
        bounded: booleans, shape (n,).
        blocks: the block of each feature.
    """
    exact = ~bounded
    if exact.sum() < 2 or not bounded.any():
        return posterior
    known = Posterior(points[exact], outputs[exact], blocks, posterior.hyper)
    mean, variance = known.predict(points[bounded])
    deviation = np.sqrt(variance + posterior.hyper.noise)
    above = (outputs[bounded] - mean) / deviation
    # E[x | x > b] of a normal; the hazard is about `above` far in the tail
    log_hazard = -0.5 * above * above - 0.5 * np.log(2 * np.pi) - log_ndtr(-above)
    full = outputs.copy()
    full[bounded] = np.maximum(mean + deviation * np.exp(log_hazard), outputs[bounded])
    return Posterior(points, full, blocks, posterior.hyper)


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
    observed: int | None = None,
) -> Fitted:
    """Fit the model that the settings ask for.

    The Gaussian process is fitted from the previous optimum ``theta`` at every decision while
    there are few observations, later less often; from fresh starting points now and then.

    Args:
        encoder: embeds codes.
        codes: observed codes, shape (n, width).
        outputs: transformed objective, shape (n,).
        settings: which model, with which priors.
        rng: draws starting points.
        theta: hyperparameters of the previous decision, or empty.
        extra_noise: variance added to each observation's noise, or None.
        observed: the number of all observations; None if `codes` has all of them.
    """
    points = encoder(codes)
    if settings.surrogate == "rf":
        return Fitted(forest_surrogate(points, outputs, rng), ())
    count = observed or len(codes)
    fresh = count < _EVERY_FIT or count % _FULL_FIT == 0 or not theta
    refit = fresh or count < 2 * _EVERY_FIT or count % 3 == 0
    hyper = Hyperparameters(np.array(theta))
    if refit or len(theta) != len(encoder.labels) + 2:
        priors = priors_of(encoder, settings)
        likelihood = MarginalLikelihood(points, outputs, encoder.blocks, priors, extra_noise)
        hyper = fit(
            likelihood,
            rng,
            previous=np.array(theta) if theta else None,
            draws=8 if fresh else 0,
            starts=1 if theta else 3,
            iterations=25 if fresh else 8,
            equal=has_many(encoder, settings),
        )
    posterior = Posterior(points, outputs, encoder.blocks, hyper, extra_noise)
    return Fitted(posterior, tuple(float(t) for t in hyper.theta))
