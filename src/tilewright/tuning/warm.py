"""Warm starts: what evaluations of a similar problem say about this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilewright.tuning.errors import ConfigurationError
from tilewright.tuning.space import Space
from tilewright.tuning.trial import Trial

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class WarmStart:
    """Evaluations of a similar problem: another size, another machine.

    ``evaluations`` are pairs of a configuration and its objective (None where it failed).
    Its ``queued`` best configurations that are feasible here are asked first; after that the
    model has only what was measured here.
    """

    evaluations: Sequence[tuple[Mapping[str, Any], float | None]]
    queued: int = 5

    @staticmethod
    def of(trials: Sequence[Trial], queued: int = 5) -> WarmStart:
        """A warm start from the trials of an earlier run."""
        pairs = [(t.configuration, t.value if t.ok else None) for t in trials]
        return WarmStart(pairs, queued)

    def leaders(self, space: Space) -> list[Array]:
        """The codes to ask first: good ones that are also unlike one another.

        The best one comes first; each further one is the best of what differs from all
        chosen ones in at least two parameters, as far as there are such.
        """
        known = [(value, i) for i, (_, value) in enumerate(self.evaluations) if value is not None]
        chosen: list[Array] = []
        for apart in (2, 1):
            for _, i in sorted(known):
                if len(chosen) >= self.queued:
                    return chosen
                try:
                    code = space.encode(self.evaluations[i][0])
                except ConfigurationError:
                    continue
                if not space.contains(code[None])[0]:
                    continue
                if all((code != other).sum() >= apart for other in chosen):
                    chosen.append(code)
        return chosen
