"""Routes calls to the variant that is predicted to be the fastest.

A decision is made once per signature of arguments (shapes, dtypes, densities) and kept, so that a
later call only costs a look-up. Outside the models' training range the safe default runs. With
``learn=True``, calls are timed, measured times override predictions, and routes that are predicted
to be slower are tried within a budget.
"""

from __future__ import annotations

import functools
import math
import statistics
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tilewright.prediction.decisions.compiled_routes import ModelCall, compile_together
from tilewright.prediction.decisions.kept_times import KeptTimes
from tilewright.prediction.decisions.signature import signature
from tilewright.prediction.errors import PredictionError

if TYPE_CHECKING:
    from tilewright.records import Records

Query: TypeAlias = Mapping[str, float]

# The number of timed calls from which a measured time counts, and the factor by which another
# variant must be faster, predicted or measured, to take over.
_SETTLED, _BETTER = 3, 0.95
# The rate at which a variant's correction follows measured times, and how many of them are kept.
_FOLLOW, _KEPT = 0.2, 10_000
# A measured route that takes this many times as long as the fastest is not tried again.
_HOPELESS = 2.0


class Forecast(NamedTuple):
    """The prediction for a call: the query, seconds of each route, and trust."""

    query: Query
    seconds: tuple[float, ...]
    outside: bool


@dataclass(frozen=True)
class Decision:
    """The decision for a signature: the route, and every route's predicted seconds.

    `outside` says that the default was taken because a model was asked outside its range.
    """

    route: str
    seconds: Mapping[str, float]
    outside: bool
    query: Query


class _Entry:
    """A cached decision, and the times of its calls by route."""

    __slots__ = ("forecast", "key", "route", "run", "seen")

    def __init__(self, key: Any, forecast: Forecast, route: int, run: Callable[..., Any]) -> None:
        self.key, self.forecast, self.route, self.run = key, forecast, route, run
        self.seen: dict[int, deque[float]] = {}


