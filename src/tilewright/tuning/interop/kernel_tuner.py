"""A strategy for Kernel Tuner (its documented interface for custom optimisers, ``OptAlg``).

    from tilewright.tuning.interop.kernel_tuner import TilewrightStrategy
    kernel_tuner.tune_kernel(..., strategy=TilewrightStrategy(seed=0))

Needs the package ``kernel_tuner`` (1.2 or later). Kernel Tuner enumerates the feasible
configurations before it calls a strategy; the search sees its restrictions as the list of
configurations that satisfy them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from kernel_tuner.strategies.wrapper import OptAlg, OptAlgWrapper
from kernel_tuner.util import ErrorConfig, StopCriterionReached

from tilewright.tuning.interop.replay import numbers
from tilewright.tuning.settings import Settings
from tilewright.tuning.space.listing import listed_space
from tilewright.tuning.space.space import Space
from tilewright.tuning.tuner import Tuner


class TilewrightStrategy(OptAlg):  # type: ignore[misc]
    """Tunes with `tilewright.tuning.Tuner`.

    Args:
        seed: the seed of all random choices.
        settings: the pieces of the search.
    """

    def __init__(self, seed: int = 0, settings: Settings | None = None) -> None:
        super().__init__()
        self.seed = seed
        self.settings = settings
        self.constraint_aware = True

    def __call__(self, func: Any, searchspace: Any) -> tuple[tuple[Any, ...], float]:
        """Search until the budget is spent; return the best configuration and its cost."""
        names = list(searchspace.tune_params)
        space = self._space(searchspace, names)
        tuner = Tuner(space, seed=self.seed, settings=self.settings)
        try:
            while True:
                asked = tuner.ask()
                if asked is None:
                    break
                found = func(tuple(asked.configuration[name] for name in names))
                if isinstance(found, ErrorConfig) or not np.isfinite(found) or found > 1e300:
                    tuner.tell(asked, status="run_failed")
                else:
                    tuner.tell(asked, float(found))
        except StopCriterionReached:
            pass  # the budget is used up: the best so far is the result
        best = tuner.best
        if best is None:
            return (), float("inf")
        return tuple(best.configuration[name] for name in names), best.value

    def tune(self, searchspace: Any, runner: Any, tuning_options: Any) -> Any:
        """Run the search; `tune_kernel` calls this method of a strategy object."""
        return OptAlgWrapper(self).tune(searchspace, runner, tuning_options)

    def _space(self, searchspace: Any, names: list[str]) -> Space:
        parameters = [numbers(name, list(searchspace.tune_params[name])) for name in names]
        dense = math.prod(len(searchspace.tune_params[name]) for name in names)
        if len(searchspace.list) == dense:
            return Space(parameters)
        return listed_space(parameters, searchspace.list)
