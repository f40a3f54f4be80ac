"""Ranks candidates by predicted time, and measures the best few.

For schedules: thousands of choices of split factors are predicted at once, and those that are
predicted to be the fastest are built, verified and timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilewright.prediction.errors import PredictionError
from tilewright.prediction.models.estimator import Estimator

if TYPE_CHECKING:
    from tilewright.measure import Measurement
    from tilewright.prediction.data.kernel import Kernel
    from tilewright.prediction.decisions.selector import Choice
    from tilewright.prediction.kernels.schedules import ScheduleFamily
    from tilewright.records import Records

Array: TypeAlias = np.ndarray[Any, Any]
# Schedules tried per required success: split factors larger than a loop make a schedule fail.
MOST_FAILURES = 5


@dataclass(frozen=True)
class Ranked:
    """A ranked candidate: its index in the input, from 0, and its times.

    `low` and `high` bound the time with a probability of 90%; None for a model without
    intervals. `measurement` is None if it was not measured.
    """

    index: int
    features: Mapping[str, float]
    seconds: float
    low: float | None = None
    high: float | None = None
    outside: bool = False
    measurement: Measurement | None = None

    @property
    def measured(self) -> float | None:
        """The median of the measured times in seconds, None if there is none."""
        done = self.measurement is not None and self.measurement.ok
        return self.measurement.median if done and self.measurement is not None else None


def rank(model: Estimator, candidates: Any, most: int | None = None) -> list[Ranked]:
    """Return the candidates, those that are predicted to be the fastest first.

    Candidates outside the training range come after all others: among thousands, guesses would
    otherwise take the first places.

    Args:
        model: a fitted model.
        candidates: a table, data frame, or rows by name, as for ``predict``.
        most: the number to return, by default all.

    Raises:
        PredictionError: candidates that the model cannot read.
    """
    data = model._table(candidates)
    seconds = model.predict(data)
    order = np.lexsort((seconds, model.outside(data)))[:most]
    best = data[order]
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * len(order)
    if getattr(model, "calibration_", None) is not None and len(order):
        bounds = list(zip(*(b.tolist() for b in model.predict_interval(best)), strict=True))
    away = model.outside(best)
    return [
        Ranked(
            int(index),
            {name: _plain(value) for name, value in zip(model.names_, best[i], strict=True)},
            float(seconds[index]),
            *bounds[i],
            bool(away[i]),
        )
        for i, index in enumerate(order)
    ]


def rank_schedules(
    model: Estimator, family: ScheduleFamily, size: int, count: int = 2000, seed: int = 0
) -> list[Ranked]:
    """Return schedules of a family for a size, drawn from the seed, the fastest first.

    Raises:
        PredictionError: the model was fitted to other features than the family's.
    """
    strangers = [name for name in model.names_ if name not in family.features]
    if strangers:
        raise PredictionError(
            f"the model's feature {strangers[0]!r} is none of {family.name}, which has "
            f"{', '.join(family.features)}"
        )
    drawn = family.candidates(size, count, seed)
    # All factors stay with a candidate, those that the model does not use as well.
    return [replace(r, features=drawn[r.index]) for r in rank(model, drawn)]


def verify_schedules(
    family: ScheduleFamily,
    size: int,
    ranked: Sequence[Ranked],
    count: int,
    records: Records | None = None,
    *,
    on_progress: Callable[[int, int], object] | None = None,
    **how: Any,
) -> list[Ranked]:
    """Build, verify and time the best few schedules.

    Args:
        family: the family of the schedules.
        size: the size of its pipeline.
        ranked: schedules, the best first.
        count: the number of successful schedules wanted. Schedules that fail do not count, but at
            most `MOST_FAILURES` times as many are tried.
        records: where measurements are kept and looked up.
        on_progress: called with the number that went well and the total.
        how: goes to `tilewright.prediction.kernels.schedules.measure_candidates`.

    Returns:
        Those that were tried, by measured time, failures last.
    """
    from tilewright.prediction.kernels.schedules import measure_candidates

    found: list[Ranked] = []
    done, tried = 0, 0
    while done < count and tried < min(len(ranked), MOST_FAILURES * count):
        next_ones = ranked[tried : tried + count - done]
        tried += len(next_ones)
        by_factors = {tuple(sorted(r.features.items())): r for r in next_ones}
        factors = [{k: int(v) for k, v in r.features.items()} for r in next_ones]
        for one in measure_candidates(family, size, factors, records, **how):
            known = by_factors[tuple(sorted(one.factors.items()))]
            found.append(replace(known, measurement=one.measurement))
            done += one.measurement.ok
            if on_progress is not None:
                on_progress(done, count)
        if len(found) < tried:  # the deadline
            break
    return sorted(found, key=lambda r: (r.measured is None, r.measured or 0.0))


def verify_variants(
    kernel: Kernel,
    query: Mapping[str, float],
    choices: Sequence[Choice],
    *,
    seed: int = 0,
    calls: bool = True,
    on_progress: Callable[[int, int], object] | None = None,
) -> list[tuple[Choice, Measurement]]:
    """Measure variants at their chosen settings on operands made for the query.

    Args:
        kernel: whose variants they are.
        query: the instance.
        choices: variants with settings, as `Selector.select` gives them.
        seed: the seed of the operands.
        calls: whether whole calls are timed, as `train` does by default.
        on_progress: called with the number done and the total.
    """
    from tilewright.prediction.data.collect import measure_once
    from tilewright.prediction.data.whole_call import whole_call

    missing = [name for name in kernel.features if name not in query]
    if missing:
        raise PredictionError(f"the query gives no {missing[0]!r}, which {kernel.name} needs")
    instance = {name: _plain(query[name]) for name in kernel.features}
    found = []
    for choice in choices:
        variant = kernel.variant(choice.variant)
        operands = kernel.make(dict(instance), np.random.default_rng(seed))
        timed = whole_call(variant) if calls else variant
        settings = {k: int(v) for k, v in choice.settings.items()}
        found.append((choice, measure_once(kernel, timed, operands, settings)))
        if on_progress is not None:
            on_progress(len(found), len(choices))
    return found


def _plain(value: float) -> float:
    """Return a whole number as an int, as sizes of arrays must be."""
    return int(value) if float(value).is_integer() else float(value)
