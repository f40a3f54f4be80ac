"""Choose the Funcs to inline before grouping: first the trivial ones, then greedily.

A Func is trivial if it is consumed pointwise or costs next to nothing (Sioutas 2020, Section 4.1).
The others are inlined greedily as long as that lowers the total cost of arithmetic and loads
(Mullapudi 2016, Section 4). The cost is counted on the expressions that result from inlining.

| symbol | meaning | unit |
|---|---|---|
| points | iterations of a stage over its full region | count |
| cost | points x (arithmetic + load cost x loads), summed over stages | operations |
| gain | cost of a Func, its stores and its readers, less the cost of its readers with it inlined \
| operations |
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from tilewright.halide.analysis.bounds import stage_env
from tilewright.halide.analysis.inlining import TooLarge, may_inline
from tilewright.halide.analysis.summaries import Analysis, StageSummary
from tilewright.halide.execution.atomic_additions import is_atomic_addition
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH, GpuConstants

# Selections, comparisons and conversions, which cost less than arithmetic.
CHEAP = frozenset("cast select and or not eq ne lt le gt ge min max reinterpret".split())


def choose_inlined(
    base: Analysis,
    *,
    load_weight: float = 1.0,
    cache_bytes: float = math.inf,
    constants: GpuConstants | None = None,
) -> frozenset[str]:
    """Return the Funcs to inline.

    Args:
        base: The analysis of the pipeline with nothing inlined.
        load_weight: Factor on the cost of loads; the higher it is, the more Funcs are inlined.
        cache_bytes: Size of the last-level cache, in bytes.
        constants: The model's constants, by default `GpuConstants()`.
    """
    c = constants or GpuConstants()
    inliner = _Inliner(base, c.load_cost * load_weight, cache_bytes, c)
    inliner.trivial()
    inliner.greedy()
    return frozenset(inliner.inlined)


class _Inliner:
    def __init__(
        self, base: Analysis, load_cost: float, cache_bytes: float, constants: GpuConstants
    ) -> None:
        self.constants = constants
        self.cache_bytes = cache_bytes
        self.algorithm = algorithm = base.view.algorithm
        self.load_cost = load_cost
        self.inlined: set[str] = set()
        self.analysis = base
        self.regions = self.analysis.regions
        # A wrapper is to differ from its original: neither is substituted for the other.
        kept = {
            name for copy in algorithm.copies if copy.wrapper for name in (copy.name, copy.original)
        }
        self.allowed = [
            f.name for f in algorithm.funcs if may_inline(algorithm, f) and f.name not in kept
        ]

    def trivial(self) -> None:
        """Inline Funcs that are consumed pointwise or cost next to nothing, producers first.

        The cost of a Func includes its inlined producers, so a chain of trivial Funcs ends where it
        becomes costly.
        """
        for name in self.allowed:
            if name not in self.regions:
                continue
            try:
                summary = self.analysis.summaries(name)[0]
                if not (_next_to_nothing(summary, self.constants) or self._pointwise(name)):
                    continue
                trial = self.analysis.toggled(name)
                for reader in self.analysis.view.consumers[name]:
                    self._cost(trial, reader)
                if self._narrows(name, trial) or self._spoils_additions(name, trial):
                    continue
            except TooLarge:
                continue
            self.inlined.add(name)
            self.analysis = trial

    def _narrows(self, name: str, after: Analysis) -> bool:
        """Return whether inlining would serialise parallel work: the reader has far fewer points.

        Inlining in a pyramid computes no value twice, but the few threads of the last level would
        compute all of the first.
        """
        points = self._points(self.analysis, name, 0)
        for reader in self.analysis.view.consumers[name]:
            before = self.analysis.summaries(reader)
            for stage, summary in enumerate(after.summaries(reader)):
                several = sum(access.count for access in before[stage].reads(name)) > 1.0
                fewer = self._points(after, reader, stage) < self.constants.narrowed_points * points
                if several and fewer and summary.arithmetic > self.constants.most_narrowed:
                    return True
        return False

    def _spoils_additions(self, name: str, after: Analysis) -> bool:
        """Return whether inlining would prevent a reduction from using atomic additions."""
        for reader in self.analysis.view.consumers[name]:
            for index in range(1, len(self.algorithm.by_name[reader].stages)):
                before, then = (
                    is_atomic_addition(analysis, reader, index, floats=True)
                    for analysis in (self.analysis, after)
                )
                if before and not then:
                    return True
        return False

    def _pointwise(self, name: str) -> bool:
        """Return whether inlining computes no value twice, apart from borders."""
        uses = 0.0
        for reader in self.analysis.view.consumers[name]:
            for stage, summary in enumerate(self.analysis.summaries(reader)):
                for access in summary.reads(name):
                    uses += access.count * self._points(self.analysis, reader, stage)
        return uses <= self.constants.pointwise_slack * self._points(self.analysis, name, 0)

    def greedy(self) -> None:
        """Inline the Func with the largest gain, repeatedly, while a gain is positive."""
        order = self.algorithm.order
        waiting = {n for n in self.allowed if n not in self.inlined and n in self.regions}
        # A heap of (-gain, position of the Func); entries with an outdated gain are skipped.
        gains: dict[str, float] = {}
        heap: list[tuple[float, int]] = []
        stale = set(waiting)
        while waiting:
            for name in stale & waiting:
                gains[name] = self._gain(name)
                heapq.heappush(heap, (-gains[name], order[name]))
            best = self.algorithm.funcs[heap[0][1]].name
            if best not in waiting or heap[0][0] != -gains[best]:
                heapq.heappop(heap)
                stale = set()
                continue
            if gains[best] <= 0.0:
                return
            view = self.analysis.view
            near = {*view.producers[best], *view.consumers[best]}
            for reader in view.consumers[best]:
                near.update(view.producers[reader])
            self.inlined.add(best)
            self.analysis = self.analysis.toggled(best)
            waiting.remove(best)
            stale = near

    def _gain(self, name: str) -> float:
        readers = self.analysis.view.consumers[name]
        if self._hopeless(name, readers):
            return -np.inf
        after = self.analysis.toggled(name)
        before = self._cost(self.analysis, name) + self._store_cost(name)
        try:
            if self._narrows(name, after) or self._spoils_additions(name, after):
                return -np.inf
            for reader in readers:
                before += self._cost(self.analysis, reader)
                before -= self._cost(after, reader)
        except TooLarge:
            return -np.inf
        return before

    def _hopeless(self, name: str, readers: tuple[str, ...]) -> bool:
        """Return whether repeating the arithmetic at each access clearly costs more than it saves.

        This avoids the slow substitution of a stencil into a stencil. Half of the operations are
        assumed to be shared between accesses.
        """
        own = self.analysis.summaries(name)[0]
        saved = self._cost(self.analysis, name) + self._store_cost(name)
        added = 0.0
        for reader in readers:
            for stage, summary in enumerate(self.analysis.summaries(reader)):
                uses = sum(access.count for access in summary.reads(name))
                points = self._points(self.analysis, reader, stage)
                saved += points * uses * self.load_cost
                added += points * uses * own.arithmetic * self.constants.shared_work
        return added > saved

    def _store_cost(self, name: str) -> float:
        points = self._points(self.analysis, name, 0)
        shared = len(self.analysis.view.consumers[name]) > 1
        large = points * self.algorithm.by_name[name].bytes > self.cache_bytes
        c = self.constants
        return points * (c.round_trip_cost if shared and large else c.value_cost)

    def _cost(self, analysis: Analysis, name: str) -> float:
        total = 0.0
        for stage, summary in enumerate(analysis.summaries(name)):
            if summary.arithmetic > self.constants.most_operations:
                raise TooLarge
            each = summary.arithmetic + self.load_cost * len(summary.loads)
            total += each * self._points(analysis, name, stage)
        return total

    def _points(self, analysis: Analysis, name: str, stage: int) -> float:
        """Return the iterations of a stage over its full region. Inlining does not change them."""
        if name not in self.regions:
            return 0.0
        definition = self.algorithm.by_name[name].stages[stage]
        env = stage_env(
            self.algorithm.by_name[name], definition, self.regions[name], analysis.bounder
        )
        total = 1.0
        for loop in definition.loops:
            extent = float(np.max(env[loop.name].extent))
            total *= extent if np.isfinite(extent) else SEARCH.unknown_extent
        return total


def _next_to_nothing(summary: StageSummary, c: GpuConstants) -> bool:
    costly = sum(op.count for op in summary.ops if op.name not in CHEAP)
    if len(summary.loads) <= 1:
        return costly <= c.trivial_operations and summary.arithmetic <= c.trivial_arithmetic
    callees = {load.callee for load in summary.loads}
    return len(summary.loads) == len(callees) == 2 and summary.arithmetic <= c.trivial_pair
