"""Chooses a kernel's variant by predicted time.

A `Selector` has a model of each variant. If variants need their operands in different storage, it
also has models of the conversion between dense and sparse storage. A dispatcher of a library adds
the predicted time of converting a query's operands; the selector's own predictions are without.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.files import check_writable, write_text
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.models.estimator import Estimator
from tilewright.shapes import damaged, naming, read_json

if TYPE_CHECKING:
    from tilewright.measure import Timing
    from tilewright.prediction.data.collect import CollectionProgress
    from tilewright.prediction.data.kernel import Kernel
    from tilewright.records import Records

Array: TypeAlias = np.ndarray[Any, Any]
FORMAT, VERSION = "tilewright-selector", 1


@dataclass(frozen=True)
class Choice:
    """A variant with its settings, predicted seconds with their interval, and trust.

    `low` and `high` bound the measured time with a probability of 90 % (None for a model without
    intervals). `outside` says that the query lies outside the model's training range.
    """

    variant: str
    settings: Mapping[str, float]
    seconds: float
    low: float | None = None
    high: float | None = None
    outside: bool = False


@dataclass(frozen=True)
class Selection:
    """Every variant by its best settings, the fastest first.

    `best` is the one to use: the fastest, or the safe default if the query lies outside the
    training range of any model.
    """

    choices: tuple[Choice, ...]
    best: Choice

    @property
    def outside(self) -> bool:
        """Whether some model was asked outside its training range."""
        return any(c.outside for c in self.choices)


@dataclass(frozen=True)
class Modelled:
    """A variant's model, and the values that its controllable settings may take."""

    model: Estimator
    settings: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        missing = [n for n in self.settings if n not in self.names]
        if missing:
            raise PredictionError(
                f"the setting {missing[0]!r} is not a feature of the model, which has "
                + ", ".join(self.names)
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The model's features."""
        return tuple(str(n) for n in self.model.feature_names_in_)

    @property
    def asked(self) -> tuple[str, ...]:
        """The features that a query gives."""
        return tuple(n for n in self.names if n not in self.settings)

    def combinations(self) -> list[dict[str, float]]:
        """Return every combination of settings."""
        values = itertools.product(*self.settings.values())
        return [dict(zip(self.settings, v, strict=True)) for v in values]


class Selector:
    """Models of a kernel's variants.

    Args:
        models: a fitted model for each variant, or `Modelled` if it has settings.
        default: the safe variant, by default the first.
        kernel: the kernel's name.
        conversions: models ``to_sparse`` and ``to_dense`` of the kernel ``conversion``.

    Raises:
        PredictionError: there are no models, or the default is not one of them.
    """

    def __init__(
        self,
        models: Mapping[str, Estimator | Modelled],
        *,
        default: str | None = None,
        kernel: str = "",
        conversions: Mapping[str, Estimator] | None = None,
    ) -> None:
        if not models:
            raise PredictionError("there are no variants to choose from; give at least one model")
        self.models: dict[str, Modelled] = {
            name: m if isinstance(m, Modelled) else Modelled(m) for name, m in models.items()
        }
        self.default = next(iter(models)) if default is None else default
        if self.default not in self.models:
            raise PredictionError(
                f"the default {default!r} is not a variant; there are {', '.join(self.models)}"
            )
        self.kernel = kernel
        self.conversions = dict(conversions or {})

    def predict(self, queries: Any) -> dict[str, Array]:
        """Return seconds of each variant at its best settings, for rows or columns of queries."""
        return {name: self._best_settings(m, queries)[0] for name, m in self.models.items()}

    def choose(self, queries: Any) -> list[str]:
        """Return the variant per query: the fastest, or the default outside the training range."""
        names = list(self.models)
        predicted = self.predict(queries)
        fastest = np.argmin([predicted[n] for n in names], axis=0)
        away = self.outside(queries)
        return [self.default if out else names[i] for i, out in zip(fastest, away, strict=True)]

    def outside(self, queries: Any) -> Array:
        """Return which queries lie outside the training range of any model: booleans (n,)."""
        away = [self._outside(m, queries) for m in self.models.values()]
        return np.asarray(np.any(away, axis=0))

    def select(self, query: Mapping[str, float]) -> Selection:
        """Return every variant for one query, the fastest first, and the one to use."""
        found = []
        for name, m in self.models.items():
            seconds, settings = self._best_settings(m, [query])
            row = [{**query, **settings[0]}]
            low = high = None
            if getattr(m.model, "calibration_", None) is not None:
                bounds = m.model.predict_interval(row)
                low, high = float(bounds[0][0]), float(bounds[1][0])
            away = bool(self._outside(m, [query])[0])
            found.append(Choice(name, settings[0], float(seconds[0]), low, high, away))
        found.sort(key=lambda c: c.seconds)
        best = found[0]
        if any(c.outside for c in found):
            best = next(c for c in found if c.variant == self.default)
        return Selection(tuple(found), best)

    def _best_settings(
        self, modelled: Modelled, queries: Any
    ) -> tuple[Array, list[dict[str, float]]]:
        combinations = modelled.combinations()
        all_seconds = np.array(
            [modelled.model.predict(_with(modelled, queries, c)) for c in combinations]
        )
        if all_seconds.ndim != 2:
            raise PredictionError(
                "the selector's data are damaged: a model does not predict one time per query; "
                "train it again"
            )
        # NaN is never the best.
        all_seconds = np.where(np.isnan(all_seconds), np.inf, all_seconds)
        best = all_seconds.argmin(axis=0)
        seconds: Array = all_seconds[best, np.arange(all_seconds.shape[1])]
        return seconds, [combinations[i] for i in best]

    def _outside(self, modelled: Modelled, queries: Any) -> Array:
        return modelled.model.outside(_with(modelled, queries, modelled.combinations()[0]))

    def to_dict(self) -> dict[str, Any]:
        """Return the selector as JSON data."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "kernel": self.kernel,
            "default": self.default,
            "variants": {
                name: {
                    "settings": {k: list(v) for k, v in m.settings.items()},
                    "model": m.model.to_dict(),
                }
                for name, m in self.models.items()
            },
            "conversions": {name: m.to_dict() for name, m in self.conversions.items()},
        }

    @classmethod
    def from_dict(cls, data: Any) -> Selector:
        """Return the inverse of `to_dict`.

        Raises:
            PredictionError: not such data, or of another schema version.
        """
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise PredictionError("this is not a Tilewright selector")
        if data.get("version") != VERSION:
            raise PredictionError(
                f"the selector has schema version {data.get('version')}, this Tilewright reads "
                f"{VERSION}; train it again"
            )
        from tilewright.prediction.models.stored import model_from_dict

        with damaged("the selector's data are damaged; train it again", PredictionError):
            models = {
                name: Modelled(
                    model_from_dict(entry["model"]),
                    {k: _settings(v) for k, v in entry["settings"].items()},
                )
                for name, entry in data["variants"].items()
            }
            conversions = {name: model_from_dict(m) for name, m in data["conversions"].items()}
            return cls(
                models, default=data["default"], kernel=data["kernel"], conversions=conversions
            )

    def save(self, path: str | Path) -> None:
        """Write the selector as JSON; missing folders are made.

        Raises:
            PredictionError: the file cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=1) + "\n"
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_text(path, text)
        except (OSError, TilewrightError) as error:
            raise PredictionError(f"the selector is not written: {error}") from None

    @classmethod
    def load(cls, path: str | Path, default: str | None = None) -> Selector:
        """Read a selector that `save` wrote.

        Args:
            path: the file.
            default: the safe variant, by default that of the file.

        Raises:
            PredictionError: the file is missing or is not a selector, or lacks the default.
        """
        data = read_json(path, PredictionError)
        with naming(path):
            found = cls.from_dict(data)
        if default is None:
            return found
        return cls(
            found.models, default=default, kernel=found.kernel, conversions=found.conversions
        )


