"""The beam search of Anderson 2021 over decisions: passes, penalties, blessing and freezing."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from tilewright.halide.schedulers.learned.gpu.choices import Placement, State
from tilewright.halide.schedulers.learned.gpu.published_search.constants import CONSTANTS as C
from tilewright.halide.schedulers.learned.gpu.published_search.constants import SearchSettings
from tilewright.halide.schedulers.learned.gpu.published_search.costs import StageTimes, StateCosts
from tilewright.halide.schedulers.learned.gpu.published_search.decisions import PRE_PASS, Decisions
from tilewright.halide.schedulers.learned.gpu.published_search.space import PublishedSpace
from tilewright.halide.schedulers.learned.gpu.published_search.states import SearchState


class OutOfTime(Exception):
    """The time of a search is used up."""


class StateQueue:
    """States by cost, those of equal cost in the order in which they came."""

    def __init__(self, states: Iterable[SearchState]) -> None:
        self._order = itertools.count()
        self._heap = [(state.cost, next(self._order), state, False) for state in states]
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        """Return the number of states."""
        return len(self._heap)

    def push(self, state: SearchState, cost: float) -> None:
        """Put a penalised state back."""
        heapq.heappush(self._heap, (cost, next(self._order), state, True))

    def pop(self) -> tuple[float, SearchState, bool]:
        """Remove the best state; return its penalised cost, and whether it was penalised."""
        cost, _, state, penalised = heapq.heappop(self._heap)
        return cost, state, penalised

    def least(self) -> float:
        """Return the least cost; infinite without states."""
        return self._heap[0][0] if self._heap else math.inf


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass: its index, the width of the beam, and the chance of dropping no state at all.

    `penalised`: whether states that look alike are penalised. `blesses`: whether hashes are blessed
    for a pass that follows.
    """

    index: int
    beam: int
    keep: float = 1.0
    penalised: bool = False
    blesses: bool = False


class PublishedSearch:
    """Searches the states of a space.

    Args:
        space: The space.
        times: The network.
        settings: What can be varied.
    """

    def __init__(self, space: PublishedSpace, times: StageTimes, settings: SearchSettings) -> None:
        self.space, self.settings = space, settings
        self.costs = StateCosts(space.parts, times)
        self.decisions = Decisions(space, settings)
        self.states = 0  # rated
        self.blessed: set[int] = set()
        self._began = time.monotonic()
        self._first = True

    def run(self) -> list[tuple[float, State]]:
        """Return the best state of each sample, best first, with their predictions.

        With a limit of time, a greedy sample comes first, which is not limited.
        """
        found: dict[State, float] = {}
        samples = list(range(self.settings.greedy + 1))
        if self.settings.seconds is not None:
            samples[:2] = samples[:2][::-1]
        for sample in samples:
            try:
                best = self._beam_sample() if sample == 0 else self._greedy_sample(sample)
            except OutOfTime:
                continue
            if best is not None:
                found.setdefault(best.choices, best.cost)
            self._first = False
            self._forget()
        ordered = sorted(found.items(), key=lambda pair: pair[1])
        return [(cost, choices) for choices, cost in ordered]

    # --- samples ----------------------------------------------------------------------------

    def _draws(self, sample: int) -> Random:
        return Random(f"{self.settings.seed}:{sample}")

    def _greedy_sample(self, sample: int) -> SearchState | None:
        """Return the result of a greedy search that drops states at random."""
        chance = C.greedy_dropout / 100 if self.settings.dropout else 1.0  # of a percentage
        keep = chance ** (1 / self.decisions.count)
        return self.passed(Pass(0, 1, keep), self._draws(sample))

    def _beam_sample(self) -> SearchState | None:
        """Return the best result of several passes."""
        settings, draws = self.settings, self._draws(0)
        passes = settings.passes
        self.blessed.clear()
        try:
            if settings.freeze and passes > 1:
                passes -= 1
                first = self.passed(Pass(PRE_PASS, settings.beam), draws)
                if first is not None:
                    self.decisions.frozen = self.frozen(first)
            results = []
            for index in range(passes):
                several = settings.penalties and passes > 1 and settings.beam > 1
                last = index == passes - 1
                this = Pass(index, settings.beam, 1.0, several, several and not last)
                results.append(self.passed(this, draws))
                self._forget()
        finally:
            self.decisions.frozen = {}
        found = [state for state in results if state is not None]
        return min(found, key=lambda state: state.cost, default=None)

    def frozen(self, state: SearchState) -> dict[int, Placement]:
        """Return the choices of all but log2(N) of N Funcs, the cheapest of a complete state."""
        nodes = [node for node in self.space.pipeline.scheduled if state.choices[node.position]]
        stages = self.costs.stages(state)
        costs = {}
        for node in nodes:
            rows = [self.space.parts.rows[node.id, stage.index] for stage in node.stages]
            if self.settings.as_released:
                rows = list(range(len(rows)))
            costs[node.id] = sum(stages.get(row, 0.0) for row in rows)
        count = int(len(nodes) - math.log2(max(len(nodes), 1)))
        cheap = sorted(nodes, key=lambda node: (costs[node.id], node.id))[:count]
        chosen = {node.position: state.choices[node.position] for node in cheap}
        return {place: choice for place, choice in chosen.items() if choice is not None}

    # --- one pass ---------------------------------------------------------------------------

    def passed(self, this: Pass, draws: Random) -> SearchState | None:
        """Return the best complete state of a pass; None if it ran out of legal states."""
        queue = StateQueue([self.decisions.start()])
        while True:
            taken: list[SearchState] = []
            found: list[SearchState] = []
            counts: Counter[int] = Counter()
            while len(taken) < this.beam and len(queue):
                cost, state, penalised = queue.pop()
                if this.penalised and not penalised:
                    penalty = self._penalty(state, this.index, counts)
                    cost *= penalty
                    if penalty > 1 and cost > queue.least():
                        queue.push(state, cost)
                        continue
                if len(queue) > 1 and draws.random() >= this.keep:
                    continue
                if state.made == self.decisions.count:
                    if this.blesses:
                        self._bless(state, cost, queue, this)
                    return state
                self._check_time()
                taken.append(state)
                found += self.decisions.children(state, this.index, draws)
            if not found:
                found = [child for state in taken for child in self.decisions.forced(state)]
                if not found:
                    return None
            self.states += len(found)
            self.costs.rate(found)
            queue = StateQueue(found)

    def _penalty(self, state: SearchState, index: int, counts: Counter[int]) -> int:
        """Return the factor of a state's cost, by the states of its hash that were taken before."""
        seen = self.decisions.hashes.of(state, index + 1)
        counts[seen] += 1
        penalty = counts[seen]
        if index > 0 and self.decisions.hashes.of(state, index - 1) not in self.blessed:
            penalty += C.not_blessed
        return penalty

    def _bless(self, best: SearchState, least: float, queue: StateQueue, this: Pass) -> None:
        """Note the hashes of the states near the best, and of all that they were made of."""
        state, cost, count = best, least, 0
        while cost <= C.blessing * least and count < this.beam:
            self.blessed |= {self.decisions.hashes.of(each, this.index) for each in state.line()}
            if not len(queue):
                break
            cost, state, _ = queue.pop()
            count += 1

    def _forget(self) -> None:
        """Forget all kernels if there are many: a search of hours would fill the memory."""
        if len(self.space.placed) > C.kept_kernels:
            self.space.forget()
            self.costs.forget()
            self.decisions.hashes.forget()

    def _check_time(self) -> None:
        limit = self.settings.seconds
        if limit is not None and not self._first and time.monotonic() - self._began > limit:
            raise OutOfTime
