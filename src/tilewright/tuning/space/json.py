"""Search spaces as plain data: the JSON form of the bundled problems and of problem files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.tuning.errors import SpaceError, nearest
from tilewright.tuning.space.parameters import (
    Categorical,
    Integer,
    Ordinal,
    Parameter,
    Permutation,
    Real,
)
from tilewright.tuning.space.space import Space

_KEYS = {
    "real": {"low", "high", "scale"},
    "integer": {"low", "high", "scale"},
    "ordinal": {"values", "scale"},
    "categorical": {"values"},
    "permutation": {"length", "items", "metric"},
}


def space_from_dict(data: Mapping[str, Any]) -> Space:
    """Return the space of ``{"parameters": [...], "constraints": [...]}``.

    Raises:
        SpaceError: an entry that is missing, unknown or wrong, named.
    """
    entries = data.get("parameters")
    if not isinstance(entries, list) or not entries:
        raise SpaceError(
            "'parameters' must be a list with at least one entry; in a TOML file each entry "
            "begins with [[parameters]]"
        )
    constraints = data.get("constraints", [])
    if not isinstance(constraints, list) or not all(isinstance(c, str) for c in constraints):
        raise SpaceError("'constraints' must be a list of expressions in quotes")
    return Space([parameter_from_dict(entry) for entry in entries], constraints)


def parameter_from_dict(entry: Any) -> Parameter:
    """Return one parameter of its entry.

    Raises:
        SpaceError: as `space_from_dict`.
    """
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise SpaceError(f"the parameter {entry!r} needs a 'name'")
    name, kind = entry["name"], _checked_kind(entry)
    common: dict[str, Any] = {"when": entry.get("when"), "default": entry.get("default")}
    if isinstance(common["default"], list):
        common["default"] = tuple(common["default"])
    try:
        if kind == "real":
            low, high = float(entry["low"]), float(entry["high"])
            return Real(name, low, high, scale=entry.get("scale", "linear"), **common)
        if kind == "integer":
            scale = entry.get("scale", "linear")
            return Integer(name, entry["low"], entry["high"], scale=scale, **common)
        if kind == "ordinal":
            values = tuple(entry["values"])
            return Ordinal(name, values, scale=entry.get("scale", "linear"), **common)
        if kind == "categorical":
            return Categorical(name, tuple(entry["values"]), **common)
        items = entry["items"] if "items" in entry else entry["length"]
        items = tuple(items) if isinstance(items, list) else items
        return Permutation(name, items, metric=entry.get("metric", "spearman"), **common)
    except KeyError as missing:
        raise SpaceError(f"parameter {name}: a parameter of type {kind} needs {missing}") from None
    except (TypeError, ValueError) as error:
        raise SpaceError(f"parameter {name}: {error}") from None


def _checked_kind(entry: Mapping[str, Any]) -> str:
    """Return the type of a parameter's entry, after checking its keys and values."""
    name, kind = entry["name"], entry.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        what = "needs a 'type'" if kind is None else f"type {kind!r} is unknown"
        raise SpaceError(f"parameter {name}: {what}{nearest(kind, _KEYS)}; use {', '.join(_KEYS)}")
    for key in entry:
        if key not in {"name", "type", "default", "when"} | _KEYS[kind]:
            raise SpaceError(
                f"parameter {name}: {key!r} is not an entry of a parameter of type {kind}"
                f"{nearest(key, _KEYS[kind])}; use {', '.join(sorted(_KEYS[kind]))}, default, when"
            )
    if not isinstance(entry.get("when", ""), str):
        raise SpaceError(f"parameter {name}: 'when' must be an expression in quotes")
    if not isinstance(entry.get("values", []), list):
        raise SpaceError(f"parameter {name}: 'values' must be a list, such as [1, 2, 4]")
    for key in ("low", "high"):
        number = entry.get(key, 0)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise SpaceError(f"parameter {name}: {key!r} is {number!r}, which is not a number")
    return kind


def space_to_dict(space: Space) -> dict[str, Any]:
    """Return the plain data of a space, as `space_from_dict` reads it.

    Raises:
        SpaceError: a constraint is a callable, which has no plain form.
    """
    entries = []
    for p in space.parameters:
        entry: dict[str, Any] = {"name": p.name, "type": type(p).__name__.lower()}
        if isinstance(p, Real | Integer):
            entry |= {"low": p.low, "high": p.high, "scale": p.scale}
        elif isinstance(p, Ordinal):
            entry |= {"values": list(p.values), "scale": p.scale}
        elif isinstance(p, Categorical):
            entry |= {"values": list(p.values)}
        else:
            shape = list(p.items) if isinstance(p.items, tuple) else p.items
            entry |= {"items" if p.named else "length": shape, "metric": p.metric}
        if p.default is not None:
            entry["default"] = list(p.default) if isinstance(p.default, tuple) else p.default
        if p.when is not None:
            entry["when"] = p.when
        entries.append(entry)
    for constraint in space.constraint_sources:
        if not isinstance(constraint, str):
            raise SpaceError("a constraint given as a callable cannot be written to a file")
    return {"parameters": entries, "constraints": list(space.constraint_sources)}
