"""Warm starts: a prior from evaluations of a similar problem.

A Gaussian process of the earlier evaluations gives the prior mean of this problem's model, times a
factor that is learned from the new measurements: near one if the problems behave alike, near zero
if the earlier one misleads. The model only has to learn the difference.

Source: Kennedy and O'Hagan, Predicting the Output from a Complex Computer Code When Fast
Approximations Are Available, 2000 (the autoregressive model of two levels).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from tilewright.tuning.bayes.encoding import Encoder
from tilewright.tuning.bayes.forest import GrownTrees, grow
from tilewright.tuning.bayes.gp import Hyperparameters, MarginalLikelihood, Posterior, fit
from tilewright.tuning.errors import ConfigurationError
from tilewright.tuning.settings import Settings
from tilewright.tuning.space.parameters import Integer, Ordinal, Parameter, Real
from tilewright.tuning.space.space import Space
from tilewright.tuning.trial import Trial

Array: TypeAlias = np.ndarray[Any, Any]
_FEWEST = 6
_MOST = 200
# The factor before anything is known, and how far it may be off (standard deviations of the
# constant and of the factor).
_EXPECTED = np.array([0.0, 0.8])
_SPREAD = np.array([1.0, 0.6])
# The residual's scale is not taken for less, however well a few points agree.
_LEAST_SCALE = 0.3
# How many evaluations here the earlier ones' failures weigh as much as.
_FAILURES_WEIGH = 10.0


@dataclass(frozen=True)
class WarmStart:
    """Evaluations of a similar problem: another size, another machine.

    ``evaluations`` are pairs of a configuration and its objective (None if it failed), all
    on one scale, which need not be this problem's. The ``queued`` best feasible ones are evaluated
    first; all of them, if ``model`` is True and there are enough, train the model (see
    `SourceModel`). Values missing from this space are rounded to the nearest one; unknown
    parameters are dropped.
    """

    evaluations: Sequence[tuple[Mapping[str, Any], float | None]]
    queued: int = 3
    model: bool = True

    @staticmethod
    def of(trials: Sequence[Trial], queued: int = 3, model: bool = True) -> WarmStart:
        """Return a warm start from the trials of an earlier run."""
        pairs = [(t.configuration, t.value if t.ok else None) for t in trials]
        return WarmStart(pairs, queued, model)

    def codes(self, space: Space) -> tuple[Array, Array]:
        """Return the evaluations here: codes, shape (n, width), and values, NaN if they failed.

        Configurations that this space cannot express are left out; of repeated ones the
        median counts.
        """
        found: dict[bytes, tuple[Array, list[float]]] = {}
        for configuration, value in self.evaluations:
            code = _nearest(space, configuration)
            if code is not None:
                measured = math.nan if value is None else float(value)
                found.setdefault(space.key(code), (code, []))[1].append(measured)
        codes = np.array([code for code, _ in found.values()]).reshape(len(found), space.width)
        return codes, np.array([float(np.median(values)) for _, values in found.values()])

    def leaders(self, space: Space) -> list[Array]:
        """Return the codes to ask first: good ones that are also unlike one another.

        The best one comes first; each further one is the best of what differs from all
        chosen ones in at least two parameters, as far as there are such.
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
class Shift:
    """A prior mean in units of the modelled outputs, and the scale of the residuals.

    ``source`` gives the earlier problem's mean, ``factors`` the constant and its factor.
    """

    source: Posterior
    unit: float
    factors: Array
    scale: float

    def mean(self, points: Array) -> Array:
        """Return the prior mean at points, shape (count,)."""
        return np.asarray(_basis(self.source, points, self.unit) @ self.factors)

    def residual(self, points: Array, outputs: Array) -> Array:
        """Return the residual outputs for this problem's model, shape (n,)."""
        return np.asarray((outputs - self.mean(points)) / self.scale)


