"""Beam search over the structures of schedules.

A structure is a schedule without its tile sizes. The search starts from the analytic schedules and
the naive one: its result is never worse than these by its model. In each round, moves are drawn for
each state of the beam. A new structure is rated at many tile sizes of the changed Func at once,
around the present sizes. Its present sizes and the best ones are then costed with the corrected
time of the analytic model. The next beam has the best states, with a penalty for states that are
similar to a better one.

The effort is limited by the number of structures instead of the time: the same pipeline, machine
and seed give the same schedules, regardless of the load of the machine.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.inlining import TooLarge
from tilewright.halide.ir.loops import origin
from tilewright.halide.ir.nest import exact_size
from tilewright.halide.ir.schedule import FuncSchedule, Fuse, Schedule, ScheduleError, Split
from tilewright.halide.schedulers.analytic.cpu.families import calibrated
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel, model_of
from tilewright.halide.schedulers.learned.cost_model import LearnedModel
from tilewright.halide.schedulers.learned.evaluation import PRIOR_NAMES, Evaluator, Prior
from tilewright.halide.schedulers.learned.moves import (
    Move,
    Reshape,
    applied,
    changed_func,
    level_moves,
    loop_moves,
    violations,
)
from tilewright.halide.schedulers.learned.part_features import NestFeatures
from tilewright.halide.schedulers.learned.scene import Scene
from tilewright.halide.schedulers.task import Task
from tilewright.machines import CpuMachine

Array: TypeAlias = npt.NDArray[np.float64]
Sizes: TypeAlias = dict[tuple[int, int, int], Array]  # by entry, stage, split: shape (N,)
# Exponents of the powers of two by which a size is multiplied.
SCALES = (-2, -1, 0, 1, 2)
ENTRIES = 4096  # schedules of Funcs whose structures are kept


@dataclass(frozen=True, slots=True)
class Effort:
    """The limits of the search: counts, so that the result does not depend on time.

    Chosen: with four times as many structures, the search for one schedule takes three times as
    long, and what it finds runs no faster (`docs/decisions/learned-scheduler.md`).

    Attributes:
        structures: maximum number of schedules to cost.
        visits: maximum number of stages to cost over all schedules; large pipelines get fewer
            schedules.
        rows: maximum number of tile sizes at which a structure is rated.
        beam: number of states kept between rounds.
        moves: number of moves drawn per state.
        rounds: maximum number of rounds.
        patience: maximum number of rounds without improvement.
        penalty: a state similar to n better ones has its cost multiplied by ``penalty**n``.
        caution: standard deviations of the correction to add to its mean.
    """

    structures: int = 40
    visits: int = 625
    rows: int = 64
    beam: int = 6
    moves: int = 10
    rounds: int = 12
    patience: int = 3
    penalty: float = 1.05
    caution: float = 0.5


# For one schedule to use without measuring. Chosen: of 409 pipelines, 17 get another schedule than
# the analytic one with `Effort()`, 10 with this; run times are equal on average.
ONE_SCHEDULE = Effort(structures=14, visits=220, beam=3, moves=5)


@dataclass(frozen=True, eq=False)
class State:
    """A schedule with its predicted time and the moves that led to it.

    Attributes:
        schedule: the schedule.
        seconds: the predicted time.
        spread: the standard deviation of the correction, in natural logarithms.
        score: the natural logarithm of `seconds` plus `Effort.caution` times `spread`.
        prior: the time in seconds without the correction.
        features: a function that returns `row`.
        moves: the moves from a start to this state.
    """

    schedule: Schedule
    seconds: float
    spread: float
    score: float
    prior: float
    features: Callable[[], Array]
    moves: tuple[Move, ...] = ()

    @property
    def row(self) -> Array:
        """The features, shape (1, `len(PRIOR_NAMES)`)."""
        return self.features()


@dataclass(eq=False)
class BeamSearch:
    """A search. `structures` and `rows` count costed schedules and rated sizes.

    `analytic` is the analytic schedule, to which the correction of schedules is relative; without
    it, schedules are not corrected. `seen` holds the best state of each structure.
    """

    task: Task
    model: LearnedModel
    effort: Effort = field(default_factory=Effort)
    seed: int = 0
    analytic: Schedule | None = None
    structures: int = 0
    rows: int = 0
    seen: dict[Hashable, State] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare the cost model of the machine."""
        assert isinstance(self.task.machine, CpuMachine)
        machine, constants = calibrated(self.task.machine, self.task.calibration)
        self.machine: CpuModel = model_of(machine, constants)
        self.evaluator = Evaluator(self.task.algorithm, self.machine)
        self.scene = Scene(self.task.algorithm, self.machine.machine)
        self.rng = np.random.default_rng(self.seed)
        stages = sum(len(func.stages) for func in self.task.algorithm.funcs)
        most = self.effort.visits // max(stages, 1)
        self.most = min(self.effort.structures, max(most, 2 * self.effort.beam))

    def run(self, starts: Sequence[Schedule]) -> list[State]:
        """Return the best state of each costed structure, best first; includes `starts`."""
        found = [state for start in starts if (state := self.costed(start)) is not None]
        beam = self.best(found)
        idle = 0
        for _ in range(self.effort.rounds):
            if self.structures >= self.most or idle >= self.effort.patience or not beam:
                break
            before = min(state.score for state in self.seen.values())
            self.expand(beam)
            beam = self.best(list(self.seen.values()))
            idle = 0 if min(state.score for state in beam) < before else idle + 1
        return sorted(self.seen.values(), key=lambda state: state.score)

    def expand(self, beam: Sequence[State]) -> None:
        """Draw moves for the states of a beam and cost their results."""
        for state in beam:
            for move, after in self._successors(state):
                self._successor(after, move, state)

    # --- costing --------------------------------------------------------------------------

    def _successor(self, schedule: Schedule, move: Move, before: State) -> None:
        """Cost a structure at its present sizes and at the best rated sizes around them."""
        if self.structures >= self.most or structure_of(schedule) in self.seen:
            return
        moves = (*before.moves, move)
        self.costed(schedule, moves)
        sizes = self._sizes(schedule, changed_func(move))
        found = self.evaluator.features(schedule, sizes) if sizes else None
        if found is None:
            return
        self.rows += len(found.rows)
        mean, spread = self.model.sizes.correction(found.rows)
        rated = self.model.linear(found, self.machine.clock_hz)
        score = rated + mean + self.effort.caution * spread
        best = int(np.argmin(score))
        chosen = with_sizes(schedule, {at: int(row[best]) for at, row in sizes.items()})
        if chosen != schedule and not violations(chosen, self._scene(chosen)):
            self.costed(chosen, moves)

    def costed(self, schedule: Schedule, moves: tuple[Move, ...] = ()) -> State | None:
        """Return the state of a schedule and update `seen`; None if it cannot be costed."""
        self.structures += 1
        prior = self.evaluator.prior(schedule)
        if prior is None:
            return None
        # Features take a sixth of the search's time: only a model that uses them pays for them.
        found = self.evaluator.features(schedule) if self.model.needs_features else None
        row = functools.cache(partial(self._row, schedule, prior, found))
        base = self.model.before(prior.seconds, found, self.machine.clock_hz)
        mean = spread = 0.0
        if self.model.schedules.members:
            mean, spread = self.model.correction(row(), self._reference)
        score = base + mean + self.effort.caution * spread
        seconds = math.exp(base + mean)
        state = State(schedule, seconds, spread, score, math.exp(base), row, moves)
        key = structure_of(schedule)
        known = self.seen.get(key)
        if known is None or state.score < known.score:
            self.seen[key] = state
        return state

    @cached_property
    def _reference(self) -> Array | None:
        """The features of the analytic schedule, shape (1, `len(PRIOR_NAMES)`)."""
        if self.analytic is None:
            return None
        return self.evaluator.row(exact_size(self.analytic), self.machine.clock_hz)

    def _row(self, schedule: Schedule, prior: Prior, found: NestFeatures | None) -> Array:
        """Return the features of a schedule; zeros if their sizes cannot be determined.

        `found` has them if the search has computed them before.
        """
        found = found or self.evaluator.features(schedule)
        if found is None:
            return np.zeros((1, len(PRIOR_NAMES)))
        return prior.with_features(found, self.machine.clock_hz)

    def _sizes(self, schedule: Schedule, func: int) -> Sizes:
        """Return N tile sizes to rate by split of a Func; the first are the present ones."""
        extents = self._scene(schedule).extents
        names = self._scene(schedule).extended.funcs
        knobs: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        most: dict[tuple[str, int], float] = {}
        for e, entry in enumerate(schedule.funcs):
            if entry.func == func:
                for name, (s, i), change in tiles_of(entry):
                    knob = name, change.factor
                    knobs.setdefault(knob, []).append((e, s, i))
                    d = origin(change.old)
                    along = extents.get(names[func].name, ())
                    known = d is not None and d[0] == "v" and d[1] < len(along)
                    most[knob] = along[d[1]] if known and d is not None else math.inf
        if not knobs:
            return {}
        values = [
            [f for s in SCALES if 1 <= (f := int(knob[1] * 2.0**s)) <= most[knob] or s == 0]
            for knob in knobs
        ]
        grid = np.array(list(itertools.islice(itertools.product(*values), 4096)), dtype=float)
        own = np.array([[float(factor) for _, factor in knobs]])
        if len(grid) > self.effort.rows:
            grid = grid[self.rng.choice(len(grid), self.effort.rows, replace=False)]
        grid = np.concatenate([own, grid])
        return {at: grid[:, i] for i, found in enumerate(knobs.values()) for at in found}

    # --- moving ---------------------------------------------------------------------------

    def _scene(self, schedule: Schedule) -> Scene:
        return self.scene.of(schedule)

    def _successors(self, state: State) -> Iterator[tuple[Move, Schedule]]:
        """Yield legal moves drawn for a state, with the resulting schedules."""
        scene = self._scene(state.schedule)
        found = 0
        for _ in range(3 * self.effort.moves):
            if found >= self.effort.moves:
                return
            entry = state.schedule.funcs[int(self.rng.integers(len(state.schedule.funcs)))]
            kind = level_moves if self.rng.random() < 1 / 2 else loop_moves
            try:
                move = self._drawn(list(kind(entry, state.schedule, scene)))
                if move is None:
                    continue
                after = applied(state.schedule, move, scene)
                if structure_of(after) in self.seen or violations(after, scene):
                    continue
            except (TooLarge, ScheduleError):
                continue
            found += 1
            yield move, after

    def _drawn(self, moves: list[Move]) -> Move | None:
        """Draw a class of moves, then a move of it; `Reshape` is twice as likely as others."""
        kinds = sorted({type(move).__name__ for move in moves} - {"Resize"})
        if not kinds:
            return None
        kinds += [kind for kind in kinds if kind == Reshape.__name__]
        kind = kinds[int(self.rng.integers(len(kinds)))]
        among = [move for move in moves if type(move).__name__ == kind]
        return among[int(self.rng.integers(len(among)))]

    def best(self, states: Sequence[State]) -> list[State]:
        """Return the beam: the best states, with a penalty for states similar to better ones."""
        like: Counter[Hashable] = Counter()
        ranked = []
        for state in sorted(states, key=lambda state: state.score):
            key = levels_of(state.schedule)
            ranked.append((state.score + like[key] * math.log(self.effort.penalty), state))
            like[key] += 1
        ranked.sort(key=lambda pair: pair[0])
        return [state for _, state in ranked[: self.effort.beam]]