class Dispatcher:
    """Calls the route that is predicted to be the fastest for the arguments.

    Args:
        routes: functions that compute the same, by name.
        forecast: from a call's arguments to each route's seconds, in the order of `routes`
            (see `by_models`, `tilewright.prediction.decisions.library_dispatcher`).
        default: the safe route, by default the first.
        learn: time calls, and let measured times override predictions.
        explore: with `learn`, the share of the time of all calls that may be lost by trying other
            routes than the fastest known one; 0 for none. A route that takes longer than predicted
            may exceed it once: then no other is tried until the share is met again.
        samples: number of entries from which a dense array's density is estimated; 0 if densities
            of dense arrays do not matter.
        key: a function from the tuple of arguments to the signature of a call;
            by default `tilewright.prediction.decisions.signature.signature`.
        size: the number of decisions kept; the oldest are dropped first.
        records: with `learn`, where measured times are kept: a later dispatcher of the same
            `name`, on the same machine and versions, begins with them.
        name: the name of the dispatcher in the records.
        with_signature: whether `forecast` takes the signature of the call before its arguments, so
            that it need not read again what the signature says of dense arrays.

    A dispatcher may be called from many threads. Exceptions of a route are passed to the caller.

    Raises:
        PredictionError: there are no routes, or the default is not one of them.
    """

    def __init__(
        self,
        routes: Mapping[str, Callable[..., Any]],
        forecast: Callable[..., Forecast],
        *,
        default: str | None = None,
        learn: bool = False,
        explore: float = 0.05,
        samples: int = 0,
        key: Callable[[tuple[Any, ...]], Any] | None = None,
        size: int = 4096,
        records: Records | None = None,
        name: str = "unnamed",
        with_signature: bool = False,
    ) -> None:
        if not routes:
            raise PredictionError("there is nothing to dispatch to; give at least one route")
        self.routes = tuple(routes)
        self._runs = tuple(routes.values())
        if default is not None and default not in self.routes:
            raise PredictionError(
                f"the default {default!r} is not a route; there are {', '.join(self.routes)}"
            )
        self.default = self.routes[0] if default is None else default
        if not 0 <= explore < 1:
            raise PredictionError(f"explore is {explore!r}; give a share from 0 to below 1")
        self.learn = learn
        self.explore = explore
        self._spent, self._lost = 0.0, 0.0
        self._safe = self.routes.index(self.default)
        self._forecast, self._with_signature = forecast, with_signature
        self._samples, self._own_key, self._size = samples, key, max(1, size)
        self._cache: dict[Any, _Entry] = {}
        self._lock = threading.Lock()
        self._corrections, self._corrected = [0.0] * len(self.routes), False
        self._observed: deque[tuple[int, Query, float]] = deque(maxlen=_KEPT)
        self._kept: KeptTimes | None = None
        if learn and records is not None:
            self._kept = KeptTimes(records, name, self.routes)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the route of the arguments' signature and return what it returns."""
        own = self._own_key
        key = signature(args, self._samples) if own is None else own(args)
        if kwargs:
            key = (key, tuple(kwargs), signature(tuple(kwargs.values()), self._samples))
        entry = self._cache.get(key)
        if entry is None:
            entry = self._decide(key, args, kwargs)
        if not self.learn:
            return entry.run(*args, **kwargs)
        route = self._tried(entry)
        began = time.perf_counter()
        result = self._runs[route](*args, **kwargs)
        self._learn(entry, route, time.perf_counter() - began)
        return result

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Return the dispatcher as a method, whose first argument is the object."""
        return self if instance is None else types.MethodType(self, instance)

    def decision(self, *args: Any, **kwargs: Any) -> Decision:
        """Return the decision for a call with these arguments; nothing is run."""
        own = self._own_key
        key = signature(args, self._samples) if own is None else own(args)
        if kwargs:
            key = (key, tuple(kwargs), signature(tuple(kwargs.values()), self._samples))
        entry = self._cache.get(key) or self._decide(key, args, kwargs)
        with self._lock:
            seconds = dict(zip(self.routes, self._estimates(entry), strict=True))
            route = self.routes[entry.route]
        return Decision(route, seconds, entry.forecast.outside, entry.forecast.query)

    def clear(self) -> None:
        """Forget the decisions, but not the measured times of the routes."""
        with self._lock:
            self._cache.clear()

    def __len__(self) -> int:
        """Return the number of decisions kept."""
        return len(self._cache)

    def flush(self) -> None:
        """Wait until the measured times are in the records; call it before closing these."""
        if self._kept is not None:
            self._kept.flush()

    def observed(self, route: str) -> tuple[list[Query], list[float]]:
        """Return queries and seconds of the last timed calls of a route, to fit a model with."""
        index = self.routes.index(route)
        with self._lock:
            rows = [(q, s) for i, q, s in self._observed if i == index]
        return [q for q, _ in rows], [s for _, s in rows]

    def _decide(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Entry:
        if self._with_signature:
            forecast = self._forecast(key, *args, **kwargs)
        else:
            forecast = self._forecast(*args, **kwargs)
        entry = _Entry(key, forecast, self._safe, self._runs[self._safe])
        known = {} if self._kept is None else self._kept.of(key)
        with self._lock:
            for route, times in known.items():
                entry.seen[route] = deque(times, maxlen=2 * _SETTLED - 1)
                self._correct(entry, route)
            if known or (self._corrected and not forecast.outside):
                self._take(entry, self._trusted(entry))
            elif not forecast.outside:
                self._take(entry, forecast.seconds)
            while len(self._cache) >= self._size:
                self._cache.pop(next(iter(self._cache)))
            return self._cache.setdefault(key, entry)

    def _take(self, entry: _Entry, estimates: Sequence[float]) -> None:
        """Take the fastest route by `estimates`; the default if none is a number."""
        least = min(estimates)
        if least != least:  # the first is not a number
            least = min((s for s in estimates if s == s), default=math.inf)
        if least < math.inf:
            entry.route = estimates.index(least)
        entry.run = self._runs[entry.route]

    def _estimates(self, entry: _Entry) -> list[float]:
        """Return seconds per route: measured if there are enough calls, else predicted."""
        found = []
        for i, seconds in enumerate(entry.forecast.seconds):
            seen = entry.seen.get(i, ())
            if len(seen) >= _SETTLED:
                found.append(statistics.median(seen))
            elif seconds == seconds:
                found.append(seconds * math.exp(self._corrections[i]))
            else:
                found.append(math.inf)
        return found

    def _tried(self, entry: _Entry) -> int:
        """Return the route of the next call: the fastest known, or one that is worth a try."""
        with self._lock:
            known = entry.seen.get(entry.route, ())
            if not self.explore or len(known) < _SETTLED:
                return entry.route
            seconds, found = statistics.median(known), entry.route
            least = self.explore * self._spent - self._lost
            for i, expected in enumerate(self._estimates(entry)):
                seen = entry.seen.get(i, ())
                if len(seen) >= _SETTLED or (seen and min(seen) > _HOPELESS * seconds):
                    continue
                more = (min(seen) if seen else expected) - seconds
                if more <= least:
                    least, found = more, i
            return found

    def _learn(self, entry: _Entry, route: int, seconds: float) -> None:
        with self._lock:
            known = entry.seen.get(entry.route, ())
            self._spent += seconds
            if route != entry.route and known:
                self._lost += max(0.0, seconds - statistics.median(known))
            seen = entry.seen.setdefault(route, deque(maxlen=2 * _SETTLED - 1))
            seen.append(seconds)
            self._observed.append((route, entry.forecast.query, seconds))
            if len(seen) < _SETTLED:
                return
            # Once per signature, so that a frequent one does not outweigh others.
            if len(seen) == _SETTLED:
                self._correct(entry, route)
                if self._kept is not None:
                    self._kept.add(entry.key, route, entry.forecast.query, seen)
            estimates = self._trusted(entry)
            if min(estimates) < _BETTER * estimates[entry.route]:
                self._take(entry, estimates)

    def _correct(self, entry: _Entry, route: int) -> None:
        """Move a route's correction towards its measured times, inside the training range."""
        predicted = entry.forecast.seconds[route]
        if 0 < predicted < math.inf and not entry.forecast.outside:
            off = math.log(max(statistics.median(entry.seen[route]), 1e-9) / predicted)
            self._corrections[route] += _FOLLOW * (off - self._corrections[route])
            self._corrected = True

    def _trusted(self, entry: _Entry) -> list[float]:
        """Return the estimates; outside the training range, predictions are guesses: infinite."""
        estimates = self._estimates(entry)
        if not entry.forecast.outside:
            return estimates
        return [
            e if len(entry.seen.get(i, ())) >= _SETTLED else math.inf
            for i, e in enumerate(estimates)
        ]


