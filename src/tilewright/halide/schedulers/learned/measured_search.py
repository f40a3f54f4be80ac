"""Search over structures with measurements.

Candidates are reached by moves from the best schedules so far. Their time is predicted by the
analytic model with a correction learnt in this run: a Gaussian process of the logarithm of measured
over predicted time for this pipeline. Its kernel is the sum of

- a constant, for an error that all schedules of the pipeline share
- the shipped correction with a weight to learn, because it ranks only some pipelines well
- a term for equal traits (the compute level of a Func, its loops)
- a Matérn 3/2 kernel of the features of the nest

Proposals minimise a lower confidence bound. Within a batch, each proposal is assumed to take its
predicted time before the next is chosen (Kriging believer); the last moves of proposals differ in
kind or Func.

| symbol | meaning | shape, unit |
|---|---|---|
| `features` | features of schedules, standardised | (N, F) |
| `traits` | codes of traits, equal where schedules agree | (N, T) |
| `corrections` | logarithms of corrected over predicted time, as shipped | (N,) |
| `targets` | logarithms of measured over predicted time of the first n schedules | (n,) |
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.nest import exact_size
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.schedulers.learned.beam_search import (
    BeamSearch,
    Effort,
    State,
    structure_of,
)
from tilewright.halide.schedulers.learned.cost_model import LearnedModel, shipped
from tilewright.halide.schedulers.learned.scheduler import planned_state
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import Task

Array: TypeAlias = npt.NDArray[np.float64]
# Per batch: the number of states to draw moves for (`beam`), and of moves per state.
EXPANSION = Effort(structures=6000, visits=150_000, beam=4, moves=6)
# Maximum number of states to rate: the best ones by the shipped model.
POOL = 300
# Variance of the constant (natural logarithms squared), and mean and variance of the weight of the
# shipped correction.
CONSTANT = 4.0
TRUST, TRUST_VARIANCE = 0.5, 0.25
# The marginal likelihood chooses among these: the variance of traits and features together, the
# length scale of features in standard deviations, and the variance of noise (of 5% or 15%).
SIGNALS, LENGTHS, NOISES = (0.07, 0.15, 0.6), (0.5, 1.0, 2.0), (0.0025, 0.0225)
# Smaller relative differences of features are attributed to rounding.
ROUNDING = 1e-9
# The bounds of successive proposals are this many standard deviations below the mean, in turns.
EAGERNESS = (0.0, 1.0, 2.0)


@dataclass(frozen=True, eq=False)
class Residuals:
    """The inputs of the Gaussian process for N schedules; see the module's table."""

    features: Array
    traits: npt.NDArray[np.int64]
    corrections: Array

    def covariance(self, signal: float, length: float) -> Array:
        """Return the prior covariances, shape (N, N)."""
        norms = (self.features**2).sum(axis=1)
        squared = norms[:, None] + norms - 2.0 * self.features @ self.features.T
        r = np.sqrt(3.0 * np.maximum(squared, 0.0) / max(self.features.shape[1], 1)) / length
        alike = np.zeros_like(r)
        for trait in self.traits.T:
            alike += (trait[:, None] == trait) / self.traits.shape[1]
        own = signal / 2 * ((1.0 + r) * np.exp(-r) + alike)
        weighted = TRUST_VARIANCE * np.outer(self.corrections, self.corrections)
        return np.asarray(own + CONSTANT + weighted)

    def predicted(self, targets: Array) -> tuple[Array, Array, float]:
        """Return the means and covariances of the schedules after the first n, and the noise.

        The settings with the largest marginal likelihood of `targets` are used. If rounding leaves
        no setting with a positive definite covariance, the prior is returned.
        """
        n = len(targets)
        known = Residuals(self.features[:n], self.traits[:n], self.corrections[:n])
        found = []
        for signal, length in itertools.product(SIGNALS, LENGTHS):
            gram = known.covariance(signal, length)
            for noise in NOISES:
                try:
                    factor = np.linalg.cholesky(gram + noise * np.eye(n))
                except np.linalg.LinAlgError:
                    continue
                white = np.linalg.solve(factor, targets - TRUST * known.corrections)
                likelihood = -0.5 * float(white @ white) - float(np.log(np.diag(factor)).sum())
                found.append((likelihood, signal, length, noise, factor, white))
        if not found:
            prior = self.covariance(SIGNALS[-1], LENGTHS[-1])[n:, n:]
            return TRUST * self.corrections[n:], prior, NOISES[-1]
        _, signal, length, noise, factor, white = max(found, key=lambda each: each[0])
        everything = self.covariance(signal, length)
        cross = np.linalg.solve(factor, everything[:n, n:])
        mean = TRUST * self.corrections[n:] + white @ cross
        return mean, everything[n:, n:] - cross.T @ cross, noise


