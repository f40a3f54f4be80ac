"""The feasible set as a chain of trees with equal subtrees shared (Section 4.2).

Parameters that a constraint links form a group; groups are independent of one another. A group's
tree has one level per parameter. Two nodes of a level are merged if the part of the path that later
constraints depend on is the same, or if their subtrees are equal, so that the tree becomes a small
layered graph, like a decision diagram. Counting, sampling and membership walk the layers with
NumPy; no configuration is ever listed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tilewright.tuning.errors import ConstraintError
from tilewright.tuning.space.codes import LISTED_INTEGERS
from tilewright.tuning.space.expressions import Constraint

Array: TypeAlias = np.ndarray[Any, Any]
_MOST_ROWS = 40_000_000
_COMPARED = 1 << 20  # shares that are compared with draws at once: 8 MB
_STARTS = 12  # variables from which an order is tried
# In a greedy order, a live combination left counts as this many that are listed now.
_GROWTH = 4.0


@dataclass(frozen=True)
class FiniteVariable:
    """One choice among ``size`` values.

    ``columns`` are the columns that constraints see, each with one entry per value. Variables
    with the same ``distinct`` (an element each of one permutation) take different values.
    """

    name: str
    size: int
    columns: Mapping[str, Array] = field(default_factory=dict)
    distinct: str | None = None


@dataclass(frozen=True)
class _Level:
    """One level of a tree: the node that each value leads to, and the share of its leaves.

    ``child`` has shape (nodes + 1, size); its last row is the dead node, and an entry equal
    to the number of nodes of the next level is a dead end. ``cumulative`` (nodes, size) is
    the running share of a node's leaves below each value.
    """

    variable: int
    child: Array
    cumulative: Array


@dataclass(frozen=True)
class Tree:
    """A group of linked variables: its levels from the root and its number of leaves."""

    levels: tuple[_Level, ...]
    count: int

    @property
    def nodes(self) -> int:
        """The number of nodes on all levels."""
        return sum(len(level.child) - 1 for level in self.levels)


class FeasibleSet:
    """All feasible assignments of value indices to ``variables`` (at least one exists).

    Raises:
        ConstraintError: no assignment satisfies the constraints, or the constraints link so
            many values that the tree would not fit in memory.
    """

    def __init__(
        self, variables: Sequence[FiniteVariable], constraints: Sequence[Constraint]
    ) -> None:
        self.variables = tuple(variables)
        self._scopes = [(c, _scope(c, self.variables)) for c in constraints]
        trees: list[Tree] = []
        self.free: list[int] = []
        for group in _groups(self.variables, self._scopes):
            own = [(c, s) for c, s in self._scopes if s and s[0] in group]
            if len(group) == 1 and not own:
                self.free.append(group[0])
            else:
                trees.append(_build(self.variables, group, own))
        self.trees = tuple(trees)
        for constraint, scope in self._scopes:
            if not scope and not constraint({}, 1)[0]:
                raise ConstraintError(f"constraint {constraint.text!r} never holds: remove it")
        self.count: int = math.prod([tree.count for tree in trees], start=1) * math.prod(
            self.variables[i].size for i in self.free
        )

    def sample(self, rng: np.random.Generator, count: int, biased: bool = False) -> Array:
        """Return ``count`` assignments as value indices, shape (count, variables).

        Uniform over the feasible assignments; with ``biased``, by walking down each tree with equal
        probability for every child (as ATF does), for comparison.
        """
        result = np.empty((count, len(self.variables)), dtype=np.int64)
        for i in self.free:
            result[:, i] = rng.integers(0, self.variables[i].size, count)
        for tree in self.trees:
            node = np.zeros(count, dtype=np.int64)
            for level in tree.levels:
                draw = rng.random(count)
                if biased:
                    alive = level.child[node] < _dead(level)
                    rank = np.floor(draw * alive.sum(axis=1)).astype(np.int64)
                    value = (np.cumsum(alive, axis=1) <= rank[:, None]).sum(axis=1)
                else:
                    value = _drawn(level.cumulative, node, draw)
                result[:, level.variable] = value
                node = level.child[node, value].astype(np.int64)
        return result

    def contains(self, assignments: Array) -> Array:
        """Return which rows of value indices, shape (count, variables), are feasible."""
        result = np.ones(len(assignments), dtype=bool)
        for tree in self.trees:
            node = np.zeros(len(assignments), dtype=np.int64)
            for level in tree.levels:
                node = level.child[node, assignments[:, level.variable]]
            result &= node == 0
        return result


def _drawn(cumulative: Array, node: Array, draw: Array) -> Array:
    """Return how many of the cumulative shares of each node are at most its draw."""
    if len(node) * cumulative.shape[1] <= _COMPARED:
        return np.asarray((cumulative[node] <= draw[:, None]).sum(axis=1))
    value = np.empty(len(node), dtype=np.int64)
    for own in np.unique(node):
        at = node == own
        value[at] = np.searchsorted(cumulative[own], draw[at], side="right")
    return value


def _dead(level: _Level) -> int:
    return int(level.child[-1, 0])


def _scope(constraint: Constraint, variables: Sequence[FiniteVariable]) -> tuple[int, ...]:
    """Return the positions of the variables that a constraint reads."""
    scope = []
    for i, variable in enumerate(variables):
        if variable.distinct is None:
            used = variable.name in constraint.names
        else:
            perm, _, element = variable.name.rpartition("#")
            used = (perm, int(element)) in constraint.elements
            used = used or (perm in constraint.names and not constraint.elements)
        if used:
            scope.append(i)
    return tuple(scope)


def _groups(
    variables: Sequence[FiniteVariable], scopes: Sequence[tuple[Constraint, tuple[int, ...]]]
) -> list[list[int]]:
    """Return variables linked by a constraint or by one permutation, as sorted lists."""
    parent = list(range(len(variables)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    links = [scope for _, scope in scopes]
    links += [
        tuple(i for i, v in enumerate(variables) if v.distinct == name)
        for name in {v.distinct for v in variables} - {None}
    ]
    for link in links:
        for i in link[1:]:
            parent[root(i)] = root(link[0])
    groups: dict[int, list[int]] = {}
    for i in range(len(variables)):
        groups.setdefault(root(i), []).append(i)
    return list(groups.values())


def _columns(
    variables: Sequence[FiniteVariable],
    scope: Sequence[int],
    chosen: Mapping[int, Array],
    count: int,
) -> dict[str, Array]:
    """Return the columns that a constraint sees for ``count`` rows of chosen value indices."""
    columns: dict[str, Array] = {}
    for i in scope:
        variable = variables[i]
        if variable.distinct is None:
            for name, values in variable.columns.items():
                columns[name] = values[chosen[i]]
        else:
            perm, _, element = variable.name.rpartition("#")
            values = variable.columns[variable.name]
            if perm not in columns:
                columns[perm] = np.full((count, variable.size), values[0], dtype=values.dtype)
            columns[perm][:, int(element)] = values[chosen[i]]
    return columns


class _Live:
    """The variables placed so far, and the number of combinations of those that are live.

    A variable is live while a constraint reads it together with variables that are not yet placed.
    """

    def __init__(self, sizes: Mapping[int, int], scopes: Sequence[tuple[int, ...]]) -> None:
        self.sizes = sizes
        self.scopes = scopes
        self.constraints: dict[int, list[int]] = {i: [] for i in sizes}
        for at, scope in enumerate(scopes):
            for i in scope:
                self.constraints[i].append(at)
        self.unplaced = [len(scope) for scope in scopes]
        self.unchecked = {i: len(own) for i, own in self.constraints.items()}
        self.product = 1

    def _checked(self, i: int) -> Counter[int]:
        """Return how many constraints of each variable can be checked once `i` is placed."""
        last = (self.scopes[at] for at in self.constraints[i] if self.unplaced[at] == 1)
        return Counter(j for scope in last for j in scope)

    def factor(self, i: int) -> tuple[int, int]:
        """Return the factor and the divisor of the number of combinations if `i` is placed."""
        checked = self._checked(i)
        lasting = checked.pop(i, 0) < self.unchecked[i]
        gone = (self.sizes[j] for j, count in checked.items() if count == self.unchecked[j])
        return (self.sizes[i] if lasting else 1), math.prod(gone)

    def place(self, i: int) -> set[int]:
        """Place a variable; return those for which `factor` may differ from now on."""
        times, by = self.factor(i)
        self.product = self.product * times // by
        changed: set[int] = set()
        for j, count in self._checked(i).items():
            self.unchecked[j] -= count
            changed.update(k for at in self.constraints[j] for k in self.scopes[at])
        for at in self.constraints[i]:
            self.unplaced[at] -= 1
            changed.update(self.scopes[at])
        return changed


def _order(sizes: Mapping[int, int], scopes: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the order with the fewest live variables among greedy ones from each start."""
    best: tuple[int, list[int]] | None = None
    for start in sorted(sizes, key=lambda i: (sizes[i], i))[:_STARTS]:
        order: list[int] = []
        cost, live = 0, _Live(sizes, scopes)
        price: dict[int, float] = {}
        changed: Iterable[int] = sizes
        for _ in sizes:
            for i in changed:
                if i in price or not order:
                    times, by = live.factor(i)
                    price[i] = _GROWTH * times / by + sizes[i]
            chosen = min(price, key=lambda i: (price[i], i)) if order else start
            del price[chosen]
            cost += live.product * sizes[chosen]
            changed = live.place(chosen)
            order.append(chosen)
        if best is None or cost < best[0]:
            best = (cost, order)
    assert best is not None
    return best[1]


