"""Levenberg-Marquardt for a batch of small least-squares problems of one shape.

The problems differ in their starting points and in the weights of the instances (a fold's
held-out ones weigh nothing). The loss is Huber's, by reweighting; the scale at which it bends
follows the residuals. The last steps take the relative error instead of the log residual:
they agree where errors are small, and the relative error favours the faster of disturbed runs.
A ridge holds the parameters near zero, which is also a Gaussian prior on the weights (MacKay
1992; Foresee and Hagan 1997).

| symbol | meaning | shape, unit |
|---|---|---|
| B, n | problems of the batch, instances | count |
| `theta` | parameters of each problem | (B, count) |
| `logs`, `residual` | log times less their median, and model less `logs` | (n,), (B, n) |
| `weights` | weights of the instances, with sum 1 in each problem | (B, n) |
| J, `jacobian` | derivatives of the model in the parameters | (B, count, n) |
| `trust` | w: with it, the squared residual has the gradient of Huber's loss | (B, n) |
| `gram` | J W Jᵀ + ridge + damping | (B, count, count) |
| `slope` | J W residual + ridge theta | (B, count) |
| `scale` | robust standard deviation of the residuals | (B,) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilewright.prediction.models.surface import Shape, value, value_and_jacobian

Array: TypeAlias = np.ndarray[Any, Any]
# The ridge is in units of the noise; early residuals are not noise and would stall the start.
_WIDEST = 0.05
_RELATIVE = 0.6  # the share of the steps after which the error is relative, not of log time
_BEND = 1.5  # robust standard deviations beyond which Huber's loss is linear


@dataclass(frozen=True)
class FittedParameters:
    """Parameters (B, count), the loss of each problem (B,) and its residuals' scale (B,)."""

    theta: Array
    loss: Array
    scale: Array


def minimise(
    shape: Shape,
    theta: Array,
    inputs: Array,
    logs: Array,
    weights: Array,
    *,
    ridge: Array,
    steps: int,
    relative: float = _RELATIVE,
) -> FittedParameters:
    """Fit log times.

    Args:
        shape: the shape of the model.
        theta: starting points, shape (B, count).
        inputs: with a row of ones, shape (inputs + 1, n).
        logs: targets, shape (n,) or, if problems differ, (B, n).
        weights: the weights of the instances in each problem, shape (B, n).
        ridge: strength for each parameter, shape (count,), towards zero.
        steps: Levenberg-Marquardt steps at most.
        relative: the share of the steps after which the error is relative; 1 for none.
    """
    theta = theta.copy()
    batch = len(theta)
    weights = weights / weights.sum(axis=1, keepdims=True)
    damping = np.full(batch, 1e-2)
    diagonal = np.arange(shape.count)
    current, jacobian = value_and_jacobian(shape, theta, inputs)
    residual = current - logs
    scale = _scale(residual, weights)
    late = False
    for step in range(steps):
        late = step >= relative * steps
        loss = _loss(residual, weights, scale, late) + _penalty(theta, ridge, scale)
        weighted = jacobian * (weights * _trust(residual, scale, late))[:, None, :]
        gram = weighted @ jacobian.transpose(0, 2, 1)
        slope = (weighted @ residual[..., None])[..., 0]
        pull = ridge * np.minimum(scale[:, None], _WIDEST) ** 2
        slope += pull * theta
        gram[:, diagonal, diagonal] += pull
        size = gram[:, diagonal, diagonal]
        gram[:, diagonal, diagonal] += damping[:, None] * (size + 1e-3 * size.mean(axis=1)[:, None])
        try:
            move = np.linalg.solve(gram, slope[..., None])[..., 0]
        except np.linalg.LinAlgError:
            damping *= 10
            continue
        trial = theta - move
        tried = value(shape, trial, inputs) - logs
        new = _loss(tried, weights, scale, late) + _penalty(trial, ridge, scale)
        better = new < loss
        theta = np.where(better[:, None], trial, theta)
        damping = np.clip(np.where(better, damping / 4, damping * 4), 1e-9, 1e9)
        if better.any():
            current, jacobian = value_and_jacobian(shape, theta, inputs)
            residual = current - logs
        scale = _scale(residual, weights)
    loss = _loss(residual, weights, scale, late) + _penalty(theta, ridge, scale)
    return FittedParameters(theta, loss, scale)


def _scale(residual: Array, weights: Array) -> Array:
    """Return a robust standard deviation of each problem's residuals: their median size."""
    size = np.sort(np.where(weights > 0, np.abs(residual), np.inf), axis=1)
    middle = (np.count_nonzero(weights > 0, axis=1) - 1) // 2
    median = size[np.arange(len(size)), middle]
    return np.asarray(np.clip(1.4826 * median, 1e-4, 1e6))


def _error(residual: Array, relative: bool) -> Array:
    """Return the error of log time, or of time relative to the measured one (at most e^20)."""
    return np.expm1(np.minimum(residual, 20.0)) if relative else residual


def _trust(residual: Array, scale: Array, relative: bool) -> Array:
    """Return weights with which a squared log residual has the gradient of Huber's loss."""
    error = _error(residual, relative)
    size = np.maximum(np.abs(error), 1e-300)
    trust = np.minimum(1.0, _BEND * scale[:, None] / size)
    if relative:
        # d error / d residual is error + 1; error / residual is one where both vanish.
        ratio = np.where(np.abs(residual) > 1e-9, error / np.where(residual, residual, 1.0), 1.0)
        trust = trust * ratio * (error + 1.0)
    return np.asarray(trust)


def _loss(residual: Array, weights: Array, scale: Array, relative: bool) -> Array:
    size = np.abs(_error(residual, relative))
    bend = _BEND * scale[:, None]
    loss = np.where(size <= bend, 0.5 * size**2, bend * (size - 0.5 * bend))
    total = (weights * loss).sum(axis=1)
    return np.asarray(np.where(np.isfinite(total), total, np.inf))


def _penalty(theta: Array, ridge: Array, scale: Array) -> Array:
    return np.asarray(0.5 * np.minimum(scale, _WIDEST) ** 2 * (ridge * theta**2).sum(axis=1))
