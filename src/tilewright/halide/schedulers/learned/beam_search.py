"""Beam search over structures, each costed with a matrix of sizes at once.

It starts from the analytic schedules and from the naive one, so that it never ends with something
that its model likes less. In every round, moves are drawn for each state of the beam. Every
structure that they lead to is rated with the sizes of the changed Func around the present ones, in
one array; its best sizes, and its own, are then costed with the analytic model's time, corrected.
The beam then takes the best states, those like a better one with a penalty.

The effort is a count of structures, not a time, so that the same pipeline, machine and seed give
the same schedules however busy the machine is.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.inlining import TooLarge
from tilewright.halide.ir.loops import origin
from tilewright.halide.ir.schedule import FuncSchedule, Fuse, Schedule, ScheduleError, Split
from tilewright.halide.schedulers.analytic.cpu.families import calibrated
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel, model_of
from tilewright.halide.schedulers.learned.cost_model import LearnedModel
from tilewright.halide.schedulers.learned.evaluation import Evaluator
from tilewright.halide.schedulers.learned.moves import (
    Move,
    Reshape,
    Scene,
    applied,
    nests,
    places,
    violations,
)
from tilewright.halide.schedulers.task import Task
from tilewright.machines import CpuMachine

Array: TypeAlias = npt.NDArray[np.float64]
Sizes: TypeAlias = dict[tuple[int, int, int], Array]  # by entry, stage, split: shape (N,)
# Powers of two that a size is multiplied by.
SCALES = (-2, -1, 0, 1, 2)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is searched: counts, so that the outcome does not depend on time.

    `structures` schedules are costed in all, and `visits` stages of them: a pipeline of 300 stages
    gets fewer. A structure is rated with up to `rows` rows of sizes. `beam` states go from round to
    round, and each has `moves` drawn. A state like `n` better ones has its cost multiplied by
    `penalty` to the power of `n`. `caution` is how many standard deviations of the correction are
    added to its mean. The search ends after `rounds`, or `patience` of them without gain.
    """

    structures: int = 160
    visits: int = 2500
    rows: int = 64
    beam: int = 6
    moves: int = 10
    rounds: int = 12
    patience: int = 3
    penalty: float = 1.05
    caution: float = 0.5


@dataclass(frozen=True, eq=False)
class State:
    """A schedule with its predicted seconds, and the moves that led to it.

    `score` is the logarithm of the seconds, with the caution of the search; `spread` is the
    standard deviation of the correction. `prior` has the seconds without correction, and `row` the
    features that it is predicted from, shape (1, `len(PRIOR_NAMES)`).
    """

    schedule: Schedule
    seconds: float
    spread: float
    score: float
    prior: float
    row: Array
    moves: tuple[Move, ...] = ()