@dataclass(eq=False)
class MeasuredSearch:
    """Proposes schedules to measure and learns from their times.

    `analytic` is the analytic schedule (see `BeamSearch`), by default the best of `plan`.

    Proposals are reproducible: they depend on the seed and the measurements only. `effort` sets the
    number of moves drawn per batch.
    """

    task: Task
    model: LearnedModel = field(default_factory=shipped)
    seed: int = 0
    effort: Effort = EXPANSION
    analytic: Schedule | None = None
    measured: list[tuple[State, float | None]] = field(default_factory=list)
    _proposed: dict[Schedule, State] = field(default_factory=dict)
    _closed: set[Hashable] = field(default_factory=set)  # structures that are not proposed again

    def __post_init__(self) -> None:
        """Prepare the search."""
        if self.analytic is None and self.model.schedules.members:
            self.analytic = plan(self.task, shared=False)[0].schedule
        self.search = BeamSearch(self.task, self.model, self.effort, self.seed, self.analytic)

    def tell(self, schedule: Schedule, seconds: float | None) -> None:
        """Add the measured time of a schedule in seconds; None if it failed."""
        state = self._proposed.get(schedule) or self.search.costed(exact_size(schedule))
        if state is not None:
            self.measured.append((state, seconds))
            self._closed.add(structure_of(state.schedule))

    def propose(self, count: int) -> list[PlannedSchedule]:
        """Return up to `count` legal schedules with structures that were not measured yet."""
        times = [seconds for _, seconds in self.measured if seconds is not None]
        if not times:
            return []
        self.search.expand(self._beam(max(times)))
        pool, spreads, noise = self._rated(max(times))
        found: list[PlannedSchedule] = []
        left = list(range(len(pool)))
        while left and len(found) < count:
            # The last moves within a batch differ in kind or Func, if possible.
            kinds = {_kind(self._proposed[each.schedule]) for each in found}
            fresh = [i for i in left if _kind(pool[i]) not in kinds] or left
            eagerness = EAGERNESS[(len(self.measured) + len(found)) % len(EAGERNESS)]
            below = eagerness * np.sqrt(np.maximum(np.diag(spreads), 0.0))
            at = min(fresh, key=lambda i: pool[i].score - below[i])
            left.remove(at)
            self._closed.add(structure_of(pool[at].schedule))
            planned = planned_state(pool[at], None, self.task)
            if planned is not None and planned.schedule not in self._proposed:
                self._proposed[planned.schedule] = pool[at]
                found.append(planned)
                spreads = spreads - np.outer(spreads[at], spreads[at]) / (spreads[at, at] + noise)
        return found

    def _beam(self, slowest: float) -> list[State]:
        """Return the states to draw moves for: the fastest measured and the most promising ones."""
        ran = [replace(s, score=math.log(t)) for s, t in self.measured if t is not None]
        pool = self._rated(slowest)[0]
        promising = [replace(s, score=s.score - EAGERNESS[-1] * s.spread) for s in pool]
        half = self.effort.beam // 2
        promising = self.search.best(promising)[:half]
        return [*self.search.best(ran)[: self.effort.beam - len(promising)], *promising]

    def _rated(self, slowest: float) -> tuple[list[State], Array, float]:
        """Return unmeasured states with predictions, their covariances, and the noise variance.

        Failed schedules count as `slowest` seconds.
        """
        pool = [state for key, state in self.search.seen.items() if key not in self._closed]
        pool = sorted(pool, key=lambda state: state.score)[:POOL]
        states = [*(state for state, _ in self.measured), *pool]
        algorithm = self.task.algorithm
        residuals = Residuals(
            scaled(np.concatenate([state.row for state in states])),
            _numbered([dict(_traits(state.schedule, algorithm)) for state in states]),
            np.array([math.log(state.seconds / state.prior) for state in states]),
        )
        targets = np.array(
            [math.log((seconds or slowest) / s.prior) for s, seconds in self.measured]
        )
        mean, spreads, noise = residuals.predicted(targets)
        deviations = np.sqrt(np.maximum(np.diag(spreads), 0.0))
        rated = [
            replace(s, seconds=s.prior * math.exp(m), spread=d, score=math.log(s.prior) + m)
            for s, m, d in zip(pool, mean.tolist(), deviations.tolist(), strict=True)
        ]
        return rated, spreads, noise


def scaled(rows: Array) -> Array:
    """Return standardised features, without columns of equal values.

    >>> scaled(np.array([[0.1 + 0.2, 1.0], [0.3, 3.0]]))
    array([[-1.],
           [ 1.]])
    """
    spread = rows.std(axis=0)
    # Without this, columns that differ only by rounding would dominate.
    varies = spread > ROUNDING * (1.0 + np.abs(rows).max(axis=0))
    return np.asarray((rows - rows.mean(axis=0))[:, varies] / spread[varies])


def _kind(state: State) -> Hashable:
    """Return the kind and Func of the last move to a state; None for a start."""
    return (type(state.moves[-1]), state.moves[-1].func) if state.moves else None


def _numbered(found: Sequence[Mapping[Hashable, Hashable]]) -> npt.NDArray[np.int64]:
    """Return codes of the traits of N schedules, shape (N, T), without traits that all share."""
    names = list(dict.fromkeys(name for each in found for name in each))
    numbers: dict[Hashable, int] = {}
    table = np.array(
        [[numbers.setdefault((n, each.get(n)), len(numbers)) for n in names] for each in found]
    )
    return table[:, (table != table[0]).any(axis=0)]


def _traits(schedule: Schedule, algorithm: Algorithm) -> Iterator[tuple[Hashable, Hashable]]:
    """Yield (name, value) of the traits of a schedule: per Func, its levels and its loops.

    Funcs are given by name, because positions depend on the Funcs that a schedule adds.
    """
    names = [func.name for func in with_clones(algorithm, schedule.clones).funcs]
    for entry in schedule.funcs:
        name = names[entry.func]
        at = tuple(
            (level.kind, level.func >= 0 and names[level.func], level.stage, level.loop)
            for level in (entry.compute, entry.store)
        )
        yield (name, "place"), (at, entry.memory)
        loops = [[(loop.name, loop.mapping) for loop in nest.loops] for nest in entry.stages]
        yield (name, "loops"), (str(loops), entry.storage_order)
