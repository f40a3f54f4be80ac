"""Gaussian process regression with a Matérn-5/2 kernel (Section 3.2).

The squared distance is a weighted sum over blocks, one length scale per block. Hyperparameters
are maximum a posteriori, found by multi-start L-BFGS with analytic gradients.

| symbol | meaning | shape, unit |
|---|---|---|
| n, m, b | observations, queries, blocks of features | count |
| `points`, `outputs` | encoded configurations and the modelled objective | (n, features), (n,) |
| d | weighted distance: d² is the sum over blocks of squared distance / length scale² | (m, n), 1 |
| r, s | √5 d, and the signal variance: k = s (1 + r + r²/3) exp(-r) | (m, n), outputs² |
| `theta` | logarithms of length scales, signal and noise variance | (b + 2,) |
| L, `factor` | Cholesky factor of K + noise I | (n, n) |
| alpha, `weights` | (K + noise I)⁻¹ outputs; the mean is k alpha | (n,) |
| `whitened` | L⁻¹ outputs | (n,) |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import minimize

Array: TypeAlias = np.ndarray[Any, Any]
_BOUND = (math.log(1e-2), math.log(1e2))
# Equal length scales to start from, as multiples, and the variances of the noise.
_TIMES = (0.25, 0.5, 1.0, 2.0)
_NOISES = (1e-3, 1e-1)


@dataclass(frozen=True)
class Priors:
    """Priors of the hyperparameters, for distances up to one and outputs of variance one.

    The length scales and the signal variance have gamma densities (shape, rate); the
    logarithm of the noise variance is normal (mean, standard deviation).
    """

    lengthscale: tuple[float, float] | None = (2.0, 1.5)
    signal: tuple[float, float] | None = (2.0, 0.5)
    noise: tuple[float, float] = (math.log(1e-3), 1.5)


@dataclass(frozen=True)
class Hyperparameters:
    """Logarithms of the length scales (one per block), the signal and the noise variance."""

    theta: Array

    @property
    def lengthscales(self) -> Array:
        """Length scales, one per block."""
        return np.asarray(np.exp(self.theta[:-2]))

    @property
    def signal(self) -> float:
        """Variance of the noise-free values."""
        return math.exp(self.theta[-2])

    @property
    def noise(self) -> float:
        """Variance of the noise."""
        return math.exp(self.theta[-1])


class Posterior:
    """The posterior of a Gaussian process with given hyperparameters.

    Args:
        points: shape (n, features).
        outputs: shape (n,).
        blocks: the block of each feature.
        hyper: the hyperparameters.
        extra_noise: a variance added to each output's noise, shape (n,), or None.
    """

    def __init__(
        self,
        points: Array,
        outputs: Array,
        blocks: Array,
        hyper: Hyperparameters,
        extra_noise: Array | None = None,
    ) -> None:
        self.hyper = hyper
        self._weights = (1.0 / hyper.lengthscales)[blocks]
        self.scaled = points * self._weights
        self._norms = (self.scaled**2).sum(axis=1)
        self.outputs = outputs
        kernel = self.kernel(self.scaled, self._norms)
        kernel.flat[:: len(kernel) + 1] += hyper.noise + 1e-9 * hyper.signal
        if extra_noise is not None:
            kernel.flat[:: len(kernel) + 1] += extra_noise
        factor, failed = lapack.dpotrf(kernel, lower=1, clean=1)
        if failed:
            raise np.linalg.LinAlgError("the kernel matrix is not positive definite")
        self.factor = factor
        self._finish()

    def _finish(self) -> None:
        self.inverse_factor, _ = lapack.dtrtri(self.factor, lower=1)
        whitened = self.inverse_factor @ self.outputs
        self.weights = self.inverse_factor.T @ whitened

    def extend(self, points: Array, outputs: Array) -> Posterior:
        """Return the posterior after more observations, by extending the factor: O(n² m)."""
        other = object.__new__(Posterior)
        other.hyper, other._weights = self.hyper, self._weights
        scaled = points * self._weights
        norms = (scaled**2).sum(axis=1)
        cross = self.kernel(scaled, norms)
        other.scaled = np.concatenate([self.scaled, scaled])
        other._norms = np.append(self._norms, norms)
        other.outputs = np.append(self.outputs, outputs)
        below = cross @ self.inverse_factor.T
        corner = (
            _matern(_squared_distances(scaled, norms, scaled, norms), self.hyper.signal)
            - below @ below.T
        )
        corner.flat[:: len(corner) + 1] += self.hyper.noise + 1e-9 * self.hyper.signal
        small, failed = lapack.dpotrf(corner, lower=1, clean=1)
        if failed:
            raise np.linalg.LinAlgError("the kernel matrix is not positive definite")
        n, m = len(self.scaled), len(scaled)
        other.factor = np.zeros((n + m, n + m))
        other.factor[:n, :n] = self.factor
        other.factor[n:, :n] = below
        other.factor[n:, n:] = small
        other._finish()
        return other

    def kernel(self, scaled: Array, norms: Array) -> Array:
        """Return covariances of scaled points with the observed ones, shape (m, n)."""
        squared = _squared_distances(scaled, norms, self.scaled, self._norms)
        return _matern(squared, self.hyper.signal)

    @property
    def points(self) -> Array:
        """The observed points, shape (n, features)."""
        return np.asarray(self.scaled / self._weights)

    def covariances(self, points: Array) -> Array:
        """Return covariances of points with the observed ones, shape (m, n)."""
        scaled = points * self._weights
        return self.kernel(scaled, (scaled**2).sum(axis=1))

    def prior(self, here: Array, there: Array) -> Array:
        """Return covariances between points before anything is observed, shape (m, k)."""
        a, b = here * self._weights, there * self._weights
        squared = _squared_distances(a, (a**2).sum(axis=1), b, (b**2).sum(axis=1))
        return _matern(squared, self.hyper.signal)

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Return mean and variance of the noise-free value at ``points``, shapes (m,)."""
        scaled = points * self._weights
        cross = self.kernel(scaled, (scaled**2).sum(axis=1))
        mean = cross @ self.weights
        explained = cross @ self.inverse_factor.T
        variance = self.hyper.signal - np.einsum("ij,ij->i", explained, explained)
        return mean, np.maximum(variance, 1e-12 * self.hyper.signal)