def _build(
    variables: Sequence[FiniteVariable],
    group: Sequence[int],
    own: Sequence[tuple[Constraint, tuple[int, ...]]],
) -> Tree:
    """Return the tree of one group, built level by level, then counted from the leaves."""
    for i in group if own else ():
        if variables[i].size > LISTED_INTEGERS:
            raise ConstraintError(
                f"{variables[i].name} has {variables[i].size} values, too many to look for those "
                f"that the constraints allow (at most {LISTED_INTEGERS}): give it coarser values, "
                "such as an ordinal of powers of two, or leave it out of the constraints"
            )
    allowed = {i: np.ones(variables[i].size, dtype=bool) for i in group}
    for constraint, scope in own:
        if len(scope) == 1:
            i = scope[0]
            every = np.arange(variables[i].size)
            columns = _columns(variables, scope, {i: every}, len(every))
            allowed[i] &= constraint(columns, len(every))
            if not allowed[i].any():
                raise ConstraintError(
                    f"constraint {constraint.text!r}: no value of {variables[i].name} satisfies it"
                    " together with the constraints before it; loosen it"
                )
    wide = [(c, s) for c, s in own if len(s) > 1]
    order = _order({i: int(allowed[i].sum()) for i in group}, [s for _, s in wide])
    tables = _forward(variables, order, wide, allowed)
    tree = _backward(order, tables, math.prod(variables[i].size for i in group))
    if tree.count == 0:
        raise ConstraintError(_blame(variables, own))
    return tree


