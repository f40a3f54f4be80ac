"""Interned nodes: equal nodes are identical, so comparison and hashing take constant time."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

_TABLE: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()


def _exact(value: Any) -> Hashable:
    """Return a key that distinguishes values equal in Python: 1, 1.0 and True; 0.0 and -0.0."""
    if isinstance(value, InternedNode):
        return value
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, bool | int):
        return (type(value).__name__, value)
    if isinstance(value, tuple):
        return tuple(_exact(item) for item in value)
    key: Hashable = value
    return key


class Interning(type):
    """Metaclass of nodes: calls of a class with the same fields return the same node."""

    if not TYPE_CHECKING:  # the signatures of the classes stay unchanged

        def __call__(cls, *args: Any, **named: Any) -> Any:
            """Make a node, or return the existing equal one."""
            node = super().__call__(*args, **named)
            key = (cls, *[_exact(getattr(node, name)) for name in cls.__match_args__])
            return _TABLE.setdefault(key, node)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class InternedNode(metaclass=Interning):
    """Base class of nodes. Equality is identity; copying and unpickling return the same node."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, f.name) for f in fields(self))