def _squared_distances(a: Array, a_norms: Array, b: Array, b_norms: Array) -> Array:
    squared = a @ b.T
    squared *= -2.0
    squared += a_norms[:, None]
    squared += b_norms
    np.maximum(squared, 0.0, out=squared)
    return squared


def _matern(squared: Array, signal: float) -> Array:
    """Matérn 5/2 of squared weighted distances: s (1 + r + r²/3) exp(-r), r = √5 d."""
    r = np.sqrt(squared * 5.0)
    squared *= 5.0 / 3.0
    squared += 1.0
    squared += r
    squared *= signal
    squared *= np.exp(-r)
    return squared


class MarginalLikelihood:
    """The negative log posterior of the hyperparameters and its gradient (MAP of Section 3.2).

    Args:
        points: as for `Posterior`.
        outputs: as for `Posterior`.
        blocks: as for `Posterior`.
        priors: see `Priors`.
        extra_noise: as for `Posterior`.
    """

    def __init__(
        self,
        points: Array,
        outputs: Array,
        blocks: Array,
        priors: Priors,
        extra_noise: Array | None = None,
    ) -> None:
        self.outputs = outputs
        self.priors = priors
        self.extra = extra_noise
        self.count = len(points)
        self.rows, self.columns = np.tril_indices(self.count, -1)
        difference = (points[self.rows] - points[self.columns]) ** 2
        size = int(blocks.max()) + 1 if len(blocks) else 0
        self.squared = (
            np.stack([difference[:, blocks == b].sum(axis=1) for b in range(size)])
            if size
            else np.zeros((0, len(self.rows)))
        )

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Return value and gradient at ``theta``, logarithms as in `Hyperparameters`."""
        weights = np.exp(-2.0 * theta[:-2])
        signal, noise = math.exp(theta[-2]), math.exp(theta[-1])
        r = np.sqrt(5.0 * (weights @ self.squared))
        decay = signal * np.exp(-r)
        off_diagonal = (1.0 + r + r * r / 3.0) * decay
        kernel = np.zeros((self.count, self.count), order="F")
        kernel[self.rows, self.columns] = off_diagonal
        kernel.flat[:: self.count + 1] = signal * (1.0 + 1e-9) + noise
        if self.extra is not None:
            kernel.flat[:: self.count + 1] += self.extra
        factor, failed = lapack.dpotrf(kernel, lower=1, clean=0, overwrite_a=1)
        if failed:
            return 1e25, np.zeros_like(theta)
        log_determinant = 2.0 * np.log(np.diagonal(factor)).sum()
        alpha, _ = lapack.dpotrs(factor, self.outputs, lower=1)
        value = 0.5 * (self.outputs @ alpha + log_determinant)
        inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
        # d value / d K = (K^-1 - alpha alpha^T) / 2; off-diagonal pairs count twice
        pull = inverse[self.rows, self.columns] - alpha[self.rows] * alpha[self.columns]
        trace = np.diagonal(inverse) - alpha * alpha
        gradient = np.empty_like(theta)
        slope = pull * decay * (1.0 + r) * (5.0 / 3.0)
        gradient[:-2] = weights * (self.squared @ slope)
        gradient[-2] = pull @ off_diagonal + 0.5 * signal * trace.sum()
        gradient[-1] = 0.5 * noise * trace.sum()
        return value + self._add_priors(theta, gradient), gradient

    def _add_priors(self, theta: Array, gradient: Array) -> float:
        """Add the priors' gradient, and return their value."""
        mean, deviation = self.priors.noise
        total = 0.5 * ((theta[-1] - mean) / deviation) ** 2
        gradient[-1] += (theta[-1] - mean) / deviation**2
        if self.priors.lengthscale is not None:
            shape, rate = self.priors.lengthscale
            lengths = rate * np.exp(theta[:-2])
            total += float((lengths - shape * theta[:-2]).sum())
            gradient[:-2] += lengths - shape
        if self.priors.signal is not None:
            shape, rate = self.priors.signal
            signal = rate * math.exp(theta[-2])
            total += signal - shape * theta[-2]
            gradient[-2] += signal - shape
        return float(total)


