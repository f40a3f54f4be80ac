"""Warm starts: a prior from evaluations of similar problems.

A Gaussian process is fitted to the evaluations of each earlier problem. How well it orders the
pairs of configurations measured here gives a likelihood, and from it the probability that this
earlier problem, or none of them, behaves like the present one. The mean of the processes, weighted
by these probabilities and multiplied by a learned factor, is the prior mean of this problem's
model, which then only has to learn the difference.

Sources: Kennedy and O'Hagan, Predicting the Output from a Complex Computer Code When Fast
Approximations Are Available, 2000 (the autoregressive model of two levels); Feurer et al.,
Practical Transfer Learning for Bayesian Optimization, 2018 (weights by the ranking of pairs, there
by the number of wrong ones).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import ndtr

from tilewright.tuning.bayes.encoding import Encoder
from tilewright.tuning.bayes.forest import GrownTrees, grow
from tilewright.tuning.bayes.gp import Hyperparameters, MarginalLikelihood, Posterior, fit
from tilewright.tuning.bayes.logarithms import logarithms
from tilewright.tuning.bayes.many import has_many, priors_of
from tilewright.tuning.errors import ConfigurationError
from tilewright.tuning.settings import Settings
from tilewright.tuning.space.parameters import Integer, Ordinal, Parameter, Real
from tilewright.tuning.space.space import Space
from tilewright.tuning.trial import Trial

Array: TypeAlias = np.ndarray[Any, Any]
_FEWEST = 6
_MOST = 200
# Prior of the constant and the factor: means and standard deviations.
_EXPECTED = np.array([0.0, 0.8])
_SPREAD = np.array([1.0, 0.6])
# Lower limit of the residual's scale: a few points may agree by chance.
_LEAST_SCALE = 0.3
# Failures of earlier problems weigh as much as this number of evaluations here.
_FAILURES_WEIGH = 10.0
# Probabilities that an earlier problem behaves like this one: the prior; below which it is ignored;
# above which it replaces the initial design.
_BELIEF = 0.8
_DOUBTED = 0.5
_PROVEN = 0.85
_NEGLIGIBLE = 0.01
# The probability that two configurations are in the opposite order here, however far apart they
# were there.
_SLIP = 0.05
# The largest number of evaluations whose order is compared; more would add little.
_MOST_RANKED = 60


@dataclass(frozen=True)
class WarmStart:
    """Evaluations of a similar problem: another size, another machine.

    ``evaluations`` are pairs of a configuration and its objective (None if it failed), all on one
    scale, which need not be this problem's. The ``queued`` best feasible ones are evaluated first;
    several warm starts take turns. If ``model`` is True and there are enough evaluations, all of
    them train the model (see `SourceModel`). Values missing from this space are rounded to the
    nearest one; unknown parameters are dropped.
    """

    evaluations: Sequence[tuple[Mapping[str, Any], float | None]]
    queued: int = 1
    model: bool = True

    @staticmethod
    def of(trials: Sequence[Trial], queued: int = 1, model: bool = True) -> WarmStart:
        """Return a warm start from the trials of an earlier run."""
        pairs = [(t.configuration, t.value if t.ok else None) for t in trials]
        return WarmStart(pairs, queued, model)

    def codes(self, space: Space) -> tuple[Array, Array]:
        """Return the evaluations here: codes, shape (n, width), and values, NaN if they failed.

        Configurations that this space cannot express are left out. Of repeated ones the median
        counts, if more than half of the evaluations worked.
        """
        found: dict[bytes, tuple[Array, list[float]]] = {}
        for configuration, value in self.evaluations:
            code = _nearest(space, configuration)
            if code is not None:
                measured = math.nan if value is None else float(value)
                found.setdefault(space.key(code), (code, []))[1].append(measured)
        codes = np.array([code for code, _ in found.values()]).reshape(len(found), space.width)
        return codes, np.array([_middle(np.array(values)) for _, values in found.values()])

    def leaders(self, space: Space) -> list[Array]:
        """Return the codes to ask first: good ones that differ from one another.

        The best one comes first; each further one is the best of those that differ from all chosen
        ones in at least two parameters, while there are any.
        """
        codes, values = self.codes(space)
        good = np.isfinite(values)
        good[good] = space.contains(codes[good])
        order = [i for i in np.argsort(values, kind="stable") if good[i]]
        chosen: list[Array] = []
        for apart in (2, 1):
            for i in order:
                if len(chosen) >= self.queued:
                    return chosen
                if all((codes[i] != other).sum() >= apart for other in chosen):
                    chosen.append(codes[i])
        return chosen


def _middle(values: Array) -> float:
    """Return the median of what is finite, NaN unless that is more than half."""
    good = values[np.isfinite(values)]
    return float(np.median(good)) if 2 * len(good) > len(values) else math.nan


def _nearest(space: Space, configuration: Mapping[str, Any]) -> Array | None:
    """Return the code of a configuration of a similar space, or None if it has none."""
    values: dict[str, Any] = {}
    for p in space.parameters:
        value = configuration.get(p.name, None if p.when is not None else p.default)
        if value is not None:
            values[p.name] = _near(p, value)
    try:
        return space.encode(values)
    except ConfigurationError:
        return None


def _near(p: Parameter, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return value
    if isinstance(p, Ordinal):
        if p.scale == "log" and value > 0:
            return min(p.values, key=lambda v: abs(math.log(v / value)))
        return min(p.values, key=lambda v: abs(v - value))
    if isinstance(p, Integer):
        return min(max(round(value), p.low), p.high)
    if isinstance(p, Real):
        return min(max(float(value), p.low), p.high)
    return value


@dataclass(frozen=True)
class SourcePosterior:
    """The model of one earlier problem: a Gaussian process of its standardised objective.

    ``unit`` converts a unit of it to logarithms, so that a factor of one means the same slowdown;
    ``reach`` is the distance above the best at which it is clipped, in logarithms. Both are 0 where
    objectives have both signs.
    """

    posterior: Posterior
    unit: float
    reach: float

    def evidence(self, points: Array, values: Array) -> float:
        """Return the log likelihood of the order of values, relative to a fair coin.

        The problems may differ by the residual's least scale, so pairs closer than that say
        nothing. Of n values n - 1 are independent: the n (n - 1) / 2 pairs count 2 / n each.
        """
        if len(points) < 2:
            return 0.0
        first, second = np.triu_indices(len(points), 1)
        mean, variance = self.posterior.predict(points)
        rise = np.sign(values[second] - values[first]) * (mean[second] - mean[first])
        noise = 2 * (self.posterior.hyper.noise + _LEAST_SCALE**2)
        right = ndtr(rise / np.sqrt(variance[first] + variance[second] + noise))
        ratios = np.log(2 * (_SLIP + (1 - 2 * _SLIP) * right))
        return float(2 / len(points) * ratios.sum())


@dataclass(frozen=True)
class Shift:
    """A prior mean in units of the modelled outputs, and the scale of the residuals.

    ``sources`` give the means of the earlier problems, each times its weight; ``factors`` are the
    constant and the factor of their sum.
    """

    sources: Sequence[SourcePosterior]
    parts: Array
    factors: Array
    scale: float

    def mean(self, points: Array) -> Array:
        """Return the prior mean at points, shape (count,)."""
        return np.asarray(_basis(self.sources, self.parts, points) @ self.factors)

    def residual(self, points: Array, outputs: Array) -> Array:
        """Return the residual outputs for this problem's model, shape (n,)."""
        return np.asarray((outputs - self.mean(points)) / self.scale)


