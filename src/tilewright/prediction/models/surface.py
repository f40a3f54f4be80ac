"""Our model of log time: terms of a sum of monomials, times a smooth correction.

With standardised logarithms z of the sizes, ``exp(a . z + b)`` is a monomial such as
``c m n k / threads``. The time of a kernel is a sum of them (set-up, traffic, arithmetic); a single
term is the linear path. A layer of hyperbolic tangents corrects for caches and changes of regime:

    log t = log sum_k exp(a_k . z + b_k) + sum_h v_h tanh(w_h . z + u_h)

| symbol | meaning | shape, unit |
|---|---|---|
| B, n | parameter vectors evaluated at once, instances | count |
| z, `inputs` | standardised inputs, with a last row of ones | (inputs + 1, n) |
| t | run time; `value` is log t less the median of the training instances | (B, n), log seconds |
| a_k, b_k | exponents and constant of term k of K | (B, K, inputs + 1) |
| w_h, u_h | weights and constant of hidden unit h of H | (B, H, inputs + 1) |
| v_h | output weight of hidden unit h | (B, H) |
| `share` | each term's share of the sum | (B, K, n) |
| `bent` | the hyperbolic tangents | (B, H, n) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Shape:
    """The numbers of inputs, monomial terms and hidden units; parameters are one vector.

    The order is: for each term its exponents and its constant, then for each hidden unit its
    weights and its constant, then the output weights of the hidden units.
    """

    inputs: int
    terms: int
    hidden: int

    @property
    def count(self) -> int:
        """The number of fitted parameters."""
        return self.terms * (self.inputs + 1) + self.hidden * (self.inputs + 2)

    def split(self, theta: Array) -> tuple[Array, Array, Array]:
        """Split terms (B, terms, inputs + 1), units (B, hidden, inputs + 1), output (B, hidden)."""
        p, k, h = self.inputs + 1, self.terms, self.hidden
        shape = theta.shape[:-1]
        terms = theta[..., : k * p].reshape(*shape, k, p)
        units = theta[..., k * p : (k + h) * p].reshape(*shape, h, p)
        return terms, units, theta[..., (k + h) * p :]


def value(shape: Shape, theta: Array, inputs: Array) -> Array:
    """Return log time (B, n) for parameters (B, count) and inputs with a one (inputs + 1, n)."""
    result, _, _ = _forward(shape, theta, inputs)
    return result


def value_and_jacobian(shape: Shape, theta: Array, inputs: Array) -> tuple[Array, Array]:
    """Return `value`, and its derivatives in the parameters, shape (B, count, n)."""
    result, share, bent = _forward(shape, theta, inputs)
    batch, n = result.shape
    p, k, h = shape.inputs + 1, shape.terms, shape.hidden
    outputs = shape.split(theta)[2]
    slope = np.concatenate([share, outputs[..., None] * (1 - bent * bent)], axis=1)
    jacobian = np.empty((batch, shape.count, n))
    linear = jacobian[:, : (k + h) * p].reshape(batch, k + h, p, n)
    np.multiply(slope[:, :, None, :], inputs, out=linear)
    jacobian[:, (k + h) * p :] = bent
    return result, jacobian


def _forward(shape: Shape, theta: Array, inputs: Array) -> tuple[Array, Array, Array]:
    """Return log time (B, n), terms' shares of the sum (B, terms, n), tanhs (B, hidden, n)."""
    p, k, h = shape.inputs + 1, shape.terms, shape.hidden
    layer = theta[:, : (k + h) * p].reshape(-1, p) @ inputs
    layer = layer.reshape(len(theta), k + h, -1)
    exponents = layer[:, :k]
    bent = np.tanh(layer[:, k:])
    outputs = theta[:, (k + h) * p :]
    correction = (outputs[:, None, :] @ bent)[:, 0] if h else np.zeros_like(exponents[:, 0])
    if k == 1:
        return exponents[:, 0] + correction, np.ones_like(exponents), bent
    largest = exponents.max(axis=1, keepdims=True)
    share = np.exp(exponents - largest)
    total = share.sum(axis=1, keepdims=True)
    share /= total
    return (largest + np.log(total))[:, 0] + correction, share, bent