class Shifted:
    """A model of residuals as one of the outputs: the posterior of both levels together.

    The prior covariance is that of the residual, plus the posterior covariance of the earlier
    problem times the factor squared.

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
        self._open = (shift.unit * shift.factors[1]) ** 2
        self._seen = _Open(shift.source, inner.points)
        own = shift.scale**2 * (inner.factor @ inner.factor.T)
        kernel = own + self._open * self._seen.between(self._seen)
        self._factor = np.linalg.cholesky(kernel)
        whitened = solve_triangular(self._factor, shift.scale * inner.outputs, lower=True)
        self._weights = solve_triangular(self._factor.T, whitened)

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Return mean and variance at ``points``, shapes (count,)."""
        prior, scale = self.shift.mean(points), self.shift.scale
        if self._weights is None:
            mean, variance = self.inner.predict(points)
            return prior + scale * mean, scale * scale * variance
        here = _Open(self.shift.source, points)
        cross = scale**2 * self.inner.covariances(points)
        cross += self._open * here.between(self._seen)
        explained = solve_triangular(self._factor, cross.T, lower=True)
        total = scale**2 * self.inner.hyper.signal + self._open * here.variance
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
    """The model of earlier evaluations: a Gaussian process, and a forest of failures.

    Args:
        warm: the evaluations.
        encoder: embeds this space's codes.
        settings: the priors, and how objectives are modelled.
        rng: draws starting points, and which evaluations are kept where there are very many.
    """

    def __init__(
        self, warm: WarmStart, encoder: Encoder, settings: Settings, rng: np.random.Generator
    ) -> None:
        codes, values = warm.codes(encoder.space)
        good = np.isfinite(values)
        self.posterior: Posterior | None = None
        self.positive = bool((values[good] > 0).all())
        self.forest: GrownTrees | None = None
        if not warm.model or good.sum() < _FEWEST:
            return
        if not good.all():
            self.forest = grow(encoder(codes), good.astype(float), rng)
        codes, values = codes[good], values[good]
        if len(codes) > _MOST:
            # the best half, where the resolution matters, and a sample of the others
            order = np.argsort(values, kind="stable")
            rest = rng.permutation(order[_MOST // 2 :])[: _MOST - _MOST // 2]
            kept = np.sort(np.concatenate([order[: _MOST // 2], rest]))
            codes, values = codes[kept], values[kept]
        outputs = np.log(values) if self.positive else values
        if settings.objective == "clipped":
            outputs = np.minimum(outputs, np.quantile(outputs, settings.clip))
        spread = float(outputs.std())
        if spread == 0:
            return
        # in natural units where it is a logarithm: a factor of one means the same slowdown
        self._unit = spread if self.positive else 1.0
        standard = (outputs - outputs.mean()) / spread
        points = encoder(codes)
        likelihood = MarginalLikelihood(points, standard, encoder.blocks, settings.priors)
        hyper = fit(likelihood, rng, draws=8, starts=2, iterations=25)
        self.posterior = Posterior(points, standard, encoder.blocks, hyper)
        self.blocks = encoder.blocks

    def shift(
        self, points: Array, outputs: Array, slope: float, theta: Sequence[float]
    ) -> Shift | None:
        """Return the prior mean that suits what has been seen here, None without one.

        Generalised least squares with a normal prior of the factors.

        Args:
            points: shape (n, features).
            outputs: the modelled objective, shape (n,).
            slope: what a unit of it is worth in logarithms (see `Outputs`).
            theta: hyperparameters of the previous decision, or nothing.
        """
        if self.posterior is None:
            return None
        unit = self._unit / slope if self.positive and slope > 0 else 1.0
        basis = _basis(self.posterior, points, unit)
        whiten = np.eye(len(points))
        if len(theta) == int(self.blocks.max()) + 3:
            hyper = Hyperparameters(np.array(theta))
            whiten = Posterior(points, outputs, self.blocks, hyper).inverse_factor
        left, right = whiten @ basis, whiten @ outputs
        precision = np.diag(_SPREAD**-2.0)
        scale, factors = 1.0, _EXPECTED
        for _ in range(2):  # the residual's scale is not known before the factors are
            system = left.T @ left / scale**2 + precision
            wanted = left.T @ right / scale**2 + precision @ _EXPECTED
            factors = cho_solve(cho_factor(system), wanted)
            scale = max(_LEAST_SCALE, float((outputs - basis @ factors).std()))
        return Shift(self.posterior, unit, factors, scale)

    def chance(self, points: Array, here: Array, count: int) -> Array:
        """Return probabilities of feasibility ``here``, drawn towards the earlier problem's.

        Args:
            points: shape (n, features).
            here: the probabilities that this problem's evaluations give, shape (n,).
            count: the number of these evaluations.
        """
        if self.forest is None:
            return here
        weight = _FAILURES_WEIGH / (_FAILURES_WEIGH + count)
        return np.asarray(weight * self.forest.mean(points) + (1 - weight) * here)


def _basis(source: Posterior, points: Array, unit: float) -> Array:
    return np.stack([np.ones(len(points)), unit * source.predict(points)[0]], axis=1)
