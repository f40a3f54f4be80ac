"""Spaces given by the list of their feasible configurations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.tuning.errors import SpaceError
from tilewright.tuning.space.expressions import Column, Constraint, Rows
from tilewright.tuning.space.parameters import Parameter
from tilewright.tuning.space.space import Space


def listed_space(parameters: Sequence[Parameter], rows: Sequence[Sequence[Any]]) -> Space:
    """Return the space whose feasible configurations are ``rows``, values in the parameters' order.

    The parameters must be discrete. Membership is tested for every prefix of a configuration,
    so that the tree has no more nodes than there are prefixes in the list.

    Raises:
        SpaceError: the list is empty, or a value is not one of its parameter's.
    """
    if not rows:
        raise SpaceError("the list of feasible configurations is empty")
    plain = Space(parameters)
    names = [p.name for p in parameters]
    codes = np.array(
        [plain.encode(dict(zip(names, row, strict=True))) for row in rows], dtype=np.int64
    )
    columns = [plain.columns[name] for name in names]
    if any(c.stop - c.start > 1 for c in columns):
        raise SpaceError("a listed space cannot have permutations of more than six items")
    sizes = [plain.feasible.variables[c.start].size for c in columns]
    # few values first: the order in which the tree will take them
    order = sorted(range(len(names)), key=lambda i: (sizes[i], i))
    constraints = [
        _prefix([names[i] for i in order[:k]], [sizes[i] for i in order[:k]], codes[:, order[:k]])
        for k in range(1, len(order) + 1)
    ]
    lookup = {name: _values(plain, name) for name in names}
    located = [_located(c, lookup) for c in constraints]
    return Space(parameters, located)


def _values(space: Space, name: str) -> dict[Any, int]:
    size = space.feasible.variables[space.columns[name].start].size
    found: dict[Any, int] = {}
    for index in range(size):
        code = np.zeros(space.width)
        code[space.columns[name].start] = index
        found[space.decode(code)[name]] = index
    return found


def _prefix(names: list[str], sizes: list[int], codes: Column) -> tuple[list[str], Any]:
    """Return the test of one prefix: whether value indices occur together in the list."""
    members = {tuple(row) for row in codes.tolist()}
    big = float(np.prod(np.array(sizes, dtype=float))) > 2**62
    keys = np.zeros(0, np.int64) if big else np.unique(_keys(codes, sizes))

    def test(indices: Column) -> Column:
        if big:
            return np.array([tuple(row) in members for row in indices.tolist()], dtype=bool)
        return np.isin(_keys(indices, sizes), keys)

    return names, test


def _keys(indices: Column, sizes: list[int]) -> Column:
    key = np.zeros(len(indices), dtype=np.int64)
    for column, size in zip(indices.T, sizes, strict=True):
        key = key * size + column
    return key


def _located(prefix: tuple[list[str], Any], lookup: dict[str, dict[Any, int]]) -> Constraint:
    names, member = prefix

    def test(rows: Rows) -> Column:
        indices = np.empty((rows.count, len(names)), dtype=np.int64)
        for k, name in enumerate(names):
            column = rows.columns[name]
            if column.ndim > 1:
                indices[:, k] = [lookup[name][tuple(v)] for v in column.tolist()]
            else:
                indices[:, k] = [lookup[name][v] for v in column.tolist()]
        result: Column = member(indices)
        return result

    return Constraint(f"listed({', '.join(names)})", tuple(names), test)
