"""BaCO's and HyperMapper's scenario files: a space and settings in JSON.

The published schemas of both are supported (``baco/schema.json``, ``hypermapper/schema.json``).
Settings with a counterpart here are followed; others (`WITHOUT_EFFECT`) are accepted and ignored,
so that every scenario runs unchanged.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.shapes import damaged, naming, read_json
from tilewright.tuning.bayes.prior import OptimumPrior
from tilewright.tuning.errors import SpaceError
from tilewright.tuning.interop.hypermapper_constraints import translate
from tilewright.tuning.settings import Settings
from tilewright.tuning.space.parameters import (
    Categorical,
    Integer,
    Ordinal,
    Parameter,
    Permutation,
    Real,
    check_item_count,
)
from tilewright.tuning.space.space import Configuration, Space

_FOLLOWED = (
    "acquisition_function",
    "allow_duplicate_samples",
    "application_name",
    "baco_mode",
    "design_of_experiment",
    "evaluations_per_optimization_iteration",
    "feasible_output",
    "hypermapper_mode",
    "input_parameters",
    "lengthscale_prior",
    "log_file",
    "log_transform_output",
    "models",
    "optimization_iterations",
    "optimization_objectives",
    "output_data_file",
    "output_pareto_file",
    "resume_optimization",
    "resume_optimization_data",
    "resume_optimization_file",
    "run_directory",
    "time_budget",
    "timestamp",
)
# Entries of the schemas that have no counterpart here.
WITHOUT_EFFECT = frozenset(
    """
    acquisition_function_optimizer append_profiles bandwidth_n_factor bandwidth_parameter
    batch_size bounding_box_limits custom_gaussian_prior_means custom_gaussian_prior_stds
    epsilon_greedy_threshold estimate_multivariate_priors evolution_crossover
    evolution_generations evolution_population_size exploration_augmentation GP_model
    hyperparameter_optimization_iterations local_search_evaluation_limit local_search_from_best
    local_search_improvement_threshold local_search_random_points
    local_search_scalarization_weights local_search_starting_points local_search_step_size
    log_acq_value max_number_of_predictions model_good_quantile model_posterior_weight
    model_weight multistart_hyperparameter_optimization
    multistart_hyperparameter_optimization_initial_points
    multistart_hyperparameter_optimization_iterations mutation_rate naive_cot_rs noise
    noise_prior normalize_inputs number_of_cpus number_of_repetitions objective_value_target
    optimization_method output_image outputscale_prior posterior_computation_lower_limit
    predict_noiseless print_best print_parameter_importance print_posterior_best
    prior_estimation_file prior_estimation_quantile prior_floor prior_limit_estimation_points
    profiling profiling_file regularize_evolution reoptimise_hyperparameters_interval
    reuse_gp_hyperparameters scalarization_key scalarization_method standardize_objectives
    use_STGP use_c_backend verbose_logging weight_sampling
    """.split()
)
_PARAMETER = {
    "constraints",
    "dependencies",
    "parameter_default",
    "parameter_type",
    "parametrization",
    "prior",
    "prior_parameters",
    "transform",
    "values",
}
_METRICS = {"spearman", "kendall", "hamming", "naive"}
# The beta densities behind the schema's named priors (shape parameters).
_BETA = {"gaussian": (3.0, 3.0), "exponential": (3.0, 0.8), "decay": (0.8, 3.0)}
_FLOOR = 1e-6


@dataclass(frozen=True)
class Feasible:
    """The column of replies that says whether a configuration is valid."""

    name: str
    true_value: str
    false_value: str


@dataclass(frozen=True)
class Scenario:
    """A scenario file's content.

    `published` maps the space's parameter names to the file's, which need not be identifiers.
    `samples` random configurations are tried first, then `iterations` times `batch`.
    `seconds` limits the run. Files are relative to the working directory, as in BaCO.
    """

    name: str
    space: Space
    published: Mapping[str, str]
    objectives: tuple[str, ...]
    mode: str
    samples: int
    iterations: int
    batch: int
    settings: Settings
    feasible: Feasible | None = None
    prior: OptimumPrior | None = None
    seconds: float | None = None
    timestamp: str = "Timestamp"
    data_file: Path | None = None
    pareto_file: Path | None = None
    log_file: Path | None = None
    resume_file: Path | None = None

    @property
    def budget(self) -> int:
        """The total number of evaluations."""
        return self.samples + self.iterations * self.batch

    @property
    def queue(self) -> list[Configuration]:
        """The configuration of all defaults, where it is complete and feasible."""
        found = self.space.default()
        return [found] if found is not None and self.space.is_feasible(found) else []


def load_scenario(path: str | Path) -> Scenario:
    """Read a scenario file.

    Raises:
        SpaceError: the file cannot be read, is not JSON (with line and column), or an entry is
            missing, unknown or wrong, named.
    """
    path = Path(path)
    data = read_json(path, SpaceError)
    with naming(path), damaged("an entry is wrong", SpaceError):
        return read_scenario(data)


def read_scenario(data: Any) -> Scenario:
    """Return the scenario described by JSON data (see `load_scenario`)."""
    if not isinstance(data, Mapping):
        raise SpaceError("a scenario is a JSON object with 'input_parameters'")
    _check_keys(data)
    entries = _table(data, "input_parameters")
    if not entries:
        raise SpaceError("'input_parameters' needs at least one parameter")
    published = _identifiers(entries)
    parameters = [_parameter(name, entries[shown]) for name, shown in published.items()]
    permutations = [p.name for p in parameters if isinstance(p, Permutation)]
    constraints = []
    for shown, entry in entries.items():
        for text in entry.get("constraints", []):
            if not isinstance(text, str):
                raise SpaceError(f"parameter {shown}: the constraint {text!r} is not in quotes")
            constraints.append(translate(text, permutations, list(published)))
    space = Space(parameters, constraints)
    objectives = data.get("optimization_objectives")
    if not isinstance(objectives, list) or not objectives or not all(map(_text, objectives)):
        raise SpaceError("'optimization_objectives' must list the objectives' names in quotes")
    design = _table(data, "design_of_experiment")
    folder = Path(str(data.get("run_directory", ".")))
    several = len(objectives) > 1
    minutes = float(_number(data, "time_budget", -1))
    return Scenario(
        name=str(data.get("application_name", "application")),
        space=space,
        published=published,
        objectives=tuple(objectives),
        mode=_mode(data),
        samples=int(_number(design, "number_of_samples", 10, least=1)),
        iterations=int(_number(data, "optimization_iterations", 50, least=0)),
        batch=int(_number(data, "evaluations_per_optimization_iteration", 1, least=1)),
        settings=_settings(data, design),
        feasible=_feasible(data),
        prior=_prior(space, {name: entries[shown] for name, shown in published.items()}),
        seconds=minutes * 60 if minutes >= 0 else None,
        timestamp=str(data.get("timestamp", "Timestamp")),
        data_file=folder / str(data.get("output_data_file", "output_samples.csv")),
        pareto_file=folder / str(data.get("output_pareto_file", "output_pareto.csv"))
        if several
        else None,
        log_file=folder / str(data["log_file"]) if "log_file" in data else None,
        resume_file=_resume_file(data, folder),
    )


def _check_keys(data: Mapping[str, Any]) -> None:
    known = {*_FOLLOWED, *WITHOUT_EFFECT}
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            cure = f"did you mean {near[0]!r}?" if near else "leave it out"
            raise SpaceError(f"{key!r} is not an entry of a scenario; {cure}")


def _identifiers(entries: Mapping[str, Any]) -> dict[str, str]:
    """Return a name per parameter for expressions: the file's own if it is an identifier."""
    names: dict[str, str] = {shown: shown for shown in entries if shown.isidentifier()}
    result = {}
    for shown in entries:
        name = shown
        if not shown.isidentifier():
            name = "_" + re.sub(r"\W", "_", shown)
            while name in names:
                name += "_"
            names[name] = shown
        result[name] = shown
    return result