@dataclass(eq=False)
class BeamSearch:
    """One search; `structures` and `rows` count what was costed, `seen` has all states."""

    task: Task
    model: LearnedModel
    effort: Effort = field(default_factory=Effort)
    seed: int = 0
    structures: int = 0
    rows: int = 0
    seen: dict[Hashable, State] = field(default_factory=dict)
    _scenes: dict[object, Scene] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare the machine's model."""
        assert isinstance(self.task.machine, CpuMachine)
        machine, constants = calibrated(self.task.machine, self.task.calibration)
        self.machine: CpuModel = model_of(machine, constants)
        self.evaluator = Evaluator(self.task.algorithm, self.machine)
        self.rng = np.random.default_rng(self.seed)
        stages = sum(len(func.stages) for func in self.task.algorithm.funcs)
        most = self.effort.visits // max(stages, 1)
        self.most = min(self.effort.structures, max(most, 2 * self.effort.beam))

    def run(self, starts: Sequence[Schedule]) -> list[State]:
        """Return all states that were costed, the best first; `starts` are among them."""
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
        """Cost what moves drawn for the states of a beam lead to."""
        for state in beam:
            for move, after in self._successors(state):
                self._successor(after, move, state)

    # --- costing --------------------------------------------------------------------------

    def _successor(self, schedule: Schedule, move: Move, before: State) -> None:
        """Cost a structure at its own sizes and at the best of those around them."""
        if self.structures >= self.most or structure_of(schedule) in self.seen:
            return
        moves = (*before.moves, move)
        self.costed(schedule, moves)
        sizes = self._sizes(schedule, move.func)
        found = self.evaluator.features(schedule, sizes) if sizes else None
        if found is None:
            return
        self.rows += len(found.rows)
        mean, spread = self.model.sizes.correction(found.rows)
        score = np.log(found.roofline) + mean + self.effort.caution * spread
        best = int(np.argmin(score))
        chosen = with_sizes(schedule, {at: int(row[best]) for at, row in sizes.items()})
        if chosen != schedule and not violations(chosen, self._scene(chosen)):
            self.costed(chosen, moves)

    def costed(self, schedule: Schedule, moves: tuple[Move, ...] = ()) -> State | None:
        """Return a schedule with its cost, noted if it is its structure's best; None without."""
        self.structures += 1
        prior = self.evaluator.prior(schedule)
        found = None if prior is None else self.evaluator.features(schedule)
        if prior is None or found is None:
            return None
        row = prior.with_features(found, self.machine.clock_hz)
        mean, spread = (float(each[0]) for each in self.model.schedules.correction(row))
        score = math.log(prior.seconds) + mean + self.effort.caution * spread
        seconds = prior.seconds * math.exp(mean)
        state = State(schedule, seconds, spread, score, prior.seconds, row, moves)
        key = structure_of(schedule)
        known = self.seen.get(key)
        if known is None or state.score < known.score:
            self.seen[key] = state
        return state

    def _sizes(self, schedule: Schedule, func: int) -> Sizes:
        """Return rows of sizes of a Func's tiles; the first row has the present ones."""
        extents = self._scene(schedule).extents
        names = self._scene(schedule).extended.funcs
        knobs: dict[str, list[tuple[int, int, int]]] = {}
        present: dict[str, int] = {}
        most: dict[str, float] = {}
        for e, entry in enumerate(schedule.funcs):
            if entry.func == func:
                for name, place, change in tiles_of(entry):
                    knobs.setdefault(name, []).append((e, *place))
                    present[name] = change.factor
                    d = origin(change.old)
                    along = extents.get(names[func].name, ())
                    known = d is not None and d[0] == "v" and d[1] < len(along)
                    most[name] = along[d[1]] if known and d is not None else math.inf
        if not knobs:
            return {}
        values = [
            [f for s in SCALES if 1 <= (f := int(present[n] * 2.0**s)) <= most[n] or s == 0]
            for n in knobs
        ]
        grid = np.array(list(itertools.islice(itertools.product(*values), 4096)), dtype=float)
        own = np.array([[float(present[name]) for name in knobs]])
        if len(grid) > self.effort.rows:
            grid = grid[self.rng.choice(len(grid), self.effort.rows, replace=False)]
        grid = np.concatenate([own, grid])
        return {at: grid[:, i] for i, name in enumerate(knobs) for at in knobs[name]}

    # --- moving ---------------------------------------------------------------------------

    def _scene(self, schedule: Schedule) -> Scene:
        key = schedule.clones
        if key not in self._scenes:
            machine = self.machine.machine
            self._scenes[key] = Scene(self.task.algorithm, machine, key)
        return self._scenes[key]

    def _successors(self, state: State) -> Iterator[tuple[Move, Schedule]]:
        """Yield moves drawn for a state, with where they lead; illegal ones are left out."""
        scene = self._scene(state.schedule)
        found = 0
        for _ in range(3 * self.effort.moves):
            if found >= self.effort.moves:
                return
            entry = state.schedule.funcs[int(self.rng.integers(len(state.schedule.funcs)))]
            kind = places if self.rng.random() < 1 / 2 else nests
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
        """Draw a class of moves, then one of it; classes count alike, but new shapes twice."""
        kinds = sorted({type(move).__name__ for move in moves} - {"Resize"})
        if not kinds:
            return None
        kinds += [kind for kind in kinds if kind == Reshape.__name__]
        kind = kinds[int(self.rng.integers(len(kinds)))]
        among = [move for move in moves if type(move).__name__ == kind]
        return among[int(self.rng.integers(len(among)))]

    def best(self, states: Sequence[State]) -> list[State]:
        """Return the beam: the best states, those like a better one with a penalty."""
        like: Counter[Hashable] = Counter()
        ranked = []
        for state in sorted(states, key=lambda state: state.score):
            key = places_of(state.schedule)
            ranked.append((state.score + like[key] * math.log(self.effort.penalty), state))
            like[key] += 1
        ranked.sort(key=lambda pair: pair[0])
        return [state for _, state in ranked[: self.effort.beam]]


def tiles_of(entry: FuncSchedule) -> Iterator[tuple[str, tuple[int, int], Split]]:
    """Yield the splits whose factors are sizes of tiles: a name for all stages, place, split.

    Vectors and copies of a body are part of the structure.
    """
    for s, nest in enumerate(entry.stages):
        mapped = {loop.name: loop.mapping for loop in nest.loops}
        for i, change in enumerate(nest.splits):
            if isinstance(change, Split) and not _of_registers(change.inner, nest.splits, mapped):
                name = change.outer.removesuffix(f"_{s}") if s else change.outer
                yield name, (s, i), change


def _of_registers(loop: str, splits: Sequence[Split | Fuse], mapped: Mapping[str, object]) -> bool:
    """Return whether a loop is in vectors or unrolled, with all that it is cut into."""
    if loop in mapped:
        return mapped[loop] in ("vectorized", "unrolled")
    for change in splits:
        if isinstance(change, Split) and change.old == loop:
            parts = (change.outer, change.inner)
            return all(_of_registers(part, splits, mapped) for part in parts)
    return False


def with_sizes(schedule: Schedule, sizes: dict[tuple[int, int, int], int]) -> Schedule:
    """Return a schedule with other factors of some splits, by entry, stage and split."""
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
    """Return what two schedules share that differ in sizes of tiles only."""
    sizes = {
        (e, s, i): 1 for e, entry in enumerate(schedule.funcs) for _, (s, i), _ in tiles_of(entry)
    }
    return with_sizes(schedule, sizes)


def places_of(schedule: Schedule) -> Hashable:
    """Return where every Func is computed and stored."""
    return tuple(
        (entry.func, entry.compute.kind, entry.compute.func, entry.store.kind, entry.store.func)
        for entry in schedule.funcs
    )
