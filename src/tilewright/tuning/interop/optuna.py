"""An Optuna sampler: Optuna's studies, storages and dashboards with this tuner's search.

Needs the package ``optuna``. All parameters that finished trials have suggested are searched
together. One that only some trials suggest is conditional: the values of another parameter must
say which trials these are. A parameter that no trial has suggested yet is drawn at random, and so
is, with a warning, one whose range changes from trial to trial or whose condition is not found.
"""

from __future__ import annotations

import keyword
import math
import re
import secrets
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tilewright.tuning.errors import ConfigurationError, SpaceError
from tilewright.tuning.settings import Settings
from tilewright.tuning.space.parameters import Categorical, Integer, Ordinal, Parameter, Real
from tilewright.tuning.space.space import Space
from tilewright.tuning.trial import Suggestion, Trial
from tilewright.tuning.tuner import Tuner

_MOST_STEPS = 10_000
# Keys under which a study's storage keeps the suggestion and the last model's hyperparameters.
_ASKED = "tilewright:asked"
_THETA = "tilewright:theta"
_CONSTRAINTS = "constraints"  # Optuna's own key, which its dashboards read
# Times to ask again if another process was given the same configuration at the same moment.
_TRIES = 4

Distributions = dict[str, BaseDistribution]
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


class TilewrightSampler(BaseSampler):
    """Suggests the configurations of a `tilewright.tuning.Tuner`.

    Args:
        seed: the seed of all random choices; None, as for Optuna's own samplers, for a random one.
        constraints: known constraints over the searched parameters, as for `Space`.
        settings: the pieces of the search.
        constraints_func: as for Optuna's own samplers: called with a finished trial, it returns
            numbers. If any is above 0, the trial's result may not be used.

    Failed trials, and those that `constraints_func` rejects, train the feasibility model. The last
    value that a pruned trial reported counts as a lower bound of its result; a pruned trial that
    reported nothing counts as failed. Running trials are pending.
    """

    def __init__(
        self,
        seed: int | None = None,
        constraints: Sequence[str] = (),
        settings: Settings | None = None,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
    ) -> None:
        self._seed = secrets.randbits(32) if seed is None else seed
        self._constraints = tuple(constraints)
        self._settings = settings
        self._constraints_func = constraints_func
        self._random = RandomSampler(seed)
        self._spaces: dict[tuple[tuple[str, str], ...], Space] = {}
        self._warned: set[str] = set()
        self._lock = threading.Lock()  # trials of several threads ask one after another

    def __getstate__(self) -> dict[str, Any]:
        """Return what other processes are sent."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore a sampler in another process."""
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def reseed_rng(self) -> None:
        """Give this copy of the sampler random numbers of its own."""
        self._random.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Distributions:
        """Return the parameters that are searched (see the module's docstring)."""
        found, _ = _searched(study)
        return {name: d for name, d in found.items() if not d.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Distributions
    ) -> dict[str, Any]:
        """Return the tuner's next configuration, given all trials of the study."""
        if not search_space:
            return {}
        labels: dict[str, Any] = {}
        with self._lock:
            for _ in range(_TRIES):
                labels = self._ask(study, trial, search_space)
                study._storage.set_trial_system_attr(trial._trial_id, _ASKED, labels)
                running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
                earlier = [other for other in running if other.number < trial.number]
                if not labels or labels not in [o.system_attrs.get(_ASKED) for o in earlier]:
                    break
        return {
            name: _value(distribution, labels[_identifier(name)])
            for name, distribution in search_space.items()
            if _identifier(name) in labels
        }

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a random value, for parameters that are new or cannot be searched."""
        trials = study.get_trials(deepcopy=False, states=_FINISHED)
        if param_name not in self._warned and any(param_name in t.params for t in trials):
            found, _ = _searched(study)
            if param_name not in found:
                self._warned.add(param_name)
                warnings.warn(
                    f"{param_name!r} is drawn at random: its range differs from trial to trial, or "
                    "only some trials suggest it and no value of another parameter says which",
                    stacklevel=2,
                )
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Store the result of `constraints_func` where Optuna's dashboards look for it."""
        if self._constraints_func is not None and state in _FINISHED:
            found = tuple(float(value) for value in self._constraints_func(trial))
            if any(math.isnan(value) for value in found):
                raise ValueError("constraints_func returned a value that is not a number")
            study._storage.set_trial_system_attr(trial._trial_id, _CONSTRAINTS, found)

    def _ask(self, study: Study, trial: FrozenTrial, search_space: Distributions) -> dict[str, Any]:
        """Return the next labels of the parameters; none if every configuration has been tried."""
        _, conditions = _searched(study)
        space = self._space(search_space, conditions)
        objectives = len(study.directions)
        tuner = Tuner(space, seed=self._seed, settings=self._settings, objectives=objectives)
        theta = tuple(study._storage.get_study_system_attrs(study._study_id).get(_THETA, ()))
        for other in study.get_trials(deepcopy=False):
            if other.number != trial.number:
                self._take(tuner, study.directions, other, search_space, theta)
        asked = tuner.ask(trial.number)
        if asked is None:
            return {}
        if asked.theta:
            study._storage.set_study_system_attr(study._study_id, _THETA, list(asked.theta))
        return dict(asked.configuration)

    def _space(self, search_space: Distributions, conditions: Mapping[str, str]) -> Space:
        key = tuple(sorted((n, f"{d} {conditions.get(n)}") for n, d in search_space.items()))
        if key not in self._spaces:
            parameters = [
                replace(_parameter(_identifier(name), d), when=conditions.get(name))
                for name, d in sorted(search_space.items())
            ]
            self._spaces[key] = Space(parameters, self._constraints)
        return self._spaces[key]

    def _take(
        self,
        tuner: Tuner,
        directions: Sequence[StudyDirection],
        other: FrozenTrial,
        search_space: Distributions,
        theta: tuple[float, ...],
    ) -> None:
        """Report a trial to the tuner if it is a configuration of its space."""
        running = other.state == TrialState.RUNNING
        labels = other.system_attrs.get(_ASKED, {}) if running else {}
        suggested = other.params.keys() & search_space.keys()
        configuration = labels | {
            _identifier(name): _label(search_space[name], other.params[name]) for name in suggested
        }
        asked = Suggestion(other.number, configuration, "optuna", theta)
        try:
            tuner.space.encode(configuration)
        except ConfigurationError:
            return
        if running:
            tuner.pending[other.number] = asked
        elif other.state in (*_FINISHED, TrialState.FAIL):
            tuner.restore([_outcome(asked, other, directions)])


