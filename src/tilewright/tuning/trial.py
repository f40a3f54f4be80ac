"""Suggestions of the tuner, and trials that report their outcomes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.report import units
from tilewright.tuning.space.space import Configuration


@dataclass(frozen=True)
class Suggestion:
    """A configuration to evaluate next.

    ``index`` counts decisions from zero. ``origin`` says where it came from: ``queue``,
    ``random`` or ``model``. ``theta`` are the model's hyperparameters after this decision and
    ``expected`` the improvement it expects, as a share of the best value.
    """

    index: int
    configuration: Configuration
    origin: str
    theta: tuple[float, ...] = ()
    expected: float | None = None


@dataclass(frozen=True)
class Trial:
    """A configuration with its outcome.

    ``status`` is one of `tilewright.measure.STATUSES`; ``values`` has one entry per objective
    (smaller is better), empty if it failed. ``lower_bound`` says that the evaluation was
    cut short, so the true value is at least this large.
    """

    suggestion: Suggestion
    status: str
    values: tuple[float, ...] = ()
    lower_bound: bool = False
    message: str = ""
    seconds: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the evaluation succeeded."""
        return self.status == "ok"

    @property
    def value(self) -> float:
        """The first objective; infinite if it failed."""
        return self.values[0] if self.ok else math.inf

    @property
    def configuration(self) -> Configuration:
        """The configuration that was evaluated."""
        return self.suggestion.configuration

    def to_json(self) -> dict[str, Any]:
        """Return plain data; `from_json` reads it back exactly."""
        asked = self.suggestion
        return {
            "index": asked.index,
            "configuration": plain(asked.configuration),
            "origin": asked.origin,
            "theta": list(asked.theta),
            "expected": asked.expected,
            "status": self.status,
            "values": list(self.values),
            "lower_bound": self.lower_bound,
            "message": self.message,
            "seconds": self.seconds,
            "details": dict(self.details),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Trial:
        """Read what `to_json` wrote."""
        asked = Suggestion(
            data["index"],
            unplain(data["configuration"]),
            data["origin"],
            tuple(data["theta"]),
            data["expected"],
        )
        return Trial(
            asked,
            data["status"],
            tuple(data["values"]),
            data["lower_bound"],
            data["message"],
            data["seconds"],
            data["details"],
        )


def plain(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as JSON data: permutations become lists."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in configuration.items()}


def unplain(configuration: Mapping[str, Any]) -> Configuration:
    """Return a configuration of JSON data: lists become permutations."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in configuration.items()}


def middle(values: list[tuple[float, ...]]) -> tuple[float, ...]:
    """Return the median of each objective over repeated measurements."""
    return tuple(statistics.median(column) for column in zip(*values, strict=True))


def ranked(configurations: Iterable[Sequence[Trial]]) -> list[Trial]:
    """Return for each configuration that works a trial with its medians, the best first.

    `configurations` has the trials of each. One works if more than half of them ended well.
    """
    scored = []
    for place, trials in enumerate(configurations):
        good = [t for t in trials if t.ok and not t.lower_bound]
        if len(good) * 2 > len(trials):
            values = middle([t.values for t in good])
            scored.append((values[0], place, replace(good[0], values=values)))
    return [trial for _, _, trial in sorted(scored, key=lambda s: s[:2])]


def confirming(trials: Iterable[Trial]) -> int:
    """Return how many trials measure the best configurations again, at the end of a run."""
    return sum(t.suggestion.origin == "confirm" for t in trials)


def counted(trials: Sequence[Trial]) -> str:
    """Return the number of evaluations, of those that confirm the best, and of failures."""
    again = confirming(trials)
    text = units.plural(len(trials) - again, "evaluation")
    if again:
        text += f" and {again} to confirm the best"
    return f"{text}, {sum(not t.ok for t in trials)} failed"