def by_models(
    models: Mapping[str, Any], describe: Callable[..., Query], *, compiled: bool = True
) -> Callable[..., Forecast]:
    """Return a forecast function with a fitted model for each route.

    Args:
        models: estimators of `tilewright.prediction`, in the order of the routes.
        describe: from the arguments to the models' features, by name.
        compiled: whether to compile the models to one function of single queries.
    """
    if any(getattr(m, "levels", None) for m in models.values()):
        singles = [single(m, compiled=compiled) for m in models.values()]
        return _with_words(list(models.values()), singles, describe)
    seconds = _all_seconds(list(models.values()), compiled)

    def forecast(*args: Any, **kwargs: Any) -> Forecast:
        query = describe(*args, **kwargs)
        try:
            return Forecast(query, *seconds(query))
        except KeyError as error:
            raise PredictionError(
                f"describe gives no {error}, a feature of the models; it gives {', '.join(query)}"
            ) from None

    return forecast


def _all_seconds(
    models: Sequence[Any], compiled: bool
) -> Callable[[Query], tuple[tuple[float, ...], bool]]:
    """Return the models as one function of a query by name, which also says if it is outside."""
    ranges = merged_ranges(models)
    if not compiled:
        singles = [single(model, compiled=False) for model in models]
        return lambda query: (tuple([f(query) for f in singles]), outside(query, ranges))
    calls = [ModelCall(model, tuple(map(str, model.feature_names_in_))) for model in models]
    names = tuple(dict.fromkeys(str(a) for call in calls for a in call.arguments))
    together = compile_together(calls, names, ranges=ranges)
    return lambda query: together([query[name] for name in names])


