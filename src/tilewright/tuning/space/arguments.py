"""The arguments of a space: clear errors for what is neither parameter nor constraint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, get_args

from tilewright.tuning.errors import ConstraintError, SpaceError
from tilewright.tuning.space.expressions import Constraint
from tilewright.tuning.space.parameters import Parameter

ConstraintSource: TypeAlias = str | tuple[Callable[..., Any], Sequence[str]] | Constraint


def parameters_of(given: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """Return the parameters of a space.

    Raises:
        SpaceError: there are none, one is not a parameter, or two have the same name.
    """
    if isinstance(given, Parameter):
        raise SpaceError(f"give the parameters as a list: [{given!r}]")
    if not isinstance(given, Iterable):
        raise SpaceError(f"the parameters are {given!r}; give a list of parameters")
    parameters = tuple(given)
    if not parameters:
        raise SpaceError("a space needs at least one parameter")
    for each in parameters:
        if not isinstance(each, Parameter):
            kinds = ", ".join(kind.__name__ for kind in get_args(Parameter))
            raise SpaceError(f"{each!r} is not a parameter; the kinds are {kinds}")
    names = [p.name for p in parameters]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise SpaceError(f"parameter names are repeated: {', '.join(repeated)}")
    return parameters


def sources_of(given: Iterable[ConstraintSource]) -> tuple[ConstraintSource, ...]:
    """Return the constraints of a space, before they are parsed.

    Raises:
        ConstraintError: one is neither a text nor a function with the names of its parameters.
    """
    if isinstance(given, str):
        raise ConstraintError(f"give the constraints as a list: [{given!r}]")
    if not isinstance(given, Iterable):
        raise ConstraintError(f"the constraints are {given!r}; give a list of constraints")
    sources = tuple(given)
    for each in sources:
        if callable(each) and not isinstance(each, Constraint):
            name = getattr(each, "__name__", repr(each))
            raise ConstraintError(
                f"constraint {name}: give the names of the parameters it takes as well, in order: "
                f'({name}, ["tile", "vector"])'
            )
        if not isinstance(each, str | Constraint) and not _is_pair(each):
            raise ConstraintError(
                f"constraint {each!r} is neither a text nor a pair of a function and the names of "
                "the parameters it takes"
            )
    return sources


def _is_pair(each: object) -> bool:
    """Return whether a constraint is a function with names of parameters."""
    if not isinstance(each, tuple | list) or len(each) != 2 or not callable(each[0]):
        return False
    names = each[1]
    if isinstance(names, str) or not isinstance(names, Sequence):
        return False
    return all(isinstance(name, str) for name in names)
