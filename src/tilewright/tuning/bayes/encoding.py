"""Configurations as points whose squared distances are the paper's distances (Section 4.1).

Every distance of the paper is a squared Euclidean distance after a fixed embedding: numbers
are mapped to [0, 1] (after a logarithm on a log scale), a category to a corner of a simplex,
a permutation to its places (Spearman), its changed positions (Hamming) or its ordered pairs
(Kendall), each scaled so that the largest distance is one. A batch of kernel rows therefore costs
one matrix product, and the kernel is positive definite by construction.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilewright.tuning.space.parameters import (
    Categorical,
    Integer,
    Metric,
    Ordinal,
    Parameter,
    Permutation,
    Real,
)
from tilewright.tuning.space.space import Space

Array: TypeAlias = np.ndarray[Any, Any]
_LISTED = 1 << 16


@dataclass(frozen=True)
class Encoder:
    """Embeds codes; feature column ``f`` belongs to the distance of block ``blocks[f]``.

    ``labels`` name the blocks. Parameters with a single value have no block.
    """

    space: Space
    labels: tuple[str, ...]
    blocks: Array
    parts: tuple[_Part, ...]

    def __call__(self, codes: Array) -> Array:
        """Return the points of ``codes``, shape (count, features)."""
        result = np.empty((len(codes), len(self.blocks)))
        features, sources, starts, values = self._tables
        if len(features):
            result[:, features] = values.take(codes.astype(np.int64).take(sources, axis=1) + starts)
        for part in self.parts:
            if part.table is None:
                part.fill(codes, result[:, part.columns])
        return result

    def presence(self, codes: Array) -> Array:
        """Return which conditional parameters are present in `codes`, shape (count, parameters).

        Parameters with a single value are left out.
        """
        found: dict[str, Array] = {}
        for part in self.parts:
            name = part.parameter.name
            if part.parameter.when is None:
                continue
            if part.table is not None:
                found[name] = codes[:, part.source.start] < len(part.table) - 1
            elif part.presence is not None:
                found[name] = codes[:, part.presence] == 0
        return np.array([*found.values()], dtype=bool).reshape(len(found), len(codes)).T

    @property
    def varying(self) -> int:
        """The number of parameters of more than one value."""
        return len({part.parameter.name for part in self.parts})

    @functools.cached_property
    def _tables(self) -> tuple[Array, Array, Array, Array]:
        """The features that are looked up: their places, code columns, offsets, and the tables.

        One look-up for all parameters saves a call for each of them.
        """
        features: list[int] = []
        sources: list[int] = []
        starts: list[int] = []
        values: list[Array] = []
        end = 0
        for part in self.parts:
            if part.table is None:
                continue
            for feature, column in enumerate(part.table.T, part.columns.start):
                features.append(feature)
                sources.append(part.source.start)
                starts.append(end)
                values.append(column)
                end += len(column)
        places = [np.array(each, dtype=np.int64) for each in (features, sources, starts)]
        return places[0], places[1], places[2], np.concatenate(values or [np.zeros(0)])


@dataclass(frozen=True)
class _Part:
    """One parameter's features: a table by value index, or arithmetic on its columns."""

    columns: slice
    source: slice
    table: Array | None
    parameter: Parameter
    presence: int | None = None
    metric: Metric = "spearman"
    log: bool = False

    def fill(self, codes: Array, out: Array) -> None:
        if self.table is not None:
            out[:] = self.table[codes[:, self.source.start].astype(np.int64)]
        elif isinstance(self.parameter, Permutation):
            out[:] = _permutation_points(codes[:, self.source].astype(np.int64), self.metric)
        elif isinstance(self.parameter, Integer):
            value = codes[:, self.source.start] + self.parameter.low
            out[:, 0] = _unit(value, self.parameter.low, self.parameter.high, self.log)
        else:
            out[:, 0] = codes[:, self.source.start]
            if self.presence is not None:
                absent = codes[:, self.presence] == 1
                out[:, 0] = np.where(absent, 0.5, out[:, 0])
                out[:, 1] = absent * 0.5


def encoder(
    space: Space, *, logs: bool = True, metric: Metric | None = None, alignment: bool = True
) -> Encoder:
    """Return the embedding of a space.

    Args:
        space: the space.
        logs: use logarithmic distances where a parameter's scale asks for them.
        metric: a permutation metric instead of each parameter's own.
        alignment: add a second distance for a parameter of which some values, but not all, are
            powers of two: the distance between the largest powers of two that divide the values. On
            hardware, 96 often behaves unlike 64 and 128, although it lies between them.
    """
    labels: list[str] = []
    blocks: list[int] = []
    parts: list[_Part] = []
    for p in space.parameters:
        part = _part(space, p, len(blocks), logs, metric)
        if part is not None:
            blocks += [len(labels)] * (part.columns.stop - part.columns.start)
            labels.append(p.name)
            parts.append(part)
        part = _alignment(space, p, len(blocks)) if alignment else None
        if part is not None:
            blocks.append(len(labels))
            labels.append(f"{p.name} (alignment)")
            parts.append(part)
    return Encoder(space, tuple(labels), np.array(blocks, dtype=np.int64), tuple(parts))