def _parameter(name: str, entry: Any) -> Parameter:
    if not isinstance(entry, Mapping):
        raise SpaceError(f"parameter {name}: {entry!r} is not a JSON object")
    for key in entry:
        if key not in _PARAMETER:
            raise SpaceError(f"parameter {name}: {key!r} is unknown; use {', '.join(_PARAMETER)}")
    kind, values = entry.get("parameter_type"), entry.get("values")
    if not isinstance(values, list) or not values:
        raise SpaceError(f"parameter {name}: 'values' must be a list that is not empty")
    default = entry.get("parameter_default")
    scale: Any = "log" if entry.get("transform", "none") == "log" else "linear"
    try:
        if kind in ("real", "integer"):
            if len(values) != 2:
                raise SpaceError(f"parameter {name}: 'values' of a {kind} are its two bounds")
            low, high = sorted(values)
            if kind == "real":
                default = None if default is None else float(default)
                return Real(name, float(low), float(high), default, scale)
            default = None if default is None else int(default)
            return Integer(name, int(low), int(high), default, scale)
        if kind == "ordinal":
            numbers = sorted((_plain_number(v) for v in values), key=float)
            default = None if default is None else _plain_number(default)
            return Ordinal(name, tuple(numbers), default, scale)
        if kind == "categorical":
            return Categorical(name, tuple(values), default)
        if kind == "permutation":
            metric: Any = str(entry.get("parametrization", "spearman")).lower()
            if metric not in _METRICS:
                raise SpaceError(
                    f"parameter {name}: parametrization {metric!r} is unknown; "
                    f"use {', '.join(sorted(_METRICS))}"
                )
            # the value lists the items in their order
            count = int(values[0])
            check_item_count(name, count)
            items = tuple(range(count))
            chosen = tuple(default) if default else None
            return Permutation(name, items, chosen, metric)
    except (TypeError, ValueError, OverflowError) as error:
        raise SpaceError(f"parameter {name}: {error}") from None
    raise SpaceError(
        f"parameter {name}: parameter_type {kind!r} is unknown; use real, integer, ordinal, "
        "categorical or permutation"
    )


