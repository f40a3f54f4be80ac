"""Real problems as the tuner and the recorder see them: measured in isolated workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.measure import Candidate, Measurement, RunLimits, Timing, measure_all, measure_one
from tilewright.tuning.space.space import Configuration, Space
from tilewright.tuning.trial import plain, unplain

_LIMITS = RunLimits(build_seconds=60.0, run_seconds=10.0, memory_bytes=4 << 30)
_TIMING = Timing(
    warmup=1, min_samples=5, max_samples=15, seconds=0.1, sample_seconds=0.001, precision=0.01
)


@dataclass(frozen=True)
class MeasuredProblem:
    """A problem whose configurations are built, verified and timed in workers of their own.

    A crash, a hang or a wrong answer is an outcome of the configuration.

    Attributes:
        name: the problem's name.
        space: its space.
        builder: what builds a configuration in a worker (see `tilewright.measure.Candidate`);
            it is given ``{"configuration": ..., **arguments}``.
        arguments: picklable data, such as the problem's size.
        preload: modules that the workers' server imports once.
        limits: the resources that a configuration may use.
        timing: how a configuration is timed.
    """

    name: str
    space: Space
    builder: str
    arguments: Mapping[str, Any]
    preload: tuple[str, ...] = ()
    limits: RunLimits = _LIMITS
    timing: Timing = field(default=_TIMING, repr=False)

    def candidate(self, configuration: Mapping[str, Any]) -> Candidate:
        """Return a configuration as workers take it."""
        return Candidate(self.builder, {**self.arguments, "configuration": plain(configuration)})

    def __call__(self, configuration: Mapping[str, Any]) -> Measurement:
        """Return the measurement of a configuration, for `tilewright.tuning.tune`."""
        return measure_one(self.candidate(configuration), self.limits, self.timing, self.preload)

    def measure(
        self, configurations: Iterable[Configuration], jobs: int | None = None
    ) -> Iterator[tuple[Configuration, Measurement]]:
        """Measure many, built ``jobs`` at once and timed alone; in the order that they end."""
        measured = measure_all(
            map(self.candidate, configurations),
            limits=self.limits,
            timing=self.timing,
            jobs=jobs,
            preload=self.preload,
        )
        for candidate, measurement in measured:
            yield unplain(candidate.payload["configuration"]), measurement


def compared(found: Any, expected: Any, tolerance: float) -> tuple[bool, str, float]:
    """Check an answer within a tolerance relative to the largest expected value.

    Returns:
        whether it is right, the reason if it is not, and the largest relative error.
    """
    import numpy as np

    scale = float(np.abs(expected).max()) or 1.0
    error = float(np.abs(np.asarray(found) - expected).max()) / scale
    right = bool(error <= tolerance)  # False for NaN
    return right, "" if right else f"the answer is off by {error:.3g} of its scale", error
