"""Compute the shared memory that a kernel's members take, as Halide packs it.

This module lists the allocations and their lifetimes; `tilewright.halide.analysis.shared_memory`
packs them. A barrier step is the interval between two barriers: one per stage of a member.

| symbol | meaning | shape, unit |
|---|---|---|
| n | tilings evaluated together | count |
| `elements` | values of a member that one block stores | (n,), elements |
| `begins`, `last` | barrier steps at which a member is first computed and last read | steps |
| `bounded` | whether every member has a bounded size | (n,), truth |
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.bounds import Box
from tilewright.halide.analysis.shared_memory import SharedAllocation, packed_bytes
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.gpu.kernel import Array, FusedKernel, sizes

Mask = npt.NDArray[np.bool_]


def allocations(
    kernel: FusedKernel,
    boxes: Mapping[str, Box],
    nested: Mapping[str, str],
    n: int,
    constant: frozenset[str],
    sliding: frozenset[str] = frozenset(),
) -> list[SharedAllocation]:
    """Return the allocations of the members at block level, with lifetimes in barrier steps.

    Args:
        kernel: The kernel.
        boxes: Region of each member in one block.
        nested: The members kept in registers, which have no allocation here.
        n: Number of tilings.
        constant: Members for which Halide infers the same size in every block.
        sliding: Members kept from one iteration of a loop to the next.
    """
    view = kernel.analysis.view
    order = [name for name in kernel.in_halide_order if name in boxes and name not in nested]
    begins: dict[str, int] = {}
    ends: dict[str, int] = {}
    step = 0
    for name in order:
        begins[name] = step
        step += len(kernel.working_stages(name))
        ends[name] = step - 1
    final = step
    first = min((begins[name] for name in order if name in sliding), default=0)
    last = dict(ends)
    for reader in (*order, kernel.output):
        at = [final] if reader == kernel.output else None
        for callee, steps in kernel.read_steps(reader, nested).items():
            if callee in last:
                used = max(at if at is not None else [begins[reader] + s for s in steps])
                last[callee] = max(last[callee], used)
    result = []
    for name in order:
        elements = np.ones(n)
        for extent in sizes(boxes[name], n):
            elements = elements * extent
        for value, t in enumerate(view.by_name[name].types):
            label = f"{name}.{value}"
            life = (first, final) if name in sliding else (begins[name], last[name])
            result.append(SharedAllocation(label, elements, t.bytes, *life, name in constant))
    return result


def pack(
    kernel: FusedKernel,
    boxes: Mapping[str, Box],
    nested: Mapping[str, str],
    n: int,
    constant: frozenset[str] | None = None,
    sliding: frozenset[str] = frozenset(),
) -> tuple[Array, Mask]:
    """Return the shared memory per block, in bytes, and whether it is bounded; both of shape (n,).

    The arguments are those of `allocations`. `constant` is `exact_members` by default.
    """
    if not kernel.members:
        return np.zeros(n), np.ones(n, dtype=np.bool_)
    if constant is None:
        constant = kernel.exact_members
    found = allocations(kernel, boxes, nested, n, constant, sliding)
    bounded = np.ones(n, dtype=np.bool_)
    for item in found:
        bounded &= item.elements < SEARCH.huge
    return packed_bytes(found, n), bounded
