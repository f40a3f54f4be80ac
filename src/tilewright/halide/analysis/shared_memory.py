"""Pack the allocations of a block in shared memory as Halide 21 does (``FuseGPUThreadLoops.cpp``).

Halide numbers the steps of a kernel between barriers: every stage that runs over threads is one
step. An allocation lives from the step in which its Func is first produced to the step that last
uses it. A *slot* is a piece of shared memory that allocations with disjoint lifetimes reuse. If
several slots are free, an allocation of constant size takes the constant slot that is nearest in
size. Any other allocation takes the slot, not constant, that was freed last. The total is rounded
up to a multiple of the widest element.

| symbol | meaning | shape, unit |
|---|---|---|
| n | tilings that are packed together | count |
| `elements` | size of an allocation, or of a slot | (n,), elements |
| `bytes` | size of an element; for a slot, of its widest element | bytes |
| `first`, `last` | first and last step of an allocation's lifetime | steps |
| `probe` | the tiling that decides which free slot is taken | row of n |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SharedAllocation:
    """One value of one Func: its size per tiling and its lifetime.

    `constant` is whether Halide infers that the size is the same in every block.
    """

    name: str
    elements: Array
    bytes: int
    first: int
    last: int
    constant: bool = True


@dataclass
class _Slot:
    """A slot of shared memory; `elements` counts elements of the widest type, of size `bytes`."""

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
    """Return the bytes of shared memory for every tiling, shape (n,).

    The middle tiling decides for all tilings which free slot is taken. With n = 1 the result is
    Halide's.
    """
    ordered = sorted(allocations, key=lambda a: (a.first, a.last))
    slots: list[_Slot] = []
    free: list[int] = []
    probe = n // 2
    start = 0
    for step in range(max((a.last for a in ordered), default=-1) + 1):
        for i in range(start, len(ordered)):
            new = ordered[i]
            if new.first > step:
                break
            if new.first == step:
                at = _choose(slots, free, new, probe)
                if at is None:
                    slots.append(_Slot(new.name, new.elements, new.bytes, new.constant))
                else:
                    slots[free.pop(at)].insert(new)
            elif new.last == step - 1:
                # Halide only considers allocations after the last one it freed. An earlier one
                # that lives longer therefore keeps its slot to the end.
                free.append(next(j for j, p in enumerate(slots) if p.name == new.name))
                start = i + 1
    widest = max((slot.bytes for slot in slots), default=1)
    total: Array = np.zeros(n)
    for slot in slots:
        total = total + slot.elements * slot.bytes
    return np.ceil(total / widest) * widest


def _choose(slots: list[_Slot], free: list[int], new: SharedAllocation, probe: int) -> int | None:
    """Return the position in `free` of the slot to reuse; None if none is free."""
    best: int | None = None
    smallest: float | None = None
    for at in range(len(free) - 1, -1, -1):
        slot = slots[free[at]]
        if not new.constant:
            if not slot.constant:
                return at
            best = at if best is None else best
        elif slot.constant:
            apart = abs(
                float(slot.elements[probe]) * slot.bytes - float(new.elements[probe]) * new.bytes
            )
            # A slot of unknown size that was considered first is kept.
            if best is None or (smallest is not None and apart < smallest):
                best, smallest = at, apart
        elif best is None:
            best = at
    return best