def is_selector(path: str | Path) -> bool:
    """Return whether a file has a selector's JSON; False if it cannot be read."""
    try:
        data = read_json(path, PredictionError)
    except PredictionError:
        return False
    return isinstance(data, dict) and data.get("format") == FORMAT


def _settings(values: Any) -> tuple[float, ...]:
    """Return the values of a setting. Raises ValueError if they are not numbers."""
    numbers = isinstance(values, list | tuple) and all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in values
    )
    if not numbers or not values:
        raise ValueError(f"a setting has values {str(values)[:60]}; they must be numbers")
    return tuple(values)


def _with(modelled: Modelled, queries: Any, settings: Mapping[str, float]) -> Array:
    """Return queries and settings as a table in the order of the model's features."""
    from tilewright.prediction.models.tables import table

    asked = table(queries, modelled.asked, getattr(modelled.model, "levels", None))
    columns = []
    for name in modelled.names:
        if name in settings:
            columns.append(np.full(len(asked), float(settings[name])))
        else:
            columns.append(asked[:, modelled.asked.index(name)])
    return np.stack(columns, axis=1)


def selector_path(kernel: str) -> Path:
    """Return where `train` keeps a kernel's selector."""
    from tilewright.records import cache_directory

    return cache_directory() / "prediction" / f"{kernel}.json"


