"""Shared memory of a block as Halide 21 packs it (``FuseGPUThreadLoops.cpp``).

Halide numbers the barriers of a kernel: every stage that runs over threads is one step. An
allocation lives from the step at which its Func is first produced to the step that last uses it,
and an allocation whose life begins after another's has ended may take its place.
Among free places an allocation of constant size takes the one nearest in size that is constant
too, any other the one that was freed last and is not constant. The sum is rounded up to the
widest element.

| symbol | meaning | shape, unit |
|---|---|---|
| n | tilings that are packed together | count |
| `elements` | size of an allocation, or of the largest that shares a place | (n,), elements |
| `bytes` | size of an element, of a place its widest | bytes |
| `first`, `last` | the steps between which an allocation lives | steps |
| `probe` | the tiling that decides which free place is taken | row of n |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SharedAllocation:
    """One value of one Func: `elements` over tilings, of `bytes` each, and its life.

    `constant` says that Halide can see that it is equally large in every block.
    """

    name: str
    elements: Array
    bytes: int
    first: int
    last: int
    constant: bool = True


@dataclass
class _Place:
    """Allocations that take turns; sizes in units of the widest element."""

    name: str
    elements: Array
    bytes: int
    constant: bool

    def insert(self, new: SharedAllocation) -> None:
        self.name = new.name
        self.constant = self.constant and new.constant
        if new.bytes > self.bytes:
            self.elements = np.maximum(np.floor(self.elements * self.bytes / new.bytes),
                                       new.elements)  # fmt: skip
            self.bytes = new.bytes
        else:
            ratio = self.bytes // new.bytes
            self.elements = np.maximum(self.elements, np.floor(new.elements / ratio))


def packed_bytes(allocations: Sequence[SharedAllocation], n: int) -> Array:
    """Return bytes of shared memory for every tiling.

    The middle tiling decides for all of them which free place is taken, so that for a single tiling
    the result is Halide's.
    """
    ordered = sorted(allocations, key=lambda a: (a.first, a.last))
    places: list[_Place] = []
    free: list[int] = []
    probe = n // 2
    start = 0
    for step in range(max((a.last for a in ordered), default=-1) + 1):
        for i in range(start, len(ordered)):
            new = ordered[i]
            if new.first > step:
                break
            if new.first == step:
                at = _choose(places, free, new, probe)
                if at is None:
                    places.append(_Place(new.name, new.elements, new.bytes, new.constant))
                else:
                    places[free.pop(at)].insert(new)
            elif new.last == step - 1:
                # Halide looks no further back than the last allocation it freed, so that an
                # earlier one that lives longer keeps its place to the end.
                free.append(next(j for j, p in enumerate(places) if p.name == new.name))
                start = i + 1
    widest = max((place.bytes for place in places), default=1)
    total: Array = np.zeros(n)
    for place in places:
        total = total + place.elements * place.bytes
    return np.ceil(total / widest) * widest


def _choose(places: list[_Place], free: list[int], new: SharedAllocation, probe: int) -> int | None:
    """Return which of the free places is taken, the last one freed being looked at first."""
    best: int | None = None
    smallest: float | None = None
    for at in range(len(free) - 1, -1, -1):
        place = places[free[at]]
        if not new.constant:
            if not place.constant:
                return at
            best = at if best is None else best
        elif place.constant:
            apart = abs(
                float(place.elements[probe]) * place.bytes - float(new.elements[probe]) * new.bytes
            )
            # A place of unknown size that was seen first is kept.
            if best is None or (smallest is not None and apart < smallest):
                best, smallest = at, apart
        elif best is None:
            best = at
    return best
