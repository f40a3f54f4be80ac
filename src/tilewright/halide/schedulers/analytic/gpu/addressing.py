"""How the accesses of a stage are addressed, which decides how many registers addresses take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilewright.halide.analysis.instructions import MemoryAccess
from tilewright.halide.schedulers.analytic.gpu.thread_loops import InnerLoop


class Addressing(NamedTuple):
    """Counts of a stage's accesses.

    Attributes:
        loads: Loads of the definition, wherever the Func is stored.
        bases: Addresses in global memory that differ in more than a constant offset along the first
            dimension. A load and a store of one address are two.
        coordinates: Coordinates of accesses to global memory.
        bent, indirect: Accesses, wherever the Func is stored, with a coordinate that is not affine,
            and with one that depends on data.
        fixed, moving: Loads from global and shared memory, in all unrolled copies, whose values
            stay the same along the innermost loop that Halide does not unroll, and those whose
            values change; 0 without such a loop.
    """

    loads: float = 0.0
    bases: float = 0.0
    coordinates: float = 0.0
    bent: float = 0.0
    indirect: float = 0.0
    fixed: float = 0.0
    moving: float = 0.0


NOTHING = Addressing()


def addressing(
    accesses: Sequence[MemoryAccess],
    inner: Sequence[InnerLoop],
    place: Callable[[str], str],
) -> Addressing:
    """Return the counts of accesses inside the loops `inner`; `place` says where a Func is."""
    in_memory = [access for access in accesses if place(access.callee) == "memory"]
    loads = [access for access in accesses if not access.store]
    innermost = [loop for loop in inner if not loop.unrolled and loop.extent > 1.0][-1:]
    fixed = moving = 0.0
    for access in loads:
        if innermost and place(access.callee) != "registers":
            copies = math.prod(
                loop.extent for loop in inner if loop.unrolled and loop.variables & access.moved
            )
            if innermost[0].variables & access.loops:
                moving += copies
            else:
                fixed += copies
    return Addressing(
        float(len(loads)),
        float(len({access.base for access in in_memory})),
        float(sum(len(access.args) for access in in_memory)),
        float(sum(bool(access.bent) for access in accesses)),
        float(sum(access.indirect for access in accesses)),
        fixed,
        moving,
    )
