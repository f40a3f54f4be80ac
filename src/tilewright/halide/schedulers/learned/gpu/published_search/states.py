"""States of the published search: decisions from the outputs to the inputs, and their kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tilewright.halide.schedulers.learned.gpu.choices import State
from tilewright.halide.schedulers.learned.gpu.parts import GpuPartFeatures, PartNest
from tilewright.halide.schedulers.learned.gpu.space import KernelPlacement


@dataclass(eq=False)
class PlacedKernel:
    """A kernel with what is known of it, shared by all states that have it.

    Attributes:
        placed: Its choices.
        nodes: Identifiers of the nodes at root, inside and inlined.
        nest: Its levels; None if the GPU cannot run it.
        part: Its features; None if the GPU cannot run it.
        recomputed: Nodes, not inlined, that are computed again too often.
        idle: Idle lanes of active warps over 1024, the most of its stages.
        costs: Milliseconds of its stages that are not inlined, by the bytes of all allocations.
    """

    placed: KernelPlacement
    nodes: frozenset[int]
    nest: PartNest | None
    part: GpuPartFeatures | None
    recomputed: frozenset[int] = frozenset()
    idle: float = 0.0
    costs: dict[float, npt.NDArray[np.floating]] = field(default_factory=dict)


@dataclass(eq=False)
class SearchState:
    """A schedule of the Funcs that are decided.

    Attributes:
        choices: One per Func of the algorithm; None for those that are not decided.
        kernels: The kernels, outputs first.
        inlined: Identifiers of the inlined nodes.
        made: Decisions made, two per Func.
        whole: The position of the Func at root whose tile is not decided yet; -1 without one.
        parent: The state that it was made of.
        cost: The prediction in milliseconds.
    """

    choices: State
    kernels: tuple[PlacedKernel, ...]
    inlined: frozenset[int] = frozenset()
    made: int = 0
    whole: int = -1
    parent: SearchState | None = None
    cost: float = 0.0

    def line(self) -> Iterator[SearchState]:
        """Yield the state and all that it was made of."""
        state: SearchState | None = self
        while state is not None:
            yield state
            state = state.parent
