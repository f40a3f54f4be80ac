"""Objectives that may hang, crash, fork or exhaust memory: each call in a worker process."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tilewright.measure import Candidate, RunLimits, Timing, load_builder, measure_one, reference_to
from tilewright.tuning.space.space import Configuration
from tilewright.tuning.trial import plain, unplain
from tilewright.tuning.tune import Objective, evaluate

_ONCE = Timing(warmup=0, min_samples=1, max_samples=1, seconds=math.inf, sample_seconds=0.0)


class Isolated:
    """An objective for `tilewright.tuning.tune` that is called in a separate process.

    A call that takes more than ``seconds`` is a ``timeout``, one that uses more than
    ``memory_bytes`` is ``out_of_memory``, and a process that dies is ``crashed``. All processes
    that it started are killed with it, and its output is limited.

    Args:
        objective: a function at the top level of a module, which the worker imports itself.
        seconds: wall time of a call.
        memory_bytes: resident memory of the process and its children.
        exclusive: run one call at a time, for objectives that time themselves with several
            ``jobs``.

    Raises:
        TilewrightError: the objective cannot be imported by another process.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        seconds: float = 60.0,
        memory_bytes: int = 8 << 30,
        exclusive: bool = False,
    ) -> None:
        self.name = reference_to(objective)
        self.limits = RunLimits(seconds, seconds, memory_bytes)
        self.exclusive = exclusive

    def __call__(self, configuration: Configuration, *limit: float) -> dict[str, Any]:
        """Call the function; return the outcome as keyword arguments of `Tuner.tell`."""
        payload = {
            "objective": self.name,
            "configuration": plain(configuration),
            "limit": list(limit),
            "exclusive": self.exclusive,
        }
        found = measure_one(
            Candidate("tilewright.tuning.isolated:IsolatedCall", payload), self.limits, _ONCE
        )
        if found.ok:
            return dict(found.details["outcome"])
        return {"status": found.status, "message": found.message}


class IsolatedCall:
    """One call: made while building (others may run), or while timing if exclusive."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Take the payload that `Isolated` sends."""
        self._payload = payload
        self._outcome: dict[str, Any] | None = None
        if not payload["exclusive"]:
            self.run()

    def run(self) -> None:
        """Call the objective, once."""
        if self._outcome is None:
            objective = load_builder(self._payload["objective"])
            configuration = unplain(self._payload["configuration"])
            self._outcome = evaluate(objective, configuration, *self._payload["limit"])

    def details(self) -> dict[str, Any]:
        """Return the outcome of the call."""
        return {"outcome": self._outcome}
