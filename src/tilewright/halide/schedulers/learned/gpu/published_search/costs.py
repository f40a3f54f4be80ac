"""The cost of states: the sum of the network's predictions for the stages that are decided.

What a stage costs depends on its kernel, on the bytes of all allocations and, if it is inlined, on
all kernels that evaluate it. Costs are kept by these, so that only what a decision changes is
evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.halide.schedulers.learned.gpu.parts import (
    GpuPartFeatures,
    Parts,
    Table,
    inlined_together,
)
from tilewright.halide.schedulers.learned.gpu.published_search.states import (
    PlacedKernel,
    SearchState,
)

# Milliseconds of one stage, by its position in `Pipeline.stages`, for features of shape (N, 73).
StageTimes = Callable[[int, Table], npt.NDArray[np.floating[Any]]]
InlinedKey = tuple[int, tuple[int, ...], float]


class StateCosts:
    """Costs of the states of one pipeline.

    Args:
        parts: The parts of its schedules.
        times: The network.
    """

    def __init__(self, parts: Parts, times: StageTimes) -> None:
        self.parts, self.times = parts, times
        self._inlined: dict[InlinedKey, float] = {}

    def rate(self, states: Iterable[SearchState]) -> None:
        """Set the costs of states, all of whose kernels the GPU can run."""
        states = list(states)
        kernels: dict[tuple[PlacedKernel, float], None] = {}
        inlined: dict[InlinedKey, list[GpuPartFeatures]] = {}
        for state in states:
            total = _total(state)
            for kernel in state.kernels:
                if total not in kernel.costs:
                    kernels[kernel, total] = None
            evaluations = self._evaluations(state, total)
            inlined |= {key: among for key, among in evaluations if key not in self._inlined}
        self._rate_kernels(list(kernels))
        self._rate_inlined(inlined)
        for state in states:
            cost = float(sum(self.stages(state).values()))
            state.cost = cost if math.isfinite(cost) else math.inf

    def forget(self) -> None:
        """Forget the costs of inlined Funcs, which are kept by the identity of parts."""
        self._inlined.clear()

    def stages(self, state: SearchState) -> dict[int, float]:
        """Return the milliseconds of each decided stage of a rated state, by its position."""
        total = _total(state)
        found = {key[0]: self._inlined[key] for key, _ in self._evaluations(state, total)}
        for kernel in state.kernels:
            assert kernel.part is not None
            found |= zip(kernel.part.rows.tolist(), kernel.costs[total].tolist(), strict=True)
        return found

    def _evaluations(
        self, state: SearchState, total: float
    ) -> Iterator[tuple[InlinedKey, list[GpuPartFeatures]]]:
        """Yield the inlined Funcs with the parts that evaluate them."""
        for identifier in sorted(state.inlined):
            row = self.parts.rows[identifier, 0]
            among = [k.part for k in state.kernels if k.part is not None and row in k.part.inlined]
            if among:
                yield (row, tuple(id(part) for part in among), total), among

    def _rate_kernels(self, wanted: list[tuple[PlacedKernel, float]]) -> None:
        batches: dict[int, list[tuple[int, int, Table]]] = {}
        for at, (kernel, total) in enumerate(wanted):
            assert kernel.part is not None
            kernel.costs[total] = np.zeros(len(kernel.part.rows))
            values = kernel.part.within(total)
            for i, row in enumerate(kernel.part.rows.tolist()):
                batches.setdefault(row, []).append((at, i, values[i]))
        for row, batch in batches.items():
            found = self.times(row, np.stack([values for _, _, values in batch]))
            for (at, i, _), cost in zip(batch, found, strict=True):
                kernel, total = wanted[at]
                kernel.costs[total][i] = cost

    def _rate_inlined(self, wanted: dict[InlinedKey, list[GpuPartFeatures]]) -> None:
        batches: dict[int, list[InlinedKey]] = {}
        for key in wanted:
            batches.setdefault(key[0], []).append(key)
        for row, keys in batches.items():
            tables = [inlined_together(wanted[key], row, key[2]) for key in keys]
            found = self.times(row, np.stack(tables))
            self._inlined |= zip(keys, (float(cost) for cost in found), strict=True)


def _total(state: SearchState) -> float:
    """Return the bytes of all allocations."""
    return sum(kernel.part.total for kernel in state.kernels if kernel.part is not None)