def select(
    kernel: Kernel | str, query: Mapping[str, float], path: str | Path | None = None
) -> Selection:
    """Return the kernel's variants for a query, by the selector that `train` made on this machine.

    Raises:
        PredictionError: the kernel has not been trained.
    """
    name = kernel if isinstance(kernel, str) else kernel.name
    found = Path(path) if path is not None else selector_path(name)
    if not found.exists():
        raise PredictionError(f"kernel {name} has no models yet: call train({name!r}) first")
    return Selector.load(found).select(query)


def train_selector(
    kernel: Kernel | str,
    variants: list[str] | None = None,
    *,
    count: int = 250,
    seed: int = 0,
    model: Estimator | None = None,
    calls: bool = True,
    timing: Timing | None = None,
    records: Records | None = None,
    path: str | Path | None = None,
    save: bool = True,
    deadline: float | None = None,
    on_progress: Callable[[CollectionProgress], object] | None = None,
) -> Selector:
    """Measure a kernel's variants on this machine, fit a model of each, and keep them.

    Args:
        kernel: registered, or its name.
        variants: the variants to measure, by default all that can be used here.
        count: the number of instances per variant.
        seed: the seed that instances are drawn from.
        model: the model, cloned for every variant; by default `Augmented`.
        calls: whether complete calls are timed (see `tilewright.prediction.data.whole_call`),
            or only the computation after a variant's preparation.
        timing: how an instance is timed; by default as `collect` does.
        records: the store of measurements, so that an interrupted training can continue.
        path: where the selector is written (default: `selector_path`).
        save: whether it is written.
        deadline: the value of ``time.monotonic`` after which no more is measured.
        on_progress: called after every measurement.

    Raises:
        PredictionError: no such kernel or variant, or nothing could be measured.
        TilewrightError: `path` cannot be written; this is checked before measuring.
    """
    from tilewright.prediction.data.collect import TIMING, collect
    from tilewright.prediction.data.whole_call import whole_call
    from tilewright.prediction.kernels import kernel as registered

    found = registered(kernel) if isinstance(kernel, str) else kernel
    chosen = _chosen(found, variants)
    target = selector_path(found.name) if path is None else Path(path)
    if save:
        with suppress(OSError):  # the check names what cannot be created
            target.parent.mkdir(parents=True, exist_ok=True)
        check_writable(target)
    measure = partial(
        collect,
        count=count,
        seed=seed,
        records=records,
        retime=False,
        timing=timing or TIMING,
        deadline=deadline,
        on_progress=on_progress,
    )

    def fitted(of: Kernel, name: str) -> Modelled:
        variant = of.variant(name)
        runs = measure(of, whole_call(variant) if calls else variant)
        made = _fresh(model, of.complexity_of(variant), runs.features)
        made.fit(runs.table, runs.times)
        return Modelled(made, {k: tuple(map(float, v)) for k, v in variant.settings.items()})

    models = {name: fitted(found, name) for name in chosen}
    conversions = {}
    if len({found.variant(n).storage for n in chosen}) > 1:
        conversion = registered("conversion")
        conversions = {n: fitted(conversion, n).model for n in conversion.variants}
    selector = Selector(models, kernel=found.name, conversions=conversions)
    if save:
        selector.save(target)
    return selector


def _chosen(kernel: Kernel, names: list[str] | None) -> list[str]:
    """Return the named variants, by default all usable ones; PredictionError if none."""
    available = (name for name, variant in kernel.variants.items() if variant.available()[0])
    chosen = list(available) if names is None else names
    if not chosen:
        raise PredictionError(f"kernel {kernel.name} has no variant that can be used here")
    return chosen


def _fresh(model: Estimator | None, complexity: str, units: Mapping[str, str]) -> Estimator:
    """Return a model with the same arguments for these features."""
    if model is None:
        from tilewright.prediction.models.augmented import Augmented

        model = Augmented()
    fresh = type(model)(**model.get_params())
    fresh.set_params(features=tuple(units), complexity=complexity, units=dict(units))
    return fresh
