"""A search space: parameters, known constraints, and its feasible set.

Inside the tuner a configuration is a *code*, one row of numbers: first the value index of
each discrete choice (a permutation of more than six items takes one column per item), then each
real parameter's position in its range, from 0 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tilewright.tuning.errors import ConfigurationError, ConstraintError, SpaceError, nearest
from tilewright.tuning.space.arguments import ConstraintSource, parameters_of, sources_of
from tilewright.tuning.space.codes import (
    LISTED_ITEMS,
    as_column,
    from_unit,
    from_units,
    ladder,
    listed_values,
    others,
    places,
    rank,
    reorderings,
    stacked,
    to_unit,
    unrank,
)
from tilewright.tuning.space.expressions import Constraint, Rows, from_callable, parse
from tilewright.tuning.space.feasible import FeasibleSet, FiniteVariable
from tilewright.tuning.space.parameters import (
    Categorical,
    Integer,
    Ordinal,
    Parameter,
    Permutation,
    Real,
    Value,
)

Array: TypeAlias = np.ndarray[Any, Any]
Configuration: TypeAlias = dict[str, Value]
_MOST_ITEMS = 16


class Space:
    """Parameters and the known constraints between them.

    Args:
        parameters: the parameters, each name once.
        constraints: expressions over the parameters (see `tilewright.tuning.space.expressions`), or
            pairs of a callable and the names of the parameters it takes, in order. A
            constraint on a conditional parameter holds where that parameter is absent.

    Raises:
        SpaceError: a parameter, a condition or a constraint that cannot be used, named.

    Example:
        >>> from tilewright.tuning import Ordinal, Space
        >>> space = Space(
        ...     [Ordinal("tile", (4, 8, 16), scale="log"), Ordinal("vector", (1, 4, 8))],
        ...     ["tile % vector == 0"],
        ... )
        >>> space.count
        8
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        constraints: Sequence[ConstraintSource] = (),
    ) -> None:
        self.parameters = parameters_of(parameters)
        self.constraint_sources = sources_of(constraints)
        self.index = {p.name: i for i, p in enumerate(self.parameters)}
        self._known = {
            p.name: p.item_names if isinstance(p, Permutation) else None for p in self.parameters
        }
        self._choices = {p.name: listed_values(p) for p in self.parameters}
        self.conditions = self._conditions()
        discrete, self.continuous = self._constraints(self.constraint_sources)
        self._discrete_constraints = tuple(discrete)
        variables: list[FiniteVariable] = []
        self.columns: dict[str, slice] = {}
        for p in self.parameters:
            if not isinstance(p, Real) or p.when is not None:
                own = self._variables(p)
                self.columns[p.name] = slice(len(variables), len(variables) + len(own))
                variables += own
        self.reals: dict[str, int] = {}
        for p in self.parameters:
            if isinstance(p, Real):
                self.reals[p.name] = len(variables) + len(self.reals)
        self.width = len(variables) + len(self.reals)
        self.discrete = len(variables)
        self.feasible = FeasibleSet(variables, discrete)

    @property
    def count(self) -> int:
        """The number of feasible configurations, not counting real parameters."""
        return self.feasible.count

    @property
    def dense(self) -> int:
        """The product of the numbers of values, ignoring constraints and real parameters."""
        sizes = [
            math.factorial(len(p)) if isinstance(p, Permutation) else len(p)
            for p in self.parameters
            if not isinstance(p, Real)
        ]
        return math.prod(sizes)

    def __getitem__(self, name: str) -> Parameter:
        return self.parameters[self.index[name]]

    def _repr_html_(self) -> str:
        from tilewright.tuning.notebook import space_html

        return space_html(self)

    # -- building ------------------------------------------------------------------------

    def _conditions(self) -> dict[str, list[Constraint]]:
        """Return the parsed conditions of the conditional parameters, parents before children."""
        result: dict[str, list[Constraint]] = {}
        for p in self.parameters:
            if p.when is not None:
                result[p.name] = parse(p.when, self._known)
                for part in result[p.name]:
                    for name in part.names:
                        if isinstance(self[name], Real):
                            raise SpaceError(
                                f"parameter {p.name}: its condition names the real parameter "
                                f"{name}; only discrete parameters can decide a presence"
                            )
        seen: dict[str, int] = {}

        def visit(name: str) -> None:
            if seen.get(name) == 1:
                raise SpaceError(f"parameter {name}: its condition depends on its own presence")
            if name in result and name not in seen:
                seen[name] = 1
                for part in result[name]:
                    for parent in part.names:
                        visit(parent)
                seen[name] = 2

        for name in list(result):
            visit(name)
        return result

    def _constraints(
        self, sources: Sequence[ConstraintSource]
    ) -> tuple[list[Constraint], list[Constraint]]:
        """Return all constraints: on discrete choices alone, and with real parameters."""
        parsed: list[Constraint] = []
        for source in sources:
            if isinstance(source, str):
                parsed += parse(source, self._known)
                continue
            if isinstance(source, Constraint):
                parsed.append(source)
                continue
            function, names = source
            for name in names:
                if name not in self.index:
                    raise ConstraintError(
                        f"constraint {getattr(function, '__name__', function)!r}: the parameter "
                        f"{name!r} is unknown; the parameters are {', '.join(self.index)}"
                    )
            parsed.append(from_callable(function, tuple(names)))
        guarded = [self._guard(c) for c in parsed]
        real = {p.name for p in self.parameters if isinstance(p, Real)}
        discrete = [c for c in guarded if real.isdisjoint(c.names)]
        discrete += [self._presence(name, parts) for name, parts in self.conditions.items()]
        return discrete, [c for c in guarded if not real.isdisjoint(c.names)]

    def _guard(self, constraint: Constraint) -> Constraint:
        """Return the constraint, extended to hold where one of its parameters is absent."""
        if not any(name in self.conditions for name in constraint.names):
            return constraint

        def test(rows: Rows) -> Array:
            present = rows.present(constraint.names)
            result = np.ones(rows.count, dtype=bool)
            result[present] = constraint.test(rows.where(present))
            return result

        return Constraint(constraint.text, constraint.names, test, constraint.elements)

    def _presence(self, name: str, parts: Sequence[Constraint]) -> Constraint:
        """Return the rule that ``name`` is present exactly where its condition holds."""
        names = tuple({n for part in parts for n in part.names})
        elements = frozenset().union(*(part.elements for part in parts))
        if isinstance(self[name], Permutation) and len(self[name]) > LISTED_ITEMS:  # type: ignore[arg-type]
            raise SpaceError(
                f"parameter {name}: a permutation of more than {LISTED_ITEMS} items cannot be "
                "conditional"
            )

        def test(rows: Rows) -> Array:
            active = rows.present(names)
            below = rows.where(active)
            held = np.ones(below.count, dtype=bool)
            for part in parts:
                held &= part.test(below)
            active[active] = held
            return np.equal(active, rows.columns[f"?{name}"])

        return Constraint(f"{name} when {self[name].when}", (*names, name), test, elements)

    def _variables(self, p: Parameter) -> list[FiniteVariable]:
        """Return the discrete choices that make up one parameter."""
        if isinstance(p, Real):
            present = np.array([True, False])
            return [FiniteVariable(p.name, 2, {f"?{p.name}": present})]
        if isinstance(p, Permutation) and len(p) > LISTED_ITEMS:
            if len(p) > _MOST_ITEMS:
                raise SpaceError(
                    f"parameter {p.name}: a permutation of {len(p)} items is too long (at most "
                    f"{_MOST_ITEMS}): split it into several"
                )
            items = as_column(p.item_names)
            return [
                FiniteVariable(f"{p.name}#{i}", len(p), {f"{p.name}#{i}": items}, p.name)
                for i in range(len(p))
            ]
        values = self._choices[p.name]
        size = len(p) if values is None else len(values)
        if values is None:
            return [FiniteVariable(p.name, size, {})]
        if p.when is None:
            return [FiniteVariable(p.name, size, {p.name: values})]
        padded = np.concatenate([values, values[:1]])
        present = np.arange(size + 1) < size
        return [FiniteVariable(p.name, size + 1, {p.name: padded, f"?{p.name}": present})]

    # -- codes ---------------------------------------------------------------------------

    def encode(self, configuration: Mapping[str, Any]) -> Array:
        """Return the code of a configuration, shape (width,), whether feasible or not.

        Raises:
            ConfigurationError: a name or a value that is not one of the space's.
        """
        unknown = [name for name in configuration if name not in self.index]
        if unknown:
            raise ConfigurationError(
                f"parameter {unknown[0]!r} is unknown{nearest(unknown[0], self.index)}; "
                f"the parameters are {', '.join(self.index)}"
            )
        code = np.zeros(self.width)
        for p in self.parameters:
            value = configuration.get(p.name)
            if value is None:
                if p.when is None:
                    raise ConfigurationError(f"parameter {p.name} has no value")
                code[self.columns[p.name]] = 1 if isinstance(p, Real) else self._size(p)
                continue
            if isinstance(p, Real):
                code[self.reals[p.name]] = to_unit(p, value)
            else:
                code[self.columns[p.name]] = self._indices(p, value)
        return code

    def _size(self, p: Parameter) -> int:
        values = self._choices[p.name]
        return len(values) if values is not None else 0

    def _indices(self, p: Parameter, value: Any) -> list[int]:
        try:
            if isinstance(p, Integer):
                if int(value) == value and p.low <= value <= p.high:
                    return [int(value) - p.low]
            elif isinstance(p, Ordinal | Categorical):
                return [p.values.index(value)]
            elif isinstance(p, Permutation):
                items = [p.item_names.index(item) for item in value]
                if sorted(items) == list(range(len(p))):
                    return items if len(p) > LISTED_ITEMS else [rank(items)]
        except (ValueError, TypeError, OverflowError):
            pass
        raise ConfigurationError(f"parameter {p.name}: {value!r} is not one of its values")

    def decode(self, code: Array) -> Configuration:
        """Return the configuration of a code; absent parameters are left out."""
        result: Configuration = {}
        for p in self.parameters:
            if isinstance(p, Real):
                if p.when is None or code[self.columns[p.name].start] == 0:
                    result[p.name] = from_unit(p, float(code[self.reals[p.name]]))
                continue
            index = int(code[self.columns[p.name].start])
            if isinstance(p, Permutation):
                if len(p) > LISTED_ITEMS:
                    chosen = [int(i) for i in code[self.columns[p.name]]]
                elif index >= math.factorial(len(p)):
                    continue
                else:
                    chosen = unrank(index, len(p))
                result[p.name] = tuple(p.item_names[i] for i in chosen)
            elif isinstance(p, Integer):
                if index < len(p):
                    result[p.name] = p.low + index
            elif index < len(p.values):
                result[p.name] = p.values[index]
        return result

    def key(self, code: Array) -> bytes:
        """Return a key that is equal for codes of the same configuration only."""
        if not self.reals:
            return code.astype(np.int64).tobytes()
        code = code.copy()
        for name, column in self.reals.items():
            if name in self.conditions and code[self.columns[name].start] == 1:
                code[column] = 0.0
        return code.tobytes()

    def default(self) -> Configuration | None:
        """Return the configuration of all defaults, or None where a parameter has none."""
        result: dict[str, Any] = {}
        for p in self.parameters:
            if p.default is None:
                return None
            result[p.name] = p.default
        for name in self._in_order():
            active = self._active(name, result)
            if not active:
                result[name] = None
        return {n: v for n, v in result.items() if v is not None}

    def _in_order(self) -> list[str]:
        """Conditional parameters, parents first."""
        order: list[str] = []

        def visit(name: str) -> None:
            if name in self.conditions and name not in order:
                for part in self.conditions[name]:
                    for parent in part.names:
                        visit(parent)
                order.append(name)

        for name in self.conditions:
            visit(name)
        return order

    def _active(self, name: str, values: Mapping[str, Any]) -> bool:
        for part in self.conditions[name]:
            if any(values.get(parent) is None for parent in part.names):
                return False
            columns = {n: stacked([values[n]]) for n in part.names}
            if not part(columns, 1)[0]:
                return False
        return True

    # -- the feasible set ----------------------------------------------------------------

    def is_feasible(self, configuration: Mapping[str, Any]) -> bool:
        """Return whether a configuration is in the space and satisfies all known constraints."""
        try:
            code = self.encode(configuration)
        except ConfigurationError:
            return False
        return bool(self.contains(code[None])[0])

    def broken(self, configuration: Mapping[str, Any]) -> str | None:
        """Return the text of the first known constraint that a configuration breaks, or None."""
        columns = self.value_columns(self.encode(configuration)[None])
        for constraint in (*self._discrete_constraints, *self.continuous):
            if not constraint(columns, 1)[0]:
                return constraint.text
        return None

    def contains(self, codes: Array) -> Array:
        """Return which codes, shape (count, width), are feasible."""
        result = self.feasible.contains(codes[:, : self.discrete].astype(np.int64))
        if self.continuous and result.any():
            result[result] = self._continuous_hold(codes[result])
        return result

    def _continuous_hold(self, codes: Array) -> Array:
        columns = self.value_columns(codes)
        result = np.ones(len(codes), dtype=bool)
        for constraint in self.continuous:
            result &= constraint(columns, len(codes))
        return result

    def value_columns(self, codes: Array) -> dict[str, Array]:
        """Return the columns that expressions see: for each parameter its values, row by row."""
        columns: dict[str, Array] = {}
        for p in self.parameters:
            if isinstance(p, Real):
                unit = codes[:, self.reals[p.name]]
                columns[p.name] = from_units(p, unit)
                if p.when is not None:
                    columns[f"?{p.name}"] = codes[:, self.columns[p.name].start] == 0
                continue
            index = codes[:, self.columns[p.name]].astype(np.int64)
            values = self._choices[p.name]
            if isinstance(p, Permutation) and len(p) > LISTED_ITEMS:
                columns[p.name] = as_column(p.item_names)[index]
            elif values is None:
                assert isinstance(p, Integer)
                columns[p.name] = index[:, 0] + p.low
            else:
                columns[p.name] = values[np.minimum(index[:, 0], len(values) - 1)]
                if p.when is not None:
                    columns[f"?{p.name}"] = index[:, 0] < len(values)
        return columns

    def sample(self, rng: np.random.Generator, count: int, biased: bool = False) -> Array:
        """Return ``count`` feasible codes, shape (count, width), drawn with replacement.

        The discrete choices are uniform over the feasible ones (or biased as in ATF's trees), the
        real parameters uniform over the range that the constraints leave them.

        Raises:
            ConstraintError: no real values were found that satisfy the constraints.
        """
        codes = np.zeros((count, self.width))
        open_rows = np.arange(count)
        for _ in range(200):
            drawn = self.feasible.sample(rng, len(open_rows), biased)
            codes[open_rows, : self.discrete] = drawn
            if not self.reals:
                return codes
            open_rows = self._draw_reals(rng, codes, open_rows)
            if len(open_rows) == 0:
                return codes
        texts = "; ".join(repr(c.text) for c in self.continuous)
        raise ConstraintError(f"no real values were found that satisfy {texts}: loosen them")

    def _draw_reals(self, rng: np.random.Generator, codes: Array, rows: Array) -> Array:
        """Fill in the real columns of ``rows`` by rejection; returns the rows that failed."""
        for _ in range(50):
            codes[rows, self.discrete :] = rng.random((len(rows), len(self.reals)))
            if not self.continuous:
                return rows[:0]
            rows = rows[~self._continuous_hold(codes[rows])]
            if len(rows) == 0:
                break
        return rows

    def neighbours(self, code: Array, most: int | None = None) -> Array:
        """Return all feasible codes that differ from ``code`` in one parameter (Section 3.3).

        A real parameter is moved to 20 places of its range. A permutation of more than six
        items is changed by swapping two items or moving one. With ``most``, a numeric
        parameter of more values than that is moved only to its nearest values and to a
        geometric ladder beyond them.
        """
        codes = self._changed(code, most)
        return codes[self.contains(codes)]

    def neighbourhoods(self, codes: Array, most: int | None = None) -> tuple[Array, Array]:
        """Return the `neighbours` of each code, one after another, and how many each has."""
        near = [self._changed(code, most) for code in codes]
        together = np.concatenate(near)
        kept = self.contains(together)
        sizes = np.bincount(
            np.repeat(np.arange(len(near)), [len(n) for n in near]), kept, len(near)
        )
        return together[kept], sizes.astype(np.int64)

    def _changed(self, code: Array, most: int | None) -> Array:
        """Return the codes that differ in one parameter, whatever the constraints say."""
        changes = [self._changes(p, code, most) for p in self.parameters]
        changed = np.repeat(code[None], sum(len(values) for _, values in changes), axis=0)
        end = 0
        for columns, values in changes:
            changed[end : end + len(values), columns] = values
            end += len(values)
        return changed

    def _changes(self, p: Parameter, code: Array, most: int | None) -> tuple[slice, Array]:
        """Return a parameter's columns, and what they may become, shape (count, columns)."""
        if isinstance(p, Real):
            place = self.reals[p.name]
            return slice(place, place + 1), places(float(code[place]))
        column = self.columns[p.name]
        if isinstance(p, Permutation) and len(p) > LISTED_ITEMS:
            return column, reorderings(code[column].astype(int).tolist())
        size, now = self.feasible.variables[column.start].size, int(code[column.start])
        if most is None or size <= most or isinstance(p, Categorical | Permutation):
            return column, others(now, size)
        return column, ladder(now, size, most)
