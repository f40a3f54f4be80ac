"""Source lines of patterns, for error messages.

Patterns are interned, so a place cannot be part of them: the last places at which a pattern was
made are kept in a separate table. Of several, an error shows the one nearest to the program.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from linecache import getline
from pathlib import Path
from typing import TypeVar
from weakref import WeakKeyDictionary

from tilewright.patterns.interned import InternedNode

_HERE = str(Path(__file__).parent)
_PLACES: WeakKeyDictionary[InternedNode, tuple[Place, ...]] = WeakKeyDictionary()
MOST_PLACES = 8  # of one pattern that are kept, the latest last

N = TypeVar("N", bound=InternedNode)


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a source file."""

    file: str
    line: int

    def __str__(self) -> str:
        code = getline(self.file, self.line).strip()
        return f"{self.file}:{self.line}" + (f": {code}" if code else "")


def noted(node: N) -> N:
    """Return the node, its place set to the innermost line outside this package that made it."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back
    here = Place(frame.f_code.co_filename, frame.f_lineno)
    others = tuple(p for p in _PLACES.get(node, ()) if p != here)
    _PLACES[node] = (*others, here)[-MOST_PLACES:]
    return node


def place_of(node: InternedNode) -> Place | None:
    """Return where the node was last made by a user, if it was."""
    places = _PLACES.get(node)
    return places[-1] if places else None


def located(message: str, node: InternedNode) -> str:
    """Return a message with the line where a node was last made, if a user made it."""
    place = place_of(node)
    return f"{message}\n  at {place}" if place else message


def nearest_place(trail: Sequence[InternedNode]) -> Place | None:
    """Return the place of the first of some nodes, each inside of the next, the last the program.

    A node made in another file than the program, or nowhere, is passed over.
    """
    anchor = place_of(trail[-1])
    for node in trail:
        inside = [p for p in _PLACES.get(node, ()) if anchor and p.file == anchor.file]
        if inside:
            line = anchor.line if anchor else 0
            return min(inside, key=lambda p: abs(p.line - line))
    return next((p for node in trail if (p := place_of(node)) is not None), None)
