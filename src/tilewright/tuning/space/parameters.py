"""Parameters of a search space: real, integer, ordinal, categorical, permutation (Section 4.1).

A parameter is plain data. ``when`` makes it conditional: an expression over other parameters;
where it does not hold, the parameter is absent from the configuration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from tilewright.tuning.errors import SpaceError

Scalar: TypeAlias = bool | int | float | str
Value: TypeAlias = Scalar | tuple[Scalar, ...]
Scale: TypeAlias = Literal["linear", "log"]
Metric: TypeAlias = Literal["spearman", "kendall", "hamming", "naive"]
_LARGEST = 1 << 62


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise SpaceError(
            f"parameter name {name!r} is not an identifier: use letters, digits and underscores"
        )


def _plain(value: Any) -> Any:
    """Return a NumPy number, text or boolean as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _check_default(name: str, default: object, low: float, high: float) -> None:
    if default is None:
        return
    if isinstance(default, bool) or not isinstance(default, int | float):
        raise SpaceError(f"parameter {name}: default {default!r} is not a number")
    if not low <= default <= high:
        raise SpaceError(f"parameter {name}: default {default} is out of range")


def _check_range(name: str, low: float, high: float, scale: str) -> None:
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise SpaceError(f"parameter {name}: the range {low} .. {high} is empty or not finite")
    if scale not in ("linear", "log"):
        raise SpaceError(f"parameter {name}: scale {scale!r} is unknown: use 'linear' or 'log'")
    if scale == "log" and low <= 0:
        raise SpaceError(f"parameter {name}: a log scale needs values above zero, not {low}")


@dataclass(frozen=True)
class Real:
    """A real number in ``[low, high]``."""

    name: str
    low: float
    high: float
    default: float | None = None
    scale: Scale = "linear"
    when: str | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        for field in ("low", "high", "default"):
            object.__setattr__(self, field, _plain(getattr(self, field)))
        _check_range(self.name, self.low, self.high, self.scale)
        _check_default(self.name, self.default, self.low, self.high)


@dataclass(frozen=True)
class Integer:
    """A whole number in ``low .. high``, both included."""

    name: str
    low: int
    high: int
    default: int | None = None
    scale: Scale = "linear"
    when: str | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        for field in ("low", "high", "default"):
            object.__setattr__(self, field, _plain(getattr(self, field)))
        for bound in (self.low, self.high):
            if isinstance(bound, bool) or not isinstance(bound, int):
                raise SpaceError(f"parameter {self.name}: bound {bound!r} is not a whole number")
            if abs(bound) > _LARGEST:
                raise SpaceError(
                    f"parameter {self.name}: bound {bound} is beyond 2**62: use a real parameter"
                )
        _check_range(self.name, self.low, self.high, self.scale)
        _check_default(self.name, self.default, self.low, self.high)

    def __len__(self) -> int:
        return self.high - self.low + 1


@dataclass(frozen=True)
class Ordinal:
    """One of a list of numbers, compared by their size."""

    name: str
    values: tuple[int | float, ...]
    default: int | float | None = None
    scale: Scale = "linear"
    when: str | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "values", tuple(map(_plain, self.values)))
        object.__setattr__(self, "default", _plain(self.default))
        _check_values(self.name, self.values, self.default)
        for value in self.values:
            if isinstance(value, str) or not math.isfinite(value):
                raise SpaceError(
                    f"parameter {self.name}: ordinal value {value!r} is not a finite number; "
                    "use a categorical parameter for names"
                )
        _check_range(self.name, min(self.values), max(self.values), self.scale)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Categorical:
    """One of a list of values without an order."""

    name: str
    values: tuple[Scalar, ...]
    default: Scalar | None = None
    when: str | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "values", tuple(map(_plain, self.values)))
        object.__setattr__(self, "default", _plain(self.default))
        _check_values(self.name, self.values, self.default)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Permutation:
    """An order of ``n`` things (``items`` a number), or of named items.

    For ``n`` things, the value is a tuple of whole numbers whose element ``i`` is the position of
    thing ``i`` (the paper's convention, counted from zero). For named items, the value lists the
    items in order.
    """

    name: str
    items: int | tuple[Scalar, ...]
    default: tuple[Scalar, ...] | None = None
    metric: Metric = "spearman"
    when: str | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        if isinstance(self.items, bool) or (isinstance(self.items, int) and self.items < 1):
            raise SpaceError(f"parameter {self.name}: a permutation needs at least one item")
        if isinstance(self.items, int):
            check_item_count(self.name, self.items)
        else:
            object.__setattr__(self, "items", tuple(self.items))
            if len(set(self.item_names)) != len(self.item_names):
                raise SpaceError(f"parameter {self.name}: an item of the permutation is repeated")
        if len(self) < 1:
            raise SpaceError(f"parameter {self.name}: a permutation needs at least one item")
        if self.metric not in ("spearman", "kendall", "hamming", "naive"):
            raise SpaceError(
                f"parameter {self.name}: metric {self.metric!r} is unknown: "
                "use spearman, kendall, hamming or naive"
            )
        if self.default is not None:
            object.__setattr__(self, "default", tuple(self.default))
            if sorted(map(str, self.default)) != sorted(map(str, self.item_names)):
                raise SpaceError(
                    f"parameter {self.name}: default is not a permutation of its items"
                )

    @property
    def named(self) -> bool:
        """Whether the items have names."""
        return not isinstance(self.items, int)

    @property
    def item_names(self) -> tuple[Scalar, ...]:
        """The items: the names, or 0 .. n-1."""
        return tuple(range(self.items)) if isinstance(self.items, int) else self.items

    def __len__(self) -> int:
        return self.items if isinstance(self.items, int) else len(self.items)


_MOST_ITEMS = 10_000  # in a permutation: the memory of its distances grows with the square


def check_item_count(name: str, count: int) -> None:
    """Reject a permutation of too many items before they are listed.

    Raises:
        SpaceError: it has more than 10,000.
    """
    if count > _MOST_ITEMS:
        raise SpaceError(
            f"parameter {name}: a permutation of {count} items is too long; at most "
            f"{_MOST_ITEMS} can be ordered"
        )


Parameter: TypeAlias = Real | Integer | Ordinal | Categorical | Permutation


def _check_values(name: str, values: Sequence[Scalar], default: Scalar | None) -> None:
    if not values:
        raise SpaceError(f"parameter {name} has no values: give it at least one")
    for value in values:
        if not isinstance(value, bool | int | float | str):
            raise SpaceError(
                f"parameter {name}: {value!r} cannot be a value; use numbers, texts or booleans"
            )
    if len(set(values)) != len(values):
        raise SpaceError(f"parameter {name}: a value is repeated in {list(values)!r}")
    if default is not None and default not in values:
        raise SpaceError(f"parameter {name}: default {default!r} is not among its values")
