"""Source lines of patterns, for error messages.

Patterns are interned, so a source line cannot be part of them. A separate table keeps the last
lines that made a pattern; an error shows the one nearest to the program's line.
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
MOST_PLACES = 8  # lines kept per pattern, the latest last

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
    """Record the innermost line outside this package as the node's place; return the node."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back
    here = Place(frame.f_code.co_filename, frame.f_lineno)
    others = tuple(p for p in _PLACES.get(node, ()) if p != here)
    _PLACES[node] = (*others, here)[-MOST_PLACES:]
    return node


def place_of(node: InternedNode) -> Place | None:
    """Return the last place at which a user made the node; None if a rule made it."""
    places = _PLACES.get(node)
    return places[-1] if places else None


def located(message: str, node: InternedNode) -> str:
    """Return a message, followed by the line at which a user last made the node, if any."""
    place = place_of(node)
    return f"{message}\n  at {place}" if place else message


def nearest_place(trail: Sequence[InternedNode]) -> Place | None:
    """Return the place of the innermost node that was made in the program's file.

    Args:
        trail: nodes from inner to outer; the last one is the program.
    """
    anchor = place_of(trail[-1])
    for node in trail:
        inside = [p for p in _PLACES.get(node, ()) if anchor and p.file == anchor.file]
        if inside:
            line = anchor.line if anchor else 0
            return min(inside, key=lambda p: abs(p.line - line))
    return next((p for node in trail if (p := place_of(node)) is not None), None)
