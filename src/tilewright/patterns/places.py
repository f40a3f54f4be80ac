"""Where in the user's source a pattern was written, for error messages.

Patterns are interned, so a place cannot be part of them: the last place at which a pattern was
made is kept in a table aside.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from linecache import getline
from pathlib import Path
from typing import TypeVar
from weakref import WeakKeyDictionary

from tilewright.patterns.interned import Node

_HERE = str(Path(__file__).parent)
_PLACES: WeakKeyDictionary[Node, Place] = WeakKeyDictionary()

N = TypeVar("N", bound=Node)


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a source file."""

    file: str
    line: int

    def __str__(self) -> str:
        code = getline(self.file, self.line).strip()
        return f"{self.file}:{self.line}" + (f": {code}" if code else "")


def noted(node: N) -> N:
    """The node, its place set to the innermost line outside this package that made it."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back
    _PLACES[node] = Place(frame.f_code.co_filename, frame.f_lineno)
    return node


def place_of(node: Node) -> Place | None:
    """Where the node was last made by a user, if it was."""
    return _PLACES.get(node)
