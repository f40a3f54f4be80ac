"""The loops inside a thread: how often a thread computes or loads a value along them."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilewright.halide.analysis.instructions import Loops, MemoryAccess
from tilewright.halide.schedulers.analytic.gpu.warps import SECTOR_BYTES


@dataclass(frozen=True, slots=True)
class InnerLoop:
    """A loop inside a thread; `moves` has the step of each variable of the definition along it.

    The iterations of a loop with `vector` set are the elements of a vector.
    """

    moves: Mapping[str, float]
    extent: float
    unrolled: bool
    vector: bool = False

    @property
    def variables(self) -> Loops:
        """The variables of the definition that change along the loop."""
        return frozenset(self.moves)


def executions(deps: Loops, inner: Iterable[InnerLoop], copies: Loops | None = None) -> float:
    """Return how often a thread computes a value that depends on the variables `deps`, in one run.

    A value is computed outside the inner loops that do not change it. Copies of an unrolled loop
    share a value if the loop moves no variable of `copies`, by default `deps`.

    >>> loops = [InnerLoop({"y": 1.0}, 3.0, False), InnerLoop({"x": 1.0}, 4.0, True)]
    >>> executions(frozenset("y"), loops), executions(frozenset("x"), loops)
    (3.0, 4.0)
    """
    copies = deps if copies is None else copies
    total = pending = 1.0
    for loop in inner:
        if loop.unrolled:
            if loop.variables & copies:
                total *= loop.extent
        else:
            pending *= loop.extent
            if loop.variables & deps:
                total *= pending
                pending = 1.0
    return total


def varying(access: MemoryAccess, inner: Iterable[InnerLoop]) -> Loops:
    """Return the variables of the loops that a load or store of a stage's own Func stays in.

    LLVM keeps a sum in a register along loops that do not move its address, and loads and stores it
    outside of them (seen in the PTX of Halide 21). It does not where unrolled copies have several
    addresses, whose distances it does not know.
    """
    several = any(loop.unrolled and loop.variables & access.moved for loop in inner)
    return access.loops if access.indirect or several else access.moved


def vector_length(access: MemoryAccess, inner: Iterable[InnerLoop]) -> float:
    """Return how many values a thread loads at once, in a stage that copies operands.

    An aligned vector lies within one sector, so it touches what its first element does.
    """
    return math.prod(loop.extent for loop in inner if loop.vector and loop.variables & access.moved)


def sectors_along(
    access: MemoryAccess, inner: tuple[InnerLoop, ...], size: tuple[float, ...]
) -> tuple[float, float]:
    """Return the fraction of a thread's loads that reach another sector, and its total sectors.

    The fraction is taken along the innermost loop that moves the address.
    """
    if access.indirect:
        return 1.0, math.inf
    shares: list[float] = []
    once = 1.0
    for loop in reversed(inner):
        if not loop.variables & access.moved:
            continue
        step = 0.0
        for variable, moved in loop.moves.items():
            steps = access.strides.get(variable, ())
            known = () if steps is None else steps
            step += SECTOR_BYTES if steps is None else moved * sum(map(operator.mul, known, size))
        shares.append(min(abs(step) / SECTOR_BYTES, 1.0))
        once *= max(loop.extent * shares[-1], 1.0)
    return (shares[0] if shares else 1.0), once