def fit(
    likelihood: MarginalLikelihood,
    rng: np.random.Generator,
    *,
    previous: Array | None = None,
    draws: int = 10,
    starts: int = 2,
    iterations: int = 30,
    equal: bool = False,
) -> Hyperparameters:
    """Return hyperparameters of (nearly) the largest posterior density.

    ``draws`` starting points are drawn log-uniformly; the best ``starts`` of them and the
    ``previous`` optimum, if given, are refined by ``iterations`` steps of L-BFGS each.

    With ``equal``, starting points have equal length scales, from a quarter of their prior mean to
    twice it, in place of random ones: of many random ones, some are so short that all points are
    unrelated.
    """
    size = len(likelihood.squared) + 2
    candidates: list[Array] = []
    if draws and equal:
        shape, rate = likelihood.priors.lengthscale or (1.0, 1.0)
        tried = [_equal(size, shape / rate * f, n) for f in _TIMES for n in _NOISES]
        candidates = [min(tried, key=lambda theta: likelihood(theta)[0])]
    elif draws:
        scored: list[tuple[float, int, Array]] = []
        for _ in range(draws):
            theta = np.empty(size)
            theta[:-2] = np.log(10.0) * rng.uniform(-1.0, 1.0, size - 2)
            theta[-2] = np.log(10.0) * rng.uniform(-1.0, 1.0)
            theta[-1] = np.log(10.0) * rng.uniform(-5.0, -2.0)
            scored.append((likelihood(theta)[0], len(scored), theta))
        candidates = [theta for _, _, theta in sorted(scored, key=lambda s: s[:2])[:starts]]
    if previous is not None and len(previous) == size:
        candidates.append(previous)
    best: tuple[float, Array] | None = None
    bounds = [_BOUND] * (size - 2) + [(math.log(1e-2), math.log(1e3)), (math.log(1e-7), 0.7)]
    low, high = (np.array(b) for b in zip(*bounds, strict=True))
    for theta in candidates:
        found = minimize(
            likelihood,
            np.clip(theta, low, high),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": iterations, "maxcor": 8},
        )
        if best is None or found.fun < best[0]:
            best = (float(found.fun), np.asarray(found.x))
    if best is None:
        raise ValueError("no starting point: give previous hyperparameters or draws > 0")
    return Hyperparameters(best[1])


def _equal(size: int, lengthscale: float, noise: float) -> Array:
    """Return the logarithms of equal length scales, a signal variance of one, and the noise."""
    theta = np.full(size, math.log(lengthscale))
    theta[-2:] = 0.0, math.log(noise)
    return theta