def _searched(study: Study) -> tuple[Distributions, dict[str, str]]:
    """Return the parameters to search, and the conditions of those that some trials do not have.

    A parameter is left out if finished trials suggest it from different ranges. If only some do,
    the values of another parameter must say which.
    """
    trials = study.get_trials(deepcopy=False, states=_FINISHED)
    found: Distributions = {}
    changing: set[str] = set()
    for trial in trials:
        for name, distribution in trial.distributions.items():
            if found.setdefault(name, distribution) != distribution:
                changing.add(name)
    found = {name: found[name] for name in sorted(found.keys() - changing)}
    conditions: dict[str, str] = {}
    for name in list(found):
        if not all(name in trial.params for trial in trials):
            condition = _condition(name, found, trials)
            if condition is None:
                del found[name]
            else:
                conditions[name] = condition
    return found, conditions


def _condition(name: str, found: Distributions, trials: Sequence[FrozenTrial]) -> str | None:
    """Return a condition on another parameter that says when this one is present, or None."""
    possible = []
    for other, distribution in found.items():
        if other == name or isinstance(distribution, FloatDistribution):
            continue
        if not all(other in trial.params for trial in trials):
            continue
        having = {_label(distribution, t.params[other]) for t in trials if name in t.params}
        lacking = {_label(distribution, t.params[other]) for t in trials if name not in t.params}
        if not having & lacking:
            possible.append((len(having | lacking), other, having))
    if not possible:
        return None
    _, other, having = min(possible, key=lambda each: each[:2])
    return " or ".join(f"{_identifier(other)} == {label!r}" for label in sorted(having, key=repr))


def _outcome(asked: Suggestion, other: FrozenTrial, directions: Sequence[StudyDirection]) -> Trial:
    """Return a finished trial of Optuna as one of the tuner's, which minimises."""
    values: Sequence[float] = ()
    if other.state == TrialState.COMPLETE:
        values = other.values
    elif other.state == TrialState.PRUNED and other.intermediate_values:
        values = [other.intermediate_values[max(other.intermediate_values)]]
    broken = any(value > 0 for value in other.system_attrs.get(_CONSTRAINTS) or ())
    if broken or not values or not all(math.isfinite(value) for value in values):
        return Trial(asked, "run_failed")
    costs = tuple(
        -value if direction == StudyDirection.MAXIMIZE else value
        for value, direction in zip(values, directions, strict=True)
    )
    return Trial(asked, "ok", costs, lower_bound=other.state == TrialState.PRUNED)


def _identifier(name: str) -> str:
    """Return a parameter's name in the space: Optuna's may hold dots, dashes and blanks."""
    word = re.sub(r"\W", "_", name)
    return word if word.isidentifier() and not keyword.iskeyword(word) else f"p_{word}"


def _choices(distribution: CategoricalDistribution) -> dict[Any, Any]:
    """Optuna's choices by our values: the choices themselves, or their texts."""
    choices = distribution.choices
    fit = all(isinstance(c, bool | int | float | str) for c in choices)
    if fit and len(set(choices)) == len(choices):
        return {c: c for c in choices}
    return {repr(c): c for c in choices}


def _label(distribution: BaseDistribution, value: Any) -> Any:
    if not isinstance(distribution, CategoricalDistribution):
        return value
    return value if value in _choices(distribution) else repr(value)


def _value(distribution: BaseDistribution, label: Any) -> Any:
    if not isinstance(distribution, CategoricalDistribution):
        return label
    return _choices(distribution)[label]


def _parameter(name: str, distribution: BaseDistribution) -> Parameter:
    """Return a distribution of Optuna as a parameter."""
    if isinstance(distribution, CategoricalDistribution):
        return Categorical(name, tuple(_choices(distribution)))
    scale = "log" if getattr(distribution, "log", False) else "linear"
    if isinstance(distribution, IntDistribution):
        if distribution.step == 1:
            return Integer(name, distribution.low, distribution.high, scale=scale)  # type: ignore[arg-type]
        values = range(distribution.low, distribution.high + 1, distribution.step)
        return Ordinal(name, tuple(values))
    if isinstance(distribution, FloatDistribution):
        if distribution.step is None:
            return Real(name, distribution.low, distribution.high, scale=scale)  # type: ignore[arg-type]
        steps = round((distribution.high - distribution.low) / distribution.step)
        if steps > _MOST_STEPS:
            raise SpaceError(f"parameter {name}: {steps} steps are too many; leave the step out")
        grid = tuple(distribution.low + i * distribution.step for i in range(steps + 1))
        return Ordinal(name, tuple(min(v, distribution.high) for v in grid))
    raise SpaceError(f"parameter {name}: {type(distribution).__name__} is not supported")


__all__ = ["TilewrightSampler", "optuna"]
