"""Parts of a reduction's domain, for partial results (``rfactor``)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.schedule import Split

# The splits of loops, the loops that become dimensions of the partial results, and their extents.
# Loops are listed innermost first.
Parts = tuple[tuple[Split, ...], tuple[str, ...], list[int]]


def contiguous_parts(extents: Sequence[int], number: int) -> Parts | None:
    """Split the outermost loops of a reduction into about `number` contiguous parts.

    The parts are in the order of the domain, so that the first of several equal extremes is found.

    Args:
        extents: the iterations of the loops, innermost first.
        number: the parts, more than one.

    Returns:
        The parts; None if a part would have fewer than two iterations.
    """
    if math.prod(extents) < 2 * number:
        return None
    splits: list[Split] = []
    kept: list[str] = []
    left: list[int] = []
    for i in reversed(range(len(extents))):
        if number <= 1:
            break
        if extents[i] == 1:
            continue
        if extents[i] <= number:
            kept.insert(0, f"r{i}")
            left.insert(0, extents[i])
            number = number // extents[i]
        else:
            factor = -(-extents[i] // number)
            splits.append(guarded_split(f"r{i}", factor))
            kept.insert(0, f"r{i}o")
            left.insert(0, -(-extents[i] // factor))
            number = 1
    return tuple(splits), tuple(kept), left


def guarded_split(loop: str, factor: int) -> Split:
    """Return the split of a loop of a reduction, with the only tail that ``rfactor`` allows."""
    return Split(loop, f"{loop}o", f"{loop}i", factor, "guard_with_if")


def dimensions_of_lanes(algorithm: Algorithm) -> dict[str, int]:
    """Return the dimension of neighbouring iterations, by the name of a Func of partial results.

    It is the innermost loop that became a dimension, if that is the inner loop of a split. Stored
    innermost, it gives dense vectors.
    """
    result = {}
    for name, entry in zip(algorithm.partials, algorithm.factored, strict=True):
        if entry.rvars and entry.rvars[0] in {split.inner for split in entry.splits}:
            result[name] = len(algorithm.by_name[name].args) - len(entry.rvars)
    return result
