"""An Optuna sampler: Optuna's studies, storages and dashboards with this tuner's search.

Needs the package ``optuna``. Parameters that a trial suggests are taken together
(`search_space`), so the objective must suggest the same ones in every trial, as for Optuna's
other relative samplers; those it does not know yet are drawn at random.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tilewright.tuning.errors import ConfigurationError, SpaceError
from tilewright.tuning.settings import Settings
from tilewright.tuning.space.parameters import Categorical, Integer, Ordinal, Parameter, Real
from tilewright.tuning.space.space import Space
from tilewright.tuning.trial import Suggestion, Trial
from tilewright.tuning.tuner import Tuner

_MOST_STEPS = 10_000


class TilewrightSampler(BaseSampler):
    """Suggests the configurations of a `tilewright.tuning.Tuner`.

    Args:
        seed: the seed of all random choices.
        constraints: known constraints over the suggested parameters, as for `Space`.
        settings: the pieces of the search.

    Failed or pruned trials train the feasibility model; running ones are pending.
    """

    def __init__(
        self,
        seed: int = 0,
        constraints: Sequence[str] = (),
        settings: Settings | None = None,
    ) -> None:
        self._seed = seed
        self._constraints = tuple(constraints)
        self._settings = settings
        self._random = RandomSampler(seed)
        self._intersection = IntersectionSearchSpace()
        self._spaces: dict[tuple[tuple[str, str], ...], Space] = {}

    def reseed_rng(self) -> None:
        """Give this copy of the sampler random numbers of its own."""
        self._random.reseed_rng()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the parameters that every finished trial has suggested."""
        found = self._intersection.calculate(study)
        return {name: d for name, d in found.items() if not d.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the tuner's next configuration, given all trials of the study."""
        if not search_space:
            return {}
        space = self._space(search_space)
        objectives = len(study.directions)
        tuner = Tuner(space, seed=self._seed, settings=self._settings, objectives=objectives)
        states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL, TrialState.RUNNING)
        theta = study._storage.get_study_system_attrs(study._study_id).get("tilewright:theta", ())
        for other in study.get_trials(deepcopy=False, states=states):
            self._take(tuner, study.directions, other, search_space, tuple(theta))
        asked = tuner.ask(trial.number)
        if asked is None:
            return {}
        if asked.theta:
            study._storage.set_study_system_attr(
                study._study_id, "tilewright:theta", list(asked.theta)
            )
        return {name: _value(search_space[name], v) for name, v in asked.configuration.items()}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a random value, for parameters that are not in the common search space."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def _space(self, search_space: Mapping[str, BaseDistribution]) -> Space:
        key = tuple(sorted((name, repr(d)) for name, d in search_space.items()))
        if key not in self._spaces:
            parameters = [_parameter(name, d) for name, d in sorted(search_space.items())]
            self._spaces[key] = Space(parameters, self._constraints)
        return self._spaces[key]

    def _take(
        self,
        tuner: Tuner,
        directions: Sequence[StudyDirection],
        other: FrozenTrial,
        search_space: Mapping[str, BaseDistribution],
        theta: tuple[float, ...],
    ) -> None:
        if not all(name in other.params for name in search_space):
            return
        configuration = {name: _label(d, other.params[name]) for name, d in search_space.items()}
        asked = Suggestion(other.number, configuration, "optuna", theta)
        try:
            tuner.space.encode(configuration)
        except ConfigurationError:
            return
        if other.state == TrialState.RUNNING:
            tuner.pending[other.number] = asked
        elif other.state == TrialState.COMPLETE:
            values = tuple(
                -v if d == StudyDirection.MAXIMIZE else v
                for v, d in zip(other.values, directions, strict=True)
            )
            good = all(math.isfinite(v) for v in values)
            tuner.restore([Trial(asked, "ok" if good else "run_failed", values if good else ())])
        else:
            tuner.restore([Trial(asked, "run_failed")])


def _choices(distribution: CategoricalDistribution) -> dict[Any, Any]:
    """Optuna's choices by our values: themselves, or their texts where these would not do."""
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