def _plain_number(value: Any) -> int | float:
    number = float(value)
    return int(number) if number.is_integer() else number


def _settings(data: Mapping[str, Any], design: Mapping[str, Any]) -> Settings:
    chosen: dict[str, Any] = {"initial": int(_number(design, "number_of_samples", 10, least=1))}
    chosen["design"] = "uniform"
    model = _table(data, "models").get("model")
    if model not in (None, "gaussian_process", "random_forest"):
        raise SpaceError(f"models.model is {model!r}; use gaussian_process or random_forest")
    if model == "random_forest":
        chosen["surrogate"] = "rf"
    if data.get("log_transform_output") is False:
        chosen["objective"] = "plain"
    chosen["repeats"] = bool(data.get("allow_duplicate_samples", False))
    chosen["feasibility"] = _feasible(data) is not None
    return Settings(**chosen)


def _feasible(data: Mapping[str, Any]) -> Feasible | None:
    entry = _table(data, "feasible_output")
    if not entry.get("enable_feasible_predictor", False):
        return None
    return Feasible(
        str(entry.get("name", "Valid")),
        str(entry.get("true_value", "True")),
        str(entry.get("false_value", "False")),
    )


def _mode(data: Mapping[str, Any]) -> str:
    for key in ("baco_mode", "hypermapper_mode"):
        if key in data:
            mode = _table(data, key).get("mode")
            if mode not in ("default", "client-server"):
                raise SpaceError(f"{key}.mode is {mode!r}; use client-server or default")
            return str(mode)
    return "default"


def _resume_file(data: Mapping[str, Any], folder: Path) -> Path | None:
    if not data.get("resume_optimization", False):
        return None
    for key in ("resume_optimization_file", "resume_optimization_data"):
        if key in data:
            return Path(str(data[key]))
    return folder / "output_samples.csv"


def _prior(space: Space, entries: Mapping[str, Mapping[str, Any]]) -> OptimumPrior | None:
    """Return the priors of the parameters as a prior of the optimum."""
    weights: dict[str, Any] = {}
    for name, entry in entries.items():
        prior = entry.get("prior", "uniform")
        p = space[name]
        if isinstance(prior, str) and prior not in _BETA:
            continue  # uniform; or estimated from a file, for which there is no counterpart
        if isinstance(p, Permutation):
            continue
        if isinstance(p, Real):
            if isinstance(prior, str):
                weights[name] = _normal(p, prior, entry.get("prior_parameters") or ())
            continue
        values = range(p.low, p.high + 1) if isinstance(p, Integer) else p.values
        weights[name] = dict(zip(values, _weights(name, prior, len(values)), strict=True))
    return OptimumPrior(weights) if weights else None


def _normal(p: Real, prior: str, given: Sequence[float]) -> tuple[float, float]:
    """Return centre and spread: the given ones, or those of the named beta density."""
    if prior == "gaussian" and len(given) == 2:
        return float(given[0]), float(given[1])
    a, b = _BETA[prior]
    spread = math.sqrt(a * b / ((a + b) ** 2 * (a + b + 1)))
    return p.low + (p.high - p.low) * a / (a + b), (p.high - p.low) * spread


def _weights(name: str, prior: Any, count: int) -> list[float]:
    if isinstance(prior, list):
        if len(prior) != count or not all(isinstance(w, int | float) for w in prior):
            raise SpaceError(
                f"parameter {name}: its prior must have {count} numbers, one per value"
            )
        most = max(max(prior), _FLOOR)
        return [max(w / most, _FLOOR) for w in prior]
    a, b = _BETA[prior]
    places = [(i + 0.5) / count for i in range(count)]
    density = [x ** (a - 1) * (1 - x) ** (b - 1) for x in places]
    return [max(d / max(density), _FLOOR) for d in density]


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    entry = data.get(key, {})
    if not isinstance(entry, Mapping):
        raise SpaceError(f"{key!r} must be a JSON object")
    return entry


def _number(data: Mapping[str, Any], key: str, default: float, least: float = -1) -> float:
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
        raise SpaceError(f"{key} is {value!r}; give a number from {least:g}")
    return value


def _text(value: Any) -> bool:
    return isinstance(value, str)