class Shifted:
    """A model of residuals as one of the outputs: the posterior of both levels together.

    The prior covariance is that of the residual plus each source's posterior covariance times the
    square of its weight and factor.

    Args:
        inner: the residuals' posterior. Another surrogate gets the prior mean alone.
        shift: the prior mean.
    """

    def __init__(self, inner: Any, shift: Shift) -> None:
        self.inner = inner
        self.shift = shift
        self._weights: Array | None = None
        if not isinstance(inner, Posterior):
            return
        scales = (shift.parts * shift.factors[1]) ** 2
        self._open = [(scale, s.posterior) for scale, s in zip(scales, shift.sources, strict=True)]
        self._seen = [_Open(source, inner.points) for _, source in self._open]
        kernel = shift.scale**2 * (inner.factor @ inner.factor.T)
        for (scale, _), seen in zip(self._open, self._seen, strict=True):
            kernel += scale * seen.between(seen)
        self._factor = np.linalg.cholesky(kernel)
        whitened = solve_triangular(self._factor, shift.scale * inner.outputs, lower=True)
        self._weights = solve_triangular(self._factor.T, whitened)

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Return mean and variance at ``points``, shapes (count,)."""
        prior, scale = self.shift.mean(points), self.shift.scale
        if self._weights is None:
            mean, variance = self.inner.predict(points)
            return prior + scale * mean, scale * scale * variance
        cross = scale**2 * self.inner.covariances(points)
        total = np.full(len(points), scale**2 * self.inner.hyper.signal)
        for (share, source), seen in zip(self._open, self._seen, strict=True):
            here = _Open(source, points)
            cross += share * here.between(seen)
            total += share * here.variance
        explained = solve_triangular(self._factor, cross.T, lower=True)
        variance = total - np.einsum("ij,ij->j", explained, explained)
        return prior + cross @ self._weights, np.maximum(variance, 1e-12)


class _Open:
    """The posterior covariances at points."""

    def __init__(self, source: Posterior, points: Array) -> None:
        self._source = source
        self._points = points
        self._explained = source.covariances(points) @ source.inverse_factor.T
        own = source.hyper.signal - (self._explained**2).sum(axis=1)
        self.variance = np.maximum(own, 0.0)

    def between(self, other: _Open) -> Array:
        """Return covariances with the points of ``other``, shape (count, others)."""
        prior = self._source.prior(self._points, other._points)
        return np.asarray(prior - self._explained @ other._explained.T)


class SourceModel:
    """The models of earlier problems, and a forest of their failures.

    Args:
        warm: the evaluations of each earlier problem.
        encoder: embeds this space's codes.
        settings: the priors of hyperparameters, and how objectives are modelled.
        rng: draws starting points, and the subset of evaluations that is kept if there are too
            many.
    """

    def __init__(
        self,
        warm: Sequence[WarmStart],
        encoder: Encoder,
        settings: Settings,
        rng: np.random.Generator,
    ) -> None:
        self._blocks = encoder.blocks
        self.sources: list[SourcePosterior] = []
        self.forest: GrownTrees | None = None
        seen = [each.codes(encoder.space) for each in warm if each.model]
        seen = [(codes, values) for codes, values in seen if np.isfinite(values).sum() >= _FEWEST]
        if not seen:
            return
        good = np.isfinite(np.concatenate([values for _, values in seen]))
        if not good.all():
            codes = np.concatenate([codes for codes, _ in seen])
            self.forest = grow(encoder(codes), good.astype(float), rng)
        made = [_source(codes, values, encoder, settings, rng) for codes, values in seen]
        self.sources = [source for source in made if source is not None]

    def weights(self, points: Array, values: Array) -> Array:
        """Return the probability of each source, shape (sources,); the remainder is that of none.

        Args:
            points: the configurations evaluated here, shape (n, features).
            values: the objective, shape (n,).
        """
        points, values = points[:_MOST_RANKED], values[:_MOST_RANKED]
        each = _BELIEF / (1 - _BELIEF) / max(1, len(self.sources))
        logs = [s.evidence(points, values) + math.log(each) for s in self.sources]
        odds = np.exp(np.array([0.0, *logs]) - max(0.0, *logs, 0.0))
        return np.asarray(odds[1:] / odds.sum())

    def belief(self, points: Array, values: Array) -> Belief | None:
        """Return the sources that agree with the evaluations here; None if probably none does."""
        weights = self.weights(points, values)
        if weights.sum() <= _DOUBTED:
            return None
        kept = weights > _NEGLIGIBLE
        sources = [s for s, keep in zip(self.sources, kept, strict=True) if keep]
        return Belief(sources, weights[kept], self._blocks)

    def leads(self, points: Array, values: Array, count: int) -> bool:
        """Return whether the sources, not the initial design, decide after ``count`` evaluations.

        Until they are proven right here, they decide only every second evaluation: otherwise all
        could be bad alike.
        """
        trust = float(self.weights(points, values).sum())
        return trust > _PROVEN or (trust > _DOUBTED and count % 2 == 0)

    def chance(self, points: Array, here: Array, count: int) -> Array:
        """Pull the probabilities of feasibility ``here`` towards those of the earlier problems.

        Args:
            points: shape (n, features).
            here: the probabilities from this problem's evaluations, shape (n,).
            count: the number of these evaluations.
        """
        if self.forest is None:
            return here
        weight = _FAILURES_WEIGH / (_FAILURES_WEIGH + count)
        return np.asarray(weight * self.forest.mean(points) + (1 - weight) * here)


@dataclass(frozen=True)
class Belief:
    """Sources with their weights, shape (sources,), and the blocks of features."""

    sources: Sequence[SourcePosterior]
    weights: Array
    blocks: Array

    @property
    def reach(self) -> float:
        """Distance above the best at which outputs are clipped, in logarithms; 0 if unknown."""
        reach = np.array([source.reach for source in self.sources])
        return float(self.weights @ reach / self.weights.sum())

    def shift(self, points: Array, outputs: Array, slope: float, theta: Sequence[float]) -> Shift:
        """Return the prior mean that fits the observations here best.

        Generalised least squares with a normal prior of the factors.

        Args:
            points: shape (n, features).
            outputs: the modelled objective, shape (n,).
            slope: the logarithm that a unit of it is worth (see `Outputs`).
            theta: hyperparameters of the previous decision, or nothing.
        """
        units = [s.unit / slope if s.unit > 0 and slope > 0 else 1.0 for s in self.sources]
        parts = self.weights * np.array(units)
        basis = _basis(self.sources, parts, points)
        whiten = np.eye(len(points))
        if len(theta) == int(self.blocks.max()) + 3:
            hyper = Hyperparameters(np.array(theta))
            whiten = Posterior(points, outputs, self.blocks, hyper).inverse_factor
        left, right = whiten @ basis, whiten @ outputs
        precision = np.diag(_SPREAD**-2.0)
        scale, factors = 1.0, _EXPECTED
        for _ in range(2):  # the residual's scale depends on the factors
            system = left.T @ left / scale**2 + precision
            wanted = left.T @ right / scale**2 + precision @ _EXPECTED
            factors = cho_solve(cho_factor(system), wanted)
            scale = max(_LEAST_SCALE, float((outputs - basis @ factors).std()))
        return Shift(self.sources, parts, factors, scale)


def _source(
    codes: Array, values: Array, encoder: Encoder, settings: Settings, rng: np.random.Generator
) -> SourcePosterior | None:
    """Return the model of an earlier problem, None if all its values are equal."""
    good = np.isfinite(values)
    codes, values = codes[good], values[good]
    if len(codes) > _MOST:
        # the best half, where resolution matters, and a sample of the rest
        order = np.argsort(values, kind="stable")
        rest = rng.permutation(order[_MOST // 2 :])[: _MOST - _MOST // 2]
        kept = np.sort(np.concatenate([order[: _MOST // 2], rest]))
        codes, values = codes[kept], values[kept]
    logs = logarithms(values)
    outputs = values if logs is None else logs
    many = has_many(encoder, settings)
    if settings.objective == "clipped":
        ranked = np.unique(outputs) if many else outputs
        outputs = np.minimum(outputs, np.quantile(ranked, settings.clip))
    spread = float(outputs.std())
    if spread == 0:
        return None
    standard = (outputs - outputs.mean()) / spread
    points = encoder(codes)
    likelihood = MarginalLikelihood(points, standard, encoder.blocks, priors_of(encoder, settings))
    hyper = fit(likelihood, rng, draws=8, starts=2, iterations=25, equal=many)
    posterior = Posterior(points, standard, encoder.blocks, hyper)
    return SourcePosterior(
        posterior, *((spread, float(np.ptp(outputs))) if logs is not None else (0.0, 0.0))
    )


def _basis(sources: Sequence[SourcePosterior], parts: Array, points: Array) -> Array:
    """Return ones, and the sources' means together, shape (count, 2)."""
    means = np.stack([source.posterior.predict(points)[0] for source in sources])
    return np.stack([np.ones(len(points)), parts @ means], axis=1)
