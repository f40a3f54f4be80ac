"""Converts values to the numbers of a code and back: columns, positions, permutations."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tilewright.tuning.errors import ConfigurationError
from tilewright.tuning.space.parameters import Integer, Parameter, Permutation, Real

Array: TypeAlias = np.ndarray[Any, Any]
LISTED_ITEMS = 6  # maximum length of a permutation whose orders are listed
# Maximum number of values of an integer that are listed: constraints and conditions need them.
LISTED_INTEGERS = 1 << 20


def listed_values(p: Parameter) -> Array | None:
    """Return a column of a discrete parameter's values, or None if they are not listed."""
    if isinstance(p, Real):
        return None
    if isinstance(p, Integer):
        return np.arange(p.low, p.high + 1) if len(p) <= LISTED_INTEGERS else None
    if isinstance(p, Permutation):
        if len(p) > LISTED_ITEMS:
            return None
        orders = np.array(list(itertools.permutations(range(len(p)))), dtype=np.int64)
        return as_column(p.item_names)[orders]
    return as_column(p.values)


def as_column(values: Sequence[Any]) -> Array:
    """Return values as a column: numbers as numbers, anything else as objects."""
    if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        if all(abs(v) < 2**62 for v in values):
            return np.array(values, dtype=np.int64)
    elif all(isinstance(v, bool) for v in values):
        return np.array(values, dtype=bool)
    elif all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return np.array(values, dtype=np.float64)
    column = np.empty(len(values), dtype=object)
    column[:] = list(values)
    return column


def stacked(values: Sequence[Any]) -> Array:
    """Return values as a column, permutations as the rows of a table."""
    if isinstance(values[0], tuple | list):
        return np.stack([as_column(v) for v in values])
    return as_column(values)


def to_unit(p: Real, value: Any) -> float:
    """Return the position of a real parameter's value in its range, from 0 to 1.

    Raises:
        ConfigurationError: the value is not a number in the range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigurationError(f"parameter {p.name}: {value!r} is not a finite number")
    if not p.low <= value <= p.high:
        raise ConfigurationError(
            f"parameter {p.name}: {value!r} is outside its range {p.low} .. {p.high}"
        )
    if p.low == p.high:
        return 0.0
    if p.scale == "log":
        return math.log(value / p.low) / math.log(p.high / p.low)
    return (value - p.low) / (p.high - p.low)


def from_unit(p: Real, unit: float) -> float:
    """Return the value at a position from 0 to 1."""
    return float(from_units(p, np.array([unit]))[0])


def from_units(p: Real, unit: Array) -> Array:
    """Return the values at positions from 0 to 1, shape (n,)."""
    if p.scale == "log":
        values = p.low * (p.high / p.low) ** unit
    else:
        values = p.low + (p.high - p.low) * unit
    return np.clip(values, p.low, p.high)


def rank(order: Sequence[int]) -> int:
    """Return the position of a permutation in lexicographic order, as itertools lists them."""
    rank, rest = 0, sorted(order)
    for item in order:
        place = rest.index(item)
        rank += place * math.factorial(len(rest) - 1)
        del rest[place]
    return rank


def unrank(rank: int, length: int) -> list[int]:
    """Return the permutation of ``range(length)`` at a position in lexicographic order."""
    rest, order = list(range(length)), []
    for left in range(length - 1, -1, -1):
        place, rank = divmod(rank, math.factorial(left))
        order.append(rest.pop(place))
    return order


def reorderings(order: list[int]) -> Array:
    """Return all orders that swap two items or move one item, each once."""
    found: set[tuple[int, ...]] = set()
    for i in range(len(order)):
        for j in range(len(order)):
            if i < j:
                swapped = order.copy()
                swapped[i], swapped[j] = swapped[j], swapped[i]
                found.add(tuple(swapped))
            if i != j:
                moved = order.copy()
                moved.insert(j, moved.pop(i))
                found.add(tuple(moved))
    found.discard(tuple(order))
    return np.array(sorted(found), dtype=float).reshape(len(found), len(order))


def places(now: float) -> Array:
    """Return 20 places of a real parameter's range, and some near ``now``, shape (count, 1)."""
    steps = now + np.array([-0.02, -0.005, 0.005, 0.02])
    steps = steps[(steps >= 0) & (steps <= 1)]
    return np.concatenate([(np.arange(20) + 0.5) / 20, steps])[:, None]


@functools.lru_cache(maxsize=4096)
def others(now: int, size: int) -> Array:
    """Return the value indices but ``now``, shape (size - 1, 1), not to be written to."""
    return np.delete(np.arange(size), now)[:, None]


@functools.lru_cache(maxsize=4096)
def ladder(now: int, size: int, most: int) -> Array:
    """Return value indices near ``now`` and, farther away, at doubling distances.

    Shape (count, 1), not to be written to.
    """
    near = np.arange(1, most // 4 + 1)
    far = (2.0 ** np.arange(2, 64)).astype(np.uint64).astype(np.float64)
    steps = np.unique(np.concatenate([near, far[far < size]]).astype(np.int64))
    values = np.concatenate([now - steps, now + steps])
    return values[(values >= 0) & (values < size)][:, None]
