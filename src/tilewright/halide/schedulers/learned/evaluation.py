"""Evaluation of schedules: features, and the time that the analytic model predicts."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.nest_parts import Boxes
from tilewright.halide.analysis.nest_structure import NestStructure, StageNest
from tilewright.halide.analysis.paths import inlined
from tilewright.halide.analysis.scheduled_nest import UNKNOWN, Factors, ScheduledNest
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.plan import PartTime
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.ir.variants import running_at
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.nest_costs import TERMS, part_times
from tilewright.halide.schedulers.learned.features import features
from tilewright.halide.schedulers.learned.part_features import NAMES, NestFeatures, PartFeatures
from tilewright.halide.schedulers.learned.term_counts import TERMS as LINEAR_TERMS

Array: TypeAlias = npt.NDArray[np.float64]
# Features including the analytic model's time over the roofline's, the shares of its terms, and the
# terms of the linear model over its time.
PRIOR_NAMES = (
    *NAMES,
    "prior over roofline",
    *(f"prior {term}" for term in TERMS),
    *(f"term {term.name}" for term in LINEAR_TERMS),
)
# The inputs of the correction of single schedules: those features, and their differences from the
# features of the analytic schedule of the same pipeline.
CHANGE_NAMES = (*PRIOR_NAMES, *(f"change of {name}" for name in PRIOR_NAMES))
# Smaller shares of the analytic model's time are not distinguished.
LEAST_SHARE = 2.0**-6
# Maximum nodes in the expressions of a stage with its inlined Funcs; larger ones are not costed.
LARGEST_VIEW = 200_000


@dataclass(frozen=True, eq=False)
class Prior:
    """The analytic model's prediction: seconds, and the share of each term."""

    seconds: float
    shares: tuple[float, ...]

    def with_features(self, found: NestFeatures, clock_hz: float) -> Array:
        """Return the features of `PRIOR_NAMES`, shape (1, F), given those of the same sizes."""
        ratio = math.log(self.seconds * clock_hz / float(found.roofline[0]))
        shares = np.log2(np.maximum(found.terms[0] / (self.seconds * clock_hz), LEAST_SHARE))
        return np.concatenate([found.rows[:1], [[ratio, *self.shares, *shares]]], axis=1)


def with_changes(rows: Array, analytic: Array) -> Array:
    """Return the features of `CHANGE_NAMES`, shape (N, 2 F).

    `rows` has the features of `PRIOR_NAMES`, shape (N, F), and `analytic` those of the analytic
    schedule, shape (1, F) or (N, F).
    """
    return np.concatenate([rows, rows - analytic], axis=1)


@dataclass(eq=False)
class Evaluator:
    """Evaluates schedules of one pipeline.

    Analyses and the required boxes at root are cached by inlined Funcs. Nests of single Funcs, and
    times and features of parts (a Func at root with the Funcs computed in its loops), are cached by
    their schedules.
    """

    algorithm: Algorithm
    model: CpuModel
    _analyses: dict[object, Analysis] = field(default_factory=dict)
    _parts: dict[Hashable, PartTime] = field(default_factory=dict)
    _nests: dict[object, dict[Hashable, tuple[StageNest, ...]]] = field(default_factory=dict)
    _whole: dict[Hashable, Boxes] = field(default_factory=dict)
    _features: dict[Hashable, PartFeatures] = field(default_factory=dict)
    _last: tuple[Schedule, ScheduledNest] | None = None

    def nest(self, schedule: Schedule, factors: Factors | None = None) -> ScheduledNest:
        """Return the nest with the schedule's factors, or for N rows of `factors`.

        Raises one of `UNKNOWN` if its sizes cannot be determined.
        """
        given = schedule
        if factors is None and self._last is not None and self._last[0] is given:
            return self._last[1]
        schedule = running_at(schedule, self.algorithm)
        special = any(nest.specialize for entry in schedule.funcs for nest in entry.stages)
        key = schedule.clones, special
        if key not in self._analyses:
            view = View(with_clones(self.algorithm, schedule.clones), limit=LARGEST_VIEW)
            symbols = view.algorithm.symbols
            boxes = estimated_boxes(view)
            self._analyses[key] = Analysis(view, boxes, symbols, specialize=special)
        found = self._analyses[key]
        gone: frozenset[int] = frozenset()
        for func in sorted(inlined(schedule, self.algorithm)):
            gone |= {func}
            if (key, gone) not in self._analyses:
                name = found.view.algorithm.funcs[func].name
                self._analyses[key, gone] = found.toggled(name)
            found = self._analyses[key, gone]
        if special:
            funcs = (
                replace(entry, stages=tuple(replace(nest, specialize=()) for nest in entry.stages))
                for entry in schedule.funcs
            )
            schedule = replace(schedule, funcs=tuple(funcs))
        structure = NestStructure(found.view, schedule, self._nests.setdefault(key, {}))
        bounds = tuple((entry.func, entry.bounds) for entry in schedule.funcs if entry.bounds)
        whole = self._whole.get((key, gone, bounds))
        nest = ScheduledNest(found, schedule, factors, structure=structure, whole=whole)
        self._whole[key, gone, bounds] = nest.whole
        if factors is None:
            self._last = given, nest
        return nest

    def features(self, schedule: Schedule, factors: Factors | None = None) -> NestFeatures | None:
        """Return the features per row of `factors`; None if sizes cannot be determined."""
        try:
            return features(self.nest(schedule, factors), self.model, self._features)
        except UNKNOWN:
            return None

    def row(self, schedule: Schedule, clock_hz: float) -> Array | None:
        """Return the features of `PRIOR_NAMES`, shape (1, F); None if sizes are unknown."""
        prior, found = self.prior(schedule), self.features(schedule)
        return None if prior is None or found is None else prior.with_features(found, clock_hz)

    def prior(self, schedule: Schedule) -> Prior | None:
        """Return the analytic model's prediction; None if sizes cannot be determined."""
        try:
            with np.errstate(invalid="ignore", over="ignore"):
                parts = part_times(self.nest(schedule), self.model, self._parts, rows=True)
        except UNKNOWN:
            return None
        seconds = sum(part.seconds for part in parts)
        if not (math.isfinite(seconds) and seconds > 0):
            return None
        shares = (sum(part.terms.get(term, 0.0) for part in parts) / seconds for term in TERMS)
        return Prior(seconds, tuple(shares))