def _with_words(
    models: Sequence[Any], singles: Sequence[Callable[[Query], float]], describe: Callable[..., Any]
) -> Callable[..., Forecast]:
    """Return a forecast like `by_models` for features that may be words, numbered per model."""
    numbers = [
        {name: {word: float(i) for i, word in enumerate(words)} for name, words in levels.items()}
        for levels in (getattr(model, "levels", None) or {} for model in models)
    ]
    ranges = [merged_ranges([model]) for model in models]

    def coded(query: Mapping[str, Any], known: Mapping[str, Mapping[str, float]]) -> Query:
        return {
            name: known.get(name, {}).get(value, math.nan) if isinstance(value, str) else value
            for name, value in query.items()
        }

    def forecast(*args: Any, **kwargs: Any) -> Forecast:
        query = describe(*args, **kwargs)
        queries = [coded(query, known) for known in numbers]
        away = any(outside(q, r) for q, r in zip(queries, ranges, strict=True))
        seconds = tuple([f(q) for f, q in zip(singles, queries, strict=True)])
        return Forecast(query, seconds, away)

    return forecast


def dispatch(
    variants: Mapping[str, Callable[..., Any]],
    models: Mapping[str, Any],
    describe: Callable[..., Query],
    **options: Any,
) -> Callable[[Callable[..., Any]], Dispatcher]:
    """Make a function dispatch to the predicted best of itself and its variants.

    The function itself is the safe default. `models` has a fitted model for it, under its name,
    and for each of the variants; `describe` turns arguments into the models' features.
    `options` go to `Dispatcher`.

    Raises:
        PredictionError: a variant without a model.
    """

    def decorate(function: Callable[..., Any]) -> Dispatcher:
        name = getattr(function, "__name__", "default")
        routes = {name: function, **variants}
        missing = [n for n in routes if n not in models]
        if missing:
            raise PredictionError(f"there is no model of {missing[0]!r}; give one for each variant")
        forecast = by_models({n: models[n] for n in routes}, describe)
        made = Dispatcher(routes, forecast, default=name, **options)
        functools.update_wrapper(made, function)
        return made

    return decorate


def single(
    model: Any, settings: Query | None = None, *, compiled: bool = True
) -> Callable[[Query], float]:
    """Return a model as a function of one query by name, `settings` filled in; seconds."""
    names = [str(n) for n in model.feature_names_in_]
    if not compiled:
        return lambda query: float(model.predict([{**query, **(settings or {})}])[0])
    from tilewright.prediction.export.export import compile_single

    function = compile_single(model)
    filled = settings or {}
    asked = [n for n in names if n not in filled]
    if [*asked, *filled] == names:  # the settings come last, as those of kernels do
        fixed = tuple(float(v) for v in filled.values())
        return lambda query: function(*[query[n] for n in asked], *fixed)
    return lambda query: function(*[filled[n] if n in filled else query[n] for n in names])


def merged_ranges(
    models: Sequence[Any], settings: Sequence[str] = ()
) -> list[tuple[str, float, float]]:
    """Return each feature's range in all models' training data; settings are left out."""
    ranges: dict[str, tuple[float, float]] = {}
    for model in models:
        for name, low, high in zip(model.feature_names_in_, *model.ranges_.tolist(), strict=True):
            if name in settings:
                continue
            slack = 1e-9 * max(abs(low), abs(high))
            known = ranges.get(name, (-math.inf, math.inf))
            ranges[name] = (max(known[0], low - slack), min(known[1], high + slack))
    return [(str(name), low, high) for name, (low, high) in ranges.items()]


def outside(query: Query, ranges: Sequence[tuple[str, float, float]]) -> bool:
    """Return whether a feature lies outside its range, or is not a number."""
    return any(not low <= query[name] <= high for name, low, high in ranges)
