"""Search over whole GPU schedules by the predictions of the released network of Anderson 2021.

The search decides one Func after the other, from the outputs to the inputs: inlined, at root, or in
the blocks or threads of the kernel that reads it. Unlike in the paper, Funcs that are not decided
yet are at root, so that all states are complete schedules; tiles are not decided Func by Func
either, but improved for each kernel by coordinate descent, whose results are kept per kernel.

1. Greedy decisions with usual tiles, from a state with all Funcs at root and one with as many
   inlined as may be.
2. Descent: each Func is moved elsewhere, and each tile is changed, while the prediction falls.
3. A beam over the decisions with tuned tiles, and descent from its best state.

The effort is a count of kernels whose features are computed, so that results do not depend on the
time; a limit of seconds can be set as well.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tilewright.halide.schedulers.learned.gpu.choices import (
    INLINED,
    Placement,
    State,
    Tile,
    serial_sizes,
    starting_tiles,
    thread_sizes,
)
from tilewright.halide.schedulers.learned.gpu.space import (
    KernelPlacement,
    PlacementSpace,
    Structure,
)
from tilewright.halide.schedulers.learned.published.pipeline import FuncNode

# Kernels whose features are computed, and as many more per Func (chosen: about a second
# for a dozen Funcs).
KERNELS, KERNELS_PER_FUNC = 400, 20
# Rounds of coordinate descent over the tiles of one kernel (chosen).
ROUNDS = 3
ROUNDS_MOVED = 1  # the same for a kernel that a move has changed
# States with a larger ratio of their prediction to that of the state before are not tuned (chosen).
WORTH_TUNING = 1.25
# The predictions of tables of features, shape (N, stages, features), in milliseconds.
Costs = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.floating[Any]]]


@dataclass(frozen=True, slots=True)
class TileExtent:
    """One extent of a tile: the serial iterations or threads along dimension `d`."""

    name: Literal["serial", "threads"]
    d: int
    sizes: tuple[int, ...]

    def moved(self, tile: Tile, direction: int) -> Tile | None:
        """Return the tile with the next larger (1) or smaller (-1) extent; None without one.

        >>> TileExtent("serial", 1, (1, 2, 4)).moved(Tile((1, 2)), 1)
        Tile(serial=(1, 4), threads=())
        """
        old = getattr(tile, self.name)
        beyond = [size for size in self.sizes if direction * (size - old[self.d]) > 0]
        if not beyond:
            return None
        size = beyond[0] if direction > 0 else beyond[-1]
        return replace(tile, **{self.name: (*old[: self.d], size, *old[self.d + 1 :])})


@dataclass(frozen=True)
class KernelEffort:
    """Limits of a search.

    Attributes:
        beam: States that are kept after each decision.
        kernels: Kernels whose features are computed; None for `KERNELS` and `KERNELS_PER_FUNC`.
        seconds: CPU seconds; None for no limit. With a limit, results depend on the machine.
        passes: Most rounds of descent over all Funcs.
    """

    beam: int = 4
    kernels: int | None = None
    seconds: float | None = None
    passes: int = 4


class StructureSearch:
    """Searches the states of a space.

    Args:
        space: The space.
        costs: The model.
        effort: The limits.
    """

    def __init__(self, space: PlacementSpace, costs: Costs, effort: KernelEffort) -> None:
        self.space, self.costs, self.effort = space, costs, effort
        self.states = 0
        self._known: dict[State, float] = {}
        self._tiles: dict[Structure, KernelPlacement] = {}
        self._rounds: dict[Structure, int] = {}
        self._best_tile: dict[int, Placement] = {}
        funcs = sum(not node.input for node in space.nodes)
        usual = KERNELS + KERNELS_PER_FUNC * funcs
        self.kernels = usual if effort.kernels is None else effort.kernels
        self._began = time.process_time()

    @property
    def spent(self) -> bool:
        """Whether a limit is reached."""
        limit = self.effort.seconds
        late = limit is not None and time.process_time() - self._began > limit
        return late or self.space.evaluated >= self.kernels

    def run(self) -> list[tuple[float, State]]:
        """Return the best states, best first, with their predictions."""
        starts = [self.space.start(inline) for inline in (True, False)]
        # Where tiles are not tuned, places are compared with the usual tiles.
        (first,) = self._beam(starts, 1, tune=False)
        found = [first, self._descended(self._tuned(first))]
        if self.effort.beam > 1 and not self.spent:
            found += self._beam([found[-1], *starts], self.effort.beam, tune=True)
            found.append(self._descended(min(found, key=self.cost)))
        ordered = sorted(dict.fromkeys(found), key=self.cost)
        return [(self.cost(state), state) for state in ordered]

    # --- costs ------------------------------------------------------------------------------

    def cost(self, state: State) -> float:
        """Return the prediction of a state; infinite if the GPU cannot run it."""
        if state not in self._known:
            self._rate([state])
        return self._known[state]

    def _rate(self, states: Sequence[State]) -> None:
        """Predict states that are not known yet, in one batch."""
        new = [s for s in dict.fromkeys(states) if s not in self._known]
        tables, rated = [], []
        for state in new:
            self.states += 1
            parts = [self.space.features(kernel) for kernel in self.space.kernels(state)]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                self._known[state] = math.inf
                continue
            rated.append(state)
            tables.append(self.space.parts.together(known))
        if rated:
            for state, cost in zip(rated, self.costs(np.stack(tables)), strict=True):
                self._known[state] = float(cost) if math.isfinite(cost) else math.inf

    # --- where Funcs are computed -----------------------------------------------------------

    def _places(self, state: State, place: int) -> Iterator[State]:
        """Yield the states in which one Func is computed elsewhere."""
        space, now = self.space, state[place]
        node = space.pipeline.by_position[place]
        assert now is not None
        tile = self._root_choice(place)
        options: list[Placement] = []
        if place in space.inlinable:
            options.append(INLINED)
        if not (node.input and now.kind == "inline"):
            options.append(tile)
        if place in space.tiled and not node.output:
            readers = space.kernels_reading(state, node)
            if len(readers) == 1:
                serial = tile.tile.serial if tile.tile else ()
                ones, of = (1,) * len(serial), min(readers)
                options += [Placement("block", of, Tile(s)) for s in sorted({ones, serial})]
                options.append(Placement("thread", of, Tile(ones)))
        tiles = self._roots(state)
        for choice in options:
            if choice.kind == now.kind and choice.of == now.of:
                continue
            if choice.kind in ("block", "thread") and not space.possible(state, node, choice):
                continue
            moved = space.repaired((*state[:place], choice, *state[place + 1 :]), tiles)
            yield moved
            if choice.kind == "root":
                yield from self._with_producers(moved, node)

    def _with_producers(self, state: State, node: FuncNode) -> Iterator[State]:
        """Yield the states in which one Func at root is computed in the blocks of its reader.

        Together with the reader's own move, because the reader alone may only cost more at root.
        """
        for edge in node.stages[0].edges:
            producer = edge.producer
            choice = state[producer.position]
            if choice is None or choice.kind != "root" or choice.tile is None:
                continue
            inside = Placement("block", node.position, Tile(choice.tile.serial))
            if self.space.possible(state, producer, inside):
                place = producer.position
                yield (*state[:place], inside, *state[place + 1 :])

    def _root_choice(self, place: int) -> Placement:
        return self._best_tile.get(place) or self.space.at_root(place)

    def _roots(self, state: State) -> State:
        return tuple(None if c is None else self._root_choice(i) for i, c in enumerate(state))

    def _beam(self, starts: Sequence[State], width: int, tune: bool) -> list[State]:
        """Return the best states after deciding all Funcs, outputs first."""
        beam = self._diverse(sorted(dict.fromkeys(starts), key=self.cost))[:width]
        for node in self.space.nodes:
            if node.input or self.spent:
                continue
            found = list(beam)
            for state in beam:
                found += self._moved(state, node.position, tune)
            beam = self._diverse(sorted(dict.fromkeys(found), key=self.cost))[:width]
        return beam

    def _moved(self, state: State, place: int, tune: bool = True) -> list[State]:
        """Return the states in which one Func is computed elsewhere, with better tiles or not."""
        moved = list(self._places(state, place))
        self._rate(moved)
        if not tune:
            return moved
        likely = [each for each in moved if self.cost(each) < WORTH_TUNING * self.cost(state)]
        return [self._tuned(each, state) for each in likely]

    def _diverse(self, states: Sequence[State]) -> list[State]:
        """Return the best states, at most one per structure."""
        found: dict[tuple[object, ...], State] = {}
        for state in states:
            found.setdefault(tuple((c.kind, c.of) if c else None for c in state), state)
        return list(found.values())

    # --- tiles ------------------------------------------------------------------------------

    def _tuned(self, state: State, was: State | None = None) -> State:
        """Return the state with better tiles for the kernels that are not in `was`."""
        if math.isinf(self.cost(state)):
            return state
        known = set(self.space.kernels(was)) if was is not None else set()
        for kernel in self.space.kernels(state):
            if kernel not in known and kernel.choice.tile is not None:
                state = self._kernel_tuned(state, kernel, ROUNDS if was is None else ROUNDS_MOVED)
        return state

    def _kernel_tuned(self, state: State, kernel: KernelPlacement, rounds: int) -> State:
        """Return the state with the tiles of one kernel improved by coordinate descent."""
        structure = kernel.structure
        if structure in self._tiles:
            state = min(state, _with_kernel(state, self._tiles[structure]), key=self.cost)
            if self._rounds[structure] >= rounds:
                return state
        self._rounds[structure] = rounds
        if rounds == ROUNDS:
            state = self._best_start(state, kernel)
        for _ in range(rounds):
            before = state
            for place in (kernel.root, *(place for place, _ in kernel.members)):
                for axis in self._axes(state, place):
                    state = self._along(state, place, axis)
            if state == before or self.spent:
                break
        tuned = next(k for k in self.space.kernels(state) if k.root == kernel.root)
        self._tiles[structure] = tuned
        if not kernel.members:
            self._best_tile[kernel.root] = tuned.choice
        return state

    def _best_start(self, state: State, kernel: KernelPlacement) -> State:
        """Return the state with the best of several shapes of a kernel's tile."""
        place, choice = kernel.root, kernel.choice
        assert choice.tile is not None
        extents, first = self.space.extents(place), self.space.first[place]
        trials = [
            (*state[:place], replace(choice, tile=tile), *state[place + 1 :])
            for tile in starting_tiles(choice.tile, extents, first)
        ]
        self._rate(trials)
        return min((state, *trials), key=self.cost)

    def _axes(self, state: State, place: int) -> list[TileExtent]:
        """Return the extents of a Func's tile that can be changed, with the values to try."""
        choice = state[place]
        assert choice is not None
        first, found = self.space.first[place], []
        for d, extent in enumerate(self.space.extents(place)):
            found.append(TileExtent("serial", d, serial_sizes(int(extent))))
            if choice.kind == "root":
                found.append(TileExtent("threads", d, thread_sizes(int(extent), d == first)))
        return [axis for axis in found if len(axis.sizes) > 1]

    def _along(self, state: State, place: int, axis: TileExtent) -> State:
        """Return the state with one extent of a tile moved as long as the prediction falls."""
        choice = state[place]
        assert choice is not None
        assert choice.tile is not None
        for direction in (1, -1):
            while not self.spent:
                choice = state[place]
                assert choice is not None
                assert choice.tile is not None
                tile = axis.moved(choice.tile, direction)
                if tile is None or (choice.kind == "root" and not tile.legal):
                    break
                other = (*state[:place], replace(choice, tile=tile), *state[place + 1 :])
                if self.cost(other) >= self.cost(state):
                    break
                state = other
        return state

    def _exchanged(self, state: State, place: int) -> State:
        """Return the state with one extent of a tile smaller and another one larger, if better."""
        axes = self._axes(state, place)
        for smaller in axes:
            for larger in axes:
                choice = state[place]
                assert choice is not None
                assert choice.tile is not None
                tile = smaller.moved(choice.tile, -1)
                tile = tile if tile is None else larger.moved(tile, 1)
                if tile is None or tile == choice.tile or self.spent:
                    continue
                if choice.kind == "root" and not tile.legal:
                    continue
                other = (*state[:place], replace(choice, tile=tile), *state[place + 1 :])
                state = min(state, other, key=self.cost)
        return state

    # --- descent ----------------------------------------------------------------------------

    def _descended(self, state: State) -> State:
        """Return the state after moves of single Funcs and exchanges that lower the prediction."""
        for _ in range(self.effort.passes):
            before = state
            for node in self.space.nodes:
                if not node.input and not self.spent:
                    moved = self._moved(state, node.position)
                    state = min((state, *moved), key=self.cost)
            state = self._tuned(state)
            for kernel in self.space.kernels(state):
                if kernel.choice.tile is not None:
                    state = self._exchanged(state, kernel.root)
            if state == before or self.spent:
                break
        return state


def _with_kernel(state: State, kernel: KernelPlacement) -> State:
    """Return the state with the choices of a kernel."""
    now = list(state)
    now[kernel.root] = kernel.choice
    for place, choice in kernel.members:
        now[place] = choice
    return tuple(now)
