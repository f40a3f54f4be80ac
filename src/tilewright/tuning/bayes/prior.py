"""The user's prior on the optimum (PiBO)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilewright.tuning.errors import SettingsError, nearest
from tilewright.tuning.space.parameters import Integer, Permutation, Real
from tilewright.tuning.space.space import Space

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class OptimumPrior:
    """Weights of parameter values: how many times likelier the optimum has them than weight 1.

    ``weights`` maps a discrete parameter's name to its values' weights (1 where left out), or
    a real parameter's name to (centre, spread): a normal density around the centre. The
    weights multiply the expected improvement, with an exponent ``strength`` / n that falls
    with the number n of evaluations, so that a wrong prior is overcome.

    Source: Hvarfner et al., PiBO: Augmenting Acquisition Functions with User Beliefs, 2022.
    """

    weights: Mapping[str, Mapping[Any, float] | tuple[float, float]]
    strength: float = 10.0

    def check(self, space: Space) -> None:
        """Reject a prior that does not fit the space.

        Raises:
            SettingsError: an unknown name or value, or a weight that is not above zero.
        """
        for name, weights in self.weights.items():
            if name not in space.index:
                raise SettingsError(
                    f"the prior names {name!r}, not a parameter{nearest(name, space.index)}; "
                    f"the parameters are {', '.join(space.index)}"
                )
            p = space[name]
            if isinstance(p, Permutation):
                raise SettingsError(f"the prior names {name}: a permutation has no prior")
            if isinstance(p, Real) or not isinstance(weights, Mapping):
                right = isinstance(p, Real) and isinstance(weights, tuple) and len(weights) == 2
                if not right or not (math.isfinite(weights[0]) and 0 < weights[1] < math.inf):
                    raise SettingsError(
                        f"the prior of {name} is {weights!r}; a real parameter takes (centre, "
                        "spread above 0), both finite, any other a dictionary of values and weights"
                    )
                continue
            for value, weight in weights.items():
                whole = range(p.low, p.high + 1) if isinstance(p, Integer) else p.values
                if value not in whole:
                    raise SettingsError(f"the prior of {name}: {value!r} is not one of its values")
                if not 0 < weight < math.inf:
                    raise SettingsError(
                        f"the prior of {name}: the weight {weight} is not a finite number above 0"
                    )

    def log(self, space: Space, codes: Array) -> Array:
        """Return logarithm of the prior at codes, up to a constant, shape (count,)."""
        columns = space.value_columns(codes)
        result = np.zeros(len(codes))
        for name, weights in self.weights.items():
            column = columns[name]
            if isinstance(weights, tuple):
                result -= 0.5 * ((column - weights[0]) / weights[1]) ** 2
                continue
            for value, weight in weights.items():
                result[column == value] += np.log(weight)
        return result

    def tempered(self, space: Space, evaluations: int) -> Callable[[Array], Array]:
        """Return the term for the logarithm of the acquisition after `evaluations` evaluations."""
        power = self.strength / max(1, evaluations)
        return lambda codes: power * self.log(space, codes)
