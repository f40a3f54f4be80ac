"""Objectives that may hang, crash, fork or exhaust memory: each call in a worker process."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tilewright.measure import (
    Candidate,
    RunLimits,
    Timing,
    VerifyResult,
    load_builder,
    measure_one,
    reference_to,
)
from tilewright.tuning.space.space import Configuration
from tilewright.tuning.trial import plain, unplain
from tilewright.tuning.tune import Objective, evaluate

# Seconds to import the objective's module, which are not part of the call.
START_SECONDS = 60.0
_ONCE = Timing(warmup=0, min_samples=1, max_samples=1, seconds=math.inf, sample_seconds=0.0)


class Isolated:
    """An objective for `tilewright.tuning.tune` that is called in a separate process.

    A call that takes more than ``seconds`` is a ``timeout`` (importing the module of the objective
    does not count), one that uses more than
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
        # A worker may take twice the time of a run to verify its answer, which is when calls are
        # made that need not be alone.
        run_seconds = seconds if exclusive else seconds / 2
        self.limits = RunLimits(START_SECONDS, run_seconds, memory_bytes)
        self.seconds = seconds
        self.exclusive = exclusive

    def __call__(self, configuration: Configuration, *limit: float) -> dict[str, Any]:
        """Call the function; return the outcome as keyword arguments of `Tuner.tell`."""
        payload = {
            "objective": self.name,
            "configuration": plain(configuration),
            "limit": list(limit),
            "exclusive": self.exclusive,
        }
        candidate = Candidate(f"{__name__}:IsolatedCall", payload)
        found = measure_one(candidate, self.limits, _ONCE, preload=(__name__,))
        if found.ok:
            return dict(found.details["outcome"])
        message = found.message
        if found.status == "timeout":
            late = f"the call took more than {self.seconds:g} s; give Isolated more `seconds`"
            slow = f"importing {self.name.rpartition(':')[0]} took more than {START_SECONDS:g} s"
            message = slow if "building" in message else late
        return {"status": found.status, "message": message}


class IsolatedCall:
    """One call: made while verifying (others may run), or while timing if exclusive."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Import the objective in the payload that `Isolated` sends."""
        self._payload = payload
        self._objective = load_builder(payload["objective"])
        self._outcome: dict[str, Any] | None = None

    def verify(self) -> VerifyResult:
        """Call the objective, unless it must be alone."""
        if not self._payload["exclusive"]:
            self.run()
        return VerifyResult(True)

    def run(self) -> None:
        """Call the objective, once."""
        if self._outcome is None:
            configuration = unplain(self._payload["configuration"])
            self._outcome = evaluate(self._objective, configuration, *self._payload["limit"])

    def details(self) -> dict[str, Any]:
        """Return the outcome of the call."""
        return {"outcome": self._outcome}