def tiles_of(entry: FuncSchedule) -> Iterator[tuple[str, tuple[int, int], Split]]:
    """Yield the splits whose factors are tile sizes: (name, (stage, index of split), split).

    Splits of equal name and factor in different stages keep equal factors. Vectors and unrolled
    loops are part of the structure instead.
    """
    for s, nest in enumerate(entry.stages):
        mapped = {loop.name: loop.mapping for loop in nest.loops}
        for i, change in enumerate(nest.splits):
            if isinstance(change, Split) and not _of_registers(change.inner, nest.splits, mapped):
                name = change.outer.removesuffix(f"_{s}") if s else change.outer
                yield name, (s, i), change


def _of_registers(loop: str, splits: Sequence[Split | Fuse], mapped: Mapping[str, object]) -> bool:
    """Return whether a loop, or all parts that it is split into, are vectorised or unrolled."""
    if loop in mapped:
        return mapped[loop] in ("vectorized", "unrolled")
    for change in splits:
        if isinstance(change, Split) and change.old == loop:
            parts = (change.outer, change.inner)
            return all(_of_registers(part, splits, mapped) for part in parts)
    return False


def with_sizes(schedule: Schedule, sizes: dict[tuple[int, int, int], int]) -> Schedule:
    """Return the schedule with new factors of splits, given by entry, stage and split."""
    funcs = list(schedule.funcs)
    for (e, s, i), factor in sizes.items():
        stages = list(funcs[e].stages)
        splits = list(stages[s].splits)
        old = splits[i]
        assert isinstance(old, Split)
        splits[i] = replace(old, factor=factor)
        stages[s] = replace(stages[s], splits=tuple(splits))
        funcs[e] = replace(funcs[e], stages=tuple(stages))
    return replace(schedule, funcs=tuple(funcs))


def structure_of(schedule: Schedule) -> Hashable:
    """Return the structure of a schedule: equal for schedules that differ only in tile sizes."""
    return replace(schedule, funcs=tuple(_without_sizes(entry) for entry in schedule.funcs))


@lru_cache(maxsize=ENTRIES)
def _without_sizes(entry: FuncSchedule) -> FuncSchedule:
    stages = [list(nest.splits) for nest in entry.stages]
    for _, (s, i), change in tiles_of(entry):
        stages[s][i] = replace(change, factor=1)
    nests = zip(entry.stages, stages, strict=True)
    return replace(entry, stages=tuple(replace(nest, splits=tuple(new)) for nest, new in nests))


def levels_of(schedule: Schedule) -> Hashable:
    """Return the added Funcs and the compute and store levels of all Funcs, without the loops."""
    levels = tuple(
        (entry.func, entry.compute.kind, entry.compute.func, entry.store.kind, entry.store.func)
        for entry in schedule.funcs
    )
    return schedule.clones, levels
