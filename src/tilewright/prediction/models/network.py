"""The paper's networks: dense layers, ReLU, Adam on the mean squared error, full batches.

Several restarts are trained together as one batched computation, because such small networks spend
their time in calls, not in arithmetic.

| symbol | meaning | shape, unit |
|---|---|---|
| n, R | instances, restarts that are trained together | count |
| `inputs`, `targets` | standardised features, and the values to predict | (n, inputs), (n,) |
| `parameters` | weights and biases of each layer in turn | (R, in, out), (R, 1, out) |
| `first`, `second` | Adam's running means of the gradient and of its square | as `parameters` |
| `losses` | mean squared error of each restart | (R,) |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8  # Kingma and Ba 2015, Algorithm 1


@dataclass(frozen=True)
class Network:
    """Weights of shape (inputs, outputs) and biases (outputs,) of each dense layer."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def __call__(self, inputs: Array) -> Array:
        """Return outputs of shape (n,) for standardised inputs of shape (n, inputs)."""
        layer = inputs
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            layer = np.maximum(layer @ weight + bias, 0.0)
        return np.asarray((layer @ self.weights[-1] + self.biases[-1])[:, 0])

    @property
    def count(self) -> int:
        """The number of weights and biases."""
        return sum(w.size for w in self.weights) + sum(b.size for b in self.biases)


def count_parameters(inputs: int, hidden: Sequence[int]) -> int:
    """Return weights and biases of a network with one output."""
    sizes = [inputs, *hidden, 1]
    return sum((a + 1) * b for a, b in pairwise(sizes))


def train(
    inputs: Array,
    targets: Array,
    hidden: Sequence[int],
    *,
    rates: Sequence[float],
    epochs: int,
    restarts: int,
    seed: int,
) -> tuple[Network, float]:
    """Return the restart with the smallest training loss, and that loss.

    Args:
        inputs: standardised, shape (n, inputs).
        targets: shape (n,).
        hidden: widths of the hidden layers.
        rates: Adam's learning rates, one stage after the other.
        epochs: full batches, over all stages together.
        restarts: the number of initialisations.
        seed: the seed of the initialisations (Glorot and Bengio 2010, uniform).
    """
    random = np.random.default_rng(seed)
    sizes = [inputs.shape[1], *hidden, 1]
    parameters: list[Array] = []
    for fan_in, fan_out in pairwise(sizes):
        bound = (6.0 / (fan_in + fan_out)) ** 0.5
        parameters.append(random.uniform(-bound, bound, (restarts, fan_in, fan_out)))
        parameters.append(np.zeros((restarts, 1, fan_out)))
    first = [np.zeros_like(p) for p in parameters]
    second = [np.zeros_like(p) for p in parameters]
    step = 0
    for rate in rates:
        for _ in range(epochs // len(rates)):
            step += 1
            gradients, _ = _gradients(parameters, inputs, targets)
            factor = rate * (1 - _BETA2**step) ** 0.5 / (1 - _BETA1**step)
            for p, g, m, v in zip(parameters, gradients, first, second, strict=True):
                m += (1 - _BETA1) * (g - m)
                v += (1 - _BETA2) * (g * g - v)
                p -= factor * m / (np.sqrt(v) + _EPSILON)
    _, losses = _gradients(parameters, inputs, targets)
    losses = np.where(np.isfinite(losses), losses, np.inf)
    best = int(losses.argmin())
    weights = tuple(p[best] for p in parameters[0::2])
    biases = tuple(p[best, 0] for p in parameters[1::2])
    return Network(weights, biases), float(losses[best])


def _gradients(parameters: list[Array], inputs: Array, targets: Array) -> tuple[list[Array], Array]:
    """Return gradients of the mean squared error by parameter array, and each restart's error."""
    layers: list[Array] = [np.broadcast_to(inputs, (len(parameters[0]), *inputs.shape))]
    depth = len(parameters) // 2
    for i in range(depth):
        value = layers[-1] @ parameters[2 * i] + parameters[2 * i + 1]
        layers.append(np.maximum(value, 0.0) if i < depth - 1 else value)
    error = layers[-1] - targets[:, None]
    losses = (error * error).mean(axis=(1, 2))
    gradients: list[Array] = []
    back = error * (2.0 / len(targets))
    for i in reversed(range(depth)):
        gradients.insert(0, back.sum(axis=1, keepdims=True))
        gradients.insert(0, layers[i].transpose(0, 2, 1) @ back)
        if i:
            back = (back @ parameters[2 * i].transpose(0, 2, 1)) * (layers[i] > 0)
    return gradients, losses