def _forward(
    variables: Sequence[FiniteVariable],
    order: Sequence[int],
    constraints: Sequence[tuple[Constraint, tuple[int, ...]]],
    allowed: Mapping[int, Array],
) -> list[tuple[Array, int]]:
    """Return for each level the table of children, -1 for none, and the number of nodes below."""
    due, last_use, last_of = _last_levels(variables, order, constraints)
    live: dict[int, Array] = {}
    used: dict[str, Array] = {}
    nodes = 1
    tables = []
    for k, i in enumerate(order):
        values = np.flatnonzero(allowed[i])
        rows = nodes * len(values)
        if rows > _MOST_ROWS:
            names = ", ".join(variables[j].name for j in [*live, i])
            raise ConstraintError(
                f"the constraints link too many values of {names} at once ({rows:.1e} "
                "combinations): give these parameters fewer values, or split the constraint"
            )
        chosen = {j: np.repeat(column, len(values)) for j, column in live.items()}
        chosen[i] = np.tile(values, nodes)
        keep = np.ones(rows, dtype=bool)
        masks = {name: np.repeat(mask, len(values)) for name, mask in used.items()}
        group = variables[i].distinct
        if group:
            bit = np.int64(1) << chosen[i].astype(np.int64)
            mask = masks.get(group, np.zeros(rows, dtype=np.int64))
            keep &= (mask & bit) == 0
            masks[group] = mask | bit
        for c, (constraint, scope) in enumerate(constraints):
            if due[c] == k:
                columns = _columns(variables, scope, chosen, rows)
                keep &= constraint(columns, rows)
        live = {j: column[keep] for j, column in chosen.items() if last_use[j] > k}
        used = {name: m[keep] for name, m in masks.items() if last_of[name] > k}
        merged, first, below = _merge(
            [(column, variables[j].size) for j, column in live.items()],
            list(used.values()),
            int(keep.sum()),
        )
        live = {j: column[first] for j, column in live.items()}
        used = {name: m[first] for name, m in used.items()}
        child = np.full((nodes, variables[i].size), -1, dtype=np.int32)
        flat = np.flatnonzero(keep)
        child[flat // len(values), values[flat % len(values)]] = merged
        tables.append((child, below))
        nodes = below
    return tables


def _last_levels(
    variables: Sequence[FiniteVariable],
    order: Sequence[int],
    constraints: Sequence[tuple[Constraint, tuple[int, ...]]],
) -> tuple[list[int], dict[int, int], dict[str, int]]:
    """Return the levels, counted from 0, at which things are needed for the last time.

    Returns:
        The level at which each constraint's variables are all chosen, the last level at which
        each variable is in a constraint (-1: in none), and that at which each group of
        variables with distinct values ends.
    """
    place = {i: k for k, i in enumerate(order)}
    due = [max(place[i] for i in scope) for _, scope in constraints]
    last_use = {
        i: max([due[c] for c, (_, scope) in enumerate(constraints) if i in scope], default=-1)
        for i in order
    }
    last_of: dict[str, int] = {}
    for k, i in enumerate(order):
        name = variables[i].distinct
        if name:
            last_of[name] = k
    return due, last_use, last_of


def _merge(
    columns: Sequence[tuple[Array, int]], masks: Sequence[Array], rows: int
) -> tuple[Array, Array, int]:
    """Number distinct rows; return each row's number, a row of each number, and their count."""
    if rows == 0:
        return np.zeros(0, np.int32), np.zeros(0, np.int64), 0
    span = math.prod(size for _, size in columns)
    if not masks and span <= 4_000_000:
        key = np.zeros(rows, dtype=np.int64)
        for column, size in columns:
            key = key * size + column
        first = np.full(span, -1, dtype=np.int64)
        first[key] = np.arange(rows)
        present = first >= 0
        number = np.cumsum(present) - 1
        return number[key].astype(np.int32), first[present], int(present.sum())
    table = np.stack([*(column for column, _ in columns), *masks], axis=1).astype(np.int64)
    _, first, number = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return number.reshape(-1).astype(np.int32), first, len(first)


def _backward(order: Sequence[int], tables: Sequence[tuple[Array, int]], dense: int) -> Tree:
    """Count leaves from the last level up, drop dead ends, share equal subtrees."""
    exact: Any = np.int64 if dense < 2**62 else object
    counts = np.array([1, 0], dtype=exact)
    rename = np.array([0, 1], dtype=np.int32)
    levels: list[_Level] = []
    for variable, (child, below) in zip(reversed(order), reversed(tables), strict=True):
        if below == 0:
            return Tree((), 0)
        dead = len(counts) - 1
        child = rename[np.where(child < 0, below, child)]
        leaves = counts[child]
        totals = leaves.sum(axis=1)
        alive = np.flatnonzero(totals != 0)
        if len(alive) == 0:
            return Tree((), 0)
        kept, same = _share(child[alive])
        rename = np.full(len(child) + 1, len(kept), dtype=np.int32)
        rename[alive] = same
        rows = alive[kept]
        share = np.cumsum(leaves[rows], axis=1) / totals[rows][:, None]
        table = np.concatenate([child[rows], np.full((1, child.shape[1]), dead, np.int32)])
        levels.insert(0, _Level(variable, table, share.astype(float)))
        counts = np.append(totals[rows], np.array([0], dtype=exact))
    return Tree(tuple(levels), int(counts[0]))


def _share(child: Array) -> tuple[Array, Array]:
    """Return the distinct rows of a table of children, and which of them each row equals."""
    if len(child) == 1:
        return np.array([0]), np.array([0])
    table = np.ascontiguousarray(child)
    keys = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).reshape(-1)
    _, kept, same = np.unique(keys, return_index=True, return_inverse=True)
    return kept, same.reshape(-1)


def _blame(
    variables: Sequence[FiniteVariable], own: Sequence[tuple[Constraint, tuple[int, ...]]]
) -> str:
    """Name the constraint that nothing satisfies, or all that contradict one another."""
    for constraint, scope in own:
        allowed = {i: np.ones(variables[i].size, dtype=bool) for i in scope}
        tables = _forward(variables, list(scope), [(constraint, scope)], allowed)
        if _backward(scope, tables, math.prod(variables[i].size for i in scope)).count == 0:
            return f"constraint {constraint.text!r}: no configuration satisfies it; loosen it"
    texts = "; ".join(repr(c.text) for c, _ in own)
    return f"the constraints {texts} contradict one another: no configuration satisfies them all"