def _part(
    space: Space, p: Parameter, start: int, logs: bool, metric: Metric | None
) -> _Part | None:
    if isinstance(p, Real):
        if p.low == p.high:
            return None
        source = slice(space.reals[p.name], space.reals[p.name] + 1)
        if p.when is None:
            return _Part(slice(start, start + 1), source, None, p)
        presence = space.columns[p.name].start
        return _Part(slice(start, start + 2), source, None, p, presence=presence)
    source = space.columns[p.name]
    if isinstance(p, Permutation):
        chosen = metric or p.metric
        if len(p) == 1:
            return None
        if source.stop - source.start > 1:
            width = _permutation_points(np.arange(len(p))[None], chosen).shape[1]
            return _Part(slice(start, start + width), source, None, p, metric=chosen)
        orders = np.array(list(itertools.permutations(range(len(p)))))
        table = _permutation_points(_places(p, orders), chosen)
    elif isinstance(p, Categorical):
        if len(p) == 1 and p.when is None:
            return None
        table = np.eye(len(p)) / math.sqrt(2.0)
    else:
        if len(p) == 1 and p.when is None:
            return None
        log = logs and p.scale == "log"
        if isinstance(p, Integer) and len(p) > _LISTED:
            return _Part(slice(start, start + 1), source, None, p, log=log)
        values = range(p.low, p.high + 1) if isinstance(p, Integer) else p.values
        numbers = np.array(list(values), dtype=float)
        table = _unit(numbers, numbers.min(), numbers.max(), log)[:, None]
    if p.when is not None:
        table = _with_absent(table)
    return _Part(slice(start, start + table.shape[1]), source, table, p)


def _alignment(space: Space, p: Parameter, start: int) -> _Part | None:
    """Return the powers of two that divide a parameter's values, on a log scale from 0 to 1.

    None where they add no information: all values are powers of two, or all equally aligned.
    """
    if isinstance(p, Integer):
        values: Sequence[Any] = range(p.low, p.high + 1) if len(p) <= _LISTED else ()
    elif isinstance(p, Ordinal):
        values = p.values
    else:
        return None
    if not values or not all(isinstance(v, int) and v > 0 for v in values):
        return None
    twos = np.array([math.log2(v & -v) for v in values])
    if np.ptp(twos) == 0 or all(v & (v - 1) == 0 for v in values):
        return None
    table = ((twos - twos.min()) / np.ptp(twos))[:, None]
    if p.when is not None:
        table = np.append(table, [[float(table.mean())]], axis=0)
    return _Part(slice(start, start + 1), space.columns[p.name], table, p)


def _with_absent(table: Array) -> Array:
    """Return the table with one more row: an absent parameter is half away from every value."""
    marked = np.concatenate([table, np.zeros((len(table), 1))], axis=1)
    absent = np.append(table.mean(axis=0), 0.5)
    return np.concatenate([marked, absent[None]])


def _unit(values: Array, low: float, high: float, log: bool) -> Array:
    if low == high:
        return np.zeros(len(values))
    if log:
        return np.asarray(np.log(values / low) / math.log(high / low))
    return np.asarray((values - low) / (high - low))


def _places(p: Permutation, orders: Array) -> Array:
    """Return the place of each item: the value itself, or its inverse where items are named."""
    return np.argsort(orders, axis=1) if p.named else orders


def _permutation_points(places: Array, metric: Metric) -> Array:
    """Return points whose squared distances are the semimetrics over their maximum."""
    n = places.shape[1]
    if metric == "spearman":
        return np.asarray(places / math.sqrt(n * (n * n - 1) / 3))
    if metric == "kendall":
        pairs = list(itertools.combinations(range(n), 2))
        before = np.stack([places[:, i] < places[:, j] for i, j in pairs], axis=1)
        return np.asarray(before / math.sqrt(len(pairs)))
    corners = (places[:, :, None] == np.arange(n)).reshape(len(places), n * n)
    if metric == "hamming":
        return np.asarray(corners / math.sqrt(2.0 * n))
    return _naive_points(places)


def _naive_points(places: Array) -> Array:
    """Return a corner of a simplex per permutation, so that all are equally far apart."""
    n = places.shape[1]
    if n > 7:
        raise ValueError("the naive metric needs permutations of at most seven items")
    orders: Sequence[tuple[int, ...]] = list(itertools.permutations(range(n)))
    rank = {order: i for i, order in enumerate(orders)}
    points = np.zeros((len(places), len(orders)))
    for row, place in enumerate(places.tolist()):
        points[row, rank[tuple(place)]] = 1.0 / math.sqrt(2.0)
    return points
