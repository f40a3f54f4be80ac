"""The tuner: suggests configurations and learns from their outcomes."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import numpy as np
from threadpoolctl import ThreadpoolController

from tilewright.measure import STATUSES
from tilewright.tuning.bayes.encoding import encoder
from tilewright.tuning.bayes.pareto import front, scalarise
from tilewright.tuning.bayes.prior import OptimumPrior
from tilewright.tuning.bayes.proposal import (
    Observations,
    Proposal,
    propose,
    random_proposal,
    spread_proposal,
)
from tilewright.tuning.bayes.warm import SourceModel, WarmStart
from tilewright.tuning.errors import ConfigurationError, SettingsError, nearest, whole
from tilewright.tuning.settings import Settings
from tilewright.tuning.space.space import Space
from tilewright.tuning.trial import Suggestion, Trial, middle, ranked

Array: TypeAlias = np.ndarray[Any, Any]
# Gain of the rest of a budget: scale * (evaluations left * expected gain of the next) ** power,
# with the expected gain averaged over the last decisions. Fitted to recorded searches, see the page
# docs/decisions/tuning-stopping.md
_GAIN_SCALE = 0.16
_GAIN_POWER = 0.36
_RECENT = 5


class Tuner:
    """Bayesian optimisation over a space, by `ask` and `tell` (smaller is better).

    Every decision is a function of the seed, its index and the earlier reports, so a run that is
    restored from its trials continues as if it had never stopped.

    Args:
        space: the search space.
        seed: the seed of all random choices.
        settings: the pieces of the search; the defaults are meant for every problem.
        queue: configurations to try first, such as a compiler's default or an expert's.
        objectives: how many values each evaluation reports.
        prior: where the user expects the optimum, or None.
        warm: evaluations of a similar problem, or of several, or None.

    Raises:
        ConfigurationError: a queued configuration is not feasible.
        SettingsError: a seed, setting or prior cannot be used.

    Example:
        >>> from tilewright.tuning import Integer, Space, Tuner
        >>> tuner = Tuner(Space([Integer("x", 0, 20)]), seed=1)
        >>> for _ in range(15):
        ...     asked = tuner.ask()
        ...     told = tuner.tell(asked, (asked.configuration["x"] - 13) ** 2)
        >>> tuner.best.configuration
        {'x': 13}
    """

    def __init__(
        self,
        space: Space,
        *,
        seed: int = 0,
        settings: Settings | None = None,
        queue: Sequence[Mapping[str, Any]] = (),
        objectives: int = 1,
        prior: OptimumPrior | None = None,
        warm: WarmStart | Sequence[WarmStart] | None = None,
    ) -> None:
        self.space = _space_of(space)
        self.seed = whole("seed", seed, 0)
        self.settings = settings or Settings()
        _check(self.settings)
        self.objectives = whole("objectives", objectives, 1)
        self.prior = prior
        if prior is not None:
            prior.check(space)
        self.warm = _warm_starts(warm)
        self.trials: list[Trial] = []
        self.pending: dict[int, Suggestion] = {}
        self._encoder = encoder(
            space,
            logs=self.settings.log_parameters,
            metric=self.settings.metric,
            alignment=self.settings.alignment,
        )
        self._queue = [self._checked(configuration) for configuration in queue]
        for turn in zip_longest(*(each.leaders(space) for each in self.warm)):
            self._queue += [code for code in turn if code is not None]
        self._next = 0
        self._theta: tuple[float, ...] = ()
        self._codes: dict[bytes, Array] = {}
        self._told: dict[bytes, list[Trial]] = {}
        # The values of each configuration, none if it fails, and whether they are lower bounds.
        self._outcomes: dict[bytes, tuple[tuple[float, ...], bool]] = {}

    def _checked(self, configuration: Mapping[str, Any]) -> Array:
        code = self.space.encode(configuration)
        if not self.space.contains(code[None])[0]:
            raise ConfigurationError(
                f"the queued configuration {dict(configuration)} breaks the known constraint "
                f"{self.space.broken(configuration)!r}"
            )
        return code

    # -- asking --------------------------------------------------------------------------

    def ask(self, index: int | None = None) -> Suggestion | None:
        """Return the next configuration to evaluate, or None when every one has been asked.

        Several may be pending at once; the model then uses its predictions for those.

        Args:
            index: the decision's index, at least `decisions`, for callers who count their own.
        """
        index = self._next if index is None else max(index, self._next)
        rng = np.random.default_rng([self.seed, index])
        taken = set(self._told) | {self._key(s.configuration) for s in self.pending.values()}
        # the matrices are small: several threads would mostly wait for each other
        with _threads().limit(limits=1):
            chosen = self._choose(rng, taken)
        if chosen is None:
            return None
        self._next = index + 1
        if chosen.theta:
            self._theta = chosen.theta
        configuration = self.space.decode(chosen.code)
        asked = Suggestion(index, configuration, chosen.origin, chosen.theta, chosen.expected)
        self.pending[index] = asked
        return asked

    @property
    def decisions(self) -> int:
        """The number of decisions taken, which is the index of the next one."""
        return self._next

    def _choose(self, rng: np.random.Generator, taken: set[bytes]) -> Proposal | None:
        while self._queue:
            code = self._queue.pop(0)
            if self.space.key(code) not in taken:
                return Proposal(code, "queue")
        if not self.settings.repeats and not self.space.reals and len(taken) >= self.space.count:
            return None
        seen = self._observations(rng)
        enough = int(seen.valid.sum()) >= 2 and (
            len(taken) >= self._initial() or self._led(seen, len(taken))
        )
        waiting = [self.space.encode(s.configuration) for s in self.pending.values()]
        pending = np.array(waiting).reshape(len(waiting), self.space.width)
        if not enough and self.settings.design == "uniform":
            return random_proposal(self.space, self.settings, rng, taken)
        if not enough:
            codes = np.concatenate([seen.codes, pending])
            return spread_proposal(self.space, self._encoder, self.settings, rng, taken, codes)
        return propose(
            self.space,
            self._encoder,
            seen,
            pending,
            self.settings,
            rng,
            taken,
            self._theta,
            self._bias(),
            self._source,
        )

    @functools.cached_property
    def _source(self) -> SourceModel | None:
        """The models of the warm starts, fitted once."""
        if not self.warm:
            return None
        rng = np.random.default_rng([self.seed, 0, 1])
        return SourceModel(self.warm, self._encoder, self.settings, rng)

    def _led(self, seen: Observations, count: int) -> bool:
        """Return whether a warm start decides in place of the initial design."""
        points = self._encoder(seen.codes[seen.valid])
        return self._source is not None and self._source.leads(
            points, seen.values[seen.valid], count
        )

    def _initial(self) -> int:
        if self.settings.initial is not None:
            return self.settings.initial
        varying = {label.partition(" ")[0] for label in self._encoder.labels}
        return min(10, len(varying) + 1)

    def _bias(self) -> Any:
        """Return the logarithm of the user's prior at codes, tempered as evidence comes in."""
        if self.prior is None:
            return None
        return self.prior.tempered(self.space, len(self._told))

    def _observations(self, rng: np.random.Generator) -> Observations:
        codes = np.array(list(self._codes.values())).reshape(len(self._codes), self.space.width)
        table = np.full((len(self._codes), self.objectives), math.nan)
        bounded = np.zeros(len(self._codes), dtype=bool)
        for row, key in enumerate(self._codes):
            found, bounded[row] = self._outcomes[key]
            table[row] = found or math.nan
        values = table[:, 0] if self.objectives == 1 else scalarise(table, rng)
        return Observations(codes, values, bounded)

    def _key(self, configuration: Mapping[str, Any]) -> bytes:
        return self.space.key(self.space.encode(configuration))

    # -- telling -------------------------------------------------------------------------

    def tell(
        self,
        asked: Suggestion | Mapping[str, Any],
        value: float | Sequence[float] | None = None,
        *,
        status: str = "ok",
        lower_bound: bool = False,
        message: str = "",
        seconds: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> Trial:
        """Report the outcome of a suggestion, or of any configuration of the space.

        Args:
            asked: the suggestion, or a configuration that was not suggested.
            value: one number per objective; None if it failed (``run_failed`` unless ``status``
                says how).
            status: ``ok``, or how it failed (see `tilewright.measure.STATUSES`). A value
                that is not a finite number counts as ``run_failed``.
            lower_bound: the evaluation was cut short; the true value is at least this large.
            message: why it failed.
            seconds: how long the evaluation took.
            details: JSON data to keep with the trial.

        Raises:
            ConfigurationError: the configuration is not one of the space's.
            SettingsError: an unknown status, or values that are not one number per objective.
        """
        if status not in STATUSES:
            known = ", ".join(STATUSES)
            raise SettingsError(f"the status {status!r} is unknown; the statuses are {known}")
        if not isinstance(asked, Suggestion):
            code = self.space.encode(asked)
            asked = Suggestion(self._next, self.space.decode(code), "told")
            self._next += 1
        if value is None and status == "ok":
            status, message = "run_failed", message or "no value was reported"
        values = () if value is None or status != "ok" else _numbers(value)
        if status == "ok" and len(values) != self.objectives:
            raise SettingsError(
                f"the reported value is {value!r}; give one number per objective "
                f"({self.objectives})"
            )
        if not all(math.isfinite(v) for v in values):
            message = message or f"the objective is not a finite number: {list(values)}"
            status, values = "run_failed", ()
        trial = Trial(asked, status, values, lower_bound, message, seconds, dict(details or {}))
        self._add(trial)
        return trial

    def _add(self, trial: Trial) -> None:
        code = self.space.encode(trial.configuration)
        key = self.space.key(code)
        self._codes.setdefault(key, code)
        trials = self._told.setdefault(key, [])
        trials.append(trial)
        good = [t for t in trials if t.ok]
        usable = len(good) * 2 > len(trials)
        values = middle([t.values for t in good]) if usable else ()
        self._outcomes[key] = values, usable and all(t.lower_bound for t in good)
        self.trials.append(trial)
        self.pending.pop(trial.suggestion.index, None)

    def restore(self, trials: Iterable[Trial]) -> None:
        """Take up the trials of an earlier run of the same space and seed, in their order."""
        for trial in trials:
            # through the code and back: in the space's order of parameters
            code = self.space.encode(trial.configuration)
            asked = replace(trial.suggestion, configuration=self.space.decode(code))
            self._add(replace(trial, suggestion=asked))
            self._next = max(self._next, trial.suggestion.index + 1)
            if trial.suggestion.theta:
                self._theta = trial.suggestion.theta
        known = set(self._told)
        self._queue = [code for code in self._queue if self.space.key(code) not in known]

    # -- what was found ------------------------------------------------------------------

    @property
    def best(self) -> Trial | None:
        """The best trial by the first objective, repeated measurements by their median."""
        found = self.leaders(1)
        return found[0] if found else None

    @property
    def pareto(self) -> list[Trial]:
        """The trials that no other trial dominates, sorted by the first objective."""
        good = [t for t in self.trials if t.ok and not t.lower_bound]
        if not good:
            return []
        kept = front(np.array([t.values for t in good]))
        return sorted((good[i] for i in kept), key=lambda t: t.values)

    def leaders(self, count: int) -> list[Trial]:
        """Return the best ``count`` distinct configurations with their medians, best first."""
        return ranked(self._told.values())[:count]

    def measured(self, trial: Trial) -> int:
        """Return how often a trial's configuration has been reported."""
        return len(self._told.get(self._key(trial.configuration), ()))

    def remaining_gain(self, rest: int | None = None) -> float | None:
        """Return the gain expected of the rest of a budget, as a share of the best value.

        The model gives the expected gain of the next evaluation. In recorded searches, the gain of
        the remaining evaluations is a power of this gain times their number (see the decision page
        on stopping for the fit). None while fewer than five decisions were a Gaussian process's, or
        where the objective has values of both signs.

        Args:
            rest: the number of evaluations left; by default as many as have been made.
        """
        expected = [t.suggestion.expected for t in self.trials if t.suggestion.origin == "model"]
        recent = [gain for gain in expected if gain is not None][-_RECENT:]
        if len(recent) < _RECENT:
            return None
        rest = len(self.trials) if rest is None else rest
        return float(_GAIN_SCALE * (rest * np.mean(recent)) ** _GAIN_POWER)

    def exhausted(self, tolerance: float = 0.005, rest: int | None = None) -> bool:
        """Return whether the rest of the budget is unlikely to pay: the stopping rule.

        True when `remaining_gain` is below ``tolerance``.
        """
        gain = self.remaining_gain(rest)
        return gain is not None and gain < tolerance


def _check(settings: Settings) -> None:
    """Reject a setting that is not one of its choices."""
    for name, hint in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        choices = [c for part in (hint, *get_args(hint)) for c in _literals(part)]
        if choices and value not in choices and value is not None:
            raise SettingsError(
                f"settings: {name} is {value!r}{nearest(value, choices)}; "
                f"use {', '.join(map(str, choices))}"
            )


def _literals(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()


@functools.cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def _numbers(value: float | Sequence[float]) -> tuple[float, ...]:
    try:
        if isinstance(value, Sequence) and not isinstance(value, str):
            return tuple(float(v) for v in value)
        if not isinstance(value, str):
            return (float(value),)
    except (TypeError, ValueError):
        pass
    raise SettingsError(f"the reported value is {value!r}; give one number per objective")


def _space_of(space: object) -> Space:
    if isinstance(space, Space):
        return space
    if isinstance(space, list | tuple):
        raise SettingsError(
            "the space is a list of parameters; give Space(parameters, constraints)"
        )
    raise SettingsError(f"the space is {space!r}; give Space(parameters, constraints)")


def _warm_starts(warm: WarmStart | Sequence[WarmStart] | None) -> tuple[WarmStart, ...]:
    given = (warm,) if isinstance(warm, WarmStart) else warm
    if given is None:
        return ()
    if isinstance(given, Sequence) and all(isinstance(each, WarmStart) for each in given):
        return tuple(given)
    raise SettingsError(
        f"the warm start is {str(given)[:80]}; give WarmStart.of(trials) or a list of warm starts"
    )
